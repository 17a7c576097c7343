/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_build.c - puts codes, scales and bias of a linear in their places. Threads share a piece
 * by panels of 16 rows, so that what is high precision is encoded 16 rows at a time into a worker's
 * own memory and packed from there. What is for a CUDA device is backend/cuda's. */
#include "op/linear_build.h"
#include "number/dtype.h"
#include "op/crew.h"
#include "op/cuda_calls.h"
#include "op/pack.h"
#include "op/quant_steps.h"
#include "op/tensor_check.h"

#include <math.h>
#include <string.h>

fp8_status fp8_build_begin(const fp8_context *ctx, const fp8_linear_plan *plan, fp8_build *out,
                           fp8_error *err)
{
    *out = (fp8_build){0};
    if (ctx->cuda)
        return fp8_cuda_build_begin(ctx, plan, out, err);
    FP8_TRY(fp8_linear_allocate(ctx, plan, &out->linear, err));
    memset(out->linear->bias, 0, (size_t)plan->n * sizeof(float));
    out->nan_rows = fp8_alloc_zeroed(ctx, (uint64_t)plan->n, 1);
    if (out->nan_rows)
        return FP8_OK;
    fp8_build_drop(out);
    return fp8_fail(err, FP8_E_NO_MEMORY, "linear: no memory for %lld bytes", (long long)plan->n);
}

/* A piece of W on its way into panels. */
typedef struct packing {
    fp8_build *build;
    const fp8_tensor *x; /* codes, or high precision, for which the rest is */
    int64_t row, col;    /* of x[0,0] in W */
    const fp8_quant *q;
    int64_t row0;         /* of x in the matrix that is requested */
    const float *operand; /* [units] */
    uint8_t *rows;        /* [workers, 16, columns of x] codes */
} packing;

static fp8_tensor rows_of(const fp8_tensor *x, int64_t first, int64_t rows)
{
    fp8_tensor some = *x;
    some.data = fp8_element_at(x, first, 0);
    some.shape[0] = rows;
    return some;
}

/* Codes of some rows of x in high precision. */
static fp8_tensor encode_rows(const packing *job, const fp8_tensor *x, int64_t first,
                              int64_t worker)
{
    const int64_t cols = x->shape[1];
    uint8_t *room = job->rows + worker * FP8_PANEL_ROWS * cols;
    const fp8_tensor codes = fp8_matrix(room, job->q->code, x->shape[0], cols);
    const fp8_slab slab = fp8_slab_of(job->build->linear->ctx, job->q, x, job->row0 + first);
    fp8_slab_encode(job->q, &slab, job->operand, &codes);
    return codes;
}

/* W[row.., col..] = codes[r,c], each segment of columns at its place. */
static void pack_segments(const fp8_build *build, const fp8_tensor *codes, int64_t row, int64_t col)
{
    const fp8_linear *l = build->linear;
    const fp8_packed to = {l->codes, build->nan_rows, l->cuts.columns};
    const int64_t end = col + codes->shape[1];
    if (l->plan.pad == 1) {
        fp8_pack_codes(&to, codes, row, col);
        return;
    }
    for (int64_t s = 0; s < l->cuts.count; s++) {
        const int64_t first = l->cuts.at[s] > col ? l->cuts.at[s] : col;
        const int64_t last = fp8_min_i64(l->cuts.at[s + 1], end);
        if (first >= last)
            continue;
        fp8_tensor part = *codes;
        part.data = fp8_element_at(codes, 0, first - col);
        part.shape[1] = last - first;
        fp8_pack_codes(&to, &part, row, l->cuts.place[s] + first - l->cuts.at[s]);
    }
}

static void pack_task(void *arg, int64_t task, int64_t worker)
{
    const packing *job = arg;
    const int64_t panel = job->row / FP8_PANEL_ROWS + task, end = job->row + job->x->shape[0];
    const int64_t first = panel * FP8_PANEL_ROWS > job->row ? panel * FP8_PANEL_ROWS : job->row;
    const int64_t rows = fp8_min_i64((panel + 1) * FP8_PANEL_ROWS, end) - first;
    fp8_tensor some = rows_of(job->x, first - job->row, rows);
    if (job->q)
        some = encode_rows(job, &some, first - job->row, worker);
    pack_segments(job->build, &some, first, job->col);
}

static void pack(packing *job, int64_t workers)
{
    const int64_t rows = job->x->shape[0], first = job->row / FP8_PANEL_ROWS;
    if (rows > 0 && job->x->shape[1] > 0)
        fp8_run_crew(job->build->linear->ctx, workers,
                     fp8_ceil_div(job->row + rows, FP8_PANEL_ROWS) - first, pack_task, job);
}

