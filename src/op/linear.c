/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.c - the life of a prepared linear: create (packs, and quantizes what is in high
 * precision), clone, export, free. All it holds is one piece of memory. */
#include "op/linear.h"
#include "number/dtype.h"
#include "op/crew.h"
#include "op/pack.h"
#include "op/quant_steps.h"
#include "op/tensor_check.h"

#include <math.h>
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

static fp8_status allocate(const fp8_context *ctx, const fp8_linear_plan *plan, fp8_linear **out,
                           fp8_error *err)
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
    l->memory = fp8_alloc(ctx, l->memory_bytes);
    if (!l->memory) {
        fp8_release(ctx, l);
        return fp8_fail(err, FP8_E_NO_MEMORY, "linear: no memory for %llu bytes",
                        (unsigned long long)at.end);
    }
    const int64_t *widths = plan->desc.widths;
    point(l, &at);
    memset(l->scales, 0, (size_t)scale_bytes_of(plan));
    for (size_t i = 0; i < plan->desc.width_count; i++)
        ((int64_t *)(void *)(aligned(l->memory) + at.widths))[i] = widths[i];
    fp8_cuts_find(&l->w_cuts, plan, false);
    fp8_cuts_find(&l->cuts, plan, true);
    *out = l;
    return FP8_OK;
}

/* Scale (row, col) of W. */
static uint8_t *scale_at(const fp8_linear *l, int64_t row, int64_t col)
{
    return l->scales +
           fp8_linear_scale_index(&l->plan, row, col) * (fp8_dtype_bits(l->plan.scale) / 8);
}

/* l->scales = w_scales[scale_rows, scale_cols]. */
static fp8_status take_scales(fp8_linear *l, const fp8_tensor *w_scales, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    const fp8_load_fn load = fp8_dtype_facts_of(p->scale)->load;
    for (int64_t r = 0; r < p->scale_rows; r++)
        for (int64_t c = 0; c < p->scale_cols; c++) {
            const void *from = fp8_element_at(w_scales, r, c);
            const float value = load(from, 0);
            if (!(value > 0 && isfinite(value)))
                return fp8_fail_at(err, FP8_E_SCALE, r * p->scale_cols + c,
                                   "linear: w_scales[%lld,%lld] is %g, must be finite and positive",
                                   (long long)r, (long long)c, (double)value);
            memcpy(scale_at(l, r, c), from, (size_t)(fp8_dtype_bits(p->scale) / 8));
        }
    return FP8_OK;
}

static void take_bias(fp8_linear *l, const fp8_tensor *bias)
{
    l->has_bias = bias != NULL;
    for (int64_t n = 0; n < l->plan.n; n++) {
        const int64_t i = bias ? n * bias->stride[0] : 0;
        l->bias[n] = bias ? fp8_dtype_facts_of(bias->dtype)->load(bias->data, i) : 0;
    }
}

/* A weight on its way into panels, by rows of 16. */
typedef struct packing {
    fp8_linear *linear;
    const fp8_tensor *w; /* codes, or high precision, for which the rest is */
    const fp8_quant *q;
    const float *operand; /* [units] */
    uint8_t *rows;        /* [workers, 16, k] codes */
    int32_t nan_found;
} packing;

