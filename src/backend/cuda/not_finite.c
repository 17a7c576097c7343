/* SPDX-License-Identifier: Apache-2.0
 *
 * not_finite.c - see not_finite.h. */
#include "backend/cuda/not_finite.h"
#include "backend/cuda/matrix.h"
#include "base/context.h"

/* *first = the number of the first such element, UINT64_MAX if there is none; `room` holds it on
 * the device. */
static fp8_status find(const fp8_context *ctx, const fp8_find_args *args, unsigned long long *first,
                       void *stream, fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    const fp8_cuda_shape shape = fp8_cuda_shape_for(device, args->rows * args->cols, 8);
    *first = UINT64_MAX;
    FP8_TRY(fp8_device_copy(ctx, args->first, first, sizeof *first, stream, err));
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    const fp8_status status =
        fp8_cuda_launch(device, FP8_CUDA_find_not_finite, &shape, args, stream, err);
    fp8_cuda_leave(device);
    FP8_TRY(status);
    FP8_TRY(fp8_device_copy(ctx, first, args->first, sizeof *first, stream, err));
    return fp8_device_wait(ctx, stream, err);
}

static fp8_status is_captured(const fp8_cuda_device *device, void *stream, bool *captured,
                              fp8_error *err)
{
    unsigned int how = 0;
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    const fp8_cu_result result = device->driver.cuStreamIsCapturing(stream, &how);
    fp8_cuda_leave(device);
    *captured = how != 0;
    if (result == FP8_CU_SUCCESS)
        return FP8_OK;
    return fp8_driver_fail(&device->driver, result, err, "%s: cuStreamIsCapturing", device->label);
}

fp8_status fp8_cuda_refuse_not_finite(const fp8_context *ctx, const fp8_find_args *args,
                                      void *stream, fp8_error *err)
{
    fp8_find_args with_room = *args;
    unsigned long long first;
    void *room;
    bool captured;
    if (args->rows * args->cols == 0)
        return FP8_OK;
    FP8_TRY(is_captured(ctx->cuda, stream, &captured, err));
    if (captured)
        return FP8_OK;
    FP8_TRY(fp8_device_alloc(ctx, sizeof first, &room, err));
    with_room.first = room;
    const fp8_status status = find(ctx, &with_room, &first, stream, err);
    fp8_device_free(ctx, room);
    FP8_TRY(status);
    if (first == UINT64_MAX)
        return FP8_OK;
    return fp8_fail_at(err, FP8_E_NAN, (int64_t)first, "element [%lld,%lld] is NaN or infinite",
                       (long long)((int64_t)first / args->cols),
                       (long long)((int64_t)first % args->cols));
}
