/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_write.c - one piece: is it what the layer expects, what of it is this rank's, what of that
 * is new, and where each parameter keeps it. Nothing is marked as written before all of the piece
 * has been taken. */
#include "base/size.h"
#include "layer/stage.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

#include <math.h>

/* A piece on its way. */
typedef struct writing {
    fp8_stage *stage;
    const fp8_load_piece *piece;
    fp8_tensor data; /* of the piece, as a matrix on the host */
    void *copy;      /* which it is, where the piece lies on a device; NULL: it is the caller's */
    fp8_rects fresh; /* scratch */
    fp8_fragment *fragments;
    int64_t count, room;
} writing;

/* ---- checks ---------------------------------------------------------------------------------- */

/* *m = t as a matrix: a vector is a column, a scalar one element. */
static fp8_status as_matrix(const fp8_tensor *t, fp8_load_param param, fp8_tensor *m,
                            fp8_error *err)
{
    *m = *t;
    m->ndim = 2;
    FP8_FAIL_IF(t->ndim < 0 || t->ndim > 2 || (param == FP8_PARAM_WEIGHT && t->ndim != 2), err,
                FP8_E_SHAPE, "its data has %d dimensions", t->ndim);
    for (int32_t d = t->ndim; d < 2; d++) {
        m->shape[d] = 1;
        m->stride[d] = 1;
    }
    return fp8_check_matrix(m, "data", -1, -1, err);
}

static fp8_status check_dtype(fp8_load_param param, fp8_dtype dtype, fp8_error *err)
{
    const bool high = fp8_dtype_is_high(dtype);
    const bool ok = param == FP8_PARAM_WEIGHT
                        ? high || (fp8_dtype_is_fp8(dtype) && dtype != FP8_E5M2FNUZ)
                    : param == FP8_PARAM_SCALE ? fp8_dtype_is_scale(dtype)
                                               : high;
    FP8_FAIL_IF(!ok, err, FP8_E_DTYPE, "it cannot be %s (%d)",
                fp8_dtype_name(dtype) ? fp8_dtype_name(dtype) : "no dtype", (int)dtype);
    return FP8_OK;
}

/* Rows and columns of the tensor that a piece is of, before any cut. */
static fp8_rect tensor_of(const fp8_stage *s, const writing *w)
{
    const fp8_cut_plan *cut = &s->layer->cut;
    const int32_t part = w->piece->part;
    const int64_t rows = part < 0 ? cut->n_whole : cut->share[part].whole, k = cut->k_whole;
    const fp8_grid g = s->grid;
    const bool each = part < 0 && w->data.shape[0] > 1; /* a scale for each part of the tensor */
    switch (w->piece->param) {
    case FP8_PARAM_WEIGHT:
        return (fp8_rect){0, 0, rows, k};
    case FP8_PARAM_BIAS:
        return (fp8_rect){0, 0, rows, 1};
    case FP8_PARAM_SCALE:
        if (g.rows || g.cols)
            return (fp8_rect){0, 0, fp8_ceil_div(rows, fp8_grid_extent(g.rows, rows)),
                              fp8_ceil_div(k, fp8_grid_extent(g.cols, k))};
        break;
    default:
        break;
    }
    return (fp8_rect){0, 0, each ? cut->parts : 1, 1};
}

static fp8_status check_place(const writing *w, fp8_error *err)
{
    const fp8_rect all = tensor_of(w->stage, w);
    const int64_t row = w->piece->row, col = w->piece->col;
    const int64_t rows = w->data.shape[0], cols = w->data.shape[1];
    FP8_FAIL_IF(row < 0 || col < 0 || row > all.rows || col > all.cols || rows > all.rows - row ||
                    cols > all.cols - col,
                err, FP8_E_SHAPE,
                "rows [%lld,+%lld), columns [%lld,+%lld) are not inside a tensor [%lld,%lld]",
                (long long)row, (long long)rows, (long long)col, (long long)cols,
                (long long)all.rows, (long long)all.cols);
    return FP8_OK;
}

