/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_high.c - pieces of a weight in high precision. What makes up whole units (blocks of a
 * scale) goes straight from the caller's memory through the quantizer's three steps; strips at the
 * edges wait in a copy of their unit until it is full. Where the ranks share a scale, or the weight
 * has only one, the unit is the whole weight; where the scale is known before, there is no unit.
 * A write copies first, then quantizes, and counts last, so that one that fails has not been. */
#include "base/size.h"
#include "layer/stage.h"
#include "number/dtype.h"
#include "op/tensor_check.h"

#include <math.h>
#include <string.h>

enum { SLAB_BYTES = 1 << 20 }; /* of a waiting unit that is read back from a file */

static int64_t unit_rows(const fp8_stage *s)
{
    return s->whole ? fp8_grid_extent(0, s->q.rows) : s->q.unit_rows;
}

static int64_t unit_cols(const fp8_stage *s)
{
    return s->whole ? fp8_grid_extent(0, s->q.cols) : s->q.unit_cols;
}

static int64_t element_bytes(const fp8_stage *s)
{
    return fp8_dtype_bits(s->high) / 8;
}

/* The request for a matrix of some whole units. */
static fp8_status request_for(const fp8_stage *s, fp8_rect at, fp8_quant *q, fp8_error *err)
{
    return fp8_quant_prepare(q, &s->linear.w, s->high, s->q.code, s->q.scale, at.rows, at.cols,
                             err);
}

/* An element that is refused was named by its place in x: says where x is. */
static fp8_status say_place(fp8_rect at, fp8_status status, fp8_error *err)
{
    if (status == FP8_E_NAN)
        (void)fp8_error_prefix(err, "from [%lld,%lld] of the rank's share on", (long long)at.row,
                               (long long)at.col);
    return status;
}

/* ---- scales ---------------------------------------------------------------------------------- */

static bool must_agree(const fp8_stage *s)
{
    const fp8_layer_desc *d = &s->layer->desc;
    return s->whole && s->rules.comm.max && d->ranks > 1 && d->cut != FP8_CUT_NONE;
}

/* amax[units] = the ranks' maxima; own[units] is scratch. A maximum that is none would be a scale
 * that clips the weight, or garbage. */
static fp8_status agree(const fp8_stage *s, const fp8_quant *q, float *amax, float *own,
                        fp8_error *err)
{
    const int64_t units = q->grid_rows * q->grid_cols;
    const fp8_comm *comm = &s->rules.comm;
    const char *name = s->layer->desc.name;
    memcpy(own, amax, (size_t)units * sizeof *own);
    fp8_error_set(err, FP8_E_IO, -1, "the ranks could not agree on its scales");
    const fp8_status status = comm->max(comm->user, name, amax, units, err);
    if (status != FP8_OK)
        return status;
    for (int64_t i = 0; i < units; i++) {
        const bool refuse = q->desc.nan == FP8_NAN_REFUSE;
        const bool larger = isfinite(amax[i]) ? amax[i] >= own[i] : !refuse;
        FP8_FAIL_IF(!larger && !isnan(own[i]), err, FP8_E_MISMATCH,
                    "the ranks agreed on a maximum of %g for scale %lld, this rank has %g",
                    (double)amax[i], (long long)i, (double)own[i]);
    }
    return FP8_OK;
}

/* Agrees on amax[units] where ranks share the scales, makes operand[units] of it and puts the
 * scales in their places; stored has room for them. */
static fp8_status make_scales(fp8_stage *s, const fp8_quant *q, fp8_rect at, float *amax,
                              float *operand, void *stored, fp8_error *err)
{
    const int64_t units = q->grid_rows * q->grid_cols;
    if (must_agree(s))
        FP8_TRY(agree(s, q, amax, operand, err));
    FP8_TRY(fp8_quant_scales(s->ctx, q, amax, units, stored, operand, err));
    fp8_build_take_made(&s->build, q, stored, at.row / s->q.unit_rows, at.col / s->q.unit_cols);
    return FP8_OK;
}

/* amax[units], operand[units] and room for the scales, zeroed. */
static float *scale_work(const fp8_stage *s, const fp8_quant *q, fp8_error *err)
{
    float *work =
        fp8_alloc_zeroed(s->ctx, (uint64_t)(q->grid_rows * q->grid_cols), 3 * sizeof *work);
    if (!work)
        fp8_error_set(err, FP8_E_NO_MEMORY, -1, "no memory to quantize [%lld,%lld]",
                      (long long)q->rows, (long long)q->cols);
    return work;
}

