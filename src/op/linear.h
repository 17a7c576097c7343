/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.h - the inside of a prepared linear: what was asked for, the packed weight, its scales
 * and bias. Y[M,N] = X[M,K] W[N,K]^T + bias[N]. Filled by linear_plan.c and linear.c, immutable
 * afterwards; run by linear_input.c (X), linear_fold.c (scales that are powers of two) and
 * linear_run.c (the rest). */
#ifndef FP8_OP_LINEAR_H
#define FP8_OP_LINEAR_H

#include "base/context.h"
#include "op/panel.h"
#include "op/tensor_check.h"

#include <stdbool.h>

/* Where the scales along K change: columns [at[s], at[s+1]) share theirs. In the packed weight and
 * in prepared X they are columns [place[s], ..), which a kernel can cut at: what is left up to
 * place[s+1] is zeros. Without odd cuts, place is at. */
typedef struct fp8_cuts {
    int64_t count;       /* segments, >= 1 */
    int64_t columns;     /* of the packed weight, >= K */
    int64_t *at, *place; /* [count + 1]: 0 .. K, and 0 .. columns */
} fp8_cuts;

/* A validated description for a weight [n,k]; plain data. */
typedef struct fp8_linear_plan {
    fp8_linear_desc desc; /* defaults filled in; widths is the linear's own */
    int64_t n, k;
    fp8_dtype high;                 /* of W before it is quantized; NONE: it has codes */
    fp8_dtype code, scale;          /* of W */
    int64_t scale_rows, scale_cols; /* of W's scales */
    int64_t unit_rows, unit_cols;   /* of W for each of them, >= 1 */
    int64_t scale_tile;             /* rows of scales side by side in the linear's memory */
    int64_t x_unit_cols;            /* columns of X for each of its scales, >= 1 */
    bool w_along_k, x_along_k;      /* more than one scale along K */
    bool w_into_x;                  /* or W's are multiplied into X: w_along_k is not */
    bool x_is_scaled;               /* not FP8_ACTIVATION_NONE */
    int64_t pad; /* segments are padded to a multiple of so many columns; 1 = not */
    /* Powers of two up to 128 that divide every place in (0,columns) where W's scales change, and
     * where W's or X's do; at least FP8_PANEL_COLS. */
    int64_t w_multiple, both_multiple;
} fp8_linear_plan;

typedef struct fp8_cuda_linear fp8_cuda_linear;

struct fp8_linear {
    const fp8_context *ctx;
    fp8_linear_plan plan;
    fp8_cuda_linear *cuda; /* on a CUDA device: it has codes, scales and bias, and of what follows
                              only memory (for widths) and has_bias are set; else NULL */
    void *memory;          /* holds all that follows, memory_bytes long */
    uint64_t memory_bytes;
    uint8_t *codes; /* packed, panel.h; code_bytes long */
    uint64_t code_bytes;
    uint8_t *scales; /* of plan.scale, where fp8_linear_scale_index says */
    float *bias;     /* [n]; NaN where W's row has a NaN code */
    bool has_bias;   /* else bias is not to be added */
    bool has_nan;    /* W has a NaN code */
    bool w_folds;    /* W's scales vary along K and can be folded into its codes */
    fp8_cuts w_cuts; /* of W's scales alone .. */
    fp8_cuts cuts;   /* .. and of W's and X's */
};

/* Checks desc for w, w_scales and bias (panel.h says what they are) and fills *plan. */
fp8_status fp8_linear_plan_make(fp8_linear_plan *plan, const fp8_context *ctx,
                                const fp8_linear_desc *desc, const fp8_tensor *w,
                                const fp8_tensor *w_scales, const fp8_tensor *bias, fp8_error *err);
/* The same for a weight of which only shape and dtype are known. */
fp8_status fp8_linear_plan_shape(fp8_linear_plan *plan, const fp8_linear_desc *desc, int64_t n,
                                 int64_t k, fp8_dtype w_dtype, fp8_error *err);

/* Whether it can be a bias of n elements; NULL can. Errors: DTYPE, SHAPE, ARGUMENT, STRIDE. */
fp8_status fp8_linear_check_bias(const fp8_tensor *bias, int64_t n, fp8_error *err);

/* A linear with memory for all of it: codes and scales are zero where padding is, the cuts and the
 * widths filled in, the rest undefined. Error: NO_MEMORY. */
fp8_status fp8_linear_allocate(const fp8_context *ctx, const fp8_linear_plan *plan,
                               fp8_linear **out, fp8_error *err);
/* fp8_linear_clone into another context, of this device or another. */
fp8_status fp8_linear_copy(const fp8_context *ctx, const fp8_linear *linear, fp8_linear **out,
                           fp8_error *err);
/* *to = *from, at to's addresses; *done is false if they differ in shape, formats or device, and
 * then nothing has changed. Nobody may run `to` meanwhile; what runs on a device is waited for.
 * Errors: DEVICE, STATE. */
fp8_status fp8_linear_assign(fp8_linear *to, const fp8_linear *from, bool *done, fp8_error *err);

