/* SPDX-License-Identifier: Apache-2.0
 *
 * case_linear.c - operands, copies of the weight and workspace of one case of `fp8 bench linear`:
 * Y[M,N] in bf16 = X[M,K] W[N,K]^T. */
#include "cli/case_linear.h"

#include <stdio.h>
#include <stdlib.h>

static fp8_status no_memory(fp8_error *err)
{
    *err = (fp8_error){.code = FP8_E_NO_MEMORY, .pos = -1};
    snprintf(err->msg, sizeof err->msg, "bench: no memory for the matrices");
    return FP8_E_NO_MEMORY;
}

/* Scales along an extent; none along 0. */
static int64_t units(int64_t extent, int64_t unit)
{
    return unit > 0 ? (extent + unit - 1) / unit : extent > 0;
}

static fp8_tensor scales_of(fp8_grid grid, fp8_dtype dtype, int64_t rows, int64_t cols)
{
    fp8_tensor scales = cli_bench_matrix(dtype, units(rows, grid.rows), units(cols, grid.cols));
    for (int64_t i = 0; dtype == FP8_F32 && scales.data && i < scales.shape[0] * scales.shape[1];
         i++)
        ((float *)scales.data)[i] = 1.0f / 64;
    return scales;
}

/* The weight in FP8, prepared once and cloned. */
static fp8_status make_weights(cli_linear_case *c, const fp8_context *ctx,
                               const fp8_linear_desc *desc, fp8_error *err)
{
    fp8_linear_info info;
    const fp8_tensor w = cli_bench_matrix(FP8_E4M3FN, c->shape.n, c->shape.k);
    const fp8_tensor scales = scales_of(c->scheme->w, c->scheme->scale, c->shape.n, c->shape.k);
    fp8_status status = no_memory(err);
    if (w.data != NULL && scales.data != NULL)
        status = fp8_linear_create(ctx, desc, &w, &scales, NULL, &c->copies[0], err);
    free(w.data);
    free(scales.data);
    if (status != FP8_OK)
        return status;
    c->copy_count = 1;
    fp8_linear_get_info(c->copies[0], &info);
    c->weight_bytes = (double)c->shape.n * (double)c->shape.k + (double)info.scale_bytes;
    const int copies = cli_bench_copies(c->shape.m, c->weight_bytes, &c->cold);
    while (status == FP8_OK && c->copy_count < copies) {
        status = fp8_linear_clone(c->copies[0], &c->copies[c->copy_count], err);
        c->copy_count += status == FP8_OK;
    }
    return status;
}

/* The kernel that a run takes. */
static void find_kernel(cli_linear_case *c, const fp8_context *ctx, const fp8_linear_desc *desc)
{
    const cli_shape *s = &c->shape;
    for (int64_t i = 0; !c->chosen.chosen && fp8_explain(ctx, desc, s->m, s->n, s->k, c->x.dtype,
                                                         FP8_E4M3FN, i, &c->chosen, NULL) == FP8_OK;
         i++) {
    }
}

fp8_status cli_linear_case_make(cli_linear_case *c, const fp8_context *ctx,
                                const cli_linear_scheme *scheme, cli_shape shape, fp8_error *err)
{
    const fp8_linear_desc desc = cli_linear_desc(scheme, scheme->activation);
    *c = (cli_linear_case){.scheme = scheme, .shape = shape};
    fp8_status status = make_weights(c, ctx, &desc, err);
    if (status == FP8_OK)
        status = fp8_linear_workspace(c->copies[0], shape.m, &c->workspace_bytes, err);
    if (status != FP8_OK)
        return status;
    c->x = cli_bench_matrix(cli_linear_x_dtype(scheme->activation), shape.m, shape.k);
    c->x_scales = scales_of(scheme->x, FP8_F32, shape.m, shape.k);
    c->y = cli_bench_matrix(FP8_BF16, shape.m, shape.n);
    c->workspace = malloc((size_t)c->workspace_bytes);
    if (c->x.data == NULL || c->x_scales.data == NULL || c->y.data == NULL || c->workspace == NULL)
        return no_memory(err);
    find_kernel(c, ctx, &desc);
    cli_linear_case_call(c);
    *err = c->err;
    return c->status;
}

void cli_linear_case_call(void *arg)
{
    cli_linear_case *c = arg;
    const bool codes = c->scheme->activation == FP8_ACTIVATION_CODES;
    const fp8_status status =
        fp8_linear_run(c->copies[c->next], &c->x, codes ? &c->x_scales : NULL, &c->y, c->workspace,
                       c->workspace_bytes, NULL, &c->err);
    c->next = (c->next + 1) % c->copy_count;
    if (c->status == FP8_OK)
        c->status = status;
}

void cli_linear_case_free(cli_linear_case *c)
{
    for (int i = 0; i < c->copy_count; i++)
        fp8_linear_free(c->copies[i]);
    free(c->x.data);
    free(c->x_scales.data);
    free(c->y.data);
    free(c->workspace);
    *c = (cli_linear_case){0};
}
