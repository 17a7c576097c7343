/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_input.c - X[M,K] as a kernel reads it: rows of bf16 or fp32, segments at their places
 * (fp8_cuts) and zeros everywhere else, and their scales. Codes are exact in both. For kernels of
 * fp32, scales that vary along K are multiplied in:
 *
 *     bf16:  x[i,k] = code[i,k]            scale[i,s] of segment s of linear->cuts
 *     fp32:  x[i,k] = code[i,k] * scale    the same, in fp32, if it varies along K
 *     bf16 that folds: linear_fold.c       scale[i], what is left
 *
 * Scales of W that the plan has for X (w_into_x) are multiplied in too, in fp32.
 *
 * X in high precision is quantized first, if the activation asks for it, a few rows at a time. */
#include "op/linear_input.h"
#include "base/size.h"
#include "number/dtype.h"
#include "op/crew.h"
#include "op/quant_steps.h"
#include "op/tensor_check.h"

#include <math.h>
#include <sched.h>
#include <string.h>

enum {
    ROW_GAP = 32,            /* elements between rows, so that their addresses differ in all bits */
    MOST_ELEMENTS = 1 << 15, /* of a piece, about .. */
    LEAST_ELEMENTS = 1 << 11,
    PATIENCE = 1 << 12, /* looks at a state before the thread is given away */
};

/* What has become of a piece, in this order; and of the gate. */
enum { PIECE_NEW, PIECE_IN_AMAX, PIECE_MEASURED, PIECE_IN_ROWS, PIECE_READY };
enum { GATE_SHUT, GATE_TAKEN, GATE_OPEN };

/* A worker's part of the workspace, for the rows of a piece. */
typedef struct bench {
    uint8_t *codes;  /* [piece_rows, k], or one gathered row of X */
    float *amax;     /* [piece_rows, scales]: amaxes, then operands */
    uint8_t *stored; /* [piece_rows, scales] of the scales' dtype, at most 4 bytes each */
} bench;

static int64_t row_stride(const fp8_linear *l)
{
    return fp8_ceil_div(l->cuts.columns, FP8_X_PAD) * FP8_X_PAD + ROW_GAP;
}

static int64_t scale_columns(const fp8_linear_plan *p)
{
    return fp8_ceil_div(p->k, p->x_unit_cols);
}

/* Of a piece, at most. */
static int64_t most_rows(const fp8_linear_plan *p, int64_t m)
{
    const int64_t rows = MOST_ELEMENTS / (p->k > 0 ? p->k : 1);
    return fp8_min_i64(rows > 0 ? rows : 1, m > 0 ? m : 1);
}

static uint64_t bench_bytes(const fp8_linear_plan *p, int64_t rows)
{
    const uint64_t scales = fp8_align((uint64_t)(rows * scale_columns(p)) * sizeof(float));
    /* A gathered row of X takes up to 4 bytes an element. */
    const uint64_t elements = (uint64_t)p->k * (uint64_t)(rows > 4 ? rows : 4);
    return fp8_align(elements) + 2 * scales;
}

static bench bench_of(const fp8_input *job, int64_t worker)
{
    const fp8_linear_plan *p = &job->linear->plan;
    const int64_t rows = job->piece_rows;
    const uint64_t scales = fp8_align((uint64_t)(rows * scale_columns(p)) * sizeof(float));
    uint8_t *base = job->workers + (uint64_t)worker * job->worker_bytes;
    uint8_t *end = base + job->worker_bytes;
    return (bench){base, (float *)(void *)(end - 2 * scales), end - scales};
}

/* The workspace: | rows | scales | pieces, at most 2 a row | one bench a worker |, aligned. */
typedef struct input_size {
    uint64_t rows, scales, pieces, benches;
} input_size;

static bool size_input(const fp8_linear *l, fp8_dtype dtype, int64_t m, input_size *size)
{
    const uint64_t row = (uint64_t)row_stride(l) * (uint64_t)(fp8_dtype_bits(dtype) / 8);
    uint64_t rows, scales;
    if (!fp8_size_mul((uint64_t)m, row, &rows) ||
        !fp8_size_mul((uint64_t)m, (uint64_t)l->cuts.count * sizeof(float), &scales) ||
        rows > INT64_MAX / 4 || scales > INT64_MAX / 4)
        return false;
    *size = (input_size){fp8_align(rows), fp8_align(scales), fp8_align(2 * (uint64_t)m),
                         (uint64_t)l->ctx->threads * bench_bytes(&l->plan, most_rows(&l->plan, m))};
    return true;
}