static fp8_status check_expected(const fp8_stage *s, const fp8_load_piece *p, fp8_error *err)
{
    const fp8_layer_desc *d = &s->layer->desc;
    FP8_FAIL_IF(p->struct_bytes != sizeof *p, err, FP8_E_ARGUMENT,
                "struct_bytes of a piece is %u, this library knows %zu", p->struct_bytes,
                sizeof *p);
    FP8_FAIL_IF((unsigned)p->param >= FP8_PARAMS, err, FP8_E_ARGUMENT, "there is no parameter %d",
                (int)p->param);
    FP8_FAIL_IF(p->part < -1 || p->part >= s->layer->cut.parts, err, FP8_E_ARGUMENT,
                "there is no part %d of %lld", p->part, (long long)s->layer->cut.parts);
    FP8_FAIL_IF(p->param == FP8_PARAM_BIAS && !d->has_bias, err, FP8_E_ARGUMENT,
                "the layer has no bias");
    FP8_FAIL_IF(p->param == FP8_PARAM_INPUT_SCALE &&
                    fp8_stage_expected(s, FP8_PARAM_INPUT_SCALE).rows == 0,
                err, FP8_E_ARGUMENT, "the layer's activations take no scale from a load");
    FP8_FAIL_IF(p->param == FP8_PARAM_SCALE && s->kind == FP8_STAGE_HIGH &&
                    !d->linear.w.static_scales,
                err, FP8_E_STATE, "the weight came in high precision and makes its own scales");
    return FP8_OK;
}

/* A piece that lies on the layer's device comes to the host, where pieces are cut and quantized. */
static fp8_status bring_home(writing *w, fp8_error *err)
{
    const fp8_context *ctx = w->stage->ctx;
    const int64_t rows = w->data.shape[0], cols = w->data.shape[1];
    const int64_t bytes = rows * cols * (fp8_dtype_bits(w->data.dtype) / 8);
    bool away = false;
    if (ctx->cuda && bytes > 0)
        FP8_TRY(fp8_cuda_find(ctx, w->data.data, &away, err));
    if (!away)
        return FP8_OK;
    w->copy = fp8_alloc(ctx, (uint64_t)bytes);
    FP8_FAIL_IF(!w->copy, err, FP8_E_NO_MEMORY, "no memory for %lld bytes from the device",
                (long long)bytes);
    FP8_TRY(fp8_cuda_fetch(ctx, &w->data, w->copy, err));
    w->data = fp8_matrix(w->copy, w->data.dtype, rows, cols);
    return FP8_OK;
}

/* ---- the rank's share ------------------------------------------------------------------------ */

static fp8_status reserve_fragments(writing *w, int64_t more, fp8_error *err)
{
    if (w->count + more <= w->room)
        return FP8_OK;
    const int64_t room = 2 * w->room + more;
    fp8_fragment *at = fp8_alloc_zeroed(w->stage->ctx, (uint64_t)room, sizeof *at);
    FP8_FAIL_IF(!at, err, FP8_E_NO_MEMORY, "no memory for %lld fragments", (long long)room);
    for (int64_t i = 0; i < w->count; i++)
        at[i] = w->fragments[i];
    fp8_release(w->stage->ctx, w->fragments);
    w->fragments = at;
    w->room = room;
    return FP8_OK;
}

static fp8_tensor view_of(const fp8_tensor *t, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    fp8_tensor v = *t;
    v.data = fp8_element_at(t, row, col);
    v.shape[0] = rows;
    v.shape[1] = cols;
    return v;
}

