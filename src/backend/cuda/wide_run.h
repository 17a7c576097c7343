/* SPDX-License-Identifier: Apache-2.0
 *
 * wide_run.h - a run of a linear by the kernels of wide.h, and what fp8_explain says of them. */
#ifndef FP8_BACKEND_CUDA_WIDE_RUN_H
#define FP8_BACKEND_CUDA_WIDE_RUN_H

#include "backend/cuda/wide.h"
#include "op/quantize.h"

/* The matrices of a run; all checked. */
typedef struct fp8_wide_operands {
    const fp8_tensor *x;              /* as the caller gave it .. */
    const fp8_tensor *codes, *scales; /* .. and as codes, where the plan's X is scaled: given .. */
    const fp8_quant *quant;           /* .. or, unless this is NULL, to be made */
    const fp8_tensor *y;
    void *room; /* fp8_wide_room bytes, aligned to 16 */
} fp8_wide_operands;

/* Bytes of the workspace for X in bf16 where it is made of codes, else 0; false: not in memory. */
bool fp8_wide_room(const fp8_linear_plan *plan, int64_t m, uint64_t *bytes);

/* The version for a run, that of the name `wanted` unless it is NULL, and its problem; NULL if
 * there is none. */
const fp8_wide_version *fp8_wide_pick(const fp8_linear *linear, const fp8_wide_operands *operands,
                                      const char *wanted, fp8_wide_problem *problem);
/* Enqueues what was picked, after X in bf16 where it is made of codes. Errors: those of
 * fp8_cuda_launch. */
fp8_status fp8_wide_run(const fp8_linear *linear, const fp8_wide_operands *operands,
                        const fp8_wide_version *version, const fp8_wide_problem *problem,
                        void *stream, fp8_error *err);

/* Enqueues dX[m,k] = dY[m,n] W; *done is false where no version can, and then nothing is. Errors:
 * those of fp8_cuda_launch. */
fp8_status fp8_wide_run_dx(const fp8_linear *linear, const fp8_tensor *dy, const fp8_tensor *dx,
                           void *stream, bool *done, fp8_error *err);

/* How many versions can do m rows of X in a dtype. */
int64_t fp8_wide_count(const fp8_context *ctx, const fp8_linear_plan *plan, int64_t m, fp8_dtype x);
/* Number i < that of them, the fastest first; the first is chosen. */
void fp8_wide_explain(const fp8_context *ctx, const fp8_linear_plan *plan, int64_t m, fp8_dtype x,
                      int64_t i, fp8_candidate *out);

#endif