bool fp8_input_bytes(const fp8_linear *linear, fp8_dtype dtype, int64_t m, uint64_t *bytes)
{
    input_size size;
    if (!size_input(linear, dtype, m, &size))
        return false;
    *bytes = size.rows + size.scales + size.pieces + size.benches;
    return true;
}

/* Row i of X side by side: where it lies, or gathered into `to`. */
static const void *contiguous_row(const fp8_input *job, int64_t i, uint8_t *to)
{
    const fp8_tensor *x = job->x;
    const size_t bytes = (size_t)(fp8_dtype_bits(x->dtype) / 8);
    if (x->stride[1] == 1 || x->shape[1] == 1)
        return fp8_element_at(x, i, 0);
    for (int64_t k = 0; k < x->shape[1]; k++)
        memcpy(to + (size_t)k * bytes, fp8_element_at(x, i, k), bytes);
    return to;
}

static int64_t piece_count(const fp8_input *job)
{
    return fp8_ceil_div(job->x->shape[0], job->block_rows) * job->block_pieces;
}

static void *prepared_row(const fp8_input *job, int64_t i)
{
    const int64_t bytes = fp8_dtype_bits(job->out.dtype) / 8;
    return (char *)job->out.rows + i * job->out.stride * bytes;
}

/* The scales of row i, one for each unit of columns, are fp32 in `scale`. */
static void place_scales(const fp8_input *job, int64_t i, const float *scale)
{
    const fp8_linear *l = job->linear;
    const int64_t unit = l->plan.x_unit_cols;
    if (!l->plan.x_along_k) {
        job->out.scale[i] = l->plan.k > 0 ? scale[0] : 1; /* no columns, no scales */
    } else if (job->out.folds) {
        job->out.scale[i] = fp8_fold_row(prepared_row(job, i), l->plan.k, scale, unit);
    } else if (job->out.dtype == FP8_BF16) {
        for (int64_t s = 0; s < l->cuts.count; s++)
            job->out.scale[i * l->cuts.count + s] = scale[l->cuts.at[s] / unit];
    } else {
        float *x = prepared_row(job, i);
        for (int64_t k = 0; k < l->plan.k; k += unit, scale++)
            for (int64_t c = k; c < fp8_min_i64(k + unit, l->plan.k); c++)
                x[c] *= *scale;
    }
}

/* x[k] in F32 times the scales of W's columns. */
static void multiply_by_w_scales(const fp8_linear *l, float *x)
{
    const fp8_linear_plan *p = &l->plan;
    const fp8_load_fn load = fp8_dtype_facts_of(p->scale)->load;
    for (int64_t k = 0; k < p->k; k++) {
        const int64_t col = (k + p->desc.w_origin.cols) / p->unit_cols;
        x[k] *= load(l->scales, fp8_linear_scale_index(p, 0, col));
    }
}

/* Moves the segments of a row to their places, the last first, with zeros between. */
static void spread(const fp8_cuts *cuts, char *row, int64_t bytes)
{
    for (int64_t s = cuts->count - 1; s >= 0; s--) {
        const int64_t n = cuts->at[s + 1] - cuts->at[s];
        char *to = row + cuts->place[s] * bytes;
        memmove(to, row + cuts->at[s] * bytes, (size_t)(n * bytes));
        memset(to + n * bytes, 0, (size_t)((cuts->place[s + 1] - cuts->place[s] - n) * bytes));
    }
}

/* Completes row i, whose first k elements are there, with their scales (NULL = none). */
static void complete_row(const fp8_input *job, int64_t i, const float *scale)
{
    const fp8_linear *l = job->linear;
    const int64_t k = l->plan.k, bytes = fp8_dtype_bits(job->out.dtype) / 8;
    char *to = prepared_row(job, i);
    memset(to + k * bytes, 0, (size_t)((job->out.stride - k) * bytes));
    if (scale)
        place_scales(job, i, scale);
    if (l->plan.w_into_x)
        multiply_by_w_scales(l, (float *)(void *)to);
    if (l->plan.pad > 1)
        spread(&l->cuts, to, bytes);
}

