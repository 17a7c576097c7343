/* SPDX-License-Identifier: Apache-2.0
 *
 * quantconfig.c - the quantization_config of each quant_method. One reader a method, listed in
 * `methods`; what a scheme means becomes a grid, and the row of the dialect table with these
 * facts. Must not look at tensors. */
#include "ckpt/quantconfig.h"

#include "ckpt/json_pick.h"

#include <ctype.h>
#include <string.h>

static const char *const file = "config.json: quantization_config";

static fp8_status no_memory(fp8_error *err)
{
    return fp8_fail(err, FP8_E_NO_MEMORY, "out of memory for quantization_config");
}

void fp8_quant_config_free(const fp8_context *ctx, fp8_quant_config *config)
{
    for (int64_t i = 0; i < config->group_count; i++)
        fp8_nameset_free(&config->groups[i].targets);
    fp8_release(ctx, config->groups);
    fp8_nameset_free(&config->ignored);
    *config = (fp8_quant_config){.kind = FP8_CONFIG_NONE};
}

/* ---- groups ---- */

/* A new, empty group at the end. */
static fp8_status add_group(const fp8_context *ctx, fp8_quant_config *out, fp8_quant_group **group,
                            fp8_error *err)
{
    fp8_quant_group *groups = fp8_alloc_zeroed(ctx, (uint64_t)out->group_count + 1, sizeof *groups);
    if (!groups)
        return no_memory(err);
    for (int64_t i = 0; i < out->group_count; i++)
        groups[i] = out->groups[i];
    fp8_release(ctx, out->groups);
    out->groups = groups;
    *group = &groups[out->group_count++];
    return FP8_OK;
}

/* Static, none, or one of the dynamic kinds: what tells two rows of one grid apart. */
static int activation_class(fp8_activations a)
{
    return a == FP8_ACTIVATIONS_NONE ? 0 : a == FP8_ACTIVATIONS_STATIC ? 1 : 2;
}

static bool has_facts(const fp8_dialect *d, fp8_config_kind kind, const fp8_quant_group *g)
{
    return d->config == kind && d->grid.rows == g->grid.rows && d->grid.cols == g->grid.cols &&
           activation_class(d->activations) == activation_class(g->activations) &&
           (d->scale == FP8_E8M0FNU && d->grid.cols == 32) == g->mx;
}

/* The group's row: the first with its facts, and with its algorithm if it names one. */
static void find_dialect(fp8_config_kind kind, fp8_quant_group *g, const char *algorithm)
{
    const fp8_dialect *d;
    for (int64_t i = 0; (d = fp8_dialect_at(i)) != NULL; i++)
        if (has_facts(d, kind, g) &&
            (!algorithm || (d->algorithm && strcmp(d->algorithm, algorithm) == 0))) {
            g->dialect = d;
            return;
        }
}

/* The one group of a config that has no others. */
static fp8_status set_group(const fp8_context *ctx, fp8_quant_config *out, fp8_grid grid, bool mx,
                            fp8_activations activations, const char *algorithm, fp8_error *err)
{
    fp8_quant_group *g;
    FP8_TRY(add_group(ctx, out, &g, err));
    g->known = true;
    g->grid = grid;
    g->mx = mx;
    g->activations = activations;
    find_dialect(out->kind, g, algorithm);
    return FP8_OK;
}

/* ---- lists of names ---- */

static fp8_status add_name(void *arg, fp8_span key, fp8_span value, fp8_error *err)
{
    (void)key;
    fp8_nameset *set = arg;
    if (!fp8_pick_starts(value, '"') || value.bytes <= 2)
        return FP8_OK;
    char *name = fp8_alloc(set->ctx, value.bytes);
    if (!name)
        return no_memory(err);
    uint64_t bytes = fp8_json_unescape((fp8_span){value.text + 1, value.bytes - 2}, name);
    fp8_status status = fp8_nameset_add(set, name, bytes, err);
    fp8_release(set->ctx, name);
    if (status == FP8_E_ARGUMENT) {
        fp8_error_prefix(err, "a list of modules");
        if (err)
            err->code = FP8_E_FORMAT;
        return FP8_E_FORMAT;
    }
    return status;
}

/* The names of whichever list is there. */
static fp8_status read_names(fp8_nameset *set, fp8_span list, fp8_error *err)
{
    return fp8_pick_starts(list, '[') ? fp8_json_each(list, add_name, set, err) : FP8_OK;
}

/* ---- quant_method fp8, mxfp8, fbgemm_fp8, quark ---- */

typedef struct pair {
    int64_t values[2];
    int count;
} pair;

static fp8_status add_value(void *arg, fp8_span key, fp8_span value, fp8_error *err)
{
    (void)key;
    (void)err;
    pair *p = arg;
    if (p->count < 2)
        p->values[p->count] = fp8_pick_int(value, 0);
    p->count++;
    return FP8_OK;
}

