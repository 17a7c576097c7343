/* SPDX-License-Identifier: Apache-2.0
 *
 * dummy.c - weights made up of a seed, to run an engine without a checkpoint. An element depends on
 * the seed, the layer's name, the parameter and its place in the whole model alone, so that the
 * shares of all ranks make up the weight of one:
 *
 *     uniform in [-1, 1] * sqrt(3 / K), which keeps the variance of what goes through the layer
 */
#include "base/size.h"
#include "load/load.h"
#include "number/dtype.h"

#include <math.h>

enum { DUMMY_BYTES = 1 << 20 }; /* of a piece, unless one row is longer */

/* A generator of one parameter of one part (or of a tensor of all). */
typedef struct dummy {
    fp8_load_slot *slot;
    uint64_t key;
    double width; /* of [-1, 1] */
} dummy;

/* SplitMix64's finalizer: every bit of x matters to every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

static uint64_t key_of(const fp8_layer *layer, uint64_t seed, fp8_load_param param, int64_t part)
{
    uint64_t key = mix(seed + 0x9e3779b97f4a7c15U);
    for (const char *c = layer->desc.name; *c; c++)
        key = mix(key ^ (uint8_t)*c);
    return mix(key ^ ((uint64_t)param << 32) ^ (uint64_t)part);
}

static double number_at(uint64_t key, int64_t row, int64_t col)
{
    const uint64_t bits = mix(mix(key + (uint64_t)row) + (uint64_t)col);
    return (double)(bits >> 11) * 0x1p-52 - 1;
}

/* data[rows, cols] of a piece from its place on. */
static void make_up(const dummy *d, const fp8_load_piece *piece)
{
    const fp8_tensor *t = &piece->data;
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(t->dtype);
    const double width = facts->bits == 8 ? facts->max : d->width;
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++) {
            const double x = number_at(d->key, piece->row + i, piece->col + j) * width;
            facts->store(t->data, i * t->shape[1] + j, (float)x, true);
        }
}

/* A gap of a weight or a bias, all of one part, in pieces of whole rows. */
static fp8_status fill_elements(const dummy *d, fp8_load_piece *piece, fp8_dtype dtype,
                                fp8_rect gap, fp8_error *err)
{
    const fp8_context *ctx = d->slot->load->ctx;
    const int64_t bytes = gap.cols * (fp8_dtype_bits(dtype) / 8), first = piece->row;
    const int64_t fit = fp8_min_i64(gap.rows, DUMMY_BYTES / bytes);
    const int64_t step = fit > 0 ? fit : 1;
    void *data = fp8_alloc(ctx, (uint64_t)(step * bytes));
    FP8_FAIL_IF(!data, err, FP8_E_NO_MEMORY, "no memory for %lld made-up rows", (long long)step);
    fp8_status status = FP8_OK;
    for (int64_t i = 0; i < gap.rows && status == FP8_OK; i += step) {
        piece->row = first + i;
        piece->data = fp8_matrix(data, dtype, fp8_min_i64(step, gap.rows - i), gap.cols);
        make_up(d, piece);
        status = fp8_load_write_slot(d->slot, piece, err);
    }
    fp8_release(ctx, data);
    return status;
}

/* The part of a gap that lies in part p's rows, from its place in the whole model. */
static fp8_status fill_part(fp8_load_slot *slot, uint64_t seed, fp8_load_param param, fp8_rect gap,
                            int64_t p, fp8_error *err)
{
    const fp8_stage *s = slot->stage;
    const fp8_cut_plan *cut = &slot->layer->cut;
    const fp8_share *share = &cut->share[p];
    const fp8_rect rows = {share->row, gap.col, share->rows, gap.cols};
    const fp8_rect at = fp8_rect_meet(gap, rows);
    const bool codes = param == FP8_PARAM_WEIGHT && s->kind == FP8_STAGE_CODES;
    if (fp8_rect_is_empty(at))
        return FP8_OK;
    const dummy d = {slot, key_of(slot->layer, seed, param, p),
                     sqrt(3 / (double)fp8_grid_extent(0, cut->k_whole))};
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.param = param;
    piece.part = (int32_t)p;
    piece.row = share->source + at.row - share->row;
    piece.col = at.col + (param == FP8_PARAM_WEIGHT ? cut->col : 0);
    const fp8_dtype high = s->kind == FP8_STAGE_HIGH ? s->high : FP8_BF16;
    return fill_elements(&d, &piece, codes ? s->linear.w_code : high, at, err);
}

/* A scale that is missing: codes are as large as their format allows. Every place of its tensor
 * that falls to the rank gets the same. */
static fp8_status fill_scales(fp8_load_slot *slot, fp8_load_param param, fp8_rect gap,
                              fp8_error *err)
{
    fp8_stage *s = slot->stage;
    const fp8_dtype code = s->linear.w_code ? s->linear.w_code : FP8_E4M3FN;
    const double width = sqrt(3 / (double)fp8_grid_extent(0, slot->layer->cut.k_whole));
    const float value = param == FP8_PARAM_SCALE
                            ? (float)(width / (double)fp8_dtype_facts_of(code)->max)
                            : 1.0F / 64;
    FP8_TRY(fp8_stage_fill_scales(s, param, gap, value, err));
    return fp8_load_end_if_whole(slot, err);
}

static fp8_status fill_gap(fp8_load_slot *slot, uint64_t seed, fp8_load_param param, fp8_rect gap,
                           fp8_error *err)
{
    if (param == FP8_PARAM_SCALE || param == FP8_PARAM_INPUT_SCALE)
        return fill_scales(slot, param, gap, err);
    const int64_t parts = slot->layer->cut.parts;
    for (int64_t p = 0; p < parts; p++)
        FP8_TRY(fill_part(slot, seed, param, gap, p, err));
    return FP8_OK;
}

static fp8_status fill_param(fp8_load_slot *slot, uint64_t seed, fp8_load_param param,
                             fp8_error *err)
{
    const fp8_context *ctx = slot->load->ctx;
    const fp8_stage *s = slot->stage;
    fp8_rects gaps = {0};
    fp8_status status =
        fp8_cover_fresh(ctx, &s->written[param], fp8_stage_expected(s, param), &gaps, err);
    for (int64_t i = 0; i < gaps.count && status == FP8_OK; i++)
        status = fill_gap(slot, seed, param, gaps.at[i], err);
    fp8_rects_free(ctx, &gaps);
    return status;
}

fp8_status fp8_load_dummy(fp8_load *load, fp8_layer *layer, uint64_t seed, fp8_error *err)
{
    /* Scales first: a weight that is quantized by given scales needs them. */
    static const fp8_load_param order[] = {FP8_PARAM_SCALE, FP8_PARAM_INPUT_SCALE, FP8_PARAM_BIAS,
                                           FP8_PARAM_WEIGHT};
    FP8_FAIL_IF(!load || !layer, err, FP8_E_ARGUMENT, "load: %s is NULL",
                load ? "the layer" : "load");
    fp8_load_slot *slot = layer->slot;
    fp8_status status = fp8_layer_check_changeable(layer, err);
    if (status == FP8_OK && (!slot || slot->load != load))
        status = fp8_fail(err, FP8_E_STATE, "it is whole, or not in this load");
    for (size_t i = 0; i < FP8_PARAMS && status == FP8_OK; i++)
        status = fill_param(slot, seed, order[i], err);
    return fp8_layer_words(layer, status, err);
}