/* Row i of the result from k codes or elements side by side, and their scales (NULL = none). */
static void lay_out_row(const fp8_input *job, int64_t i, const void *from, const float *scale)
{
    fp8_caster_run(&job->caster, prepared_row(job, i), from, job->linear->plan.k, false);
    complete_row(job, i, scale);
}

/* ---- X comes as codes ---- */

static void take_codes(fp8_input *job, int64_t i, const bench *b)
{
    const int64_t columns = scale_columns(&job->linear->plan);
    const int64_t scale_row = job->linear->plan.desc.x.grid.rows ? i : 0;
    for (int64_t c = 0; c < columns; c++) {
        const float scale = job->load_scale(fp8_element_at(job->x_scales, scale_row, c), 0);
        if (!(scale > 0 && isfinite(scale)))
            fp8_lower_index(&job->bad_scale, scale_row * columns + c);
        b->amax[c] = scale;
    }
    lay_out_row(job, i, contiguous_row(job, i, b->codes), b->amax);
}

/* ---- X is quantized here ---- */

/* Operands and stored scales of rows [begin, end) in the bench; false if refused. */
static bool make_scales(fp8_input *job, int64_t begin, int64_t end, const bench *b,
                        const fp8_quant *q, const fp8_tensor *x)
{
    fp8_slab slab = fp8_slab_of(job->linear->ctx, q, x, 0);
    const int64_t units = (end - begin) * q->grid_cols;
    for (int64_t u = 0; u < units; u++)
        b->amax[u] = 0;
    const int64_t refused = fp8_slab_amax(q, &slab, false, b->amax);
    if (refused >= 0) {
        fp8_lower_index(&job->refused, refused + begin * q->cols);
        return false;
    }
    fp8_error err = {.pos = 0};
    if (fp8_quant_scales(job->linear->ctx, q, b->amax, units, b->stored, b->amax, &err) == FP8_OK)
        return true;
    fp8_lower_index(&job->bad_scale, begin * q->grid_cols + (err.pos > 0 ? err.pos : 0));
    return false;
}

static bool can_round(const fp8_input *job, const float *operand, int64_t n)
{
    bool can = job->round != NULL;
    for (int64_t i = 0; i < n && can; i++)
        can = fp8_round_takes(operand[i]);
    return can;
}

/* The first k elements of rows [begin, ..) of the result from x[q->rows, k] and the operands. */
static void encode_rows(fp8_input *job, int64_t begin, const bench *b, const fp8_quant *q,
                        const fp8_tensor *x)
{
    if (can_round(job, b->amax, q->grid_rows * q->grid_cols)) {
        for (int64_t i = 0; i < q->rows; i++)
            job->round(&(fp8_round_run){.x = fp8_element_at(x, i, 0),
                                        .y = prepared_row(job, begin + i),
                                        .operand = b->amax + i / q->unit_rows * q->grid_cols,
                                        .n = q->cols,
                                        .unit = q->unit_cols});
        return;
    }
    const fp8_tensor codes = fp8_matrix(b->codes, q->code, q->rows, q->cols);
    fp8_slab slab = fp8_slab_of(job->linear->ctx, q, x, 0);
    fp8_slab_encode(q, &slab, b->amax, &codes);
    for (int64_t i = 0; i < q->rows; i++)
        fp8_caster_run(&job->caster, prepared_row(job, begin + i), b->codes + i * q->cols, q->cols,
                       false);
}

static void quantize_rows(fp8_input *job, int64_t begin, int64_t end, const bench *b)
{
    fp8_quant q = job->q;
    fp8_tensor x = *job->x;
    x.data = fp8_element_at(job->x, begin, 0);
    x.shape[0] = q.rows = end - begin;
    const bool whole = q.desc.grid.rows == 0; /* one scale, which is known */
    if (whole) {
        q.unit_rows = q.rows;
        b->amax[0] = job->tensor_operand;
    } else {
        q.grid_rows = q.rows;
        if (!make_scales(job, begin, end, b, &q, &x))
            return;
    }
    encode_rows(job, begin, b, &q, &x);
    for (int64_t i = 0; i < q.rows; i++) {
        const float *scale = whole ? &job->tensor_scale : b->amax + i * q.grid_cols;
        for (int64_t c = 0; !whole && c < q.grid_cols; c++) /* the operands are used up */
            b->amax[i * q.grid_cols + c] = job->load_scale(b->stored, i * q.grid_cols + c);
        complete_row(job, begin + i, scale);
    }
}

