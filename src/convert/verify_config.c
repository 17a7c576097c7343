/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_config.c - rules about what config.json says and what the tensors are: the method, the
 * activations, the list of modules that are not quantized, the tied head. */
#include "ckpt/json_pick.h"
#include "convert/names.h"
#include "convert/verify.h"

#include <string.h>

/* Rule config-missing: FP8 weights with scales are announced. A single file may come without. */
fp8_status fp8_verify_config_missing(fp8_verification *v, fp8_error *err)
{
    (void)err;
    const fp8_subject *s = &v->subject;
    bool announced = s->roles.config.kind != FP8_CONFIG_NONE;
    bool excused = s->ckpt->single_file && !s->ckpt->config;
    if (s->roles.weights && !announced && !excused)
        FP8_FOUND_ERROR(v, NULL,
                        "%lld weights are FP8 with a scale, but config.json has no "
                        "quantization_config: loaders will take the codes for values",
                        (long long)s->roles.weights);
    return FP8_OK;
}

/* Rule plain-cast, a warning: FP8 numbers without scales, and no word of it. */
fp8_status fp8_verify_plain_cast(fp8_verification *v, fp8_error *err)
{
    (void)err;
    const fp8_subject *s = &v->subject;
    int64_t bare = 0, first = 0;
    for (int64_t i = v->summary->tensors - 1; i >= 0; i--)
        if (s->roles.tensors[i].role == FP8_ROLE_BARE_CODES) {
            bare++;
            first = i;
        }
    if (bare && s->roles.config.kind == FP8_CONFIG_NONE)
        FP8_FOUND_WARNING(v, fp8_subject_tensor(s, first).name,
                          "%lld tensors are FP8 without a scale, and no config says why: a plain "
                          "cast, or the scales are lost",
                          (long long)bare);
    return FP8_OK;
}

/* Rule config-unknown: what is announced is a scheme that we can check. */
fp8_status fp8_verify_config_unknown(fp8_verification *v, fp8_error *err)
{
    (void)err;
    const fp8_quant_config *config = &v->subject.roles.config;
    if (config->kind == FP8_CONFIG_UNKNOWN)
        FP8_FOUND_ERROR(v, NULL, "quant_method \"%s\" is none that can be checked", config->method);
    for (int64_t i = 0; i < config->group_count; i++)
        if (!config->groups[i].known)
            FP8_FOUND_ERROR(v, NULL,
                            "quant_method \"%s\": group %lld is no FP8 scheme that can be "
                            "checked",
                            config->method, (long long)i);
    return FP8_OK;
}

/* Rule nothing-quantized: what is announced is there. */
fp8_status fp8_verify_nothing_quantized(fp8_verification *v, fp8_error *err)
{
    (void)err;
    const fp8_roles *roles = &v->subject.roles;
    if (roles->config.kind != FP8_CONFIG_NONE && !roles->weights)
        FP8_FOUND_ERROR(v, NULL,
                        "quant_method \"%s\" is announced, but no weight is FP8 with a "
                        "scale",
                        roles->config.method);
    return FP8_OK;
}

/* Rule activation-scheme: quant_method fp8 says "dynamic" or "static", and blocks are dynamic. */
fp8_status fp8_verify_activation_scheme(fp8_verification *v, fp8_error *err)
{
    const fp8_subject *s = &v->subject;
    const fp8_quant_config *config = &s->roles.config;
    fp8_pick scheme = {"activation_scheme", {0}};
    if (config->kind != FP8_CONFIG_HF_FP8 || !s->config.quantization.text)
        return FP8_OK;
    FP8_TRY(fp8_json_pick(s->config.quantization, &scheme, 1, err));
    const bool is_static = fp8_pick_is(scheme.value, "static");
    if (!scheme.value.text)
        FP8_FOUND_ERROR(v, NULL, "quantization_config lacks activation_scheme, which vllm needs");
    else if (!is_static && !fp8_pick_is(scheme.value, "dynamic"))
        FP8_FOUND_ERROR(v, NULL, "activation_scheme is %.*s, must be \"dynamic\" or \"static\"",
                        (int)(scheme.value.bytes < 40 ? scheme.value.bytes : 40),
                        scheme.value.text);
    bool blocks = config->group_count && config->groups[0].grid.rows > 1;
    if (is_static && blocks)
        FP8_FOUND_ERROR(v, NULL,
                        "activation_scheme is \"static\" with scales per block, which "
                        "engines refuse");
    return FP8_OK;
}

