/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_dequantize.c - dequantizing on a CUDA device: one launch. */
#include "backend/cuda/cuda_quantize.h"
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

enum { PACKET = 8 }; /* as in columns.cuh */

/* Whether packets can be read and written: rows without gaps, aligned, and units of whole ones. */
static bool has_packets(const fp8_cuda_dequantize_args *a)
{
    const int64_t bytes = fp8_dtype_bits((fp8_dtype)a->y.dtype) / 8;
    return a->codes.col == 1 && a->y.col == 1 && fp8_cuda_divides(PACKET, (uint64_t)a->cols) &&
           a->cols <= INT32_MAX && a->rows <= INT32_MAX &&
           (a->unit_cols >= a->cols || fp8_cuda_divides(PACKET, (uint64_t)a->unit_cols)) &&
           fp8_cuda_divides(PACKET, (uintptr_t)a->codes.data) &&
           fp8_cuda_divides(16, (uintptr_t)a->y.data) &&
           (a->rows == 1 || (fp8_cuda_divides(PACKET, (uint64_t)a->codes.row) &&
                             fp8_cuda_divides(16, (uint64_t)(a->y.row * bytes))));
}
_Static_assert(FP8_CUDA_dequantize_f32 == FP8_CUDA_dequantize_bf16 + 2, "order");

static fp8_status launch(const fp8_cuda_device *device, const fp8_cuda_dequantize_args *a,
                         void *stream, fp8_error *err)
{
    if (!has_packets(a)) {
        const fp8_cuda_shape shape = fp8_cuda_shape_for(device, a->rows * a->cols, 1);
        return fp8_cuda_launch(device, FP8_CUDA_dequantize_elements, &shape, a, stream, err);
    }
    const fp8_cuda_kernel kernel =
        fp8_cuda_kernel_for((fp8_dtype)a->y.dtype, FP8_CUDA_dequantize_bf16);
    fp8_cuda_shape shape = fp8_cuda_columns_shape(a->rows, a->cols);
    shape.dependent = device->facts.capability >= FP8_CUDA_DEPENDENT_CAPABILITY;
    return fp8_cuda_launch(device, kernel, &shape, a, stream, err);
}

fp8_status fp8_cuda_enqueue_dequantize(const fp8_cuda_device *device, fp8_grid grid,
                                       const fp8_tensor *codes, const fp8_tensor *scales,
                                       const fp8_tensor *y, void *stream, fp8_error *err)
{
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
    return rows * cols > 0 ? launch(device, &args, stream, err) : FP8_OK;
}

fp8_status fp8_cuda_dequantize(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                               const fp8_tensor *scales, const fp8_tensor *y, void *stream,
                               fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    fp8_status status = check_places(device, codes, scales, y, err);
    if (status == FP8_OK)
        status = fp8_cuda_enqueue_dequantize(device, grid, codes, scales, y, stream, err);
    fp8_cuda_leave(device);
    return status;
}