/* The kernel that makes rows of X without codes, where that is the same and worth it. */
static fp8_kernel_round *round_kernel(const fp8_input *job)
{
    enum { LEAST_UNIT = 64 }; /* columns: a kernel has something to do for each unit */
    const fp8_quant *q = &job->q;
    const bool contiguous = job->x->stride[1] == 1;
    if (!contiguous || job->out.dtype != FP8_BF16 || q->unit_cols < LEAST_UNIT)
        return NULL;
    const fp8_kernel *kernel = fp8_round_kernel(job->linear->ctx->isa, q);
    return kernel ? kernel->fn.round : NULL;
}

/* The rows of a piece: none of those that the last block lacks. */
static void piece_rows(const fp8_input *job, int64_t piece, int64_t *begin, int64_t *end)
{
    const int64_t block = piece / job->block_pieces * job->block_rows;
    const int64_t block_end = fp8_min_i64(block + job->block_rows, job->x->shape[0]);
    *begin = fp8_min_i64(block + piece % job->block_pieces * job->piece_rows, block_end);
    *end = fp8_min_i64(*begin + job->piece_rows, block_end);
}

/* The amax of the rows of a piece goes into that of X. */
static void measure_piece(fp8_input *job, int64_t piece, int64_t worker)
{
    fp8_slab slab = fp8_slab_of(job->linear->ctx, &job->q, job->x, 0);
    (void)worker;
    piece_rows(job, piece, &slab.begin, &slab.end);
    if (job->q.cols == 0)
        return;
    const int64_t refused = fp8_slab_amax(&job->q, &slab, true, &job->tensor_amax);
    if (refused >= 0)
        fp8_lower_index(&job->refused, refused);
}

/* The one scale of all of X from its amax, and what codes are made with. */
static fp8_status dynamic_scale(fp8_input *job, fp8_error *err)
{
    uint32_t stored = 0;
    FP8_TRY(fp8_quant_scales(job->linear->ctx, &job->q, &job->tensor_amax, 1, &stored,
                             &job->tensor_operand, err));
    job->tensor_scale = job->load_scale(&stored, 0);
    return FP8_OK;
}

static fp8_status static_scale(fp8_input *job, fp8_error *err)
{
    float value = job->linear->plan.desc.x_static;
    fp8_tensor one = fp8_matrix(&value, FP8_F32, 1, 1);
    job->tensor_scale = value;
    return fp8_quant_static(&job->q, &one, &job->tensor_operand, err);
}

/* ---- all kinds ---- */

static void prepare_piece(fp8_input *job, int64_t piece, int64_t worker)
{
    const bench b = bench_of(job, worker);
    int64_t begin, end;
    piece_rows(job, piece, &begin, &end);
    if (begin >= end)
        return;
    const fp8_activation kind = job->linear->plan.desc.activation;
    if (kind == FP8_ACTIVATION_DYNAMIC || kind == FP8_ACTIVATION_STATIC) {
        quantize_rows(job, begin, end, &b);
        return;
    }
    for (int64_t i = begin; i < end; i++)
        if (kind == FP8_ACTIVATION_CODES)
            take_codes(job, i, &b);
        else
            lay_out_row(job, i, contiguous_row(job, i, b.codes), NULL);
}