/* The dtype of the first FP8 weight, NONE if there is none. */
static fp8_dtype first_code(const fp8_verification *v)
{
    for (int64_t i = 0; i < v->summary->tensors; i++)
        if (v->subject.roles.tensors[i].role == FP8_ROLE_WEIGHT)
            return fp8_subject_tensor(&v->subject, i).dtype;
    return FP8_DTYPE_NONE;
}

/* Rule config-format: the name that config.json gives the codes, or their packing, is that of FP8.
 * Loaders choose the code that unpacks them by it. */
fp8_status fp8_verify_config_format(fp8_verification *v, fp8_error *err)
{
    static const char *const formats[] = {"float-quantized", "naive-quantized", "mxfp8-quantized",
                                          "mixed-precision"};
    const fp8_config_kind kind = v->subject.roles.config.kind;
    fp8_pick p[] = {{"format", {0}}, {"fmt", {0}}};
    char format[64], fmt[64];
    FP8_TRY(fp8_json_pick(v->subject.config.quantization, p, 2, err));
    fp8_pick_text(p[0].value, format, sizeof format);
    fp8_pick_text(p[1].value, fmt, sizeof fmt);
    bool fits = !format[0];
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        fits |= !strcmp(format, formats[i]);
    if (kind == FP8_CONFIG_CT && !fits)
        FP8_FOUND_ERROR(v, NULL, "format \"%s\" is none that FP8 weights are stored in", format);
    fp8_dtype code = first_code(v);
    if (kind == FP8_CONFIG_HF_FP8 && ((code == FP8_E4M3FN && !strcmp(fmt, "e5m2")) ||
                                      (code == FP8_E5M2 && !strcmp(fmt, "e4m3"))))
        FP8_FOUND_ERROR(v, NULL, "fmt is \"%s\", but the weights are %s", fmt,
                        fp8_dtype_name(code));
    return FP8_OK;
}

/* The group of the weight `info`, NULL if config.json has none for it. */
static fp8_status group_of(fp8_verification *v, const fp8_tensor_info *info,
                           const fp8_quant_group **group, fp8_error *err)
{
    return fp8_quant_config_group(&v->subject.roles.config, info->name,
                                  fp8_module_bytes(info->name, info->name_bytes), group, err);
}

/* Rule input-scale: there is no activation scale where config.json says that there is none. */
fp8_status fp8_verify_input_scale(fp8_verification *v, fp8_error *err)
{
    const fp8_roles *roles = &v->subject.roles;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        const fp8_quant_group *group;
        if (roles->tensors[i].role != FP8_ROLE_INPUT_SCALE || roles->tensors[i].partner < 0)
            continue;
        fp8_tensor_info info = fp8_subject_tensor(&v->subject, i);
        fp8_tensor_info weight = fp8_subject_tensor(&v->subject, roles->tensors[i].partner);
        FP8_TRY(group_of(v, &weight, &group, err));
        if (group && group->activations != FP8_ACTIVATIONS_STATIC)
            FP8_FOUND_ERROR(v, info.name,
                            "there is a static activation scale, but config.json "
                            "says that activations are not static");
    }
    return FP8_OK;
}

/* *listed: the module of the weight `info` is in a list of config.json. */
static fp8_status is_listed(fp8_nameset *list, const fp8_tensor_info *info, bool *listed,
                            fp8_error *err)
{
    fp8_name_match match;
    FP8_TRY(fp8_nameset_match(list, info->name, fp8_module_bytes(info->name, info->name_bytes),
                              &match, err));
    *listed = match != FP8_NAME_NONE;
    return FP8_OK;
}

/* A loader of this kind of config would take the unquantized weight for a quantized one, were it
 * not listed. Heads that are not tied are linears to compressed-tensors, and to transformers' fp8
 * once there is a list: only without one does it leave them alone by itself. */
static bool must_be_listed(const fp8_subject *s, const fp8_tensor_info *info)
{
    const char *reason;
    fp8_kind kind = fp8_name_kind(&s->config, info->name, info->name_bytes, info->dtype, info->ndim,
                                  info->shape, &reason);
    bool listing = s->roles.config.kind == FP8_CONFIG_HF_FP8 && s->roles.config.ignored.count > 0;
    if (kind == FP8_KIND_HEAD)
        return (s->roles.config.kind == FP8_CONFIG_CT || listing) && !s->config.tied;
    return kind == FP8_KIND_LINEAR || kind == FP8_KIND_EXPERTS;
}

