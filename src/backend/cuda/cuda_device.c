/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_device.c - devices, their primary contexts and their memory. */
#include "backend/cuda/cuda_device.h"

#include <stdio.h>

static void write_label(int32_t index, char label[16])
{
    snprintf(label, 16, "cuda:%d", index);
}

fp8_status fp8_cuda_count(const fp8_driver *driver, int32_t *count, fp8_error *err)
{
    int found = 0;
    *count = 0;
    FP8_DRIVER_TRY(driver, err, "cuda", cuDeviceGetCount, &found);
    *count = found;
    return FP8_OK;
}

/* The handle of device `index` of *count. */
static fp8_status find(const fp8_driver *driver, int32_t index, int32_t *count, fp8_cu_device *out,
                       fp8_error *err)
{
    char label[16];
    FP8_TRY(fp8_cuda_count(driver, count, err));
    write_label(index, label);
    FP8_FAIL_IF(index < 0 || index >= *count, err, FP8_E_NO_DEVICE,
                "%s: the driver shows %d device%s, so the index must be in [0, %d)", label, *count,
                *count == 1 ? "" : "s", *count);
    FP8_DRIVER_TRY(driver, err, label, cuDeviceGet, out, index);
    return FP8_OK;
}

static fp8_status read_facts(const fp8_driver *driver, fp8_cu_device handle, const char *label,
                             fp8_cuda_facts *out, fp8_error *err)
{
    int major = 0, minor = 0, processors = 0, khz = 0, bits = 0;
    size_t bytes = 0;
    *out = (fp8_cuda_facts){0};
    FP8_DRIVER_TRY(driver, err, label, cuDeviceGetName, out->name, sizeof out->name, handle);
    FP8_DRIVER_TRY(driver, err, label, cuDeviceGetAttribute, &major, FP8_CU_CAPABILITY_MAJOR,
                   handle);
    FP8_DRIVER_TRY(driver, err, label, cuDeviceGetAttribute, &minor, FP8_CU_CAPABILITY_MINOR,
                   handle);
    FP8_DRIVER_TRY(driver, err, label, cuDeviceGetAttribute, &processors, FP8_CU_MULTIPROCESSORS,
                   handle);
    FP8_DRIVER_TRY(driver, err, label, cuDeviceGetAttribute, &khz, FP8_CU_MEMORY_KHZ, handle);
    FP8_DRIVER_TRY(driver, err, label, cuDeviceGetAttribute, &bits, FP8_CU_MEMORY_BUS_BITS, handle);
    FP8_DRIVER_TRY(driver, err, label, cuDeviceTotalMem, &bytes, handle);
    out->name[sizeof out->name - 1] = 0;
    out->capability = 10 * major + minor;
    out->processors = processors;
    out->memory_bytes = bytes;
    out->memory_rate = 2e-3F * (float)khz * ((float)bits / 8); /* twice a clock */
    return FP8_OK;
}

fp8_status fp8_cuda_describe(const fp8_driver *driver, int32_t index, fp8_cuda_facts *out,
                             fp8_error *err)
{
    fp8_cu_device handle = 0;
    int32_t count;
    char label[16];
    write_label(index, label);
    FP8_TRY(find(driver, index, &count, &handle, err));
    return read_facts(driver, handle, label, out, err);
}

fp8_status fp8_cuda_open(const fp8_driver *driver, int32_t index, fp8_cuda_device *out,
                         fp8_error *err)
{
    int32_t count;
    *out = (fp8_cuda_device){.driver = *driver, .index = index};
    write_label(index, out->label);
    FP8_TRY(find(driver, index, &count, &out->handle, err));
    out->has_others = count > 1;
    FP8_TRY(read_facts(driver, out->handle, out->label, &out->facts, err));
    FP8_FAIL_IF(out->facts.capability < FP8_CUDA_LEAST_CAPABILITY, err, FP8_E_UNSUPPORTED,
                "%s (%s) has compute capability %d.%d, must be %d.%d or higher", out->label,
                out->facts.name, out->facts.capability / 10, out->facts.capability % 10,
                FP8_CUDA_LEAST_CAPABILITY / 10, FP8_CUDA_LEAST_CAPABILITY % 10);
    FP8_DRIVER_TRY(driver, err, out->label, cuDevicePrimaryCtxRetain, &out->primary, out->handle);
    return FP8_OK;
}

void fp8_cuda_close(const fp8_cuda_device *device)
{
    device->driver.cuDevicePrimaryCtxRelease(device->handle);
}

fp8_status fp8_cuda_enter(const fp8_cuda_device *device, fp8_error *err)
{
    FP8_DRIVER_TRY(&device->driver, err, device->label, cuCtxPushCurrent, device->primary);
    return FP8_OK;
}

/* A result here is that of earlier work on the device, which the next call tells as well. */
void fp8_cuda_leave(const fp8_cuda_device *device)
{
    fp8_cu_context popped;
    device->driver.cuCtxPopCurrent(&popped);
}

fp8_status fp8_cuda_alloc(const fp8_cuda_device *device, uint64_t bytes, fp8_cu_pointer *out,
                          fp8_error *err)
{
    *out = 0;
    if (!bytes)
        return FP8_OK;
    FP8_FAIL_IF(bytes > SIZE_MAX, err, FP8_E_NO_MEMORY, "%s: no memory for %llu bytes",
                device->label, (unsigned long long)bytes);
    FP8_TRY(fp8_cuda_enter(device, err));
    fp8_cu_result result = device->driver.cuMemAlloc(out, (size_t)bytes);
    fp8_cuda_leave(device);
    if (result == FP8_CU_SUCCESS)
        return FP8_OK;
    *out = 0;
    return fp8_driver_fail(&device->driver, result, err, "%s: cuMemAlloc of %llu bytes",
                           device->label, (unsigned long long)bytes);
}

void fp8_cuda_free(const fp8_cuda_device *device, fp8_cu_pointer memory)
{
    if (!memory || fp8_cuda_enter(device, NULL) != FP8_OK)
        return;
    device->driver.cuMemFree(memory);
    fp8_cuda_leave(device);
}
