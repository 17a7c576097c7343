/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c - the life of a prepared linear: create (from a whole weight; linear_build.c has the
 * steps), clone, export, free. All it holds is one piece of memory. */
#include "op/linear.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"
#include "op/linear_build.h"
#include "op/pack.h"
#include "op/tensor_check.h"

#include <string.h>

/* Offsets in a linear's memory, from a 64-byte border on. */
typedef struct parts {
    uint64_t codes, scales, bias, widths, w_cuts, cuts, end;
} parts;

static uint64_t place(uint64_t *end, uint64_t bytes)
{
    const uint64_t at = *end;
    *end = fp8_align(at + bytes);
    return at;
}

/* With whole tiles. */
static uint64_t scale_bytes_of(const fp8_linear_plan *p)
{
    const int64_t tiles = fp8_ceil_div(p->scale_rows, p->scale_tile);
    return (uint64_t)(tiles * p->scale_tile * p->scale_cols * (fp8_dtype_bits(p->scale) / 8));
}

/* The plan's sizes were checked not to overflow. */
static parts parts_of(const fp8_linear *l)
{
    const fp8_linear_plan *p = &l->plan;
    parts at = {0};
    at.codes = place(&at.end, l->code_bytes);
    at.scales = place(&at.end, scale_bytes_of(p));
    at.bias = place(&at.end, (uint64_t)p->n * sizeof(float));
    at.widths = place(&at.end, p->desc.width_count * sizeof(int64_t));
    at.w_cuts = place(&at.end, (uint64_t)(l->w_cuts.count + 1) * 2 * sizeof(int64_t));
    at.cuts = place(&at.end, (uint64_t)(l->cuts.count + 1) * 2 * sizeof(int64_t));
    return at;
}

static uint8_t *aligned(void *memory)
{
    return (uint8_t *)fp8_align((uintptr_t)memory);
}

/* Points into l->memory, which holds `at`. */
static void point(fp8_linear *l, const parts *at)
{
    uint8_t *base = aligned(l->memory);
    l->codes = base + at->codes;
    l->scales = base + at->scales;
    l->bias = (float *)(void *)(base + at->bias);
    if (l->plan.desc.widths)
        l->plan.desc.widths = (const int64_t *)(const void *)(base + at->widths);
    l->w_cuts.at = (int64_t *)(void *)(base + at->w_cuts);
    l->w_cuts.place = l->w_cuts.at + l->w_cuts.count + 1;
    l->cuts.at = (int64_t *)(void *)(base + at->cuts);
    l->cuts.place = l->cuts.at + l->cuts.count + 1;
}

/* Zero codes where W has none: beyond the last row, and between the segments. */
static void clear_padding(fp8_linear *l)
{
    const int64_t stride = fp8_panel_stride(l->cuts.columns);
    const int64_t panels = fp8_ceil_div(l->plan.n, FP8_PANEL_ROWS);
    const bool last_block = l->cuts.columns % FP8_PANEL_COLS != 0;
    if (l->plan.pad > 1)
        memset(l->codes, 0, (size_t)l->code_bytes);
    for (int64_t p = 0; last_block && p < panels; p++)
        memset(l->codes + (p + 1) * stride - FP8_PANEL_BYTES, 0, FP8_PANEL_BYTES);
    if (l->plan.n % FP8_PANEL_ROWS)
        memset(l->codes + (panels - 1) * stride, 0, (size_t)stride);
}

