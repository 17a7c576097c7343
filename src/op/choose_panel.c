/* SPDX-License-Identifier: Apache-2.0
 *
 * choose_panel.c - which kernel multiplies, and for each other the reason why it does not. */
#include "op/linear.h"

fp8_panel_problem fp8_panel_problem_of(const fp8_context *ctx, const fp8_linear_plan *plan,
                                       int64_t m, fp8_dtype x)
{
    const bool rounded = plan->desc.weight_math == FP8_WEIGHT_ROUNDED;
    return (fp8_panel_problem){
        .isa = ctx->isa,
        .m = m,
        .bf16_is_exact = !rounded && (plan->x_is_scaled || x == FP8_BF16) && !plan->w_into_x,
        .w_into_x = plan->w_into_x,
        .w_multiple = plan->w_multiple,
        .both_multiple = plan->both_multiple,
        .any_m = ctx->flags & FP8_BATCH_INVARIANT,
    };
}

const char *fp8_panel_lacks(const fp8_panel_kernel *kernel, const fp8_panel_problem *problem)
{
    const bool bf16 = kernel->x == FP8_BF16;
    const int64_t multiple = bf16 ? problem->both_multiple : problem->w_multiple;
    const int64_t m = problem->any_m ? INT64_MAX : problem->m;
    if (kernel->isa > problem->isa)
        return "the processor or FP8_CPU_ISA does not reach its level";
    if (bf16 && problem->w_into_x)
        return "x times the scales of w's columns would be rounded to bf16";
    if (bf16 && !problem->bf16_is_exact)
        return "x or w would be rounded to bf16";
    if (multiple % kernel->cut_multiple)
        return "scales change along K at columns that it cannot cut at";
    if (m < kernel->min_m)
        return "for more rows of x";
    if (m > kernel->max_m)
        return "for fewer rows of x";
    return NULL;
}

const fp8_panel_kernel *fp8_panel_pick(const fp8_panel_problem *problem)
{
    const fp8_panel_kernel *best = NULL, *kernel;
    for (size_t i = 0; (kernel = fp8_panel_kernel_at(i)); i++)
        if ((!best || kernel->isa > best->isa) && !fp8_panel_lacks(kernel, problem))
            best = kernel;
    return best;
}
