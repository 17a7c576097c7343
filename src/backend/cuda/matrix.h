/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.h - a caller's matrices and sizes as kernels are told of them. */
#ifndef FP8_BACKEND_CUDA_MATRIX_H
#define FP8_BACKEND_CUDA_MATRIX_H

#include "backend/cuda/kernel_args.h"
#include "backend/cuda/launch.h"
#include "base/size.h"

/* t is a matrix that the operation has checked. */
static inline fp8_cuda_matrix fp8_cuda_matrix_of(const fp8_tensor *t)
{
    return (fp8_cuda_matrix){t->data, t->stride[0], t->stride[1], (int32_t)t->dtype, 0};
}

/* t with strides that mean something: that of a dimension of one element steps nowhere and may be
 * any number. */
static inline fp8_tensor fp8_cuda_settled(const fp8_tensor *t)
{
    fp8_tensor same = *t;
    if (t->shape[0] == 1)
        same.stride[0] = 0;
    if (t->shape[1] == 1)
        same.stride[1] = 1;
    return same;
}

static inline bool fp8_cuda_divides(int64_t by, uint64_t n)
{
    return n % (uint64_t)by == 0;
}

/* Of three kernels that stand in a row, for bf16, fp16 and fp32: the one for the dtype. */
static inline fp8_cuda_kernel fp8_cuda_kernel_for(fp8_dtype dtype, fp8_cuda_kernel bf16)
{
    return (fp8_cuda_kernel)((int)bf16 + (dtype == FP8_BF16 ? 0 : dtype == FP8_F16 ? 1 : 2));
}

/* Blocks of 256 threads for n pieces of work, `each` to a thread at a time: as many as the device
 * holds at once at the most; the kernel goes on from there. */
static inline fp8_cuda_shape fp8_cuda_shape_for(const fp8_cuda_device *device, int64_t n,
                                                int64_t each)
{
    enum { THREADS = 256, BLOCKS_EACH = 2048 / THREADS };
    const int64_t wanted = n / each / THREADS + 1;
    const int64_t most = (int64_t)device->facts.processors * BLOCKS_EACH;
    return (fp8_cuda_shape){.grid = {(uint32_t)(wanted < most ? wanted : most)},
                            .threads = THREADS};
}

/* For the kernels of columns.cuh, of a matrix [rows, cols] with cols a multiple of 8, and neither
 * more than INT32_MAX: the numbers are its own. */
static inline fp8_cuda_shape fp8_cuda_columns_shape(int64_t rows, int64_t cols)
{
    enum { WIDTH = 8, ROWS = 4, THREADS = 256, MOST_DOWN = 65535 };
    const int64_t across = cols / WIDTH, side = fp8_min_i64(across, THREADS);
    const int64_t down = fp8_ceil_div(rows, THREADS / side * ROWS);
    return (fp8_cuda_shape){
        .grid = {(uint32_t)fp8_ceil_div(across, side), (uint32_t)fp8_min_i64(down, MOST_DOWN)},
        .threads = THREADS};
}

#endif