fp8_status fp8_build_codes(fp8_build *build, const fp8_tensor *codes, int64_t row, int64_t col,
                           fp8_error *err)
{
    if (build->linear->cuda)
        return fp8_cuda_build_codes(build->linear, codes, row, col, err);
    packing job = {.build = build, .x = codes, .row = row, .col = col};
    pack(&job, build->linear->ctx->threads);
    return FP8_OK;
}

fp8_status fp8_build_encode(fp8_build *build, const fp8_quant *q, const fp8_tensor *x, int64_t row0,
                            const float *operand, int64_t row, int64_t col, fp8_error *err)
{
    const fp8_context *ctx = build->linear->ctx;
    if (build->linear->cuda)
        return fp8_cuda_build_encode(build->linear, q, x, row0, operand, row, col, err);
    const int64_t panels = fp8_ceil_div(x->shape[0], FP8_PANEL_ROWS) + 1;
    const int64_t workers = fp8_min_i64(ctx->threads, panels);
    packing job = {.build = build, .x = x, .row = row, .col = col, .q = q, .row0 = row0};
    job.operand = operand;
    job.rows = fp8_alloc(ctx, (uint64_t)(workers * FP8_PANEL_ROWS * x->shape[1]));
    FP8_FAIL_IF(!job.rows, err, FP8_E_NO_MEMORY, "linear: no memory to quantize [%lld,%lld]",
                (long long)x->shape[0], (long long)x->shape[1]);
    pack(&job, workers);
    fp8_release(ctx, job.rows);
    return FP8_OK;
}

fp8_status fp8_build_map(fp8_build *build, int64_t row, int64_t rows, const uint8_t to[256],
                         fp8_error *err)
{
    const fp8_linear *l = build->linear;
    if (l->cuda)
        return fp8_cuda_build_map(l, row, rows, to, err);
    for (int64_t i = row; i < row + rows; i++)
        for (int64_t s = 0; s < l->cuts.count; s++)
            for (int64_t j = l->cuts.at[s]; j < l->cuts.at[s + 1]; j++) {
                const int64_t place = l->cuts.place[s] + j - l->cuts.at[s];
                uint8_t *code = l->codes + fp8_panel_offset(i, place, l->cuts.columns);
                *code = to[*code];
            }
    return FP8_OK;
}

/* Where scale (row, col) is while the linear is made. */
static uint8_t *scale_at(const fp8_build *build, int64_t row, int64_t col)
{
    const fp8_linear_plan *p = &build->linear->plan;
    if (!build->scales)
        return fp8_linear_scale_at(build->linear, row, col);
    return build->scales + (row * p->scale_cols + col) * (fp8_dtype_bits(p->scale) / 8);
}

/* Each of them can be a scale of the plan. */
static fp8_status check_scales(const fp8_linear_plan *p, const fp8_tensor *scales, int64_t row,
                               int64_t col, fp8_error *err)
{
    FP8_FAIL_IF(scales->dtype != p->scale && p->scale != FP8_F32, err, FP8_E_DTYPE,
                "linear: w_scales are %s, must be %s", fp8_dtype_name(scales->dtype),
                fp8_dtype_name(p->scale));
    const fp8_load_fn load = fp8_dtype_facts_of(scales->dtype)->load;
    for (int64_t r = 0; r < scales->shape[0]; r++)
        for (int64_t c = 0; c < scales->shape[1]; c++) {
            const float value = load(fp8_element_at(scales, r, c), 0);
            if (!(value > 0 && isfinite(value)))
                return fp8_fail_at(err, FP8_E_SCALE, (row + r) * p->scale_cols + col + c,
                                   "linear: w_scales[%lld,%lld] is %g, must be finite and positive",
                                   (long long)(row + r), (long long)(col + c), (double)value);
        }
    return FP8_OK;
}

fp8_status fp8_build_scales(fp8_build *build, const fp8_tensor *scales, int64_t row, int64_t col,
                            fp8_error *err)
{
    const fp8_linear *l = build->linear;
    const fp8_dtype_facts *from = fp8_dtype_facts_of(scales->dtype);
    const bool same = scales->dtype == l->plan.scale;
    FP8_TRY(check_scales(&l->plan, scales, row, col, err));
    for (int64_t r = 0; r < scales->shape[0]; r++)
        for (int64_t c = 0; c < scales->shape[1]; c++) {
            const void *element = fp8_element_at(scales, r, c);
            const float value = from->load(element, 0);
            memcpy(scale_at(build, row + r, col + c), same ? element : &value,
                   (size_t)(fp8_dtype_bits(l->plan.scale) / 8));
        }
    return FP8_OK;
}

