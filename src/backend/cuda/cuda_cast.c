/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_cast.c - elements of one dtype to another on a CUDA device: one launch. */
#include "backend/cuda/gemm_args.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix.h"
#include "base/context.h"
#include "op/cuda_calls.h"

static fp8_status enqueue(const fp8_cuda_device *device, const fp8_copy_args *args, void *stream,
                          fp8_error *err)
{
    const fp8_cuda_shape shape = fp8_cuda_shape_for(device, args->cols, 1);
    FP8_TRY(fp8_cuda_check_memory(device, args->from.data, "src", err));
    FP8_TRY(fp8_cuda_check_memory(device, args->to.data, "dst", err));
    if (args->cols == 0)
        return FP8_OK;
    return fp8_cuda_launch(device, FP8_CUDA_copy_elements, &shape, args, stream, err);
}

fp8_status fp8_cuda_cast(const fp8_context *ctx, const void *src, fp8_dtype src_dtype, void *dst,
                         fp8_dtype dst_dtype, int64_t n, bool saturate, void *stream,
                         fp8_error *err)
{
    const fp8_copy_args args = {
        .from = {(void *)(uintptr_t)src, n, 1, (int32_t)src_dtype, 0},
        .to = {dst, n, 1, (int32_t)dst_dtype, 0},
        .rows = 1,
        .cols = n,
        .to_cols = n,
        .saturate = saturate,
    };
    FP8_TRY(fp8_cuda_begin(ctx->cuda, stream, err));
    const fp8_status status = enqueue(ctx->cuda, &args, stream, err);
    fp8_cuda_leave(ctx->cuda);
    return status;
}