/* Another bias, or none (NULL); it was checked. As fp8_linear_assign; also NO_MEMORY. */
fp8_status fp8_linear_set_bias(fp8_linear *linear, const fp8_tensor *bias, fp8_error *err);

/* That x_scales are there if X comes as codes, and what they must be; else NULL. */
fp8_status fp8_linear_check_x_scales(const fp8_linear_plan *plan, int64_t m,
                                     const fp8_tensor *x_scales, fp8_error *err);
/* Whether X may have this dtype. Errors: DTYPE. */
fp8_status fp8_linear_plan_takes(const fp8_linear_plan *plan, fp8_dtype x, fp8_error *err);

/* The segments of a plan under W's scales and, with_x, X's. Fills at and place unless they are
 * NULL, count and columns always. */
void fp8_cuts_find(fp8_cuts *cuts, const fp8_linear_plan *plan, bool with_x);

/* Place of scale (row, col) of W: tiles of scale_tile rows, each [scale_cols, scale_tile]. A
 * channel each has tiles of 64, so that a group of panels finds its scales in one stretch; others
 * have tiles of 1, which is [scale_rows, scale_cols]. */
static inline int64_t fp8_linear_scale_index(const fp8_linear_plan *plan, int64_t row, int64_t col)
{
    return (row / plan->scale_tile * plan->scale_cols + col) * plan->scale_tile +
           row % plan->scale_tile;
}

/* Scale (row, col) of W. */
static inline uint8_t *fp8_linear_scale_at(const fp8_linear *l, int64_t row, int64_t col)
{
    return l->scales +
           fp8_linear_scale_index(&l->plan, row, col) * (fp8_dtype_bits(l->plan.scale) / 8);
}

/* Row of the scales that row n of W has. */
int64_t fp8_linear_scale_row(const fp8_linear_plan *plan, int64_t n);
/* How many rows of W from n on have that row of scales, at most `limit`, at least 1. */
int64_t fp8_linear_rows_alike(const fp8_linear_plan *plan, int64_t n, int64_t row, int64_t limit);

/* ---- X ---- */

/* X as a kernel reads it, in workspace. */
typedef struct fp8_prepared_x {
    fp8_dtype dtype; /* BF16 or F32 */
    int64_t stride;  /* elements from row to row */
    void *rows;      /* [m, k], 64-byte aligned */
    float *scale;    /* [m, scale_count] of the segments of linear->cuts, or [m,1]; NULL = 1 */
    int64_t scale_count;
    bool folds; /* scales along K are folded into rows of BF16, what is left is [m,1] */
} fp8_prepared_x;

/* ---- scales along K that are powers of two, linear_fold.c ---- */

/* Whether W's scales can be folded, which is w_folds; reads its scales, and codes where it must. */
bool fp8_linear_w_folds(const fp8_linear *linear);
/* Whether all scales along K can: of X they must be E8M0. */
bool fp8_linear_folds(const fp8_linear *linear, const fp8_tensor *x_scales);
/* x[k] in bf16 times its scales, one for each `unit` columns, but for a factor that is returned. */
float fp8_fold_row(uint16_t *x, int64_t k, const float *scale, int64_t unit);
/* fold[n] of panel.h for n scales, or for their exponents as in E8M0. The folds may take the place
 * of their scales. */
void fp8_folds_of_scales(uint8_t *fold, const float *scale, int64_t n);
void fp8_folds_of_exponents(uint8_t *fold, const uint8_t *exponent, int64_t n);

/* That `out` lies apart from `in` and its scales, and the workspace of a run, large enough for m
 * rows, from all three. Errors: ARGUMENT, STRIDE. */
fp8_status fp8_linear_check_memory(const fp8_linear *linear, int64_t m, const fp8_extent *in,
                                   const fp8_extent *in_scales, const fp8_extent *out,
                                   void *workspace, uint64_t bytes, fp8_error *err);

/* ---- dX ---- */

/* Bytes of workspace that fp8_linear_run_dx needs for m rows. */
uint64_t fp8_linear_dx_bytes(const fp8_linear *linear, int64_t m);

/* ---- the choice of a kernel ---- */

/* What kernels are chosen by. */
typedef struct fp8_panel_problem {
    fp8_isa isa;
    int64_t m;
    bool bf16_is_exact;                /* X and W can be bf16 without rounding */
    bool w_into_x;                     /* of the plan */
    int64_t w_multiple, both_multiple; /* of the plan */
    bool any_m;                        /* batch-invariant: the choice must not depend on m */
} fp8_panel_problem;

/* The problem that a linear of this plan is with m rows of X of a dtype. */
fp8_panel_problem fp8_panel_problem_of(const fp8_context *ctx, const fp8_linear_plan *plan,
                                       int64_t m, fp8_dtype x);
/* What `kernel` lacks for the problem; NULL if it would do. Static text. */
const char *fp8_panel_lacks(const fp8_panel_kernel *kernel, const fp8_panel_problem *problem);
/* The best that would do; never NULL, since the reference does everything. */
const fp8_panel_kernel *fp8_panel_pick(const fp8_panel_problem *problem);

#endif