/* Adds what is new of a hit. */
static fp8_status add_hit(writing *w, fp8_hit hit, int64_t part, fp8_error *err)
{
    fp8_stage *s = w->stage;
    const fp8_rect at = hit.local;
    if (fp8_rect_is_empty(at))
        return FP8_OK;
    FP8_TRY(fp8_cover_fresh(s->ctx, &s->written[w->piece->param], at, &w->fresh, err));
    FP8_FAIL_IF(s->rules.duplicates == FP8_DUPLICATE_REFUSE &&
                    fp8_cover_elements(&w->fresh) != at.rows * at.cols,
                err, FP8_E_EXISTS,
                "some of rows [%lld,+%lld), columns [%lld,+%lld) of the rank's share have been "
                "written before",
                (long long)at.row, (long long)at.rows, (long long)at.col, (long long)at.cols);
    FP8_TRY(reserve_fragments(w, w->fresh.count, err));
    for (int64_t i = 0; i < w->fresh.count; i++) {
        const fp8_rect f = w->fresh.at[i];
        w->fragments[w->count++] = (fp8_fragment){
            f,
            view_of(&w->data, hit.row + f.row - at.row, hit.col + f.col - at.col, f.rows, f.cols),
            part};
    }
    return FP8_OK;
}

static fp8_rect place_of(const writing *w)
{
    return (fp8_rect){w->piece->row, w->piece->col, w->data.shape[0], w->data.shape[1]};
}

/* Weight or bias, which is a column that is not cut along columns. */
static fp8_status find_elements(writing *w, fp8_error *err)
{
    fp8_cut_plan cut = w->stage->layer->cut;
    if (w->piece->param == FP8_PARAM_BIAS) {
        cut.col = 0;
        cut.k = 1;
        if (fp8_stage_expected(w->stage, FP8_PARAM_BIAS).rows == 0)
            return FP8_OK; /* another rank's */
    }
    for (int64_t p = 0; p < cut.parts; p++)
        if (w->piece->part < 0 || w->piece->part == p)
            FP8_TRY(add_hit(w, fp8_cut_weight(&cut, p, w->piece->part, place_of(w)), p, err));
    return FP8_OK;
}

/* One scale a part: element p of a tensor of all parts, or the one that there is. */
static fp8_status find_part_scales(writing *w, fp8_error *err)
{
    const bool each = w->piece->part < 0 && (w->data.shape[0] > 1 || w->piece->row > 0);
    for (int64_t p = 0; p < w->stage->layer->cut.parts; p++) {
        const int64_t row = each ? p - w->piece->row : 0;
        const bool there = row >= 0 && row < w->data.shape[0] && w->data.shape[1] > 0;
        const fp8_hit hit = {{p, 0, 1, 1}, row, 0};
        if (there && (w->piece->part < 0 || w->piece->part == p))
            FP8_TRY(add_hit(w, hit, p, err));
    }
    return FP8_OK;
}

/* Local rows [first, end) of scales, a row at a time: several may have the same source. */
static fp8_status find_scale_rows(writing *w, int64_t p, fp8_error *err)
{
    const fp8_stage *s = w->stage;
    const fp8_cut_plan *cut = &s->layer->cut;
    const fp8_linear_plan *plan = &s->plan;
    const fp8_rect place = place_of(w);
    const fp8_rect cols = {0, fp8_cut_scale_col(cut, plan, 0), 1, plan->scale_cols};
    const fp8_rect both = fp8_rect_meet(cols, (fp8_rect){0, place.col, 1, place.cols});
    int64_t first, count;
    fp8_cut_scale_rows(cut, plan, p, &first, &count);
    for (int64_t i = first; i < first + count; i++) {
        const int64_t row = fp8_cut_scale_row(cut, plan, s->grid, p, w->piece->part, i) - place.row;
        const fp8_hit hit = {{i, both.col - cols.col, 1, both.cols}, row, both.col - place.col};
        if (row >= 0 && row < place.rows)
            FP8_TRY(add_hit(w, hit, p, err));
    }
    return FP8_OK;
}