fp8_status fp8_linear_allocate(const fp8_context *ctx, const fp8_linear_plan *plan,
                               fp8_linear **out, fp8_error *err)
{
    fp8_linear *l = fp8_alloc_zeroed(ctx, 1, sizeof *l);
    FP8_FAIL_IF(!l, err, FP8_E_NO_MEMORY, "linear: no memory for %zu bytes", sizeof *l);
    l->ctx = ctx;
    l->plan = *plan;
    const int64_t panels = fp8_ceil_div(plan->n, FP8_PANEL_ROWS);
    fp8_cuts_find(&l->w_cuts, plan, false);
    fp8_cuts_find(&l->cuts, plan, true);
    l->code_bytes = (uint64_t)(panels * fp8_panel_stride(l->cuts.columns));
    const parts at = parts_of(l);
    l->memory_bytes = at.end + FP8_ALIGN - 1;
    l->memory = fp8_alloc_streamed(ctx, l->memory_bytes);
    if (!l->memory) {
        fp8_release(ctx, l);
        return fp8_fail(err, FP8_E_NO_MEMORY, "linear: no memory for %llu bytes",
                        (unsigned long long)at.end);
    }
    const int64_t *widths = plan->desc.widths;
    point(l, &at);
    memset(l->scales, 0, (size_t)scale_bytes_of(plan));
    clear_padding(l);
    for (size_t i = 0; i < plan->desc.width_count; i++)
        ((int64_t *)(void *)(aligned(l->memory) + at.widths))[i] = widths[i];
    fp8_cuts_find(&l->w_cuts, plan, false);
    fp8_cuts_find(&l->cuts, plan, true);
    *out = l;
    return FP8_OK;
}

static fp8_status fill(fp8_build *build, const fp8_tensor *w, const fp8_tensor *w_scales,
                       const fp8_tensor *bias, fp8_error *err)
{
    if (bias)
        fp8_build_bias(build, bias, 0);
    if (build->linear->plan.high != FP8_DTYPE_NONE)
        return fp8_build_quantize(build, w, err);
    FP8_TRY(fp8_build_scales(build, w_scales, 0, 0, err));
    return fp8_build_codes(build, w, 0, 0, err);
}

fp8_status fp8_linear_create(const fp8_context *ctx, const fp8_linear_desc *desc,
                             const fp8_tensor *w, const fp8_tensor *w_scales,
                             const fp8_tensor *bias, fp8_linear **out, fp8_error *err)
{
    fp8_linear_plan plan;
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "linear: out is NULL");
    *out = NULL;
    FP8_TRY(fp8_linear_plan_make(&plan, ctx, desc, w, w_scales, bias, err));
    if (ctx->cuda)
        return fp8_cuda_linear_create(ctx, &plan, w, w_scales, bias, out, err);
    fp8_build build;
    FP8_TRY(fp8_build_begin(ctx, &plan, &build, err));
    fp8_status status = fill(&build, w, w_scales, bias, err);
    if (status == FP8_OK)
        status = fp8_build_finish(&build, err);
    if (status == FP8_OK)
        *out = fp8_build_end(&build);
    else
        fp8_build_drop(&build);
    return status;
}

/* ---- copies ---- */

static bool are_alike(const fp8_linear *to, const fp8_linear *from)
{
    const fp8_linear_plan *a = &to->plan, *b = &from->plan;
    const fp8_grid p = a->desc.w_origin, q = b->desc.w_origin;
    return a->n == b->n && a->k == b->k && a->code == b->code && a->scale == b->scale &&
           a->unit_rows == b->unit_rows && a->unit_cols == b->unit_cols && p.rows == q.rows &&
           p.cols == q.cols && a->desc.width_count == b->desc.width_count &&
           a->x_unit_cols == b->x_unit_cols && to->memory_bytes == from->memory_bytes;
}

fp8_status fp8_linear_assign(fp8_linear *to, const fp8_linear *from, bool *done, fp8_error *err)
{
    *done = are_alike(to, from) && !to->cuda == !from->cuda;
    if (*done && to->cuda) {
        *done = fp8_cuda_is_same(to->ctx, from->ctx);
        if (*done)
            FP8_TRY(fp8_cuda_linear_assign(to, from, err));
    } else if (*done) {
        memcpy(aligned(to->memory), aligned(from->memory),
               (size_t)(from->memory_bytes - (FP8_ALIGN - 1)));
    }
    if (!*done)
        return FP8_OK;
    to->has_bias = from->has_bias;
    to->has_nan = from->has_nan;
    to->w_folds = from->w_folds;
    to->plan.desc.x_static = from->plan.desc.x_static;
    return FP8_OK;
}

