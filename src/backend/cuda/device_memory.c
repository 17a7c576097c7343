/* SPDX-License-Identifier: Apache-2.0
 *
 * device_memory.c - memory of a context's device for who has no CUDA toolkit: fp8_device_alloc and
 * its kin. On the CPU it is the context's own memory. */
#include "backend/cuda/cuda_linear.h"
#include "base/context.h"

#include <string.h>

fp8_status fp8_device_alloc(const fp8_context *ctx, uint64_t bytes, void **out, fp8_error *err)
{
    FP8_FAIL_IF(!ctx || !out, err, FP8_E_ARGUMENT, "device_alloc: %s is NULL", ctx ? "out" : "ctx");
    *out = NULL;
    if (ctx->cuda) {
        fp8_cu_pointer memory;
        FP8_TRY(fp8_cuda_alloc(ctx->cuda, bytes, &memory, err));
        *out = (void *)(uintptr_t)memory;
        return FP8_OK;
    }
    *out = fp8_alloc(ctx, bytes);
    FP8_FAIL_IF(!*out, err, FP8_E_NO_MEMORY, "device_alloc: no memory for %llu bytes",
                (unsigned long long)bytes);
    return FP8_OK;
}

void fp8_device_free(const fp8_context *ctx, void *memory)
{
    if (!ctx || !memory)
        return;
    if (ctx->cuda)
        fp8_cuda_free(ctx->cuda, (fp8_cu_pointer)(uintptr_t)memory);
    else
        fp8_release(ctx, memory);
}

static fp8_status copy_on_device(const fp8_cuda_device *device, void *to, const void *from,
                                 size_t bytes, void *stream, fp8_error *err)
{
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    const fp8_cu_result result = device->driver.cuMemcpyAsync(
        (fp8_cu_pointer)(uintptr_t)to, (fp8_cu_pointer)(uintptr_t)from, bytes, stream);
    fp8_cuda_leave(device);
    if (result == FP8_CU_SUCCESS)
        return FP8_OK;
    return fp8_driver_fail(&device->driver, result, err, "%s: cuMemcpyAsync of %llu bytes",
                           device->label, (unsigned long long)bytes);
}

fp8_status fp8_device_copy(const fp8_context *ctx, void *to, const void *from, uint64_t bytes,
                           void *stream, fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "device_copy: ctx is NULL");
    if (!bytes)
        return FP8_OK;
    FP8_FAIL_IF(!to || !from || bytes > SIZE_MAX, err, FP8_E_ARGUMENT,
                "device_copy: %llu bytes, to %p, from %p", (unsigned long long)bytes, to, from);
    if (ctx->cuda)
        return copy_on_device(ctx->cuda, to, from, (size_t)bytes, stream, err);
    FP8_TRY(fp8_need_no_stream(stream, "device_copy", err));
    memmove(to, from, (size_t)bytes);
    return FP8_OK;
}

static fp8_status wait_for(const fp8_cuda_device *device, void *stream, fp8_error *err)
{
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    const fp8_cu_result result = device->driver.cuStreamSynchronize(stream);
    fp8_cuda_leave(device);
    if (result == FP8_CU_SUCCESS)
        return FP8_OK;
    return fp8_driver_fail(&device->driver, result, err, "%s: cuStreamSynchronize", device->label);
}

fp8_status fp8_device_wait(const fp8_context *ctx, void *stream, fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "device_wait: ctx is NULL");
    return ctx->cuda ? wait_for(ctx->cuda, stream, err)
                     : fp8_need_no_stream(stream, "device_wait", err);
}

fp8_status fp8_cuda_wait_for_all(const fp8_context *ctx, fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    FP8_TRY(fp8_cuda_enter(device, err));
    const fp8_cu_result result = device->driver.cuCtxSynchronize();
    fp8_cuda_leave(device);
    if (result == FP8_CU_SUCCESS)
        return FP8_OK;
    return fp8_driver_fail(&device->driver, result, err, "%s: cuCtxSynchronize", device->label);
}
