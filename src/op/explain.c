/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.c - fp8_explain: what fp8_linear_run would choose, and for each other kernel the reason
 * why not. It asks what the run asks; it must not know better. */
#include "op/cuda_calls.h"

#include <stdio.h>

static void describe(const fp8_panel_kernel *kernel, const fp8_panel_problem *problem,
                     fp8_candidate *out)
{
    const fp8_panel_kernel *best = fp8_panel_pick(problem);
    const char *lacks = fp8_panel_lacks(kernel, problem);
    *out = (fp8_candidate){
        .kernel = kernel->name, .isa = fp8_isa_name(kernel->isa), .chosen = kernel == best};
    if (kernel == best)
        snprintf(out->reason, sizeof out->reason, "of the highest level that can do it");
    else if (lacks)
        snprintf(out->reason, sizeof out->reason, "%s", lacks);
    else
        snprintf(out->reason, sizeof out->reason, "a better one is chosen: %s", best->name);
}

fp8_status fp8_explain(const fp8_context *ctx, const fp8_linear_desc *desc, int64_t m, int64_t n,
                       int64_t k, fp8_dtype x_dtype, fp8_dtype w_code, int64_t i,
                       fp8_candidate *out, fp8_error *err)
{
    fp8_linear_plan plan;
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "explain: the context is NULL");
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "explain: out is NULL");
    FP8_FAIL_IF(m < 0, err, FP8_E_SHAPE, "explain: m is %lld, must be >= 0", (long long)m);
    FP8_TRY(fp8_linear_plan_shape(&plan, desc, n, k, w_code, err));
    FP8_TRY(fp8_linear_plan_takes(&plan, x_dtype, err));
    if (ctx->cuda)
        return fp8_cuda_linear_explain(ctx, &plan, m, x_dtype, i, out, err);
    const fp8_panel_kernel *kernel = i < 0 ? NULL : fp8_panel_kernel_at((size_t)i);
    FP8_FAIL_IF(!kernel, err, FP8_E_NOT_FOUND, "explain: there is no candidate %lld", (long long)i);
    const fp8_panel_problem problem = fp8_panel_problem_of(ctx, &plan, m, x_dtype);
    describe(kernel, &problem, out);
    return FP8_OK;
}