/* What a linear holds, on the host. */
typedef struct contents {
    fp8_tensor codes, scales;
    float *bias; /* [n] */
} contents;

static void free_contents(const fp8_context *ctx, contents *c)
{
    fp8_release(ctx, c->codes.data);
    fp8_release(ctx, c->scales.data);
    fp8_release(ctx, c->bias);
}

/* Frees nothing when it fails. */
static fp8_status take_contents(const fp8_context *ctx, const fp8_linear *l, contents *c,
                                fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    const uint64_t codes = (uint64_t)(p->n * p->k);
    const int64_t scales = p->scale_rows * p->scale_cols;
    void *code = fp8_alloc(ctx, codes);
    void *scale = fp8_alloc(ctx, (uint64_t)(scales * (fp8_dtype_bits(p->scale) / 8)));
    *c = (contents){fp8_matrix(code, p->code, p->n, p->k),
                    fp8_matrix(scale, p->scale, p->scale_rows, p->scale_cols),
                    fp8_alloc_zeroed(ctx, (uint64_t)p->n, sizeof(float))};
    FP8_FAIL_IF(!code || !scale || !c->bias, err, FP8_E_NO_MEMORY,
                "linear: no memory for %llu bytes", (unsigned long long)codes);
    FP8_TRY(fp8_linear_export(l, &c->codes, &c->scales, err));
    if (l->cuda)
        return fp8_cuda_linear_get_bias(l, c->bias, err);
    memcpy(c->bias, l->bias, (size_t)p->n * sizeof(float));
    return FP8_OK;
}

static fp8_status put_contents(fp8_build *build, const fp8_linear *from, const contents *c,
                               fp8_error *err)
{
    const fp8_linear_plan *p = &from->plan;
    const fp8_quant made = {
        .scale = p->scale, .grid_rows = p->scale_rows, .grid_cols = p->scale_cols};
    const fp8_tensor bias = fp8_vector(c->bias, FP8_F32, p->n);
    fp8_build_take_made(build, &made, c->scales.data, 0, 0);
    if (from->has_bias)
        fp8_build_bias(build, &bias, 0);
    FP8_TRY(fp8_build_codes(build, &c->codes, 0, 0, err));
    return fp8_build_finish(build, err);
}

/* From one device to another, by way of the host, where all of it is once more meanwhile. */
static fp8_status copy_by_host(const fp8_context *ctx, const fp8_linear *from, fp8_linear **out,
                               fp8_error *err)
{
    contents c;
    fp8_build build = {0};
    fp8_status status = take_contents(ctx, from, &c, err);
    if (status == FP8_OK)
        status = fp8_build_begin(ctx, &from->plan, &build, err);
    if (status == FP8_OK)
        status = put_contents(&build, from, &c, err);
    free_contents(ctx, &c);
    if (status == FP8_OK)
        *out = fp8_build_end(&build);
    else
        fp8_build_drop(&build);
    return status;
}

fp8_status fp8_linear_copy(const fp8_context *ctx, const fp8_linear *linear, fp8_linear **out,
                           fp8_error *err)
{
    fp8_linear *l;
    bool done;
    if (ctx->cuda && linear->cuda && fp8_cuda_is_same(ctx, linear->ctx))
        return fp8_cuda_linear_copy(ctx, linear, out, err);
    if (ctx->cuda || linear->cuda)
        return copy_by_host(ctx, linear, out, err);
    FP8_TRY(fp8_linear_allocate(ctx, &linear->plan, &l, err));
    (void)fp8_linear_assign(l, linear, &done, err);
    *out = l;
    return FP8_OK;
}