/* [rows, cols] of a block; false if the value is none (null, or of another form). */
static fp8_status read_block(fp8_span value, fp8_grid *grid, bool *found, fp8_error *err)
{
    pair p = {{0, 0}, 0};
    FP8_TRY(fp8_json_each(value, add_value, &p, err));
    *found = p.count == 2 && p.values[0] > 0 && p.values[1] > 0;
    if (*found)
        *grid = (fp8_grid){p.values[0], p.values[1]};
    return FP8_OK;
}

static fp8_status read_hf(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                          fp8_error *err)
{
    fp8_pick p[] = {{"weight_block_size", {0}},
                    {"activation_scheme", {0}},
                    {"scale_fmt", {0}},
                    {"modules_to_not_convert", {0}},
                    {"ignored_layers", {0}}};
    FP8_TRY(fp8_json_pick(config, p, 5, err));
    bool is_static = fp8_pick_is(p[1].value, "static");
    bool pow2 = fp8_pick_is(p[2].value, "ue8m0");
    bool block;
    fp8_grid grid = {0, 0};
    FP8_TRY(read_block(p[0].value, &grid, &block, err));
    fp8_activations activations = is_static ? FP8_ACTIVATIONS_STATIC
                                  : block   ? FP8_ACTIVATIONS_GROUP
                                            : FP8_ACTIVATIONS_TOKEN;
    fp8_nameset_init(&out->ignored, ctx, FP8_NAMES_HF);
    FP8_TRY(read_names(&out->ignored, p[4].value.text ? p[4].value : p[3].value, err));
    return set_group(ctx, out, grid, false, activations, block && pow2 ? "ue8m0" : NULL, err);
}

static fp8_status read_mxfp8(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                             fp8_error *err)
{
    fp8_pick p[] = {{"ignored_layers", {0}}, {"modules_to_not_convert", {0}}};
    FP8_TRY(fp8_json_pick(config, p, 2, err));
    fp8_nameset_init(&out->ignored, ctx, FP8_NAMES_HF);
    FP8_TRY(read_names(&out->ignored, p[0].value.text ? p[0].value : p[1].value, err));
    return set_group(ctx, out, (fp8_grid){1, 32}, true, FP8_ACTIVATIONS_MX, NULL, err);
}

static fp8_status read_fbgemm(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                              fp8_error *err)
{
    fp8_pick p[] = {{"modules_to_not_convert", {0}}};
    FP8_TRY(fp8_json_pick(config, p, 1, err));
    fp8_nameset_init(&out->ignored, ctx, FP8_NAMES_HF);
    FP8_TRY(read_names(&out->ignored, p[0].value, err));
    return set_group(ctx, out, (fp8_grid){1, 0}, false, FP8_ACTIVATIONS_TOKEN, NULL, err);
}

static fp8_status read_quark(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                             fp8_error *err)
{
    fp8_pick p[] = {{"global_quant_config", {0}}, {"exclude", {0}}};
    fp8_pick global[] = {{"weight", {0}}, {"input_tensors", {0}}};
    fp8_pick weight[] = {{"dtype", {0}}, {"qscheme", {0}}};
    fp8_pick input[] = {{"is_dynamic", {0}}};
    FP8_TRY(fp8_json_pick(config, p, 2, err));
    FP8_TRY(fp8_json_pick(p[0].value, global, 2, err));
    FP8_TRY(fp8_json_pick(global[0].value, weight, 2, err));
    FP8_TRY(fp8_json_pick(global[1].value, input, 1, err));
    fp8_nameset_init(&out->ignored, ctx, FP8_NAMES_GLOB);
    FP8_TRY(read_names(&out->ignored, p[1].value, err));
    bool channel = fp8_pick_is(weight[1].value, "per_channel");
    fp8_activations activations = !global[1].value.text           ? FP8_ACTIVATIONS_NONE
                                  : fp8_pick_true(input[0].value) ? FP8_ACTIVATIONS_TOKEN
                                                                  : FP8_ACTIVATIONS_STATIC;
    FP8_TRY(set_group(ctx, out, (fp8_grid){channel ? 1 : 0, 0}, false, activations, NULL, err));
    out->groups[0].known = fp8_pick_is(weight[0].value, "fp8_e4m3") &&
                           (channel || fp8_pick_is(weight[1].value, "per_tensor"));
    return FP8_OK;
}

/* ---- compressed-tensors ---- */

