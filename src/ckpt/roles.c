/* SPDX-License-Identifier: Apache-2.0
 *
 * roles.c - pairs weights with their scales by name, then judges each pair against the config:
 *
 *     1 what the config says   2 each FP8 tensor takes its scales   3 what is left over and named
 *     like a scale is a stray, a cache's scale or a marker   4 which row of the table it all is
 *
 * Whether one scale fits one weight is scale_fit.c. */
#include "ckpt/roles.h"

#include "ckpt/json_pick.h"
#include "ckpt/scale_fit.h"
#include "number/dtype.h"

#include <string.h>

enum { HF_QUANT_CONFIG_MAX = 64 << 20 };

/* How a weight's scale may be called, and its input's; the first that is there is taken. */
static const char *const scale_suffixes[] = {"weight_scale_inv", "weight_scale", "scale_weight",
                                             "qscale_weight"};
static const char *const input_suffixes[] = {"input_scale", "activation_scale", "scale_input",
                                             "qscale_act"};
enum { SUFFIXES = 4 };

/* Parts of names that hold something else than a weight's scale. */
static const struct {
    const char *tail;
    fp8_role role;
} tails[] = {
    {".k_scale", FP8_ROLE_KV_SCALE},  {".v_scale", FP8_ROLE_KV_SCALE},
    {".q_scale", FP8_ROLE_KV_SCALE},  {".prob_scale", FP8_ROLE_KV_SCALE},
    {".kv_scale", FP8_ROLE_KV_SCALE}, {"_proj.output_scale", FP8_ROLE_KV_SCALE},
};

/* Tails of names that are scales of weights and nothing else. */
static const char *const scale_tails[] = {"weight_scale_inv", ".weight_scale",  ".scale_weight",
                                          "_scale_inv",       ".input_scale",   ".activation_scale",
                                          ".scale_input",     ".qscale_weight", ".qscale_act"};

static const fp8_problem scale_missing = {
    "scale-missing", "FP8 codes without a scale, though the config says they are quantized", true};
static const fp8_problem scale_twice = {
    "scale-twice", "a second scale, under another name, of a weight that has one", false};
static const fp8_problem scale_unquantized = {
    "scale-unquantized", "a scale beside a weight that is not FP8: readers multiply by it", false};
static const fp8_problem weight_dtype = {
    "weight-dtype",
    "a scale beside a weight that is neither FP8 nor a float, though the config says FP8", true};
static const fp8_problem scale_orphan = {"scale-orphan", "a scale without a weight", false};
static const fp8_problem scale_fused = {
    "scale-fused", "scales of all experts in one tensor, while the experts' weights are separate",
    false};
static const fp8_problem input_missing = {
    "input-scale-missing", "the config says static activations, but there is no input scale",
    false};
static const fp8_problem input_shape = {"input-scale-shape",
                                        "an input scale must be one floating-point number", false};

/* What the steps share. */
typedef struct assignment {
    const fp8_context *ctx;
    const fp8_checkpoint *ckpt;
    fp8_roles *out;
    char *name; /* scratch for companions' names */
    uint64_t name_room;
    int suffix;       /* of the first weight's scale: index in scale_suffixes; -1 none yet */
    int input_suffix; /* the same of its input's */
} assignment;

static bool ends_with(const char *name, uint64_t bytes, const char *tail)
{
    size_t n = strlen(tail);
    return bytes >= n && memcmp(name + bytes - n, tail, n) == 0;
}

static bool is_code(fp8_dtype dtype)
{
    return dtype == FP8_E4M3FN || dtype == FP8_E4M3FNUZ || dtype == FP8_E5M2 ||
           dtype == FP8_E5M2FNUZ;
}

/* ComfyUI's marker of the whole file: no numbers, but the dtype of the codes. */
static bool marks_file(const fp8_tensor_info *info)
{
    return ends_with(info->name, info->name_bytes, "scaled_fp8") && is_code(info->dtype) &&
           info->bytes <= 2;
}

/* ComfyUI's marker of one layer: json as bytes. */
static bool marks_layer(const fp8_tensor_info *info)
{
    return ends_with(info->name, info->name_bytes, ".comfy_quant") && info->dtype == FP8_U8;
}