fp8_status fp8_linear_clone(const fp8_linear *linear, fp8_linear **out, fp8_error *err)
{
    FP8_FAIL_IF(!linear || !out, err, FP8_E_ARGUMENT, "linear: %s is NULL",
                linear ? "out" : "linear");
    *out = NULL;
    return fp8_linear_copy(linear->ctx, linear, out, err);
}

void fp8_linear_free(fp8_linear *linear)
{
    if (!linear)
        return;
    if (linear->cuda) {
        fp8_cuda_linear_free(linear);
        return;
    }
    fp8_release(linear->ctx, linear->memory);
    fp8_release(linear->ctx, linear);
}

fp8_status fp8_linear_get_info(const fp8_linear *linear, fp8_linear_info *out)
{
    if (!linear || !out)
        return FP8_E_ARGUMENT;
    const fp8_linear_plan *p = &linear->plan;
    *out = (fp8_linear_info){
        .n = p->n,
        .k = p->k,
        .code = p->code,
        .scale = p->scale,
        .scale_rows = p->scale_rows,
        .scale_cols = p->scale_cols,
    };
    if (linear->cuda) {
        fp8_cuda_linear_sizes(linear, out);
        return FP8_OK;
    }
    out->code_bytes = linear->code_bytes;
    out->scale_bytes = scale_bytes_of(p);
    out->other_bytes = sizeof *linear + linear->memory_bytes - out->code_bytes - out->scale_bytes;
    return FP8_OK;
}

static fp8_status check_export(const fp8_tensor *t, const char *name, fp8_dtype dtype, int64_t rows,
                               int64_t cols, fp8_error *err)
{
    if (!t)
        return FP8_OK;
    FP8_TRY(fp8_check_matrix(t, name, rows, cols, err));
    FP8_FAIL_IF(t->dtype != dtype, err, FP8_E_DTYPE, "linear: %s is %s, must be %s", name,
                fp8_dtype_name(t->dtype), fp8_dtype_name(dtype));
    return fp8_check_distinct(t, name, err);
}

/* Columns [at[s], at[s+1]) of codes[N,K]. */
static fp8_tensor segment_of(const fp8_linear *l, int64_t s, const fp8_tensor *codes)
{
    fp8_tensor part = *codes;
    part.data = fp8_element_at(codes, 0, l->cuts.at[s]);
    part.shape[1] = l->cuts.at[s + 1] - l->cuts.at[s];
    return part;
}

/* Where segment s of a panel begins. */
static uint8_t *segment_at(const fp8_linear *l, int64_t s, int64_t panel)
{
    return l->codes + panel * fp8_panel_stride(l->cuts.columns) + l->cuts.place[s] * FP8_PANEL_ROWS;
}

fp8_status fp8_linear_export(const fp8_linear *linear, fp8_tensor *codes, fp8_tensor *scales,
                             fp8_error *err)
{
    FP8_FAIL_IF(!linear, err, FP8_E_ARGUMENT, "linear: linear is NULL");
    const fp8_linear_plan *p = &linear->plan;
    FP8_TRY(check_export(codes, "codes", p->code, p->n, p->k, err));
    FP8_TRY(check_export(scales, "scales", p->scale, p->scale_rows, p->scale_cols, err));
    if (codes && scales)
        FP8_TRY(fp8_check_apart(codes, "codes", scales, "scales", err));
    if (linear->cuda)
        return fp8_cuda_linear_export(linear, codes, scales, err);
    for (int64_t n = 0; codes && n < p->n; n += FP8_PANEL_ROWS)
        for (int64_t s = 0; s < linear->cuts.count; s++) {
            fp8_tensor part = segment_of(linear, s, codes);
            fp8_unpack_panel(segment_at(linear, s, n / FP8_PANEL_ROWS), &part, n);
        }
    for (int64_t r = 0; scales && r < p->scale_rows; r++)
        for (int64_t c = 0; c < p->scale_cols; c++)
            memcpy(fp8_element_at(scales, r, c), fp8_linear_scale_at(linear, r, c),
                   (size_t)(fp8_dtype_bits(p->scale) / 8));
    return FP8_OK;
}