/* ---- whole units from the caller's memory ---------------------------------------------------- */

static fp8_status quantize_units(fp8_stage *s, fp8_rect at, const fp8_tensor *x, fp8_error *err)
{
    fp8_quant q;
    FP8_TRY(request_for(s, at, &q, err));
    const int64_t units = q.grid_rows * q.grid_cols;
    float *work = scale_work(s, &q, err);
    if (!work)
        return FP8_E_NO_MEMORY;
    fp8_status status = say_place(at, fp8_quant_amax(s->ctx, &q, x, 0, work, err), err);
    if (status == FP8_OK)
        status = make_scales(s, &q, at, work, work + units, work + 2 * units, err);
    if (status == FP8_OK)
        status = fp8_build_encode(&s->build, &q, x, 0, work + units, at.row, at.col, err);
    fp8_release(s->ctx, work);
    return status;
}

/* ---- scales that are known before ------------------------------------------------------------ */

/* By the scale that was given for the fragment's part. */
static fp8_status encode_given(fp8_stage *s, const fp8_fragment *f, fp8_error *err)
{
    fp8_quant q;
    float operand, amax = 0;
    FP8_FAIL_IF(isnan(s->part_scale[f->part]), err, FP8_E_STATE,
                "the scale of part %lld must be loaded before its weight", (long long)f->part);
    FP8_TRY(request_for(s, f->at, &q, err));
    float scale = s->part_scale[f->part];
    const fp8_tensor scales = fp8_matrix(&scale, FP8_F32, 1, 1);
    FP8_TRY(fp8_quant_static(&q, &scales, &operand, err));
    if (q.desc.nan == FP8_NAN_REFUSE)
        FP8_TRY(say_place(f->at, fp8_quant_amax(s->ctx, &q, &f->data, 0, &amax, err), err));
    return fp8_build_encode(&s->build, &q, &f->data, 0, &operand, f->at.row, f->at.col, err);
}

/* By operands of the whole weight: one, or one a row. */
static fp8_status encode_measured(fp8_stage *s, const fp8_fragment *f, fp8_error *err)
{
    fp8_quant q;
    FP8_TRY(request_for(s, f->at, &q, err));
    const float *operand = s->operand + f->at.row / s->q.unit_rows;
    return fp8_build_encode(&s->build, &q, &f->data, 0, operand, f->at.row, f->at.col, err);
}

bool fp8_stage_wants_measure(const fp8_stage *s)
{
    return s->kind == FP8_STAGE_HIGH && s->whole && !s->operand &&
           s->written[FP8_PARAM_WEIGHT].count == 0; /* what came before waits for the rest */
}

static fp8_status measure_part(fp8_stage *s, const fp8_load_piece *piece, int64_t p, fp8_error *err)
{
    const fp8_rect place = {piece->row, piece->col, piece->data.shape[0], piece->data.shape[1]};
    const fp8_hit hit = fp8_cut_weight(&s->layer->cut, p, piece->part, place);
    fp8_tensor x = piece->data;
    fp8_quant q;
    if (fp8_rect_is_empty(hit.local))
        return FP8_OK;
    x.data = fp8_element_at(&piece->data, hit.row, hit.col);
    x.shape[0] = hit.local.rows;
    x.shape[1] = hit.local.cols;
    FP8_TRY(request_for(s, hit.local, &q, err));
    float *amax = s->amax + hit.local.row / s->q.unit_rows;
    return say_place(hit.local, fp8_quant_amax(s->ctx, &q, &x, 0, amax, err), err);
}

fp8_status fp8_stage_measure(fp8_stage *s, const fp8_load_piece *piece, fp8_error *err)
{
    if (!s->amax)
        s->amax =
            fp8_alloc_zeroed(s->ctx, (uint64_t)(s->q.grid_rows * s->q.grid_cols), sizeof *s->amax);
    FP8_FAIL_IF(!s->amax, err, FP8_E_NO_MEMORY, "no memory to measure it");
    for (int64_t p = 0; p < s->layer->cut.parts; p++)
        if (piece->part < 0 || piece->part == p)
            FP8_TRY(measure_part(s, piece, p, err));
    return FP8_OK;
}

