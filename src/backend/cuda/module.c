/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - loading the embedded fatbins and finding their kernels. */
#include "backend/cuda/module.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/gemm_args.h"

#include <string.h>

enum { ANY = INT32_MAX };
static const fp8_cuda_kernel_row rows[] = {
#define FP8_CUDA_KERNEL(family, function, least, most, shared, what) \
    {#family, #function, least, most, shared, what},
#include "backend/cuda/kernels.inc"
#undef FP8_CUDA_KERNEL
};

const fp8_cuda_kernel_row *fp8_cuda_kernel_at(size_t i)
{
    return i < FP8_CUDA_KERNELS ? &rows[i] : NULL;
}

/* fatbin.c has the bytes. */
#define DECLARE(family) extern const unsigned char fp8_fatbin_##family[];
FP8_CUDA_FATBINS(DECLARE)
#undef DECLARE

static const struct {
    const char *family;
    const unsigned char *image;
} fatbins[] = {
#define ROW(family) {#family, fp8_fatbin_##family},
    FP8_CUDA_FATBINS(ROW)
#undef ROW
        {NULL, NULL},
};
_Static_assert(sizeof fatbins / sizeof *fatbins <= FP8_CUDA_MAX_FAMILIES + 1,
               "make room for the family");

bool fp8_cuda_has_kernels(void)
{
    return fatbins[0].family != NULL;
}

/* Whether row i is of the family and for the device. */
static bool fits(const fp8_cuda_kernel_row *row, const char *family, const fp8_cuda_device *device)
{
    const int32_t capability = device->facts.capability;
    return !strcmp(row->family, family) && capability >= row->least && capability <= row->most;
}

static fp8_status find_kernel(fp8_cuda_device *device, fp8_cu_library library, size_t i,
                              fp8_error *err)
{
    const fp8_driver *driver = &device->driver;
    const fp8_cuda_kernel_row *row = &rows[i];
    fp8_cu_kernel kernel;
    const fp8_cu_result found = driver->cuLibraryGetKernel(&kernel, library, row->function);
    if (found != FP8_CU_SUCCESS)
        return fp8_driver_fail(driver, found, err, "%s: cuLibraryGetKernel of %s", device->label,
                               row->function);
    if (row->shared_bytes)
        FP8_DRIVER_TRY(driver, err, device->label, cuKernelSetAttribute, FP8_CU_MAX_DYNAMIC_SHARED,
                       row->shared_bytes, kernel, device->handle);
    FP8_DRIVER_TRY(driver, err, device->label, cuKernelGetFunction, &device->module.functions[i],
                   kernel);
    return FP8_OK;
}

/* The kernels of fatbin f that are for the device; one without any is not loaded, since the driver
 * refuses a fatbin that has nothing for it. */
static fp8_status load_fatbin(fp8_cuda_device *device, size_t f, fp8_error *err)
{
    fp8_cu_library *library = &device->module.libraries[f];
    for (size_t i = 0; i < FP8_CUDA_KERNELS; i++) {
        if (!fits(&rows[i], fatbins[f].family, device))
            continue;
        if (!*library)
            FP8_DRIVER_TRY(&device->driver, err, device->label, cuLibraryLoadData, library,
                           fatbins[f].image, NULL, NULL, 0, NULL, NULL, 0);
        FP8_TRY(find_kernel(device, *library, i, err));
    }
    return FP8_OK;
}

fp8_status fp8_cuda_module_load(fp8_cuda_device *device, fp8_error *err)
{
    fp8_status status = FP8_OK;
    device->module = (fp8_cuda_module){0};
    for (size_t f = 0; fatbins[f].family && status == FP8_OK; f++)
        status = load_fatbin(device, f, err);
    if (status != FP8_OK)
        fp8_cuda_module_unload(device);
    return status;
}

void fp8_cuda_module_unload(fp8_cuda_device *device)
{
    for (size_t f = 0; fatbins[f].family; f++)
        if (device->module.libraries[f])
            device->driver.cuLibraryUnload(device->module.libraries[f]);
    device->module = (fp8_cuda_module){0};
}
