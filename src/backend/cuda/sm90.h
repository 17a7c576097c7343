/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90.h - products by the tensor cores of compute capability 9.0: Y[M,N] = X[M,K] W[N,K]^T, e4m3fn
 * into bf16, fp16 or fp32, K in 16s, rows aligned to 16 bytes. Which instance of gemm_small.cuh or
 * gemm_large.cuh is measured or estimated to be the fastest, and how it is launched. */
#ifndef FP8_BACKEND_CUDA_SM90_H
#define FP8_BACKEND_CUDA_SM90_H

#include "backend/cuda/choice.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sm90_args.h"

/* An instance: rows and cols are of X and of W in a large one, of W and of X in a small one. */
typedef struct fp8_sm90_version {
    const char *name; /* the kernel's; of a small one with per_sm: "gemm_small_block_64x16_3_2" */
    fp8_cuda_kernel kernel;
    bool small, block, fast;
    int32_t rows, cols;
    int32_t stages, down, across, split, late;
    int32_t slices; /* large: blocks of a cluster that share K */
    bool ahead;     /* large only, as the line before */
    int32_t per_sm; /* small: blocks for which the ring leaves room on an SM */
    bool quantizes; /* small, X: the kernel is for bf16, and next to it is the one for fp16 */
} fp8_sm90_version;
/* Version i; NULL past the last. Any thread. */
const fp8_sm90_version *fp8_sm90_at(size_t i);
/* The version of that name; NULL if there is none. */
const fp8_sm90_version *fp8_sm90_find(const char *name);

enum { FP8_SM90_MOST = 1 << 27 }; /* of m, n and k */

typedef struct fp8_sm90_problem {
    int32_t m, n, k;
    bool block;     /* scales 1x128 and 128x128; else by rows and channels */
    bool invariant; /* the choice must not depend on m */
    bool fast;      /* sums in 13 bits will do */
    bool whole;     /* the call quantizes X: what does not do so itself waits for a quantizer */
    bool inside;    /* whole, and X is such that a version may do so */
} fp8_sm90_problem;

/* Estimated time in us; negative: not for this problem, or not on this device; from
 * FP8_SM90_LAST_RESORT on: it is that much less, but others go first. */
#define FP8_SM90_LAST_RESORT 1e6F
float fp8_sm90_estimate(const fp8_cuda_device *device, const fp8_sm90_version *version,
                        const fp8_sm90_problem *problem);
/* Among all versions; the problem must outlive it. */
fp8_choice fp8_sm90_choice(const fp8_cuda_device *device, const fp8_sm90_problem *problem);
/* The best; NULL if there is none, or none for this device. */
const fp8_sm90_version *fp8_sm90_choose(const fp8_cuda_device *device,
                                        const fp8_sm90_problem *problem);

/* Number i of those that can do the problem, as a candidate. sm90_explain.c */
void fp8_sm90_describe(const fp8_choice *choice, int64_t i, fp8_candidate *out);

/* How many clusters of so many blocks run at once, with so many blocks on an SM (1 or 2). */
int32_t fp8_sm90_clusters(const fp8_cuda_device *device, int32_t cluster, int32_t per_sm);

/* The ring and the grid of a small version. */
typedef struct fp8_sm90_plan {
    int32_t clusters, stages, shared_bytes, waves, blocks; /* blocks: of K for a block */
} fp8_sm90_plan;
/* false: there is no room. */
bool fp8_sm90_plan_small(const fp8_cuda_device *device, const fp8_sm90_version *version,
                         const fp8_sm90_problem *problem, fp8_sm90_plan *out);

/* Where the matrices of a problem lie; all checked. */
typedef struct fp8_sm90_matrices {
    const fp8_cuda_quantize_args *quantize; /* X, for a version that quantizes it; else x is codes
                                               and scales.x theirs */
    const uint8_t *x, *w;
    void *y;
    fp8_dtype y_dtype;                    /* BF16, F16 or F32 */
    int64_t x_stride, w_stride, y_stride; /* elements from row to row */
    fp8_sm90_scales scales;
} fp8_sm90_matrices;

/* Enqueues a version that was chosen for the problem. Errors: those of fp8_cuda_launch. */
fp8_status fp8_sm90_launch(const fp8_cuda_device *device, const fp8_sm90_version *version,
                           const fp8_sm90_problem *problem, const fp8_sm90_matrices *matrices,
                           void *stream, fp8_error *err);

#endif