/* Codes of rows [first, first + 16) of W in high precision. */
static fp8_tensor encode_rows(const packing *job, int64_t first, int64_t worker)
{
    const int64_t k = job->q->cols, rows = fp8_min_i64(FP8_PANEL_ROWS, job->q->rows - first);
    fp8_tensor x = *job->w;
    x.data = fp8_element_at(job->w, first, 0);
    x.shape[0] = rows;
    const fp8_tensor codes =
        fp8_matrix(job->rows + worker * FP8_PANEL_ROWS * k, job->q->code, rows, k);
    const fp8_slab slab = fp8_slab_of(job->linear->ctx, job->q, &x, first);
    fp8_slab_encode(job->q, &slab, job->operand, &codes);
    return codes;
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

/* A panel = rows [first, first + 16) of codes, each segment at its place. */
static void pack_panel(const fp8_linear *l, int64_t panel, const fp8_tensor *codes, int64_t first)
{
    if (l->plan.pad > 1)
        memset(segment_at(l, 0, panel), 0, (size_t)fp8_panel_stride(l->cuts.columns));
    for (int64_t s = 0; s < l->cuts.count; s++) {
        const fp8_tensor part = segment_of(l, s, codes);
        fp8_pack_panel(segment_at(l, s, panel), &part, first);
    }
}

static void pack_task(void *arg, int64_t panel, int64_t worker)
{
    packing *job = arg;
    fp8_linear *l = job->linear;
    const int64_t row = panel * FP8_PANEL_ROWS;
    const fp8_tensor codes = job->q ? encode_rows(job, row, worker) : *job->w;
    const int64_t first = job->q ? 0 : row; /* of the codes */
    const uint32_t nan_rows = fp8_nan_rows(&codes, first);
    pack_panel(l, panel, &codes, first);
    for (int64_t i = 0; nan_rows >> i; i++)
        if (nan_rows >> i & 1)
            l->bias[row + i] = NAN;
    if (nan_rows)
        __atomic_store_n(&job->nan_found, 1, __ATOMIC_RELAXED);
}

static void pack(packing *job, int64_t workers)
{
    fp8_linear *l = job->linear;
    const int64_t panels = l->plan.k ? fp8_ceil_div(l->plan.n, FP8_PANEL_ROWS) : 0;
    fp8_run_crew(l->ctx, workers, panels, pack_task, job);
    l->has_nan = job->nan_found != 0;
    l->has_bias |= l->has_nan;
    l->w_folds = fp8_linear_w_folds(l);
}

/* The three steps of a quantizer; work holds amax[units] and operand[units]. */
static fp8_status quantize_into(packing *job, float *work, int64_t workers, fp8_error *err)
{
    fp8_linear *l = job->linear;
    const fp8_quant *q = job->q;
    const int64_t units = q->grid_rows * q->grid_cols;
    const int64_t bytes = fp8_dtype_bits(q->scale) / 8;
    uint8_t *stored = (uint8_t *)(work + 2 * units);
    FP8_TRY(fp8_quant_amax(l->ctx, q, job->w, 0, work, err));
    FP8_TRY(fp8_quant_scales(l->ctx, q, work, units, stored, work + units, err));
    const fp8_tensor scales = fp8_matrix(stored, q->scale, q->grid_rows, q->grid_cols);
    for (int64_t r = 0; r < q->grid_rows; r++)
        for (int64_t c = 0; c < q->grid_cols; c++)
            memcpy(scale_at(l, r, c), fp8_element_at(&scales, r, c), (size_t)bytes);
    job->operand = work + units;
    pack(job, workers);
    return FP8_OK;
}

static fp8_status take_high(fp8_linear *l, const fp8_tensor *w, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    fp8_quant q;
    FP8_TRY(fp8_quant_prepare(&q, &p->desc.w, p->high, p->code, p->scale, p->n, p->k, err));
    const int64_t workers = fp8_min_i64(l->ctx->threads, fp8_ceil_div(p->n, FP8_PANEL_ROWS));
    float *work = fp8_alloc_zeroed(l->ctx, (uint64_t)(q.grid_rows * q.grid_cols), 3 * sizeof *work);
    uint8_t *rows = fp8_alloc(l->ctx, (uint64_t)(workers * FP8_PANEL_ROWS * p->k));
    packing job = {.linear = l, .w = w, .q = &q, .rows = rows};
    fp8_status status = FP8_E_NO_MEMORY;
    if (work && rows)
        status = quantize_into(&job, work, workers, err);
    else
        fp8_error_set(err, status, -1, "linear: no memory to quantize [%lld,%lld]", (long long)p->n,
                      (long long)p->k);
    fp8_release(l->ctx, rows);
    fp8_release(l->ctx, work);
    return status;
}

static fp8_status fill(fp8_linear *l, const fp8_tensor *w, const fp8_tensor *w_scales,
                       const fp8_tensor *bias, fp8_error *err)
{
    take_bias(l, bias);
    if (l->plan.high != FP8_DTYPE_NONE)
        return take_high(l, w, err);
    packing job = {.linear = l, .w = w};
    FP8_TRY(take_scales(l, w_scales, err));
    pack(&job, l->ctx->threads);
    return FP8_OK;
}

fp8_status fp8_linear_create(const fp8_context *ctx, const fp8_linear_desc *desc,
                             const fp8_tensor *w, const fp8_tensor *w_scales,
                             const fp8_tensor *bias, fp8_linear **out, fp8_error *err)
{
    fp8_linear_plan plan;
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "linear: out is NULL");
    *out = NULL;
    FP8_TRY(fp8_linear_plan_make(&plan, ctx, desc, w, w_scales, bias, err));
    fp8_linear *l;
    FP8_TRY(allocate(ctx, &plan, &l, err));
    const fp8_status status = fill(l, w, w_scales, bias, err);
    if (status != FP8_OK)
        fp8_linear_free(l);
    else
        *out = l;
    return status;
}