/* Rule ignore-missing: a linear weight that is not quantized is in the list. */
fp8_status fp8_verify_ignore_missing(fp8_verification *v, fp8_error *err)
{
    fp8_subject *s = &v->subject;
    fp8_config_kind kind = s->roles.config.kind;
    if (kind == FP8_CONFIG_NONE || kind == FP8_CONFIG_COMFY || kind == FP8_CONFIG_COMFY_OLD)
        return FP8_OK;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        fp8_tensor_info info = fp8_subject_tensor(s, i);
        const fp8_quant_group *group;
        bool listed;
        if (s->roles.tensors[i].role != FP8_ROLE_PLAIN || !must_be_listed(s, &info))
            continue;
        FP8_TRY(group_of(v, &info, &group, err));
        FP8_TRY(is_listed(&s->roles.config.ignored, &info, &listed, err));
        if (group && !listed)
            FP8_FOUND_ERROR(v, info.name,
                            "the weight is %s, but config.json does not list the "
                            "module as not quantized: loaders will look for scales",
                            fp8_dtype_name(info.dtype));
    }
    return FP8_OK;
}

/* Rule ignore-quantized: a quantized weight is not in the list. */
fp8_status fp8_verify_ignore_quantized(fp8_verification *v, fp8_error *err)
{
    fp8_subject *s = &v->subject;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        fp8_tensor_info info = fp8_subject_tensor(s, i);
        bool listed;
        if (s->roles.tensors[i].role != FP8_ROLE_WEIGHT)
            continue;
        FP8_TRY(is_listed(&s->roles.config.ignored, &info, &listed, err));
        if (listed)
            FP8_FOUND_ERROR(v, info.name,
                            "the weight is quantized, but config.json lists the "
                            "module as not quantized: loaders will ignore its "
                            "scale");
    }
    return FP8_OK;
}

enum { MAX_PATTERNS = 256 }; /* entries of the list that are tried against all tensors */

/* *matched: the entry, alone in a list, matches a module. */
static fp8_status entry_matches(fp8_verification *v, const char *text, bool *matched,
                                fp8_error *err)
{
    fp8_subject *s = &v->subject;
    fp8_nameset one;
    fp8_nameset_init(&one, v->ctx, s->roles.config.ignored.syntax);
    fp8_status status = fp8_nameset_add(&one, text, strlen(text), err);
    *matched = false;
    for (int64_t i = 0; i < v->summary->tensors && !*matched && status == FP8_OK; i++) {
        fp8_tensor_info info = fp8_subject_tensor(s, i);
        status = is_listed(&one, &info, matched, err);
    }
    fp8_nameset_free(&one);
    return status;
}

/* The module has a weight of that very name. */
static bool module_exists(const fp8_subject *s, const char *module)
{
    static const char tail[] = ".weight";
    char name[1024];
    size_t n = strlen(module);
    if (n + sizeof tail > sizeof name)
        return false;
    memcpy(name, module, n);
    memcpy(name + n, tail, sizeof tail);
    return fp8_checkpoint_index(s->ckpt, name, n + sizeof tail - 1) >= 0 ||
           fp8_checkpoint_index(s->ckpt, module, n) >= 0;
}

/* Rule ignore-unmatched: every entry of the list matches a module; a tied head has none. Entries
 * that name a module outright, as most do, cost one look-up. */
fp8_status fp8_verify_ignore_unmatched(fp8_verification *v, fp8_error *err)
{
    fp8_subject *s = &v->subject;
    const fp8_nameset *list = &s->roles.config.ignored;
    int patterns = 0;
    for (int64_t i = 0; i < list->count && patterns < MAX_PATTERNS; i++) {
        const char *text = list->names[i];
        bool matched;
        if (module_exists(s, text) || (s->config.tied && strstr(text, "lm_head")))
            continue;
        patterns++;
        FP8_TRY(entry_matches(v, text, &matched, err));
        if (!matched)
            FP8_FOUND_WARNING(v, text,
                              "config.json lists the module as not quantized, but there "
                              "is none of that name");
    }
    return FP8_OK;
}

/* Rule tied-head: a head that is tied to the embedding is not quantized on its own. */
fp8_status fp8_verify_tied_head(fp8_verification *v, fp8_error *err)
{
    (void)err;
    static const char head[] = "lm_head.weight";
    const fp8_subject *s = &v->subject;
    int64_t i = fp8_checkpoint_index(s->ckpt, head, sizeof head - 1);
    if (s->config.tied && i >= 0 && s->roles.tensors[i].role != FP8_ROLE_PLAIN)
        FP8_FOUND_ERROR(v, head,
                        "config.json ties the head to the embedding, but the head is "
                        "quantized by itself");
    return FP8_OK;
}
