/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_args.h - the parameters of the kernels, one struct each, as both compilers see them: plain
 * data, 8-byte members first, no padding left to chance (the assertions hold in .c and .cu). */
#ifndef FP8_BACKEND_CUDA_KERNEL_ARGS_H
#define FP8_BACKEND_CUDA_KERNEL_ARGS_H

#include <stdint.h>

#ifdef __cplusplus
#define FP8_ARGS_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "both sides agree")
#else
#define FP8_ARGS_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "both sides agree")
#endif

/* A matrix on the device: element (i,j) is number i * row + j * col; no alignment needed. */
typedef struct fp8_cuda_matrix {
    void *data;
    int64_t row, col;
    int32_t dtype; /* fp8_dtype */
    int32_t unused;
} fp8_cuda_matrix;
FP8_ARGS_SIZE(fp8_cuda_matrix, 32);

/* y[rows, cols] = codes * scales. */
typedef struct fp8_cuda_dequantize_args {
    fp8_cuda_matrix codes, scales, y;
    int64_t rows, cols;
    int64_t unit_rows, unit_cols; /* elements that share a scale, >= 1 */
} fp8_cuda_dequantize_args;
FP8_ARGS_SIZE(fp8_cuda_dequantize_args, 128);

#endif
