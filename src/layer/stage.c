/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.c - the life of a staged weight: opened empty, its kind settled by the first piece (codes,
 * or high precision to be quantized), finished into the layer when every element is there. */
#include "layer/stage.h"
#include "number/dtype.h"
#include "op/merge.h"

#include <math.h>

const char *fp8_param_name(fp8_load_param param)
{
    static const char *const names[FP8_PARAMS] = {"weight", "scale", "bias", "input_scale"};
    return (unsigned)param < FP8_PARAMS ? names[param] : "?";
}

static fp8_status allocate(fp8_stage *s, fp8_error *err)
{
    const uint64_t parts = (uint64_t)s->layer->cut.parts;
    const int64_t bias = fp8_stage_expected(s, FP8_PARAM_BIAS).rows;
    s->bias = fp8_alloc_zeroed(s->ctx, (uint64_t)bias, sizeof *s->bias);
    s->part_scale = fp8_alloc_zeroed(s->ctx, parts, 2 * sizeof *s->part_scale);
    s->widths = fp8_alloc_zeroed(s->ctx, parts, sizeof *s->widths);
    FP8_FAIL_IF(!s->bias || !s->part_scale || !s->widths, err, FP8_E_NO_MEMORY,
                "no memory to load it");
    s->input_scale = s->part_scale + parts;
    for (uint64_t p = 0; p < parts; p++) {
        s->part_scale[p] = NAN;
        s->widths[p] = s->layer->cut.share[p].rows;
    }
    return FP8_OK;
}

fp8_status fp8_stage_open(fp8_layer *layer, const fp8_stage_rules *rules, fp8_stage **out,
                          fp8_error *err)
{
    fp8_stage *s = fp8_alloc_zeroed(layer->ctx, 1, sizeof *s);
    FP8_FAIL_IF(!s, err, FP8_E_NO_MEMORY, "no memory to load it");
    s->layer = layer;
    s->ctx = layer->ctx;
    s->rules = *rules;
    s->linear = layer->desc.linear;
    s->grid = s->linear.w.grid;
    const fp8_status status = allocate(s, err);
    if (status == FP8_OK)
        *out = s;
    else
        fp8_stage_close(s);
    return status;
}

void fp8_stage_close(fp8_stage *s)
{
    if (!s)
        return;
    fp8_stage_drop_waiting(s);
    fp8_build_drop(&s->build);
    for (int p = 0; p < FP8_PARAMS; p++)
        fp8_rects_free(s->ctx, &s->written[p]);
    fp8_release(s->ctx, s->amax);
    fp8_release(s->ctx, s->operand);
    fp8_release(s->ctx, s->widths);
    fp8_release(s->ctx, s->part_scale);
    fp8_release(s->ctx, s->bias);
    fp8_release(s->ctx, s);
}

/* ---- what the weight is ---------------------------------------------------------------------- */

static bool is_tensor_grid(fp8_grid grid)
{
    return grid.rows == 0 && grid.cols == 0;
}

/* The share's grid for codes whose scales belong to blocks of the whole weight. */
static void settle_grid(fp8_stage *s)
{
    const fp8_cut_plan *cut = &s->layer->cut;
    const bool each_part = is_tensor_grid(s->grid) && cut->parts > 1;
    if (is_tensor_grid(s->grid))
        s->linear.w_scale = FP8_F32; /* what they are kept in meanwhile */
    if (each_part && !s->layer->desc.merge_scales) {
        s->linear.widths = s->widths;
        s->linear.width_count = (size_t)cut->parts;
    } else if (!is_tensor_grid(s->grid)) {
        fp8_cut_grid(cut, s->grid, &s->linear.w.grid, &s->linear.w_origin);
    }
}

static fp8_status settle_codes(fp8_stage *s, fp8_dtype code, fp8_error *err)
{
    FP8_FAIL_IF(s->linear.w_code != FP8_DTYPE_NONE && s->linear.w_code != code, err, FP8_E_DTYPE,
                "weight is %s, must be %s", fp8_dtype_name(code), fp8_dtype_name(s->linear.w_code));
    FP8_FAIL_IF(s->layer->desc.merge_scales && is_tensor_grid(s->grid) && code != FP8_E4M3FN, err,
                FP8_E_UNSUPPORTED, "codes are %s, but scales are merged for F8_E4M3 only",
                fp8_dtype_name(code));
    s->linear.w.static_scales = 0;
    s->linear.w_code = code;
    settle_grid(s);
    return FP8_OK;
}

/* Scales that the ranks have in common: one for a tensor that is cut, one for a row cut along its
 * columns. */