/* *index = the tensor that is the weight's companion of that suffix, -1 if there is none. */
static fp8_status companion(assignment *a, const fp8_tensor_info *weight, const char *suffix,
                            int64_t *index, fp8_error *err)
{
    uint64_t bytes = fp8_companion_name(weight->name, weight->name_bytes, suffix, NULL);
    if (bytes + 2 > a->name_room) {
        fp8_release(a->ctx, a->name);
        a->name_room = 0;
        a->name = fp8_alloc(a->ctx, 2 * bytes + 64);
        FP8_FAIL_IF(!a->name, err, FP8_E_NO_MEMORY, "out of memory for the name of a scale");
        a->name_room = 2 * bytes + 64;
    }
    fp8_companion_name(weight->name, weight->name_bytes, suffix, a->name);
    *index = fp8_checkpoint_index(a->ckpt, a->name, bytes);
    return FP8_OK;
}

/* The weight's scale: the first of the suffixes that is there; further ones are problems. */
static fp8_status take_scale(assignment *a, int64_t w, const fp8_tensor_info *weight,
                             fp8_error *err)
{
    fp8_role_info *role = &a->out->tensors[w];
    for (int s = 0; s < SUFFIXES; s++) {
        int64_t i;
        FP8_TRY(companion(a, weight, scale_suffixes[s], &i, err));
        if (i < 0 || i == w)
            continue;
        a->out->tensors[i] = (fp8_role_info){.role = FP8_ROLE_SCALE, .partner = w, .input = -1};
        if (role->partner >= 0) {
            a->out->tensors[i].role = FP8_ROLE_STRAY_SCALE;
            a->out->tensors[i].problem = &scale_twice;
            continue;
        }
        role->partner = i;
        if (a->suffix < 0)
            a->suffix = s;
    }
    return FP8_OK;
}

static fp8_status take_input(assignment *a, int64_t w, const fp8_tensor_info *weight,
                             fp8_error *err)
{
    fp8_role_info *role = &a->out->tensors[w];
    for (int s = 0; s < SUFFIXES && role->input < 0; s++) {
        fp8_tensor_info input;
        FP8_TRY(companion(a, weight, input_suffixes[s], &role->input, err));
        if (role->input < 0)
            continue;
        fp8_role_info *scale = &a->out->tensors[role->input];
        *scale = (fp8_role_info){.role = FP8_ROLE_INPUT_SCALE, .partner = w, .input = -1};
        FP8_TRY(fp8_checkpoint_tensor(a->ckpt, role->input, &input));
        if (!fp8_input_scale_fits(weight, &input))
            scale->problem = &input_shape;
        if (a->input_suffix < 0)
            a->input_suffix = s;
    }
    return FP8_OK;
}

/* Roles of the FP8 tensor w and of its companions. */
static fp8_status assign_codes(assignment *a, int64_t w, const fp8_tensor_info *weight,
                               fp8_error *err)
{
    fp8_role_info *role = &a->out->tensors[w];
    const fp8_quant_group *group;
    uint64_t module = fp8_module_bytes(weight->name, weight->name_bytes);
    *role = (fp8_role_info){.role = FP8_ROLE_BARE_CODES, .partner = -1, .input = -1};
    a->out->quantized = true;
    FP8_TRY(take_scale(a, w, weight, err));
    FP8_TRY(take_input(a, w, weight, err));
    FP8_TRY(fp8_quant_config_group(&a->out->config, weight->name, module, &group, err));
    bool announced = a->out->config.kind != FP8_CONFIG_NONE;
    if (role->partner < 0) {
        role->problem = announced && weight->bytes > 0 ? &scale_missing : NULL;
        return FP8_OK;
    }
    fp8_tensor_info scale;
    FP8_TRY(fp8_checkpoint_tensor(a->ckpt, role->partner, &scale));
    role->role = FP8_ROLE_WEIGHT;
    a->out->weights++;
    role->problem = fp8_scale_fit(a->out->config.kind, group, weight, &scale, role);
    if (!role->problem && group)
        a->out->tensors[role->partner].problem =
            fp8_scale_spelling(a->out->config.kind, weight, &scale, role);
    if (!role->problem && group && group->known && group->activations == FP8_ACTIVATIONS_STATIC &&
        role->input < 0)
        role->problem = &input_missing;
    return FP8_OK;
}

/* ---- what no weight has taken ---- */

/* The tensor that a stray scale's name belongs to: "a.weight" of "a.weight_scale_inv"; -1 if there
 * is none. */
