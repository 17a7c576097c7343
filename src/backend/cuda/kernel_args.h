/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_args.h - the parameters of the kernels, one struct each, as both compilers see them: plain
 * data, 8-byte members first, no padding left to chance (the assertions hold in .c and .cu). */
#ifndef FP8_BACKEND_CUDA_KERNEL_ARGS_H
#define FP8_BACKEND_CUDA_KERNEL_ARGS_H

#include "op/unit_math.h"

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

/* codes[code_rows, cols], scales[grid_rows, grid_cols] = quantize(x[rows, cols]); fp8_quant says
 * what the names mean. */
typedef struct fp8_cuda_quantize_args {
    fp8_cuda_matrix x, codes, scales;
    fp8_cuda_matrix from; /* scales of x, if it is codes that are quantized again; else no data */
    int64_t from_rows, from_cols; /* elements of x that share one of them */
    int64_t rows, cols, code_rows;
    int64_t unit_rows, unit_cols, grid_rows, grid_cols;
    fp8_unit_maker maker;
    float max;              /* of the codes */
    uint8_t is_static;      /* the scales are an input */
    uint8_t multiply;       /* by the operand; else x is divided by it */
    uint8_t round_quotient; /* to maker.in, before it is encoded */
    uint8_t plus_zero;      /* a quotient of -0 becomes +0 */
    uint8_t nan_code;       /* fp8_nan_code */
    uint8_t original;       /* the policy for NaN is the rule's original's */
    uint8_t keep;           /* fp8_amax_keep */
    uint8_t refuse;         /* what is not finite becomes NaN */
    uint8_t short_units;    /* short_unit_of of packets.cuh may be asked */
    uint8_t unused_too[3];
} fp8_cuda_quantize_args;
FP8_ARGS_SIZE(fp8_cuda_quantize_args, 296);

/* data[count], 16 bytes each, is read for its own sake; nothing useful comes to *sink. */
typedef struct fp8_read_args {
    const void *data;
    uint32_t *sink;
    int64_t count;
} fp8_read_args;
FP8_ARGS_SIZE(fp8_read_args, 24);

enum { FP8_READ_THREADS = 512, FP8_READ_BLOCKS = 2 /* an SM */, FP8_READ_AHEAD = 8 };
#define FP8_READ_UNLIKELY 0x5EED5EEDu

#endif
