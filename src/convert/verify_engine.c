/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_engine.c - rules of --for ENGINE and --tp N. What an engine does with one weight is a
 * table in ckpt/engine.h; here it is asked for every weight, and tensor parallelism is added:
 *
 *     column-parallel (q, k, v, gate, up ..): each rank has rows / N rows
 *     row-parallel (o, down ..):              each rank has cols / N columns
 *
 * A rank's part must be whole scale blocks, for a scale serves one rank only. Experts are split
 * the same way. */
#include "base/size.h"
#include "ckpt/engine.h"
#include "convert/names.h"
#include "convert/verify.h"

#include <math.h>
#include <string.h>

/* What the engine rules know of one quantized weight. */
struct layer {
    fp8_tensor_info info;
    const fp8_role_info *role;
    const fp8_dialect *dialect;
    fp8_matrices shape;
    bool conv1d; /* stored [in, out] */
};

static fp8_status layer_of(fp8_verification *v, int64_t i, struct layer *out, fp8_error *err)
{
    fp8_subject *s = &v->subject;
    const fp8_quant_group *group;
    const char *reason;
    out->info = fp8_subject_tensor(s, i);
    out->role = &s->roles.tensors[i];
    const fp8_tensor_info *t = &out->info;
    FP8_TRY(fp8_quant_config_group(&s->roles.config, t->name,
                                   fp8_module_bytes(t->name, t->name_bytes), &group, err));
    out->dialect = group && group->dialect ? group->dialect : s->roles.dialect;
    FP8_FAIL_IF(!fp8_weight_matrices(t->ndim, t->shape, &out->shape), err, FP8_E_SHAPE,
                "%s: the shape overflows", t->name);
    fp8_kind kind =
        fp8_name_kind(&s->config, t->name, t->name_bytes, t->dtype, t->ndim, t->shape, &reason);
    out->conv1d = kind == FP8_KIND_CONV1D || kind == FP8_KIND_EXPERTS_IN_OUT;
    return FP8_OK;
}

/* Rule engine-format, once for a dialect: the engine loads it, and looks for the scale where it is.
 */
static fp8_status check_format(fp8_verification *v, const struct layer *layer, fp8_error *err)
{
    (void)err;
    const fp8_dialect *d = layer->dialect, *spelling;
    const char *engine = fp8_engine_find(v->desc->engine), *reason;
    if (fp8_engine_dialect(engine, d, &reason) != FP8_LOADS) {
        v->refused = d;
        FP8_FOUND_ERROR(v, layer->info.name,
                        "%s does not load the scheme %s, of which this is the "
                        "first weight",
                        engine, d->name);
        return FP8_OK;
    }
    char name[1024];
    spelling = fp8_dialect_find(d->name, engine);
    fp8_tensor_info scale = {.name = "", .name_bytes = 0};
    if (layer->role->partner >= 0)
        scale = fp8_subject_tensor(&v->subject, layer->role->partner);
    if (!spelling || !scale.name_bytes || layer->info.name_bytes + 64 > sizeof name)
        return FP8_OK;
    uint64_t bytes =
        fp8_companion_name(layer->info.name, layer->info.name_bytes, spelling->scale_suffix, name);
    if (bytes != scale.name_bytes || memcmp(name, scale.name, bytes) != 0) {
        v->refused = d;
        FP8_FOUND_ERROR(v, layer->info.name,
                        "%s looks for the scale of scheme %s under the name %s, the file has %s",
                        engine, d->name, name, scale.name);
    }
    return FP8_OK;
}