fp8_status fp8_stage_measured(fp8_stage *s, fp8_error *err)
{
    const fp8_rect all = {0, 0, s->q.rows, s->q.cols};
    const int64_t units = s->q.grid_rows * s->q.grid_cols;
    float *work = scale_work(s, &s->q, err);
    if (!work)
        return FP8_E_NO_MEMORY;
    if (s->amax)
        memcpy(work, s->amax, (size_t)units * sizeof *work);
    const fp8_status status = make_scales(s, &s->q, all, work, work + units, work + 2 * units, err);
    if (status != FP8_OK) {
        fp8_release(s->ctx, work);
        return status;
    }
    memmove(work, work + units, (size_t)units * sizeof *work);
    s->operand = work;
    return FP8_OK;
}

/* ---- what waits ------------------------------------------------------------------------------ */

/* One write: the units that it touches. */
typedef struct waiting {
    fp8_stage *stage;
    fp8_wait_unit *touched;
} waiting;

static fp8_wait_unit **row_of_units(const fp8_stage *s, int64_t row)
{
    return &s->rows[row / unit_rows(s)];
}

/* The unit that element (row, col) is in, or NULL. */
static fp8_wait_unit *find_unit(const fp8_stage *s, int64_t row, int64_t col)
{
    const int64_t first = col / unit_cols(s) * unit_cols(s);
    fp8_wait_unit *u = *row_of_units(s, row);
    while (u && u->at.col != first)
        u = u->next;
    return u;
}

static fp8_status add_unit(fp8_stage *s, int64_t row, int64_t col, fp8_wait_unit **out,
                           fp8_error *err)
{
    const int64_t rows = unit_rows(s), cols = unit_cols(s);
    fp8_wait_unit *u = fp8_alloc_zeroed(s->ctx, 1, sizeof *u);
    FP8_FAIL_IF(!u, err, FP8_E_NO_MEMORY, "no memory for a block that waits");
    u->at = fp8_rect_meet((fp8_rect){row / rows * rows, col / cols * cols, rows, cols},
                          (fp8_rect){0, 0, s->q.rows, s->q.cols});
    const uint64_t bytes = (uint64_t)(u->at.rows * u->at.cols * element_bytes(s));
    const fp8_status status = fp8_wait_take(s->rules.room, bytes, &u->block, err);
    if (status != FP8_OK) {
        fp8_release(s->ctx, u);
        return status;
    }
    u->next = *row_of_units(s, row);
    *row_of_units(s, row) = u;
    *out = u;
    return FP8_OK;
}

static void remove_unit(fp8_stage *s, fp8_wait_unit *u)
{
    fp8_wait_unit **link = row_of_units(s, u->at.row);
    while (*link != u)
        link = &(*link)->next;
    *link = u->next;
    fp8_wait_give(s->rules.room, &u->block);
    fp8_release(s->ctx, u);
}

void fp8_stage_drop_waiting(fp8_stage *s)
{
    const int64_t bands = s->rows ? fp8_ceil_div(s->q.rows, unit_rows(s)) : 0;
    for (int64_t i = 0; i < bands; i++)
        while (s->rows[i])
            remove_unit(s, s->rows[i]);
    fp8_release(s->ctx, s->rows);
    s->rows = NULL;
}

static fp8_status begin_waiting(fp8_stage *s, fp8_error *err)
{
    if (s->rows)
        return FP8_OK;
    const int64_t bands = fp8_ceil_div(s->q.rows, unit_rows(s));
    s->rows = fp8_alloc_zeroed(s->ctx, (uint64_t)bands, sizeof(void *));
    FP8_FAIL_IF(!s->rows, err, FP8_E_NO_MEMORY, "no memory for blocks that wait");
    return FP8_OK;
}

/* Copies x, which is `at`, part of the unit, into it. */
static fp8_status copy_into(const fp8_stage *s, const fp8_wait_unit *u, fp8_rect at,
                            const fp8_tensor *x, fp8_error *err)
{
    const int64_t bytes = element_bytes(s), width = u->at.cols;
    const int64_t first = (at.row - u->at.row) * width + at.col - u->at.col;
    const bool rows_join = x->stride[1] == 1 && at.cols == width && x->stride[0] == width;
    const int64_t run = x->stride[1] != 1 ? 1 : rows_join ? at.rows * width : at.cols;
    for (int64_t i = 0; i < (rows_join ? 1 : at.rows); i++)
        for (int64_t j = 0; j < (rows_join ? 1 : at.cols); j += run)
            FP8_TRY(fp8_wait_put(s->rules.room, &u->block,
                                 (uint64_t)((first + i * width + j) * bytes),
                                 fp8_element_at(x, i, j), (uint64_t)(run * bytes), err));
    return FP8_OK;
}

