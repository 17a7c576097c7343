/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_dequantize.c - dequantizing on a CUDA device: one launch. */
#include "backend/cuda/kernel_args.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matrix.h"
#include "base/size.h"
#include "op/cuda_calls.h"

static fp8_status check_places(const fp8_cuda_device *device, const fp8_tensor *codes,
                               const fp8_tensor *scales, const fp8_tensor *y, fp8_error *err)
{
    FP8_TRY(fp8_cuda_check_memory(device, codes->data, "codes", err));
    FP8_TRY(fp8_cuda_check_memory(device, scales->data, "scales", err));
    return fp8_cuda_check_memory(device, y->data, "y", err);
}

fp8_status fp8_cuda_dequantize(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                               const fp8_tensor *scales, const fp8_tensor *y, void *stream,
                               fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    const int64_t rows = codes->shape[0], cols = codes->shape[1];
    const fp8_cuda_dequantize_args args = {
        .codes = fp8_cuda_matrix_of(codes),
        .scales = fp8_cuda_matrix_of(scales),
        .y = fp8_cuda_matrix_of(y),
        .rows = rows,
        .cols = cols,
        .unit_rows = fp8_grid_extent(grid.rows, rows),
        .unit_cols = fp8_grid_extent(grid.cols, cols),
    };
    const fp8_cuda_shape shape = fp8_cuda_shape_for(device, rows * cols, 1);
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    fp8_status status = check_places(device, codes, scales, y, err);
    if (status == FP8_OK && rows * cols > 0)
        status = fp8_cuda_launch(device, FP8_CUDA_dequantize_elements, &shape, &args, stream, err);
    fp8_cuda_leave(device);
    return status;
}