static fp8_status find_fragments(writing *w, fp8_error *err)
{
    const fp8_stage *s = w->stage;
    const bool one_each =
        w->piece->param == FP8_PARAM_INPUT_SCALE || (!s->grid.rows && !s->grid.cols);
    if (w->piece->param == FP8_PARAM_WEIGHT || w->piece->param == FP8_PARAM_BIAS)
        return find_elements(w, err);
    if (one_each)
        return find_part_scales(w, err);
    for (int64_t p = 0; p < s->layer->cut.parts; p++)
        if (w->piece->part < 0 || w->piece->part == p)
            FP8_TRY(find_scale_rows(w, p, err));
    return FP8_OK;
}

/* ---- taking it ------------------------------------------------------------------------------- */

static float value_of(const fp8_tensor *t, int64_t i)
{
    return fp8_dtype_facts_of(t->dtype)->load(fp8_element_at(t, i, 0), 0);
}

static fp8_status take_part_scales(const writing *w, float *to, fp8_error *err)
{
    for (int64_t i = 0; i < w->count; i++) {
        const float value = value_of(&w->fragments[i].data, 0);
        FP8_FAIL_IF(!(value > 0 && isfinite(value)), err, FP8_E_SCALE,
                    "the scale of part %lld is %g, must be finite and positive",
                    (long long)w->fragments[i].at.row, (double)value);
    }
    for (int64_t i = 0; i < w->count; i++)
        to[w->fragments[i].at.row] = value_of(&w->fragments[i].data, 0);
    return FP8_OK;
}

static fp8_status take_scales(const writing *w, fp8_error *err)
{
    const fp8_stage *s = w->stage;
    if (!s->grid.rows && !s->grid.cols)
        return take_part_scales(w, w->stage->part_scale, err);
    for (int64_t i = 0; i < w->count; i++) {
        const fp8_fragment *f = &w->fragments[i];
        FP8_TRY(fp8_build_scales(&w->stage->build, &f->data, f->at.row, f->at.col, err));
    }
    return FP8_OK;
}

static fp8_status take_weight(const writing *w, fp8_error *err)
{
    fp8_stage *s = w->stage;
    if (s->kind == FP8_STAGE_HIGH)
        return fp8_stage_take_high(s, w->fragments, w->count, err);
    for (int64_t i = 0; i < w->count; i++) {
        const fp8_fragment *f = &w->fragments[i];
        FP8_TRY(fp8_build_codes(&s->build, &f->data, f->at.row, f->at.col, err));
    }
    return FP8_OK;
}

static void take_bias(const writing *w)
{
    for (int64_t i = 0; i < w->count; i++)
        for (int64_t r = 0; r < w->fragments[i].at.rows; r++)
            w->stage->bias[w->fragments[i].at.row + r] = value_of(&w->fragments[i].data, r);
}

static fp8_status take(const writing *w, fp8_error *err)
{
    switch (w->piece->param) {
    case FP8_PARAM_WEIGHT:
        return take_weight(w, err);
    case FP8_PARAM_SCALE:
        return take_scales(w, err);
    case FP8_PARAM_BIAS:
        take_bias(w);
        break;
    case FP8_PARAM_INPUT_SCALE:
        return take_part_scales(w, w->stage->input_scale, err);
    }
    return FP8_OK;
}

static fp8_status settle_for(fp8_stage *s, const fp8_load_piece *p, fp8_error *err)
{
    if (p->param == FP8_PARAM_WEIGHT)
        return fp8_stage_settle(s, p->data.dtype, err);
    if (p->param == FP8_PARAM_SCALE && !s->layer->desc.linear.w.static_scales)
        return fp8_stage_settle(s, FP8_DTYPE_NONE, err);
    return FP8_OK;
}

/* A weight without elements is settled by the piece that makes the layer whole, so that finishing
 * it, when that piece has been taken, cannot fail. */