/* Grid of one QuantizationArgs object for weights; false if it is not FP8 or of no known form. */
static fp8_status read_ct_weights(fp8_span args, fp8_grid *grid, bool *mx, bool *known,
                                  fp8_error *err)
{
    fp8_pick p[] = {{"type", {0}},       {"num_bits", {0}},        {"strategy", {0}},
                    {"group_size", {0}}, {"block_structure", {0}}, {"scale_dtype", {0}}};
    FP8_TRY(fp8_json_pick(args, p, 6, err));
    bool fp8 = fp8_pick_is(p[0].value, "float") && fp8_pick_int(p[1].value, 0) == 8;
    int64_t group = fp8_pick_int(p[3].value, 0);
    *mx = false;
    *known = fp8;
    if (fp8_pick_is(p[2].value, "tensor")) {
        *grid = (fp8_grid){0, 0};
    } else if (fp8_pick_is(p[2].value, "channel")) {
        *grid = (fp8_grid){1, 0};
    } else if (fp8_pick_is(p[2].value, "group") && group > 0) {
        *grid = (fp8_grid){1, group};
        *mx = group == 32 && fp8_pick_is(p[5].value, "torch.uint8");
    } else {
        bool block;
        FP8_TRY(read_block(p[4].value, grid, &block, err));
        *known = fp8 && block && fp8_pick_is(p[2].value, "block");
    }
    return FP8_OK;
}

static fp8_status read_ct_activations(fp8_span args, bool mx, fp8_activations *out, fp8_error *err)
{
    fp8_pick p[] = {{"dynamic", {0}}, {"strategy", {0}}};
    FP8_TRY(fp8_json_pick(args, p, 2, err));
    if (!args.text)
        *out = FP8_ACTIVATIONS_NONE;
    else if (!p[0].value.text || fp8_pick_starts(p[0].value, 'f'))
        *out = FP8_ACTIVATIONS_STATIC;
    else if (fp8_pick_is(p[1].value, "group"))
        *out = mx ? FP8_ACTIVATIONS_MX : FP8_ACTIVATIONS_GROUP;
    else
        *out = fp8_pick_is(p[1].value, "tensor") ? FP8_ACTIVATIONS_TENSOR : FP8_ACTIVATIONS_TOKEN;
    return FP8_OK;
}

/* What the walks over lists of groups carry. */
typedef struct walk {
    const fp8_context *ctx;
    fp8_quant_config *out;
} walk;

static fp8_status read_ct_group(void *arg, fp8_span key, fp8_span value, fp8_error *err)
{
    (void)key;
    walk *w = arg;
    fp8_pick p[] = {{"targets", {0}}, {"weights", {0}}, {"input_activations", {0}}};
    fp8_quant_group *g;
    FP8_TRY(fp8_json_pick(value, p, 3, err));
    FP8_TRY(add_group(w->ctx, w->out, &g, err));
    fp8_nameset_init(&g->targets, w->ctx, FP8_NAMES_CT);
    FP8_TRY(read_names(&g->targets, p[0].value, err));
    FP8_TRY(read_ct_weights(p[1].value, &g->grid, &g->mx, &g->known, err));
    FP8_TRY(read_ct_activations(p[2].value, g->mx, &g->activations, err));
    if (g->known)
        find_dialect(FP8_CONFIG_CT, g, NULL);
    return FP8_OK;
}

static fp8_status read_ct(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                          fp8_error *err)
{
    fp8_pick p[] = {{"config_groups", {0}}, {"ignore", {0}}};
    FP8_TRY(fp8_json_pick(config, p, 2, err));
    fp8_nameset_init(&out->ignored, ctx, FP8_NAMES_CT);
    FP8_TRY(read_names(&out->ignored, p[1].value, err));
    out->mixed = true;
    return fp8_json_each(p[0].value, read_ct_group, &(walk){ctx, out}, err);
}

/* ---- modelopt ---- */

