/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_args.h - what gemm_plain.cu, gemm_mma.cu, gemm_dx.cu and copy.cu are told; see
 * kernel_args.h. Dtypes and epilogues are numbers of fp8.h. */
#ifndef FP8_BACKEND_CUDA_GEMM_ARGS_H
#define FP8_BACKEND_CUDA_GEMM_ARGS_H

#include "backend/cuda/kernel_args.h"

/* X[M,K] or W[N,K]. The scale of element (i,k), if there are scales, is number
 * ((i + origin[0]) / unit[0], (k + origin[1]) / unit[1]) of them. */
typedef struct fp8_gemm_operand {
    fp8_cuda_matrix elements, scales; /* scales.data NULL = 1 */
    int64_t unit[2], origin[2];
    int32_t along_k; /* scales vary along K, so they are multiplied into the elements */
    int32_t rounded; /* 0, or the dtype (F16, BF16) to which a scale and its product are rounded */
} fp8_gemm_operand;
FP8_ARGS_SIZE(fp8_gemm_operand, 104);

typedef struct fp8_gemm_args {
    fp8_gemm_operand x, w;
    fp8_cuda_matrix y;
    const float *bias;      /* [N]; NULL = none */
    const float *x_columns; /* [K]: multiplied into the columns of X, by gemm_dx.cu; NULL = none */
    int64_t m, n, k;
    int32_t epilogue, unused;
} fp8_gemm_args;
FP8_ARGS_SIZE(fp8_gemm_args, 288);

enum { FP8_GEMM_TILE = 64, FP8_GEMM_THREADS = 256 }; /* rows of X and of W of a block */
enum { FP8_MMA_TILE = 128, FP8_MMA_THREADS = 256, FP8_MMA_DEPTH = 32 }; /* and columns at a time */
/* Bytes of shared memory of gemm_dx.cu: with dY as it is, and as a sum of three numbers. */
enum { FP8_DX_SHARED = 37888, FP8_DX_TERMS_SHARED = 78848 };

/* to[i, j] = from[i, j] in the dtype of `to` for j < cols, 0 for cols <= j < to_cols. */
typedef struct fp8_copy_args {
    fp8_cuda_matrix from, to;
    int64_t rows, cols, to_cols;
    int32_t saturate; /* as in fp8_cast */
    int32_t unused;
} fp8_copy_args;
FP8_ARGS_SIZE(fp8_copy_args, 96);

/* Each of codes[rows, cols], rows ld bytes apart, becomes to[code]. */
typedef struct fp8_map_args {
    uint8_t *codes;
    int64_t ld, rows, cols;
    uint8_t to[256];
} fp8_map_args;
FP8_ARGS_SIZE(fp8_map_args, 288);

/* *first = min(*first, i * cols + j) over the elements (i,j) that are NaN or infinite. */
typedef struct fp8_find_args {
    fp8_cuda_matrix x;
    fp8_cuda_matrix from;         /* scales of x, if it is codes; else no data */
    int64_t from_rows, from_cols; /* elements of x that share one of them */
    int64_t rows, cols;
    unsigned long long *first;
} fp8_find_args;
FP8_ARGS_SIZE(fp8_find_args, 104);

#endif