/* Rules engine-refused, engine-misread and engine-slow (a warning). */
static fp8_status check_weight(fp8_verification *v, const struct layer *layer, fp8_error *err)
{
    (void)err;
    static const char *const names[] = {
        [FP8_SLOW] = "engine-slow",
        [FP8_REFUSED] = "engine-refused",
        [FP8_MISREAD] = "engine-misread",
    };
    const char *reason;
    char shape[64];
    fp8_verdict verdict =
        fp8_engine_weight(fp8_engine_find(v->desc->engine), layer->dialect, layer->info.name,
                          layer->info.name_bytes, layer->shape, layer->conv1d, &reason);
    if (verdict == FP8_LOADS)
        return FP8_OK;
    v->rule = names[verdict];
    fp8_shape_text(&layer->info, shape);
    FP8_FOUND(v, verdict != FP8_SLOW, layer->info.name, "%s: %s", shape, reason);
    return FP8_OK;
}

/* The scale of a weight that has one for all. */
static fp8_status only_scale(fp8_verification *v, int64_t i, double *out, fp8_error *err)
{
    const fp8_role_info *role = &v->subject.roles.tensors[i];
    fp8_tensor_info scale = fp8_subject_tensor(&v->subject, role->partner);
    uint32_t raw = 0;
    float value = 0;
    FP8_TRY(fp8_checkpoint_read(v->subject.ckpt, &scale, 0,
                                (uint64_t)fp8_dtype_bits(role->scale) / 8, &raw, err));
    FP8_TRY(fp8_cast(v->ctx, &raw, role->scale, &value, FP8_F32, 1, 0, err));
    *out = (double)value;
    return FP8_OK;
}

/* The weight has one scale, and can be read. */
static bool has_one_scale(const fp8_verification *v, int64_t i)
{
    fp8_values values;
    fp8_values_of(v->subject.ckpt, &v->subject.roles, i, &values);
    return fp8_values_quantized(&values) && fp8_values_count(&values) > 0 &&
           !values.role->grid.rows && !values.role->grid.cols && values.info.ndim == 2;
}

/* Rule fused-scales, a warning: engines that fuse q, k and v, or gate and up, into one matrix give
 * it one scale, the largest, and quantize the others again. */
static fp8_status check_fused(fp8_verification *v, const struct layer *layer, fp8_error *err)
{
    fp8_fused part = fp8_fused_part(layer->info.name, layer->info.name_bytes);
    const char *engine = fp8_engine_find(v->desc->engine);
    int64_t self = fp8_subject_find(&v->subject, &layer->info);
    char first[1024];
    double ours, theirs;
    if (!part.name || part.index == 0 || !strcmp(engine, "transformers") ||
        !has_one_scale(v, self) || layer->info.name_bytes + 64 > sizeof first)
        return FP8_OK;
    uint64_t bytes = fp8_fused_sibling(layer->info.name, layer->info.name_bytes, 0, first);
    int64_t other = fp8_checkpoint_index(v->subject.ckpt, first, bytes);
    if (other < 0 || !has_one_scale(v, other))
        return FP8_OK;
    FP8_TRY(only_scale(v, self, &ours, err));
    FP8_TRY(only_scale(v, other, &theirs, err));
    if (ours != theirs)
        FP8_FOUND_WARNING(v, layer->info.name,
                          "the scale is %g, that of %s %g: %s fuses them into %s with the larger "
                          "scale and quantizes again",
                          ours, first, theirs, engine, part.name);
    return FP8_OK;
}

/* How a module is split over ranks, by the last part of its name. */
static const struct {
    const char *leaf;
    bool by_columns;
} splits[] = {
    {"q_proj", false},
    {"k_proj", false},
    {"v_proj", false},
    {"qkv_proj", false},
    {"query", false},
    {"key", false},
    {"value", false},
    {"query_key_value", false},
    {"q_b_proj", false},
    {"kv_b_proj", false},
    {"c_attn", false},
    {"gate_proj", false},
    {"up_proj", false},
    {"gate_up_proj", false},
    {"w1", false},
    {"w3", false},
    {"fc1", false},
    {"c_fc", false},
    {"dense_h_to_4h", false},
    {"o_proj", true},
    {"out_proj", true},
    {"down_proj", true},
    {"w2", true},
    {"fc2", true},
    {"dense_4h_to_h", true},
};