/* Does to a piece what follows a state, unless somebody has begun it. */
static void take_piece(fp8_input *job, int64_t piece, int64_t worker, uint8_t from,
                       void (*what)(fp8_input *job, int64_t piece, int64_t worker))
{
    uint8_t *state = &job->pieces[piece], expected = from;
    if (__atomic_load_n(state, __ATOMIC_RELAXED) != from ||
        !__atomic_compare_exchange_n(state, &expected, (uint8_t)(from + 1), false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return;
    what(job, piece, worker);
    __atomic_store_n(state, (uint8_t)(from + 2), __ATOMIC_RELEASE);
}

static void await_state(const uint8_t *state, uint8_t wanted)
{
    int64_t looks = 0;
    while (__atomic_load_n(state, __ATOMIC_ACQUIRE) < wanted)
        if (++looks % PATIENCE == 0)
            sched_yield();
}

static fp8_status verdict(const fp8_input *job, fp8_error *err)
{
    const int64_t columns = scale_columns(&job->linear->plan);
    if (job->refused != INT64_MAX)
        return fp8_refuse_element(&job->q, job->x, 0, job->refused, err);
    if (job->bad_scale == INT64_MAX)
        return FP8_OK;
    const char *rule = job->x_scales ? "is not finite and positive" : "is too large for its dtype";
    return fp8_fail_at(err, FP8_E_SCALE, job->bad_scale, "linear: x's scale [%lld,%lld] %s",
                       (long long)(job->bad_scale / columns), (long long)(job->bad_scale % columns),
                       rule);
}

/* What all pieces tell together. */
static fp8_status judge(fp8_input *job)
{
    FP8_TRY(verdict(job, job->err));
    return job->asks == FP8_INPUT_AMAX && !job->q.desc.static_scales ? dynamic_scale(job, job->err)
                                                                     : FP8_OK;
}

/* Brings all pieces as far as the gate asks, each worker from its share on, and opens it. */
static void open_gate(fp8_input *job, int64_t worker)
{
    const bool amax = job->asks == FP8_INPUT_AMAX;
    const int64_t count = piece_count(job), first = worker * count / job->linear->ctx->threads;
    uint8_t shut = GATE_SHUT;
    for (int64_t i = 0; i < count; i++)
        if (amax)
            take_piece(job, (first + i) % count, worker, PIECE_NEW, measure_piece);
        else
            take_piece(job, (first + i) % count, worker, PIECE_MEASURED, prepare_piece);
    for (int64_t i = 0; i < count; i++)
        await_state(&job->pieces[i], amax ? PIECE_MEASURED : PIECE_READY);
    if (__atomic_compare_exchange_n(&job->gate, &shut, GATE_TAKEN, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        job->status = judge(job);
        __atomic_store_n(&job->gate, GATE_OPEN, __ATOMIC_RELEASE);
    }
    await_state(&job->gate, GATE_OPEN);
}

bool fp8_input_need(fp8_input *input, int64_t block, int64_t worker)
{
    const int64_t first = block * input->block_pieces, end = first + input->block_pieces;
    if (input->asks != FP8_INPUT_NOTHING) {
        if (__atomic_load_n(&input->gate, __ATOMIC_ACQUIRE) != GATE_OPEN)
            open_gate(input, worker);
        if (input->status != FP8_OK)
            return false;
    }
    if (input->is_ready)
        return true;
    for (int64_t piece = first; piece < end; piece++)
        take_piece(input, piece, worker, PIECE_MEASURED, prepare_piece);
    for (int64_t piece = first; piece < end; piece++)
        await_state(&input->pieces[piece], PIECE_READY);
    return true;
}

/* What must be known of X before anything of Y is written: its amax or whether an element is
 * refused, for a scale that is one; else whether a row is refused. An F16 scale can be too large; a
 * scale of any other dtype cannot, since it is no larger than the amax. */
static fp8_input_asks asks_of(const fp8_linear_plan *p)
{
    const bool refuses = p->desc.x.nan == FP8_NAN_REFUSE;
    if (p->desc.activation == FP8_ACTIVATION_CODES)
        return FP8_INPUT_ROWS;
    if (p->desc.activation == FP8_ACTIVATION_STATIC)
        return refuses ? FP8_INPUT_AMAX : FP8_INPUT_NOTHING;
    if (p->desc.activation == FP8_ACTIVATION_NONE)
        return FP8_INPUT_NOTHING;
    if (p->desc.x.grid.rows == 0)
        return FP8_INPUT_AMAX;
    return refuses || p->desc.x_scale == FP8_F16 ? FP8_INPUT_ROWS : FP8_INPUT_NOTHING;
}

/* Whether X's own rows are as the kernel reads them: nothing is done to them, they need no padding,
 * they begin at borders of cache lines, and not all at the same place of a page. */
static bool is_ready(const fp8_input *job)
{
    enum { PAGE = 4096 };
    const fp8_linear_plan *p = &job->linear->plan;
    const fp8_tensor *x = job->x;
    const int64_t row_bytes = x->stride[0] % PAGE * (fp8_dtype_bits(x->dtype) / 8);
    const bool rows = x->shape[0] == 1 ||
                      (x->stride[0] > 0 && x->stride[0] % FP8_X_PAD == 0 && row_bytes % PAGE != 0);
    return p->desc.activation == FP8_ACTIVATION_NONE && x->dtype == job->out.dtype &&
           !p->w_into_x && p->pad == 1 && p->k % FP8_X_PAD == 0 && x->stride[1] == 1 && rows &&
           (uintptr_t)x->data % FP8_ALIGN == 0;
}

/* What the rows are made of, and by which rule. */
static fp8_status prepare_job(fp8_input *job, fp8_error *err)
{
    const fp8_linear_plan *p = &job->linear->plan;
    fp8_dtype from = job->x->dtype;
    if (p->desc.activation == FP8_ACTIVATION_CODES) {
        job->load_scale = fp8_dtype_facts_of(job->x_scales->dtype)->load;
    } else if (p->x_is_scaled) {
        const fp8_dtype scale = p->desc.x.static_scales ? FP8_F32 : p->desc.x_scale;
        FP8_TRY(fp8_quant_prepare(&job->q, &p->desc.x, job->x->dtype, p->desc.x_code, scale,
                                  job->x->shape[0], p->k, err));
        job->load_scale = fp8_dtype_facts_of(scale)->load;
        from = p->desc.x_code;
        job->round = round_kernel(job);
        if (p->desc.x.static_scales)
            FP8_TRY(static_scale(job, err));
    }
    job->caster = fp8_caster_of(job->linear->ctx->isa, from, job->out.dtype, false);
    return FP8_OK;
}

/* As many pieces in a block as make one for every worker, unless they become too small. */
static void cut_pieces(fp8_input *input, int64_t block_rows)
{
    const fp8_linear *l = input->linear;
    const int64_t k = l->plan.k > 0 ? l->plan.k : 1, m = input->x->shape[0];
    const int64_t share = fp8_ceil_div(m, l->ctx->threads), least = LEAST_ELEMENTS / k;
    const int64_t rows = fp8_min_i64(most_rows(&l->plan, m), share > least ? share : least);
    input->block_rows = block_rows;
    input->block_pieces = fp8_ceil_div(block_rows, rows > 0 ? rows : 1);
    input->piece_rows = fp8_ceil_div(block_rows, input->block_pieces);
}

fp8_status fp8_input_begin(fp8_input *input, const fp8_linear *linear, const fp8_tensor *x,
                           const fp8_tensor *x_scales, fp8_prepared_x out, int64_t block_rows,
                           void *workspace, fp8_error *err)
{
    const fp8_linear_plan *p = &linear->plan;
    const int64_t m = x->shape[0];
    uint8_t *base = workspace;
    input_size size;
    FP8_FAIL_IF(!size_input(linear, out.dtype, m, &size), err, FP8_E_SHAPE,
                "linear: %lld rows do not fit in memory", (long long)m);
    *input = (fp8_input){.linear = linear, .x = x, .x_scales = x_scales, .out = out, .err = err};
    input->out.stride = row_stride(linear);
    input->out.rows = base;
    if (p->x_is_scaled && !(p->x_along_k && out.dtype == FP8_F32)) {
        input->out.scale = (float *)(void *)(base + size.rows);
        input->out.scale_count = p->x_along_k && !out.folds ? linear->cuts.count : 1;
    }
    cut_pieces(input, block_rows);
    input->pieces = base + size.rows + size.scales;
    input->workers = input->pieces + size.pieces;
    input->worker_bytes = bench_bytes(p, most_rows(p, m));
    input->refused = input->bad_scale = INT64_MAX;
    input->asks = asks_of(p);
    memset(input->pieces, input->asks == FP8_INPUT_AMAX ? PIECE_NEW : PIECE_MEASURED,
           (size_t)piece_count(input));
    FP8_TRY(fp8_linear_check_x_scales(p, m, x_scales, err));
    if (m == 0)
        return FP8_OK;
    input->is_ready = is_ready(input);
    if (input->is_ready) {
        input->out.rows = x->data;
        input->out.stride = m > 1 ? x->stride[0] : input->out.stride;
    }
    return prepare_job(input, err);
}
