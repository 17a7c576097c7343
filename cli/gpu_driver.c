/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_driver.c - finding the driver's functions, and holding a GPU. */
#define _GNU_SOURCE
#include "cli/gpu_driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define DRIVER "libcuda.so.1"
enum { NON_BLOCKING = 1 }; /* of a stream: it does not wait for the default stream */

typedef unsigned int get_proc_fn(const char *name, void **out, int since, uint64_t flags,
                                 unsigned int *found);

static const struct {
    const char *name;
    int since;
    size_t offset;
} functions[] = {
#define ROW(name, since, arguments) {#name, since, offsetof(cli_gpu, name)},
    CLI_GPU_FUNCTIONS(ROW)
#undef ROW
};

fp8_status cli_bench_fail(fp8_error *err, fp8_status status, const char *format, ...)
{
    va_list args;
    *err = (fp8_error){.code = status, .pos = -1};
    va_start(args, format);
    vsnprintf(err->msg, sizeof err->msg, format, args);
    va_end(args);
    return status;
}

fp8_status cli_gpu_check(unsigned int result, const char *function, fp8_error *err)
{
    if (result == 0)
        return FP8_OK;
    return cli_bench_fail(err, FP8_E_DEVICE, "bench: %s: CUDA error %u", function, result);
}

static fp8_status find_functions(cli_gpu *gpu, fp8_error *err)
{
    get_proc_fn *get = NULL;
    void *driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver != NULL)
        *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    if (get == NULL)
        return cli_bench_fail(err, FP8_E_NO_DEVICE, "bench: no CUDA driver (" DRIVER ")");
    dlclose(driver); /* which unloads nothing */
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = NULL;
        unsigned int found;
        const bool there =
            get(functions[i].name, &function, functions[i].since, 0, &found) == 0 && function;
        if (!there && functions[i].since > CLI_GPU_LEAST)
            continue;
        if (!there)
            return cli_bench_fail(err, FP8_E_UNSUPPORTED, "bench: the CUDA driver has no %s",
                                  functions[i].name);
        memcpy((char *)gpu + functions[i].offset, &function, sizeof function);
    }
    return FP8_OK;
}

fp8_status cli_gpu_open(cli_gpu *gpu, int32_t index, fp8_error *err)
{
    int l2 = 0, khz = 0;
    *gpu = (cli_gpu){0};
    CLI_TRY(find_functions(gpu, err));
    CLI_GPU_TRY(gpu, err, cuDeviceGet, &gpu->device, index);
    CLI_GPU_TRY(gpu, err, cuDeviceGetAttribute, &l2, CLI_GPU_L2_BYTES, gpu->device);
    CLI_GPU_TRY(gpu, err, cuDeviceGetAttribute, &khz, CLI_GPU_CLOCK_KHZ, gpu->device);
    CLI_GPU_TRY(gpu, err, cuDeviceGetPCIBusId, gpu->pci, sizeof gpu->pci, gpu->device);
    gpu->l2_bytes = l2;
    gpu->clock_mhz = khz / 1000;
    struct CUctx_st *context;
    CLI_GPU_TRY(gpu, err, cuDevicePrimaryCtxRetain, &context, gpu->device);
    const fp8_status status =
        cli_gpu_check(gpu->cuCtxPushCurrent(context), "cuCtxPushCurrent", err);
    if (status != FP8_OK) {
        gpu->cuDevicePrimaryCtxRelease(gpu->device);
        return status;
    }
    gpu->context = context;
    CLI_GPU_TRY(gpu, err, cuStreamCreate, &gpu->stream, NON_BLOCKING);
    CLI_GPU_TRY(gpu, err, cuEventCreate, &gpu->from, 0);
    CLI_GPU_TRY(gpu, err, cuEventCreate, &gpu->to, 0);
    return FP8_OK;
}

void cli_gpu_close(cli_gpu *gpu)
{
    struct CUctx_st *popped;
    if (gpu->context == NULL)
        return;
    if (gpu->from != NULL)
        gpu->cuEventDestroy(gpu->from);
    if (gpu->to != NULL)
        gpu->cuEventDestroy(gpu->to);
    if (gpu->stream != NULL)
        gpu->cuStreamDestroy(gpu->stream);
    gpu->cuCtxPopCurrent(&popped);
    gpu->cuDevicePrimaryCtxRelease(gpu->device);
    gpu->context = NULL;
}
