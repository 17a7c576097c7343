/* SPDX-License-Identifier: Apache-2.0
 *
 * wide.h - products by the tensor cores of compute capability 9.0 in 16 bits: Y[M,N] = X[M,K]
 * W[N,K]^T + bias, X in bf16 or fp16, W e4m3fn, K in 16s, rows aligned to 16 bytes. Which plans the
 * instances of gemm_wide.cuh can do, which one is estimated to be the fastest, and how it is
 * launched. */
#ifndef FP8_BACKEND_CUDA_WIDE_H
#define FP8_BACKEND_CUDA_WIDE_H

#include "backend/cuda/choice.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/wide_args.h"
#include "op/linear.h"

/* An instance, with so many blocks that share K. */
typedef struct fp8_wide_version {
    const char *name; /* the kernel's and the split's */
    fp8_cuda_kernel kernel;
    bool f16;       /* X; else bf16 */
    int32_t kind;   /* FP8_WIDE_* */
    int32_t tokens; /* rows of X of a tile */
    int32_t split;
    bool turned; /* for dX */
} fp8_wide_version;
/* Version i; NULL past the last. Any thread. */
const fp8_wide_version *fp8_wide_at(size_t i);

enum { FP8_WIDE_MOST = 1 << 27 }; /* of m, n and k */

typedef struct fp8_wide_problem {
    int32_t m, n, k;
    int32_t kind;
    bool f16;
    bool invariant; /* the choice must not depend on m */
    bool turned;    /* Y[m,n] = X[m,k] W[k,n]: dX, with W as a linear has it */
} fp8_wide_problem;

/* What keeps a linear of this plan from these kernels whatever X and Y are; NULL if nothing does.
 * Static text. */
const char *fp8_wide_lacks(const fp8_cuda_device *device, const fp8_linear_plan *plan);
/* Whether X of such a plan is codes times powers of two, which become bf16 first. For codes that
 * are given the plan does not say: it is so if their scales, 1x32, come in E8M0. */
bool fp8_wide_rounds_x(const fp8_linear_plan *plan);
/* The problem of a plan that lacks nothing; f16: X as it is multiplied. */
fp8_wide_problem fp8_wide_problem_of(const fp8_linear_plan *plan, int64_t m, bool f16,
                                     bool invariant);

/* The same for dX of a plan; false: not for these kernels. */
bool fp8_wide_dx_problem(const fp8_cuda_device *device, const fp8_linear_plan *plan, int64_t m,
                         bool f16, bool invariant, fp8_wide_problem *out);

/* Estimated time in us; negative: not for this problem, or not on this device. */
float fp8_wide_estimate(const fp8_cuda_device *device, const fp8_wide_version *version,
                        const fp8_wide_problem *problem);
/* The version of that name; NULL if there is none. */
const fp8_wide_version *fp8_wide_find(const char *name);
/* Among all versions; the problem must outlive it. */
fp8_choice fp8_wide_choice(const fp8_cuda_device *device, const fp8_wide_problem *problem);
/* The best; NULL if there is none, or none for this device. */
const fp8_wide_version *fp8_wide_choose(const fp8_cuda_device *device,
                                        const fp8_wide_problem *problem);

/* The ring and the grid of a version. */
typedef struct fp8_wide_plan {
    int32_t clusters, stages, waves, blocks; /* blocks: of 128 columns for a block */
} fp8_wide_plan;
/* false: there is no room. */
bool fp8_wide_plan_make(const fp8_cuda_device *device, const fp8_wide_version *version,
                        const fp8_wide_problem *problem, fp8_wide_plan *out);

/* Where the matrices of a problem lie. */
typedef struct fp8_wide_matrices {
    const void *x;                        /* [m, x_stride], aligned to 16 bytes */
    const uint8_t *w;                     /* [n, w_stride], the same */
    const void *scale;                    /* of W, as wide_args.h says */
    bool one_scale;                       /* [1] instead of [n] */
    const float *bias;                    /* [n] or NULL */
    void *y;                              /* [m, y_stride] */
    int64_t x_stride, w_stride, y_stride; /* elements from row to row */
    fp8_dtype y_dtype;                    /* BF16, F16, F32 */
    bool bias_last;
} fp8_wide_matrices;

/* Enqueues a version that was chosen for the problem. Errors: those of fp8_cuda_launch. */
fp8_status fp8_wide_launch(const fp8_cuda_device *device, const fp8_wide_version *version,
                           const fp8_wide_problem *problem, const fp8_wide_matrices *matrices,
                           void *stream, fp8_error *err);

#endif