static bool must_agree(const fp8_stage *s)
{
    const fp8_layer_desc *d = &s->layer->desc;
    const fp8_grid g = s->linear.w.grid;
    if (!s->rules.comm.max || d->ranks <= 1 || d->cut == FP8_CUT_NONE)
        return false;
    return is_tensor_grid(g) || (g.rows == 1 && g.cols == 0 && d->cut == FP8_CUT_COLS);
}

static fp8_status settle_high(fp8_stage *s, fp8_dtype dtype, fp8_error *err)
{
    const fp8_cut_plan *cut = &s->layer->cut;
    const fp8_dtype code = s->linear.w_code ? s->linear.w_code : FP8_E4M3FN;
    s->high = dtype;
    s->linear.w_code = code;
    if (s->linear.w.static_scales)
        settle_grid(s);
    const fp8_dtype scale = s->linear.w_scale ? s->linear.w_scale : FP8_F32;
    FP8_TRY(fp8_quant_prepare(&s->q, &s->linear.w, dtype, code, scale, cut->n, cut->k, err));
    s->whole = !s->linear.w.static_scales && (is_tensor_grid(s->linear.w.grid) || must_agree(s));
    return FP8_OK;
}

static fp8_status begin_build(fp8_stage *s, fp8_error *err)
{
    fp8_linear_desc linear = s->linear;
    if (linear.activation == FP8_ACTIVATION_STATIC && linear.x_static == 0)
        linear.x_static = 1; /* until it has been loaded */
    FP8_TRY(fp8_linear_plan_shape(&s->plan, &linear, s->layer->cut.n, s->layer->cut.k,
                                  linear.w_code, err));
    return fp8_build_begin(s->ctx, &s->plan, &s->build, err);
}

fp8_status fp8_stage_settle(fp8_stage *s, fp8_dtype dtype, fp8_error *err)
{
    const bool high = fp8_dtype_is_high(dtype);
    if (s->kind != FP8_STAGE_UNKNOWN) {
        const fp8_dtype want = s->kind == FP8_STAGE_HIGH ? s->high : s->linear.w_code;
        FP8_FAIL_IF(dtype != FP8_DTYPE_NONE && dtype != want, err, FP8_E_DTYPE,
                    "weight is %s, its other pieces are %s", fp8_dtype_name(dtype),
                    fp8_dtype_name(want));
        return FP8_OK;
    }
    const fp8_dtype code = s->linear.w_code ? s->linear.w_code : FP8_E4M3FN;
    fp8_status status = high ? settle_high(s, dtype, err)
                             : settle_codes(s, dtype == FP8_DTYPE_NONE ? code : dtype, err);
    if (status == FP8_OK)
        status = begin_build(s, err);
    if (status == FP8_OK)
        s->kind = high ? FP8_STAGE_HIGH : FP8_STAGE_CODES;
    else
        fp8_stage_unsettle(s);
    return status;
}

void fp8_stage_unsettle(fp8_stage *s)
{
    fp8_stage_drop_waiting(s);
    fp8_build_drop(&s->build);
    s->kind = FP8_STAGE_UNKNOWN;
    s->linear = s->layer->desc.linear;
    s->grid = s->linear.w.grid;
}

void fp8_stage_restart(fp8_stage *s)
{
    fp8_stage_unsettle(s);
    fp8_release(s->ctx, s->amax);
    fp8_release(s->ctx, s->operand);
    s->amax = s->operand = NULL;
    for (int p = 0; p < FP8_PARAMS; p++)
        s->written[p].count = 0;
    for (int64_t p = 0; p < s->layer->cut.parts; p++)
        s->part_scale[p] = NAN;
    s->source_bytes = 0;
}

fp8_status fp8_stage_expect_codes(fp8_stage *s, fp8_grid grid, fp8_dtype code, fp8_dtype scale,
                                  fp8_error *err)
{
    FP8_FAIL_IF(s->kind != FP8_STAGE_UNKNOWN, err, FP8_E_STATE, "pieces have come already");
    s->grid = s->linear.w.grid = grid;
    s->linear.w_code = code;
    s->linear.w_scale = scale;
    const fp8_status status = fp8_stage_settle(s, code, err);
    if (status != FP8_OK)
        fp8_stage_unsettle(s);
    return status;
}

/* ---- what is expected ------------------------------------------------------------------------ */

static bool expects_scales(const fp8_stage *s)
{
    return s->kind == FP8_STAGE_CODES || s->layer->desc.linear.w.static_scales;
}