enum split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLUMNS };

static enum split split_of(const fp8_tensor_info *info)
{
    uint64_t bytes = fp8_module_bytes(info->name, info->name_bytes), begin = bytes;
    while (begin && info->name[begin - 1] != '.')
        begin--;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        if (strlen(splits[i].leaf) == bytes - begin &&
            !memcmp(splits[i].leaf, info->name + begin, bytes - begin))
            return splits[i].by_columns ? SPLIT_COLUMNS : SPLIT_ROWS;
    return SPLIT_NONE;
}

/* Ranks that share the rows of k and v: there are no more of them than heads, the others hold
 * copies. */
static int64_t ranks_of(const fp8_verification *v, const struct layer *layer)
{
    fp8_fused part = fp8_fused_part(layer->info.name, layer->info.name_bytes);
    int64_t heads = v->subject.config.kv_heads, tp = v->desc->tp;
    bool kv = part.name && part.count == 3 && part.index > 0;
    return kv && heads > 0 && heads < tp ? heads : tp;
}

/* vllm and sglang refuse parts that are not whole blocks; of the others we do not know, so it is a
 * warning there. */
static bool refuses_split_blocks(const char *engine)
{
    return !engine || !strcmp(engine, "vllm") || !strcmp(engine, "sglang");
}

/* Rules tp-split: the sizes divide by the ranks; tp-block: each rank's part is whole blocks. */
static fp8_status check_tp(fp8_verification *v, const struct layer *layer, fp8_error *err)
{
    (void)err;
    enum split split = split_of(&layer->info);
    if (v->desc->tp <= 1 || split == SPLIT_NONE)
        return FP8_OK;
    bool rows = (split == SPLIT_ROWS) != layer->conv1d; /* the side that is split in the file */
    int64_t size = rows ? layer->shape.rows : layer->shape.cols;
    int64_t block = rows ? layer->role->grid.rows : layer->role->grid.cols;
    int64_t ranks = ranks_of(v, layer);
    const char *side = rows ? "rows" : "columns";
    if (size % ranks) {
        v->rule = "tp-split";
        FP8_FOUND_ERROR(v, layer->info.name, "%lld %s do not divide by %lld ranks", (long long)size,
                        side, (long long)ranks);
        return FP8_OK;
    }
    v->rule = "tp-block";
    if (block > 1 && size / ranks % block)
        FP8_FOUND(v, refuses_split_blocks(v->desc->engine), layer->info.name,
                  "each of %d ranks has %lld of %lld %s, no multiple of the scale's %lld (%lld %% "
                  "%lld = %lld)",
                  v->desc->tp, (long long)(size / ranks), (long long)size, side, (long long)block,
                  (long long)(size / ranks), (long long)block, (long long)(size / ranks % block));
    return FP8_OK;
}

static const struct {
    const char *name;
    bool of_engine; /* only with --for */
    fp8_status (*check)(fp8_verification *v, const struct layer *layer, fp8_error *err);
} engine_rules[] = {
    {"engine-format", true, check_format},
    {"engine-refused", true, check_weight},
    {"fused-scales", true, check_fused},
    {"tp-split", false, check_tp},
};

/* All rules on all quantized weights. */
fp8_status fp8_verify_for_engine(fp8_verification *v, fp8_error *err)
{
    if (!v->desc->engine && v->desc->tp <= 1)
        return FP8_OK;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        struct layer layer;
        if (v->subject.roles.tensors[i].role != FP8_ROLE_WEIGHT)
            continue;
        FP8_TRY(layer_of(v, i, &layer, err));
        for (size_t k = 0; k < sizeof engine_rules / sizeof *engine_rules && layer.dialect; k++) {
            v->rule = engine_rules[k].name;
            bool applies = v->desc->engine && layer.dialect != v->refused;
            if (applies || !engine_rules[k].of_engine)
                FP8_TRY(engine_rules[k].check(v, &layer, err));
        }
    }
    return FP8_OK;
}