/* The part of a strip that lies in the unit of its element (row, col). */
static fp8_status wait_in_unit(waiting *w, fp8_rect strip, const fp8_tensor *x, int64_t row,
                               int64_t col, fp8_error *err)
{
    fp8_stage *s = w->stage;
    fp8_wait_unit *u = find_unit(s, row, col);
    if (!u)
        FP8_TRY(add_unit(s, row, col, &u, err));
    if (u->pending == 0) {
        u->touched = w->touched;
        w->touched = u;
    }
    const fp8_rect at = fp8_rect_meet(strip, u->at);
    fp8_tensor part = *x;
    part.data = fp8_element_at(x, at.row - strip.row, at.col - strip.col);
    part.shape[0] = at.rows;
    part.shape[1] = at.cols;
    u->pending += at.rows * at.cols;
    return copy_into(s, u, at, &part, err);
}

static fp8_status check_finite(const fp8_stage *s, fp8_rect strip, const fp8_tensor *x,
                               fp8_error *err)
{
    fp8_quantize_desc any = FP8_QUANTIZE_DESC_INIT;
    fp8_quant q;
    float amax = 0;
    if (s->q.desc.nan != FP8_NAN_REFUSE)
        return FP8_OK;
    FP8_TRY(fp8_quant_prepare(&q, &any, s->high, s->q.code, FP8_F32, strip.rows, strip.cols, err));
    return say_place(strip, fp8_quant_amax(s->ctx, &q, x, 0, &amax, err), err);
}

static fp8_status wait_strip(waiting *w, fp8_rect strip, const fp8_tensor *x, fp8_error *err)
{
    const int64_t rows = unit_rows(w->stage), cols = unit_cols(w->stage);
    FP8_TRY(check_finite(w->stage, strip, x, err));
    for (int64_t i = strip.row; i < strip.row + strip.rows; i = (i / rows + 1) * rows)
        for (int64_t j = strip.col; j < strip.col + strip.cols; j = (j / cols + 1) * cols)
            FP8_TRY(wait_in_unit(w, strip, x, i, j, err));
    return FP8_OK;
}

/* ---- a unit that is full --------------------------------------------------------------------- */

/* Rows of a unit that are looked at at once. */
static int64_t slab_rows(const fp8_stage *s, const fp8_wait_unit *u)
{
    const int64_t rows = SLAB_BYTES / (u->at.cols * element_bytes(s));
    return u->block.data || rows > u->at.rows ? u->at.rows : rows > 0 ? rows : 1;
}

/* *x = rows [first, ..) of the unit, in its memory or in `slab`. */
static fp8_status look_at(const fp8_stage *s, const fp8_wait_unit *u, int64_t first, void *slab,
                          fp8_tensor *x, fp8_error *err)
{
    const int64_t row_bytes = u->at.cols * element_bytes(s);
    const int64_t rows = fp8_min_i64(slab_rows(s, u), u->at.rows - first);
    void *data = u->block.data ? u->block.data + first * row_bytes : slab;
    *x = fp8_matrix(data, s->high, rows, u->at.cols);
    if (u->block.data)
        return FP8_OK;
    return fp8_wait_get(s->rules.room, &u->block, (uint64_t)(first * row_bytes), slab,
                        (uint64_t)(rows * row_bytes), err);
}

static fp8_status quantize_slabs(fp8_stage *s, const fp8_wait_unit *u, const fp8_quant *q,
                                 float *work, void *slab, fp8_error *err)
{
    const int64_t units = q->grid_rows * q->grid_cols, step = slab_rows(s, u);
    fp8_tensor x;
    for (int64_t i = 0; i < u->at.rows; i += step) {
        FP8_TRY(look_at(s, u, i, slab, &x, err));
        FP8_TRY(fp8_quant_amax(s->ctx, q, &x, i, work, err));
    }
    FP8_TRY(make_scales(s, q, u->at, work, work + units, work + 2 * units, err));
    for (int64_t i = 0; i < u->at.rows; i += step) {
        FP8_TRY(look_at(s, u, i, slab, &x, err));
        FP8_TRY(fp8_build_encode(&s->build, q, &x, i, work + units, u->at.row + i, u->at.col, err));
    }
    return FP8_OK;
}