static int64_t owner_of(const assignment *a, const fp8_tensor_info *scale, uint64_t stem,
                        char *scratch)
{
    static const char weight[] = "weight";
    uint64_t bytes = stem;
    memcpy(scratch, scale->name, stem);
    int64_t i = fp8_checkpoint_index(a->ckpt, scratch, bytes);
    if (i >= 0)
        return i;
    if (bytes > 0 && scratch[bytes - 1] != '.')
        scratch[bytes++] = '.';
    memcpy(scratch + bytes, weight, sizeof weight - 1);
    return fp8_checkpoint_index(a->ckpt, scratch, bytes + sizeof weight - 1);
}

/* The name is "..experts.X_scale.." while there is an expert 0 of its own. */
static bool has_separate_experts(const assignment *a, const char *name, uint64_t bytes,
                                 char *scratch)
{
    static const char part[] = ".experts.";
    static const char *const parts[] = {"down_proj", "gate_proj", "up_proj", "w1", "w2", "w3"};
    uint64_t at = 0;
    for (uint64_t i = 0; i + sizeof part - 1 <= bytes; i++)
        if (memcmp(name + i, part, sizeof part - 1) == 0)
            at = i + sizeof part - 1;
    if (at == 0)
        return false;
    memcpy(scratch, name, at);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint64_t n = strlen(parts[i]);
        memcpy(scratch + at, "0.", 2);
        memcpy(scratch + at + 2, parts[i], n);
        memcpy(scratch + at + 2 + n, ".weight", 7);
        if (fp8_checkpoint_index(a->ckpt, scratch, at + 2 + n + 7) >= 0)
            return true;
    }
    return false;
}

/* The scale i of a weight of integers or 4-bit codes: another quantization's, which is carried,
 * unless the config says that this module is FP8. */
static fp8_status assign_foreign(assignment *a, int64_t i, const fp8_tensor_info *weight,
                                 fp8_error *err)
{
    fp8_role_info *role = &a->out->tensors[i];
    const fp8_quant_group *group;
    fp8_name_match listed;
    uint64_t module = fp8_module_bytes(weight->name, weight->name_bytes);
    FP8_TRY(fp8_quant_config_group(&a->out->config, weight->name, module, &group, err));
    FP8_TRY(fp8_nameset_match(&a->out->config.ignored, weight->name, module, &listed, err));
    if (group && group->known && listed == FP8_NAME_NONE) {
        role->role = FP8_ROLE_STRAY_SCALE;
        role->problem = &weight_dtype;
    }
    return FP8_OK;
}

/* A tensor named like a scale whose weight did not claim it. */
static fp8_status assign_stray(assignment *a, int64_t i, const fp8_tensor_info *info,
                               const char *tail, fp8_error *err)
{
    fp8_role_info *role = &a->out->tensors[i];
    uint64_t stem = info->name_bytes - strlen(tail);
    char *scratch = fp8_alloc(a->ctx, info->name_bytes + 64);
    FP8_FAIL_IF(!scratch, err, FP8_E_NO_MEMORY, "out of memory for the name of a weight");
    int64_t owner = owner_of(a, info, stem, scratch);
    bool fused = owner < 0 && has_separate_experts(a, info->name, info->name_bytes, scratch);
    fp8_release(a->ctx, scratch);
    fp8_tensor_info weight = {.dtype = FP8_F32};
    if (owner >= 0)
        FP8_TRY(fp8_checkpoint_tensor(a->ckpt, owner, &weight));
    role->partner = owner;
    if (!fp8_dtype_is_high(weight.dtype))
        return assign_foreign(a, i, &weight, err);
    role->role = FP8_ROLE_STRAY_SCALE;
    role->problem = owner >= 0 ? &scale_unquantized : fused ? &scale_fused : &scale_orphan;
    return FP8_OK;
}

/* In a checkpoint where nothing is FP8 and no config says so, no name means anything. */
static fp8_status assign_rest(assignment *a, int64_t i, const fp8_tensor_info *info, fp8_error *err)
{
    if (marks_file(info) || marks_layer(info)) {
        a->out->tensors[i].role = FP8_ROLE_MARKER;
        return FP8_OK;
    }
    for (size_t t = 0; t < sizeof tails / sizeof *tails; t++)
        if (ends_with(info->name, info->name_bytes, tails[t].tail)) {
            a->out->tensors[i].role = tails[t].role;
            return FP8_OK;
        }
    if (a->out->config.kind == FP8_CONFIG_UNKNOWN || is_code(info->dtype) || !a->out->quantized)
        return FP8_OK;
    for (size_t t = 0; t < sizeof scale_tails / sizeof *scale_tails; t++)
        if (ends_with(info->name, info->name_bytes, scale_tails[t]))
            return assign_stray(a, i, info, scale_tails[t], err);
    return FP8_OK;
}

