/* SPDX-License-Identifier: Apache-2.0
 *
 * wide_args.h - what gemm_wide.cu is told, and the list of its instances with the sizes that host
 * and kernels must agree about; see kernel_args.h. X[M,K] in bf16 or fp16, W[N,K] e4m3fn, Y[M,N] in
 * bf16, fp16 or fp32, all row-major. */
#ifndef FP8_BACKEND_CUDA_WIDE_ARGS_H
#define FP8_BACKEND_CUDA_WIDE_ARGS_H

#include "backend/cuda/sm90_args.h"

typedef struct fp8_wide_args {
    fp8_tensor_map w, x; /* boxes: 128 rows x a stage's columns, or turned; `tokens` x 64 */
    const void *scales;  /* of W: fp32 [N] or [K], fp32 [N/128][K/128], or E8M0 [N][K/32 up] */
    const float *bias;   /* [N] or NULL */
    void *y;             /* [M, y_stride] */
    int64_t y_stride;
    int32_t m, n, k;
    int32_t stages;     /* of the ring */
    int32_t split;      /* blocks of a cluster, which share K; then it computes one tile */
    int32_t group;      /* tiles down that are walked before the next one across */
    int32_t y_dtype;    /* fp8_dtype */
    int32_t bias_last;  /* added to what was rounded to y_dtype */
    int32_t scale_step; /* of fp32 [N]: 0 = one for all */
    int32_t unused;
} fp8_wide_args;
FP8_ARGS_SIZE(fp8_wide_args, 384);

/* How W's scales meet the sum: a scale a row of W at the end; powers of two for each 32 columns,
 * multiplied into W; 128x128, multiplied into the sums of each 128 of K; or one for each column of
 * K, multiplied into W (dX, where these are the scales of a linear's rows). */
enum { FP8_WIDE_CHANNEL, FP8_WIDE_MX, FP8_WIDE_BLOCK, FP8_WIDE_TERMS, FP8_WIDE_KINDS };

/* X(tokens): rows of X of a tile. */
#define FP8_WIDE_TOKENS(X)       X(16) X(32) X(64) X(128) X(256)
#define FP8_WIDE_BLOCK_TOKENS(X) X(16) X(32) X(64) X(128)
/* The same for dX = dY W, where W lies turned. */
#define FP8_WIDE_DX_TOKENS(X)       X(64) X(128) X(256)
#define FP8_WIDE_DX_BLOCK_TOKENS(X) X(64) X(128)

enum {
    FP8_WIDE_ROWS = 128,    /* of W of a tile */
    FP8_WIDE_STAGES = 16,   /* of the ring, at most */
    FP8_WIDE_STATIC = 9216, /* bytes of shared memory that are not dynamic, at most */
    FP8_WIDE_SHARED = FP8_SHARED_MOST - FP8_WIDE_STATIC,
};

FP8_SIZE fp8_wide_depth(int tokens) /* columns of a stage */
{
    return tokens == 256 ? 64 : 128;
}
FP8_SIZE fp8_wide_stage(int tokens) /* bytes: X and W */
{
    return fp8_wide_depth(tokens) * (2 * tokens + FP8_WIDE_ROWS);
}
FP8_SIZE fp8_wide_per_sm(int tokens, int kind) /* blocks that an SM may hold */
{
    return tokens == 16 || (tokens == 32 && kind != FP8_WIDE_BLOCK) ? 2 : 1;
}
FP8_SIZE fp8_wide_threads(int tokens, int kind) /* whole groups where registers move */
{
    return fp8_wide_per_sm(tokens, kind) == 1 ? 384 : 288;
}
FP8_SIZE fp8_wide_exchange(int tokens) /* bytes of the sums of a block, which the ring then holds */
{
    return FP8_WIDE_ROWS * tokens * 4;
}

#endif