static fp8_status quantize_waiting(fp8_stage *s, const fp8_wait_unit *u, fp8_error *err)
{
    fp8_quant q;
    FP8_TRY(request_for(s, u->at, &q, err));
    const int64_t bytes = u->block.data ? 0 : slab_rows(s, u) * u->at.cols * element_bytes(s);
    float *work = scale_work(s, &q, err);
    if (!work)
        return FP8_E_NO_MEMORY;
    void *slab = fp8_alloc(s->ctx, (uint64_t)bytes);
    fp8_status status = FP8_E_NO_MEMORY;
    if (slab)
        status = quantize_slabs(s, u, &q, work, slab, err);
    else
        fp8_error_set(err, status, -1, "no memory to read %lld waiting bytes", (long long)bytes);
    fp8_release(s->ctx, slab);
    fp8_release(s->ctx, work);
    return status;
}

/* ---- fragments ------------------------------------------------------------------------------- */

/* What of a fragment makes up whole units. */
static fp8_rect whole_units(const fp8_stage *s, fp8_rect f)
{
    const int64_t rows = unit_rows(s), cols = unit_cols(s);
    int64_t bottom = f.row + f.rows, right = f.col + f.cols;
    const int64_t top = fp8_ceil_div(f.row, rows) * rows, left = fp8_ceil_div(f.col, cols) * cols;
    bottom = bottom == s->q.rows ? bottom : bottom / rows * rows;
    right = right == s->q.cols ? right : right / cols * cols;
    if (top >= bottom || left >= right)
        return (fp8_rect){f.row, f.col, 0, 0};
    return (fp8_rect){top, left, bottom - top, right - left};
}

static fp8_tensor part_of(const fp8_fragment *f, fp8_rect at)
{
    fp8_tensor x = f->data;
    x.data = fp8_element_at(&f->data, at.row - f->at.row, at.col - f->at.col);
    x.shape[0] = at.rows;
    x.shape[1] = at.cols;
    return x;
}

static fp8_status take_fragment(waiting *w, const fp8_fragment *f, fp8_error *err)
{
    fp8_stage *s = w->stage;
    fp8_rect at[4];
    fp8_rects strips = {at, 0, 4};
    const fp8_rect inner = whole_units(s, f->at);
    if (fp8_rect_is_empty(inner)) {
        strips.at[strips.count++] = f->at;
    } else {
        const fp8_tensor x = part_of(f, inner);
        FP8_TRY(quantize_units(s, inner, &x, err));
        fp8_rects_push_difference(&strips, f->at, inner);
    }
    if (strips.count > 0)
        FP8_TRY(begin_waiting(s, err));
    for (int64_t i = 0; i < strips.count; i++) {
        const fp8_tensor x = part_of(f, strips.at[i]);
        FP8_TRY(wait_strip(w, strips.at[i], &x, err));
    }
    return FP8_OK;
}

static fp8_status take_fragments(waiting *w, const fp8_fragment *fragments, int64_t count,
                                 fp8_error *err)
{
    for (int64_t i = 0; i < count; i++)
        FP8_TRY(take_fragment(w, &fragments[i], err));
    for (const fp8_wait_unit *u = w->touched; u; u = u->touched)
        if (u->have + u->pending == u->at.rows * u->at.cols)
            FP8_TRY(quantize_waiting(w->stage, u, err));
    return FP8_OK;
}

/* Counts what was copied, or forgets it; units that are full, or have nothing, go. */
static void settle_touched(waiting *w, bool taken)
{
    for (fp8_wait_unit *u = w->touched, *next; u; u = next) {
        next = u->touched;
        u->have += taken ? u->pending : 0;
        u->pending = 0;
        u->touched = NULL;
        if (u->have == 0 || u->have == u->at.rows * u->at.cols)
            remove_unit(w->stage, u);
    }
}

fp8_status fp8_stage_take_high(fp8_stage *s, const fp8_fragment *fragments, int64_t count,
                               fp8_error *err)
{
    waiting w = {.stage = s};
    fp8_status status = FP8_OK;
    if (s->linear.w.static_scales || s->operand) {
        for (int64_t i = 0; i < count && status == FP8_OK; i++)
            status = s->operand ? encode_measured(s, &fragments[i], err)
                                : encode_given(s, &fragments[i], err);
        return status;
    }
    status = take_fragments(&w, fragments, count, err);
    settle_touched(&w, status == FP8_OK);
    return status;
}