/* Sets the facts of a group from quant_algo, whose case writers do not agree on. */
static void set_algorithm(fp8_quant_group *g, fp8_span value)
{
    const fp8_dialect *d;
    fp8_pick_text(value, g->algorithm, sizeof g->algorithm);
    for (char *c = g->algorithm; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    for (int64_t i = 0; (d = fp8_dialect_at(i)) != NULL; i++) {
        if (d->config != FP8_CONFIG_MODELOPT || strcmp(d->algorithm, g->algorithm) != 0)
            continue;
        g->known = true;
        g->dialect = d;
        g->grid = d->grid;
        g->mx = d->scale == FP8_E8M0FNU;
        g->activations = d->activations;
    }
}

/* A member of quantized_layers: module -> {"quant_algo": ..}; one group for each algorithm. */
static fp8_status read_layer(void *arg, fp8_span key, fp8_span value, fp8_error *err)
{
    walk *w = arg;
    fp8_pick p[] = {{"quant_algo", {0}}};
    fp8_quant_group wanted = {.known = false}, *g = NULL;
    FP8_TRY(fp8_json_pick(value, p, 1, err));
    set_algorithm(&wanted, p[0].value);
    for (int64_t i = 0; i < w->out->group_count; i++)
        if (strcmp(w->out->groups[i].algorithm, wanted.algorithm) == 0)
            g = &w->out->groups[i];
    if (!g) {
        FP8_TRY(add_group(w->ctx, w->out, &g, err));
        *g = wanted;
        fp8_nameset_init(&g->targets, w->ctx, FP8_NAMES_EXACT);
    }
    return add_name(&g->targets, key, (fp8_span){key.text - 1, key.bytes + 2}, err);
}

static fp8_status read_modelopt(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                                fp8_error *err)
{
    fp8_pick nested[] = {{"quantization", {0}}};
    fp8_pick p[] = {
        {"quant_algo", {0}}, {"ignore", {0}}, {"exclude_modules", {0}}, {"quantized_layers", {0}}};
    FP8_TRY(fp8_json_pick(config, nested, 1, err));
    FP8_TRY(fp8_json_pick(nested[0].value.text ? nested[0].value : config, p, 4, err));
    fp8_nameset_init(&out->ignored, ctx, FP8_NAMES_GLOB);
    FP8_TRY(read_names(&out->ignored, p[1].value.text ? p[1].value : p[2].value, err));
    out->mixed = fp8_pick_starts(p[3].value, '{');
    if (out->mixed)
        return fp8_json_each(p[3].value, read_layer, &(walk){ctx, out}, err);
    fp8_quant_group *g;
    FP8_TRY(add_group(ctx, out, &g, err));
    set_algorithm(g, p[0].value);
    return FP8_OK;
}

/* ---- the whole ---- */

static const struct {
    const char *name; /* quant_method */
    fp8_config_kind kind;
    fp8_status (*read)(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                       fp8_error *err);
} methods[] = {
    {"fp8", FP8_CONFIG_HF_FP8, read_hf},
    {"mxfp8", FP8_CONFIG_HF_MXFP8, read_mxfp8},
    {"compressed-tensors", FP8_CONFIG_CT, read_ct},
    {"modelopt", FP8_CONFIG_MODELOPT, read_modelopt},
    {"modelopt_mxfp8", FP8_CONFIG_MODELOPT, read_modelopt},
    {"fbgemm_fp8", FP8_CONFIG_FBGEMM, read_fbgemm},
    {"quark", FP8_CONFIG_QUARK, read_quark},
};

static fp8_status read_method(const fp8_context *ctx, fp8_span config, fp8_quant_config *out,
                              fp8_error *err)
{
    fp8_pick p[] = {{"quant_method", {0}}, {"config_groups", {0}}, {"quant_algo", {0}}};
    FP8_TRY(fp8_json_pick(config, p, 3, err));
    fp8_pick_text(p[0].value, out->method, sizeof out->method);
    const char *method = out->method;
    if (!method[0] && p[1].value.text)
        method = "compressed-tensors";
    else if (!method[0] && p[2].value.text)
        method = "modelopt";
    out->kind = FP8_CONFIG_UNKNOWN;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (strcmp(methods[i].name, method) != 0)
            continue;
        out->kind = methods[i].kind;
        return methods[i].read(ctx, config, out, err);
    }
    return FP8_OK;
}

fp8_status fp8_quant_config_read(const fp8_context *ctx, fp8_span config, fp8_span modelopt,
                                 fp8_quant_config *out, fp8_error *err)
{
    *out = (fp8_quant_config){.kind = FP8_CONFIG_NONE};
    fp8_status status = FP8_OK;
    const char *where = file;
    if (config.text) {
        status = read_method(ctx, config, out, err);
    } else if (modelopt.text) {
        out->kind = FP8_CONFIG_MODELOPT;
        where = "hf_quant_config.json";
        memcpy(out->method, "modelopt", sizeof "modelopt");
        status = read_modelopt(ctx, modelopt, out, err);
    }
    if (status == FP8_OK)
        return FP8_OK;
    if (status == FP8_E_FORMAT)
        fp8_error_prefix(err, "%s", where);
    fp8_quant_config_free(ctx, out);
    return status;
}

fp8_status fp8_quant_config_group(fp8_quant_config *config, const char *module, uint64_t bytes,
                                  const fp8_quant_group **out, fp8_error *err)
{
    fp8_name_match best = FP8_NAME_NONE;
    *out = !config->mixed && config->group_count > 0 ? &config->groups[0] : NULL;
    for (int64_t i = 0; config->mixed && i < config->group_count; i++) {
        fp8_name_match match;
        FP8_TRY(fp8_nameset_match(&config->groups[i].targets, module, bytes, &match, err));
        if (match <= best)
            continue;
        best = match;
        *out = &config->groups[i];
    }
    return FP8_OK;
}