void fp8_build_take_made(fp8_build *build, const fp8_quant *q, const void *scales, int64_t row,
                         int64_t col)
{
    const int64_t bytes = fp8_dtype_bits(q->scale) / 8;
    const int64_t run = build->scales ? q->grid_cols : 1; /* those that lie side by side */
    const char *from = scales;
    for (int64_t r = 0; r < q->grid_rows; r++)
        for (int64_t c = 0; c < q->grid_cols; c += run, from += run * bytes)
            memcpy(scale_at(build, row + r, col + c), from, (size_t)(run * bytes));
}

void fp8_build_bias(fp8_build *build, const fp8_tensor *bias, int64_t row)
{
    const fp8_load_fn load = fp8_dtype_facts_of(bias->dtype)->load;
    float *to = build->bias ? build->bias : build->linear->bias;
    build->linear->has_bias = true;
    for (int64_t i = 0; i < bias->shape[0]; i++)
        to[row + i] = load(bias->data, i * bias->stride[0]);
}

static bool row_has_nan(const fp8_linear *l, int64_t row)
{
    const fp8_load_fn load = fp8_dtype_facts_of(l->plan.code)->load;
    for (int64_t j = 0; j < l->cuts.columns; j++)
        if (isnan(load(l->codes + fp8_panel_offset(row, j, l->cuts.columns), 0)))
            return true;
    return false;
}

fp8_status fp8_linear_set_bias(fp8_linear *l, const fp8_tensor *bias, fp8_error *err)
{
    if (l->cuda)
        return fp8_cuda_linear_set_bias(l, bias, err);
    const fp8_load_fn load = bias ? fp8_dtype_facts_of(bias->dtype)->load : NULL;
    for (int64_t i = 0; i < l->plan.n; i++) {
        l->bias[i] = load ? load(bias->data, i * bias->stride[0]) : 0.0f;
        if (l->has_nan && row_has_nan(l, i))
            l->bias[i] = NAN;
    }
    l->has_bias = bias || l->has_nan;
    return FP8_OK;
}

/* The three steps of a quantizer; work holds amax[units], operand[units] and the scales. */
static fp8_status quantize_steps(fp8_build *build, const fp8_quant *q, const fp8_tensor *w,
                                 float *work, fp8_error *err)
{
    const fp8_linear *l = build->linear;
    const int64_t units = q->grid_rows * q->grid_cols;
    float *stored = work + 2 * units;
    FP8_TRY(fp8_quant_amax(l->ctx, q, w, 0, work, err));
    FP8_TRY(fp8_quant_scales(l->ctx, q, work, units, stored, work + units, err));
    fp8_build_take_made(build, q, stored, 0, 0);
    return fp8_build_encode(build, q, w, 0, work + units, 0, 0, err);
}

fp8_status fp8_build_quantize(fp8_build *build, const fp8_tensor *w, fp8_error *err)
{
    const fp8_linear_plan *p = &build->linear->plan;
    const fp8_context *ctx = build->linear->ctx;
    fp8_quant q;
    FP8_TRY(fp8_quant_prepare(&q, &p->desc.w, p->high, p->code, p->scale, p->n, p->k, err));
    float *work = fp8_alloc_zeroed(ctx, (uint64_t)(q.grid_rows * q.grid_cols), 3 * sizeof *work);
    FP8_FAIL_IF(!work, err, FP8_E_NO_MEMORY, "linear: no memory to quantize [%lld,%lld]",
                (long long)p->n, (long long)p->k);
    const fp8_status status = quantize_steps(build, &q, w, work, err);
    fp8_release(ctx, work);
    return status;
}

fp8_status fp8_build_finish(fp8_build *build, fp8_error *err)
{
    fp8_linear *l = build->linear;
    if (l->cuda)
        return fp8_cuda_build_finish(build, err);
    l->has_nan = false;
    for (int64_t n = 0; n < l->plan.n; n++)
        if (build->nan_rows[n]) {
            l->has_nan = true;
            l->bias[n] = NAN;
        }
    l->has_bias |= l->has_nan;
    l->w_folds = fp8_linear_w_folds(l);
    return FP8_OK;
}

fp8_linear *fp8_build_end(fp8_build *build)
{
    fp8_linear *l = build->linear;
    fp8_release(l->ctx, build->nan_rows);
    fp8_release(l->ctx, build->scales);
    fp8_release(l->ctx, build->bias);
    *build = (fp8_build){0};
    return l;
}

void fp8_build_drop(fp8_build *build)
{
    if (build->linear)
        fp8_linear_free(fp8_build_end(build));
}
