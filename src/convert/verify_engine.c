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
#include "ckpt/engine.h"
#include "convert/names.h"
#include "convert/verify.h"

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
    FP8_TRY(fp8_cast(v->ctx, &raw, role->scale, &value, FP8_F32, 1, 0, NULL, err));
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

enum { NAME_ROOM = 1024 }; /* a longer name is not one of a fused weight */

/* Tensor of part `index` of the fused matrix that the layer belongs to, -1 if it is not there. */
static int64_t find_part(const fp8_verification *v, const struct layer *layer, int32_t index,
                         char name[NAME_ROOM])
{
    if (layer->info.name_bytes > NAME_ROOM - 64)
        return -1;
    uint64_t bytes = fp8_fused_sibling(layer->info.name, layer->info.name_bytes, index, name);
    return fp8_checkpoint_index(v->subject.ckpt, name, bytes);
}

static bool engine_fuses(const fp8_verification *v)
{
    return strcmp(fp8_engine_find(v->desc->engine), "transformers") != 0;
}

/* Rule fused-mixed: of q, k and v, or of gate and up, which engines fuse into one matrix, all are
 * quantized or none. */
static fp8_status check_mixed(fp8_verification *v, const struct layer *layer, fp8_error *err)
{
    (void)err;
    char name[NAME_ROOM];
    fp8_fused part = fp8_fused_part(layer->info.name, layer->info.name_bytes);
    for (int32_t k = 0; part.name && engine_fuses(v) && k < part.count; k++) {
        int64_t i = find_part(v, layer, k, name);
        if (i >= 0 && v->subject.roles.tensors[i].role == FP8_ROLE_PLAIN)
            FP8_FOUND_ERROR(v, layer->info.name,
                            "the weight is quantized, but %s is not, and %s fuses them into %s",
                            name, fp8_engine_find(v->desc->engine), part.name);
    }
    return FP8_OK;
}

/* Rule fused-scales, a warning: the fused matrix has one scale per tensor, the largest, and the
 * other parts are quantized again. */
static fp8_status check_scales(fp8_verification *v, const struct layer *layer, fp8_error *err)
{
    char name[NAME_ROOM];
    double ours, theirs;
    fp8_fused part = fp8_fused_part(layer->info.name, layer->info.name_bytes);
    int64_t self = fp8_subject_find(&v->subject, &layer->info);
    if (!part.name || part.index == 0 || !engine_fuses(v) || !has_one_scale(v, self))
        return FP8_OK;
    int64_t other = find_part(v, layer, 0, name);
    if (other < 0 || !has_one_scale(v, other))
        return FP8_OK;
    FP8_TRY(only_scale(v, self, &ours, err));
    FP8_TRY(only_scale(v, other, &theirs, err));
    if (ours != theirs)
        FP8_FOUND_WARNING(v, layer->info.name,
                          "the scale is %g, that of %s %g: %s fuses them into %s with the larger "
                          "scale and quantizes again",
                          ours, name, theirs, fp8_engine_find(v->desc->engine), part.name);
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
    {"engine-format", true, check_format}, {"engine-refused", true, check_weight},
    {"fused-mixed", true, check_mixed},    {"fused-scales", true, check_scales},
    {"tp-split", false, check_tp},
};

/* vllm takes the list of quant_method fp8 by whole names, where transformers takes their ends. */
static bool takes_whole_names(const fp8_verification *v)
{
    fp8_config_kind kind = v->subject.roles.config.kind;
    return v->desc->engine && !strcmp(v->desc->engine, "vllm") &&
           (kind == FP8_CONFIG_HF_FP8 || kind == FP8_CONFIG_HF_MXFP8 || kind == FP8_CONFIG_FBGEMM);
}

/* A linear weight or a router (a warning), not quantized, whose whole name is not listed. */
static fp8_status check_listed(fp8_verification *v, int64_t i, fp8_nameset *exact, fp8_error *err)
{
    const char *reason;
    fp8_name_match match;
    fp8_tensor_info t = fp8_subject_tensor(&v->subject, i);
    fp8_kind kind =
        fp8_name_kind(&v->subject.config, t.name, t.name_bytes, t.dtype, t.ndim, t.shape, &reason);
    if (v->subject.roles.tensors[i].role != FP8_ROLE_PLAIN ||
        (kind != FP8_KIND_LINEAR && kind != FP8_KIND_ROUTER))
        return FP8_OK;
    FP8_TRY(fp8_nameset_match(exact, t.name, fp8_module_bytes(t.name, t.name_bytes), &match, err));
    if (match == FP8_NAME_NONE)
        FP8_FOUND(v, kind == FP8_KIND_LINEAR, t.name,
                  "the weight is %s, and vllm looks for the module's whole name in the list of "
                  "config.json, which does not have it",
                  fp8_dtype_name(t.dtype));
    return FP8_OK;
}

/* Rule engine-ignore: the list of modules that are not quantized is spelt as the engine reads it.
 */
static fp8_status check_list(fp8_verification *v, fp8_error *err)
{
    const fp8_nameset *list = &v->subject.roles.config.ignored;
    fp8_nameset exact;
    fp8_status status = FP8_OK;
    if (!takes_whole_names(v))
        return FP8_OK;
    v->rule = "engine-ignore";
    fp8_nameset_init(&exact, v->ctx, FP8_NAMES_EXACT);
    for (int64_t i = 0; i < list->count && status == FP8_OK; i++)
        status = fp8_nameset_add(&exact, list->names[i], strlen(list->names[i]), err);
    for (int64_t i = 0; i < v->summary->tensors && status == FP8_OK; i++)
        status = check_listed(v, i, &exact, err);
    fp8_nameset_free(&exact);
    return status;
}

/* All rules on all quantized weights. */
static fp8_status check_layers(fp8_verification *v, fp8_error *err)
{
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

fp8_status fp8_verify_for_engine(fp8_verification *v, fp8_error *err)
{
    if (!v->desc->engine && v->desc->tp <= 1)
        return FP8_OK;
    FP8_TRY(check_list(v, err));
    return check_layers(v, err);
}