/* ---- the config ---- */

static fp8_status read_modelopt_text(const assignment *a, char **text, uint64_t *bytes,
                                     fp8_error *err)
{
    *text = NULL;
    *bytes = 0;
    if (a->ckpt->single_file)
        return FP8_OK;
    fp8_error ignored;
    fp8_status status = fp8_read_text(a->ctx, a->ckpt->directory, "hf_quant_config.json",
                                      HF_QUANT_CONFIG_MAX, text, bytes, &ignored);
    if (status == FP8_OK || status == FP8_E_NOT_FOUND)
        return FP8_OK;
    if (err)
        *err = ignored;
    return status;
}

static fp8_status read_config(assignment *a, fp8_error *err)
{
    fp8_config config;
    char *text = NULL;
    uint64_t bytes = 0;
    FP8_TRY(fp8_config_read(a->ckpt->config, a->ckpt->config_bytes, &config, err));
    if (!config.quantization.text)
        FP8_TRY(read_modelopt_text(a, &text, &bytes, err));
    fp8_status status = fp8_quant_config_read(a->ctx, config.quantization, (fp8_span){text, bytes},
                                              &a->out->config, err);
    fp8_release(a->ctx, text);
    a->out->quantized = a->out->config.kind != FP8_CONFIG_NONE;
    return status;
}

/* A checkpoint without a config that has ComfyUI's markers says by them what it is. */
static void find_markers(assignment *a, const fp8_tensor_info *info)
{
    fp8_config_kind *kind = &a->out->config.kind;
    if (*kind != FP8_CONFIG_NONE)
        return;
    if (marks_layer(info))
        *kind = FP8_CONFIG_COMFY;
    else if (marks_file(info))
        *kind = FP8_CONFIG_COMFY_OLD;
    a->out->quantized |= *kind != FP8_CONFIG_NONE;
}

/* The row with the config's facts that also spells the names as the tensors do. */
static const fp8_dialect *find_dialect(const assignment *a)
{
    const fp8_quant_config *config = &a->out->config;
    const fp8_dialect *first = NULL, *d;
    for (int64_t i = 0; i < config->group_count && !first; i++)
        first = config->groups[i].dialect;
    for (int64_t i = 0; (d = fp8_dialect_at(i)) != NULL; i++) {
        if (!first && config->group_count == 0 && d->config == config->kind)
            first = d; /* of ComfyUI's, which have one row each */
        bool same = first && d->config == first->config && d->grid.rows == first->grid.rows &&
                    d->grid.cols == first->grid.cols &&
                    (d->scale == FP8_E8M0FNU) == (first->scale == FP8_E8M0FNU) &&
                    (d->activations == FP8_ACTIVATIONS_NONE) ==
                        (first->activations == FP8_ACTIVATIONS_NONE) &&
                    (d->input_suffix != NULL) == (first->input_suffix != NULL);
        if (same && a->suffix >= 0 && strcmp(d->scale_suffix, scale_suffixes[a->suffix]) == 0 &&
            (!d->input_suffix || a->input_suffix < 0 ||
             strcmp(d->input_suffix, input_suffixes[a->input_suffix]) == 0))
            return d;
    }
    return first;
}

/* ---- the whole ---- */

static fp8_status assign_all(assignment *a, fp8_error *err)
{
    int64_t n = fp8_checkpoint_count(a->ckpt);
    fp8_tensor_info info;
    FP8_TRY(read_config(a, err));
    for (int64_t i = 0; i < n; i++) {
        a->out->tensors[i] = (fp8_role_info){.role = FP8_ROLE_PLAIN, .partner = -1, .input = -1};
        FP8_TRY(fp8_checkpoint_tensor(a->ckpt, i, &info));
        find_markers(a, &info);
    }
    for (int64_t i = 0; i < n; i++) {
        FP8_TRY(fp8_checkpoint_tensor(a->ckpt, i, &info));
        if (is_code(info.dtype) && !marks_file(&info))
            FP8_TRY(assign_codes(a, i, &info, err));
    }
    for (int64_t i = 0; i < n; i++) {
        FP8_TRY(fp8_checkpoint_tensor(a->ckpt, i, &info));
        if (a->out->tensors[i].role == FP8_ROLE_PLAIN)
            FP8_TRY(assign_rest(a, i, &info, err));
    }
    a->out->dialect = a->out->weights > 0 || a->out->quantized ? find_dialect(a) : NULL;
    return FP8_OK;
}