fp8_status fp8_linear_clone(const fp8_linear *linear, fp8_linear **out, fp8_error *err)
{
    FP8_FAIL_IF(!linear || !out, err, FP8_E_ARGUMENT, "linear: %s is NULL",
                linear ? "out" : "linear");
    *out = NULL;
    fp8_linear *l;
    FP8_TRY(allocate(linear->ctx, &linear->plan, &l, err));
    memcpy(aligned(l->memory), aligned(linear->memory),
           (size_t)(linear->memory_bytes - (FP8_ALIGN - 1)));
    l->has_bias = linear->has_bias;
    l->has_nan = linear->has_nan;
    l->w_folds = linear->w_folds;
    *out = l;
    return FP8_OK;
}

void fp8_linear_free(fp8_linear *linear)
{
    if (!linear)
        return;
    fp8_release(linear->ctx, linear->memory);
    fp8_release(linear->ctx, linear);
}

fp8_status fp8_linear_get_info(const fp8_linear *linear, fp8_linear_info *out)
{
    if (!linear || !out)
        return FP8_E_ARGUMENT;
    const fp8_linear_plan *p = &linear->plan;
    const uint64_t scale_bytes = scale_bytes_of(p);
    *out = (fp8_linear_info){
        .n = p->n,
        .k = p->k,
        .code = p->code,
        .scale = p->scale,
        .scale_rows = p->scale_rows,
        .scale_cols = p->scale_cols,
        .code_bytes = linear->code_bytes,
        .scale_bytes = scale_bytes,
        .other_bytes = sizeof *linear + linear->memory_bytes - linear->code_bytes - scale_bytes,
    };
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

fp8_status fp8_linear_export(const fp8_linear *linear, fp8_tensor *codes, fp8_tensor *scales,
                             fp8_error *err)
{
    FP8_FAIL_IF(!linear, err, FP8_E_ARGUMENT, "linear: linear is NULL");
    const fp8_linear_plan *p = &linear->plan;
    FP8_TRY(check_export(codes, "codes", p->code, p->n, p->k, err));
    FP8_TRY(check_export(scales, "scales", p->scale, p->scale_rows, p->scale_cols, err));
    for (int64_t n = 0; codes && n < p->n; n += FP8_PANEL_ROWS)
        for (int64_t s = 0; s < linear->cuts.count; s++) {
            fp8_tensor part = segment_of(linear, s, codes);
            fp8_unpack_panel(segment_at(linear, s, n / FP8_PANEL_ROWS), &part, n);
        }
    for (int64_t r = 0; scales && r < p->scale_rows; r++)
        for (int64_t c = 0; c < p->scale_cols; c++)
            memcpy(fp8_element_at(scales, r, c), scale_at(linear, r, c),
                   (size_t)(fp8_dtype_bits(p->scale) / 8));
    return FP8_OK;
}
