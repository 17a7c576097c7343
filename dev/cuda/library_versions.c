/* SPDX-License-Identifier: Apache-2.0
 *
 * library_versions.c - see library_versions.h. */
#include "library_versions.h"

#include "backend/cuda/cuda_quantize.h"
#include "backend/cuda/sm90.h"
#include "base/context.h"

#include <stdio.h>
#include <string.h>

int version_count(void)
{
    int n = 0;
    while (fp8_sm90_at((size_t)n))
        n++;
    return n;
}

void version_name(int i, char name[48])
{
    snprintf(name, 48, "%s", fp8_sm90_at((size_t)i)->name + strlen("gemm_"));
}

int version_is_fast(int i)
{
    return fp8_sm90_at((size_t)i)->fast;
}

int version_quantizes(int i)
{
    return fp8_sm90_at((size_t)i)->quantizes;
}

static fp8_sm90_problem problem_of(const version_product *p)
{
    return (fp8_sm90_problem){.m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .block = p->block,
                              .fast = true,
                              .whole = p->high != NULL,
                              .inside = p->high != NULL};
}

float version_estimate(const fp8_context *ctx, int i, const version_product *p)
{
    const fp8_sm90_problem problem = problem_of(p);
    return fp8_sm90_estimate(ctx->cuda, fp8_sm90_at((size_t)i), &problem);
}

/* X in bf16 as it is quantized, by rows or 1x128. */
static fp8_status describe(const version_product *p, fp8_cuda_quantize_args *out, fp8_error *err)
{
    const fp8_tensor x = fp8_matrix((void *)(uintptr_t)p->high, FP8_BF16, p->m, p->k);
    const fp8_tensor codes = fp8_matrix(NULL, FP8_E4M3FN, p->m, p->k);
    const fp8_tensor scales = fp8_matrix(NULL, FP8_F32, p->m, p->block ? (p->k + 127) / 128 : 1);
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    fp8_quant q;
    desc.grid.rows = 1;
    desc.grid.cols = p->block ? 128 : 0;
    FP8_TRY(fp8_quant_prepare(&q, &desc, FP8_BF16, FP8_E4M3FN, FP8_F32, p->m, p->k, err));
    *out = fp8_cuda_describe_quantize(&q, &x, &codes, &scales);
    return FP8_OK;
}

fp8_status version_launch(const fp8_context *ctx, int i, const version_product *p, void *stream,
                          fp8_error *err)
{
    const fp8_sm90_problem problem = problem_of(p);
    fp8_cuda_quantize_args quantize;
    const bool inside = version_quantizes(i);
    if (inside)
        FP8_TRY(describe(p, &quantize, err));
    const fp8_sm90_matrices m = {
        .quantize = inside ? &quantize : NULL,
        .x = p->x,
        .w = p->w,
        .y = p->y,
        .y_dtype = FP8_BF16,
        .x_stride = p->k,
        .w_stride = p->k,
        .y_stride = p->n,
        .scales = {.x = p->x_scales, .w = p->w_scales, .x_step = 1, .x_stride = p->scale_stride}};
    FP8_TRY(fp8_cuda_begin(ctx->cuda, stream, err));
    const fp8_status status =
        fp8_sm90_launch(ctx->cuda, fp8_sm90_at((size_t)i), &problem, &m, stream, err);
    fp8_cuda_leave(ctx->cuda);
    return status;
}

void **version_launcher(const fp8_context *ctx)
{
    fp8_driver *driver = (fp8_driver *)(uintptr_t)&ctx->cuda->driver;
    return (void **)(void *)&driver->cuLaunchKernelEx;
}