static fp8_status settle_for_last(const writing *w, fp8_error *err)
{
    const fp8_stage *s = w->stage;
    int64_t fresh = 0;
    for (int64_t i = 0; i < w->count; i++)
        fresh += w->fragments[i].at.rows * w->fragments[i].at.cols;
    for (int p = 0; p < FP8_PARAMS; p++) {
        const fp8_rect all = fp8_stage_expected(s, (fp8_load_param)p);
        const int64_t more = p == (int)w->piece->param ? fresh : 0;
        if (fp8_cover_elements(&s->written[p]) + more < all.rows * all.cols)
            return FP8_OK;
    }
    return fp8_stage_settle(w->stage, FP8_BF16, err);
}

static fp8_status write_piece(writing *w, fp8_error *err)
{
    fp8_stage *s = w->stage;
    fp8_rects *written = &s->written[w->piece->param];
    FP8_TRY(as_matrix(&w->piece->data, w->piece->param, &w->data, err));
    FP8_TRY(check_dtype(w->piece->param, w->data.dtype, err));
    FP8_TRY(check_place(w, err));
    FP8_TRY(bring_home(w, err));
    FP8_TRY(settle_for(s, w->piece, err));
    FP8_TRY(find_fragments(w, err));
    if (s->kind == FP8_STAGE_UNKNOWN)
        FP8_TRY(settle_for_last(w, err));
    FP8_TRY(fp8_rects_reserve(s->ctx, written, w->count, err));
    FP8_TRY(take(w, err));
    for (int64_t i = 0; i < w->count; i++) {
        const fp8_rect at = w->fragments[i].at;
        fp8_cover_add(written, at);
        s->source_bytes += (uint64_t)(at.rows * at.cols * (fp8_dtype_bits(w->data.dtype) / 8));
    }
    return FP8_OK;
}

fp8_status fp8_stage_write(fp8_stage *s, const fp8_load_piece *piece, fp8_error *err)
{
    writing w = {.stage = s, .piece = piece};
    FP8_TRY(check_expected(s, piece, err));
    const bool first = s->kind == FP8_STAGE_UNKNOWN;
    const fp8_status status = write_piece(&w, err);
    if (status != FP8_OK && first)
        fp8_stage_unsettle(s);
    fp8_rects_free(s->ctx, &w.fresh);
    fp8_release(s->ctx, w.fragments);
    fp8_release(s->ctx, w.copy);
    const char *name = fp8_param_name(piece->param);
    if (status != FP8_OK && s->layer->cut.parts > 1 && piece->part >= 0)
        (void)fp8_error_prefix(err, "%s of part %d", name, piece->part);
    else if (status != FP8_OK)
        (void)fp8_error_prefix(err, "%s", name);
    return status;
}

static fp8_status fill_grid(fp8_stage *s, fp8_rect at, float value, fp8_error *err)
{
    const fp8_dtype dtype = s->build.linear->plan.scale;
    uint8_t element[sizeof(float)];
    fp8_dtype_facts_of(dtype)->store(element, 0, value, true);
    fp8_tensor same = fp8_matrix(element, dtype, at.rows, at.cols);
    same.stride[0] = same.stride[1] = 0;
    return fp8_build_scales(&s->build, &same, at.row, at.col, err);
}

fp8_status fp8_stage_fill_scales(fp8_stage *s, fp8_load_param param, fp8_rect at, float value,
                                 fp8_error *err)
{
    float *each = param == FP8_PARAM_INPUT_SCALE   ? s->input_scale
                  : !s->grid.rows && !s->grid.cols ? s->part_scale
                                                   : NULL;
    FP8_TRY(fp8_rects_reserve(s->ctx, &s->written[param], 1, err));
    if (!each)
        FP8_TRY(fill_grid(s, at, value, err));
    for (int64_t i = at.row; each && i < at.row + at.rows; i++)
        each[i] = value;
    fp8_cover_add(&s->written[param], at);
    return FP8_OK;
}