fp8_status fp8_roles_assign(const fp8_context *ctx, const fp8_checkpoint *ckpt, fp8_roles *out,
                            fp8_error *err)
{
    *out = (fp8_roles){.quantized = false};
    assignment a = {ctx, ckpt, out, NULL, 0, -1, -1};
    out->tensors =
        fp8_alloc_zeroed(ctx, (uint64_t)fp8_checkpoint_count(ckpt), sizeof *out->tensors);
    FP8_FAIL_IF(!out->tensors, err, FP8_E_NO_MEMORY, "out of memory for the roles of %lld tensors",
                (long long)fp8_checkpoint_count(ckpt));
    fp8_status status = assign_all(&a, err);
    fp8_release(ctx, a.name);
    if (status != FP8_OK)
        fp8_roles_free(ctx, out);
    return status;
}

void fp8_roles_free(const fp8_context *ctx, fp8_roles *roles)
{
    fp8_release(ctx, roles->tensors);
    fp8_quant_config_free(ctx, &roles->config);
    *roles = (fp8_roles){.quantized = false};
}

const char *fp8_checkpoint_dialect(const fp8_checkpoint *ckpt)
{
    fp8_roles roles;
    if (!ckpt)
        return "unknown";
    fp8_status status = fp8_roles_assign(ckpt->ctx, ckpt, &roles, NULL);
    if (status != FP8_OK)
        return status == FP8_E_NO_MEMORY ? NULL : "unknown";
    const char *name = roles.dialect ? roles.dialect->name : roles.quantized ? "unknown" : "none";
    fp8_roles_free(ckpt->ctx, &roles);
    return name;
}

/* ---- for users ---- */

static const char weight_suffix[] = ".weight";

/* How the weight's module quantizes its input. */
static fp8_status activations_of(fp8_roles *roles, const fp8_tensor_info *info,
                                 fp8_activations *activations, fp8_error *err)
{
    const uint64_t tail = sizeof weight_suffix - 1;
    const bool ends = info->name_bytes > tail &&
                      !memcmp(info->name + info->name_bytes - tail, weight_suffix, tail);
    const fp8_quant_group *group = NULL;
    FP8_TRY(fp8_quant_config_group(&roles->config, info->name, info->name_bytes - (ends ? tail : 0),
                                   &group, err));
    *activations = group && group->known ? group->activations
                   : roles->dialect      ? roles->dialect->activations
                                         : FP8_ACTIVATIONS_TOKEN;
    return FP8_OK;
}

static fp8_status tell_weights(const fp8_checkpoint *ckpt, fp8_roles *roles, fp8_weight_fn fn,
                               void *user, fp8_error *err)
{
    for (int64_t i = 0; i < fp8_checkpoint_count(ckpt); i++) {
        const fp8_role_info *role = &roles->tensors[i];
        fp8_tensor_info info;
        fp8_activations activations;
        if (role->role != FP8_ROLE_WEIGHT || (role->problem && role->problem->unreadable))
            continue;
        FP8_TRY(fp8_checkpoint_tensor(ckpt, i, &info));
        FP8_TRY(activations_of(roles, &info, &activations, err));
        fn(user, &(fp8_weight_info){i, role->partner, role->grid,
                                    fp8_layer_scheme(role->grid, activations)});
    }
    return FP8_OK;
}

fp8_status fp8_checkpoint_weights(const fp8_checkpoint *ckpt, fp8_weight_fn fn, void *user,
                                  fp8_error *err)
{
    fp8_roles roles;
    FP8_FAIL_IF(!ckpt || !fn, err, FP8_E_ARGUMENT, "checkpoint: %s is NULL", ckpt ? "fn" : "ckpt");
    FP8_TRY(fp8_roles_assign(ckpt->ctx, ckpt, &roles, err));
    const fp8_status status = tell_weights(ckpt, &roles, fn, user, err);
    fp8_roles_free(ckpt->ctx, &roles);
    return status;
}