static fp8_rect expected_scales(const fp8_stage *s)
{
    if (!expects_scales(s))
        return (fp8_rect){0};
    const fp8_cut_plan *cut = &s->layer->cut;
    if (is_tensor_grid(s->grid))
        return (fp8_rect){0, 0, cut->n && cut->k ? cut->parts : 0, 1};
    return (fp8_rect){0, 0, s->plan.scale_rows, s->plan.scale_cols};
}

fp8_rect fp8_stage_expected(const fp8_stage *s, fp8_load_param param)
{
    const fp8_layer_desc *d = &s->layer->desc;
    const fp8_cut_plan *cut = &s->layer->cut;
    const fp8_rect none = {0};
    switch (param) {
    case FP8_PARAM_WEIGHT:
        return (fp8_rect){0, 0, cut->n, cut->k};
    case FP8_PARAM_SCALE:
        return expected_scales(s);
    case FP8_PARAM_BIAS:
        return d->has_bias && !(d->cut == FP8_CUT_COLS && d->rank > 0) ? (fp8_rect){0, 0, cut->n, 1}
                                                                       : none;
    case FP8_PARAM_INPUT_SCALE:
        return d->linear.activation == FP8_ACTIVATION_STATIC && d->linear.x_static == 0
                   ? (fp8_rect){0, 0, cut->parts, 1}
                   : none;
    }
    return none;
}

bool fp8_stage_is_whole(const fp8_stage *s)
{
    for (int p = 0; p < FP8_PARAMS; p++) {
        const fp8_rect all = fp8_stage_expected(s, (fp8_load_param)p);
        if (fp8_cover_elements(&s->written[p]) < all.rows * all.cols)
            return false;
    }
    return true;
}

/* ---- finish ---------------------------------------------------------------------------------- */

static float largest(const float *values, int64_t n)
{
    float most = values[0];
    for (int64_t i = 1; i < n; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

static float least(const float *values, int64_t n)
{
    float few = values[0];
    for (int64_t i = 1; i < n; i++)
        few = values[i] < few ? values[i] : few;
    return few;
}

/* Brings the codes of all parts to the largest of their scales. What has one scale already keeps
 * its codes. */
static fp8_status merge_parts(fp8_stage *s, fp8_error *err)
{
    const fp8_cut_plan *cut = &s->layer->cut;
    const float most = largest(s->part_scale, cut->parts);
    if (!(least(s->part_scale, cut->parts) < most))
        return FP8_OK;
    for (int64_t p = 0; p < cut->parts; p++) {
        uint8_t to[256];
        fp8_merge_table(s->part_scale[p], most, to);
        FP8_TRY(fp8_build_map(&s->build, cut->share[p].row, cut->share[p].rows, to, err));
    }
    for (int64_t p = 0; p < cut->parts; p++)
        s->part_scale[p] = most; /* so that it is not done twice */
    return FP8_OK;
}

/* One scale, or one a part. */
static fp8_status put_part_scales(fp8_stage *s, fp8_error *err)
{
    const int64_t parts = s->layer->cut.parts;
    fp8_tensor scales = fp8_matrix(s->part_scale, FP8_F32, parts, 1);
    if (s->layer->desc.merge_scales && parts > 1) {
        FP8_TRY(merge_parts(s, err));
        scales.shape[0] = 1;
    }
    return fp8_build_scales(&s->build, &scales, 0, 0, err);
}

fp8_status fp8_stage_finish(fp8_stage *s, fp8_error *err)
{
    const fp8_rect bias = fp8_stage_expected(s, FP8_PARAM_BIAS);
    const fp8_rect input = fp8_stage_expected(s, FP8_PARAM_INPUT_SCALE);
    FP8_TRY(fp8_stage_settle(s, s->kind == FP8_STAGE_UNKNOWN ? FP8_BF16 : FP8_DTYPE_NONE, err));
    if (is_tensor_grid(s->grid) && fp8_stage_expected(s, FP8_PARAM_SCALE).rows > 0)
        FP8_TRY(put_part_scales(s, err));
    if (bias.rows > 0) {
        const fp8_tensor vector = fp8_vector(s->bias, FP8_F32, bias.rows);
        fp8_build_bias(&s->build, &vector, 0);
    }
    if (input.rows > 0)
        s->build.linear->plan.desc.x_static = largest(s->input_scale, input.rows);
    FP8_TRY(fp8_build_finish(&s->build, err));
    FP8_TRY(fp8_layer_take_loaded(s->layer, &s->build, err));
    fp8_release(s->ctx, s->amax);
    fp8_release(s->ctx, s->operand);
    s->amax = s->operand = NULL;
    return FP8_OK;
}
