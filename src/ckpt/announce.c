/* SPDX-License-Identifier: Apache-2.0
 *
 * announce.c - the json of each config kind, keys in alphabetical order as transformers sorts
 * them. One writer a kind, listed in `writers`. */
#include "ckpt/announce.h"

#include "ckpt/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What a writer writes about. */
typedef struct announcement {
    const fp8_config_group *groups;
    int64_t group_count;
    const char *const *kept;
    int64_t kept_count;
} announcement;

/* `"key": ` on a line of its own. */
static void put_key(fp8_text *t, int level, const char *key)
{
    fp8_text_put_line(t, level);
    fp8_text_put_quoted(t, key, strlen(key));
    fp8_text_put(t, ": ");
}

/* `"key": value,` on a line of its own; value is json. */
static void put_member(fp8_text *t, int level, const char *key, const char *value)
{
    put_key(t, level, key);
    fp8_text_put(t, value);
    fp8_text_put(t, ",");
}

/* A list of names, one a line. */
static void put_names(fp8_text *t, int level, const char *const *names, int64_t count)
{
    fp8_text_put(t, "[");
    for (int64_t i = 0; i < count; i++) {
        fp8_text_put_line(t, level + 1);
        fp8_text_put_quoted(t, names[i], strlen(names[i]));
        if (i + 1 < count)
            fp8_text_put(t, ",");
    }
    if (count > 0)
        fp8_text_put_line(t, level);
    fp8_text_put(t, "]");
}

static void put_name_list(fp8_text *t, int level, const char *key, const char *const *names,
                          int64_t count)
{
    put_key(t, level, key);
    put_names(t, level, names, count);
    fp8_text_put(t, ",");
}

/* [rows, cols], one a line as python's json writes it. */
static void put_block(fp8_text *t, int level, fp8_grid grid)
{
    char number[32];
    const int64_t sizes[] = {grid.rows, grid.cols};
    fp8_text_put(t, "[");
    for (int i = 0; i < 2; i++) {
        fp8_text_put_line(t, level + 1);
        snprintf(number, sizeof number, "%" PRId64 "%s", sizes[i], i == 0 ? "," : "");
        fp8_text_put(t, number);
    }
    fp8_text_put_line(t, level);
    fp8_text_put(t, "]");
}

static void put_last(fp8_text *t, int level, const char *text)
{
    fp8_text_put_line(t, level);
    fp8_text_put(t, text);
}

/* ---- quant_method fp8 and mxfp8 ---- */

static void write_hf(fp8_text *t, const announcement *a)
{
    const fp8_dialect *d = a->groups[0].dialect;
    fp8_text_put(t, "{");
    put_member(t, 1, "activation_scheme", "\"dynamic\"");
    put_member(t, 1, "fmt", "\"e4m3\"");
    put_name_list(t, 1, "modules_to_not_convert", a->kept, a->kept_count);
    put_member(t, 1, "quant_method", "\"fp8\"");
    put_key(t, 1, "weight_block_size");
    if (d->grid.rows > 0)
        put_block(t, 1, d->grid);
    else
        fp8_text_put(t, "null"); /* said: transformers' default is [128, 128] */
    put_last(t, 0, "}");
}

static void write_mxfp8(fp8_text *t, const announcement *a)
{
    fp8_text_put(t, "{");
    put_member(t, 1, "activation_scheme", "\"dynamic\"");
    put_name_list(t, 1, "ignored_layers", a->kept, a->kept_count);
    put_member(t, 1, "quant_method", "\"mxfp8\"");
    put_key(t, 1, "weight_block_size");
    put_block(t, 1, a->groups[0].dialect->grid);
    put_last(t, 0, "}");
}

/* ---- compressed-tensors ---- */

/* One QuantizationArgs object; strategy decides which further keys there are. */
typedef struct ct_args {
    const char *strategy;
    fp8_grid block;     /* of strategy block */
    int64_t group_size; /* 0 = none */
    bool dynamic, mx;
} ct_args;

static void put_ct_args(fp8_text *t, int level, const ct_args *args)
{
    char number[32];
    fp8_text_put(t, "{");
    if (args->block.rows > 0) {
        put_key(t, level + 1, "block_structure");
        put_block(t, level + 1, args->block);
        fp8_text_put(t, ",");
    }
    put_member(t, level + 1, "dynamic", args->dynamic ? "true" : "false");
    if (args->group_size > 0) {
        snprintf(number, sizeof number, "%" PRId64, args->group_size);
        put_member(t, level + 1, "group_size", number);
    }
    put_member(t, level + 1, "num_bits", "8");
    if (args->mx)
        put_member(t, level + 1, "scale_dtype", "\"torch.uint8\"");
    put_key(t, level + 1, "strategy");
    fp8_text_put_quoted(t, args->strategy, strlen(args->strategy));
    fp8_text_put(t, ",");
    put_member(t, level + 1, "symmetric", "true");
    put_last(t, level + 1, "\"type\": \"float\"");
    put_last(t, level, "}");
}

static const char *ct_format(const fp8_dialect *d)
{
    if (d->scale == FP8_E8M0FNU)
        return "\"mxfp8-quantized\"";
    return d->activations == FP8_ACTIVATIONS_NONE ? "\"naive-quantized\"" : "\"float-quantized\"";
}

static ct_args ct_weights(const fp8_dialect *d)
{
    ct_args args = {.strategy = d->algorithm, .mx = d->scale == FP8_E8M0FNU};
    if (d->grid.rows > 1)
        args.block = d->grid;
    else if (d->grid.cols > 0)
        args.group_size = d->grid.cols;
    return args;
}

/* false: no activations are quantized. */
static bool ct_input(const fp8_dialect *d, ct_args *args)
{
    static const ct_args by_kind[] = {
        [FP8_ACTIVATIONS_STATIC] = {.strategy = "tensor"},
        [FP8_ACTIVATIONS_TENSOR] = {.strategy = "tensor", .dynamic = true},
        [FP8_ACTIVATIONS_TOKEN] = {.strategy = "token", .dynamic = true},
        [FP8_ACTIVATIONS_GROUP] = {.strategy = "group", .dynamic = true, .group_size = 128},
        [FP8_ACTIVATIONS_MX] = {.strategy = "group", .dynamic = true, .group_size = 32, .mx = true},
    };
    *args = by_kind[d->activations];
    return args->strategy != NULL;
}

static void put_ct_group(fp8_text *t, int64_t i, const announcement *a)
{
    const fp8_config_group *group = &a->groups[i];
    static const char *const all[] = {"Linear"};
    char key[32];
    ct_args weights = ct_weights(group->dialect), input;
    snprintf(key, sizeof key, "group_%" PRId64, i);
    put_key(t, 2, key);
    fp8_text_put(t, "{");
    put_member(t, 3, "format", ct_format(group->dialect));
    put_key(t, 3, "input_activations");
    if (ct_input(group->dialect, &input))
        put_ct_args(t, 3, &input);
    else
        fp8_text_put(t, "null");
    fp8_text_put(t, ",");
    put_member(t, 3, "output_activations", "null");
    if (a->group_count > 1)
        put_name_list(t, 3, "targets", group->modules, group->module_count);
    else
        put_name_list(t, 3, "targets", all, 1);
    put_key(t, 3, "weights");
    put_ct_args(t, 3, &weights);
    put_last(t, 2, i + 1 < a->group_count ? "}," : "}");
}

static void write_ct(fp8_text *t, const announcement *a)
{
    const char *format = ct_format(a->groups[0].dialect);
    for (int64_t i = 1; i < a->group_count; i++)
        if (strcmp(ct_format(a->groups[i].dialect), format) != 0)
            format = "\"mixed-precision\"";
    fp8_text_put(t, "{");
    put_key(t, 1, "config_groups");
    fp8_text_put(t, "{");
    for (int64_t i = 0; i < a->group_count; i++)
        put_ct_group(t, i, a);
    put_last(t, 1, "},");
    put_member(t, 1, "format", format);
    put_member(t, 1, "global_compression_ratio", "null");
    put_name_list(t, 1, "ignore", a->kept, a->kept_count);
    put_member(t, 1, "kv_cache_scheme", "null");
    put_member(t, 1, "quant_method", "\"compressed-tensors\"");
    put_last(t, 1, "\"quantization_status\": \"compressed\"");
    put_last(t, 0, "}");
}

/* ---- modelopt ---- */

/* The name that readers look for, and who really wrote it. */
static void put_producer(fp8_text *t, int level)
{
    put_key(t, level, "producer");
    fp8_text_put(t, "{");
    put_member(t, level + 1, "name", "\"modelopt\"");
    put_key(t, level + 1, "version");
    fp8_text_put(t, "\"libfp8 ");
    fp8_text_put(t, fp8_version());
    fp8_text_put(t, "\"");
    put_last(t, level, "},");
}

static void put_algorithm(fp8_text *t, int level, const fp8_dialect *d)
{
    put_key(t, level, "quant_algo");
    fp8_text_put_quoted(t, d->algorithm, strlen(d->algorithm));
}

static void write_modelopt(fp8_text *t, const announcement *a)
{
    const fp8_dialect *d = a->groups[0].dialect;
    fp8_text_put(t, "{");
    if (d->scale == FP8_E8M0FNU)
        put_member(t, 1, "group_size", "32");
    put_name_list(t, 1, "ignore", a->kept, a->kept_count);
    put_member(t, 1, "kv_cache_scheme", "null");
    put_producer(t, 1);
    put_algorithm(t, 1, d);
    fp8_text_put(t, ",");
    put_last(t, 1, "\"quant_method\": \"modelopt\"");
    put_last(t, 0, "}");
}

fp8_status fp8_announce_modelopt(const fp8_context *ctx, const fp8_dialect *dialect,
                                 const char *const *kept, int64_t kept_count, char **text,
                                 fp8_error *err)
{
    *text = NULL;
    if (dialect->config != FP8_CONFIG_MODELOPT)
        return FP8_OK;
    fp8_text t = {.ctx = ctx};
    fp8_text_put(&t, "{");
    put_producer(&t, 1);
    put_key(&t, 1, "quantization");
    fp8_text_put(&t, "{");
    put_name_list(&t, 2, "exclude_modules", kept, kept_count);
    if (dialect->scale == FP8_E8M0FNU)
        put_member(&t, 2, "group_size", "32");
    put_member(&t, 2, "kv_cache_quant_algo", "null");
    put_algorithm(&t, 2, dialect);
    put_last(&t, 1, "}");
    put_last(&t, 0, "}\n");
    return fp8_text_finish(&t, text, NULL, err);
}

/* ---- the whole ---- */

static void (*const writers[])(fp8_text *t, const announcement *a) = {
    [FP8_CONFIG_HF_FP8] = write_hf, [FP8_CONFIG_HF_MXFP8] = write_mxfp8,
    [FP8_CONFIG_CT] = write_ct,     [FP8_CONFIG_MODELOPT] = write_modelopt,
    [FP8_CONFIG_UNKNOWN] = NULL,
};

fp8_status fp8_announce_config(const fp8_context *ctx, const fp8_config_group *groups,
                               int64_t group_count, const char *const *kept, int64_t kept_count,
                               char **text, fp8_error *err)
{
    *text = NULL;
    FP8_FAIL_IF(group_count < 1, err, FP8_E_ARGUMENT, "no group of weights to announce");
    fp8_config_kind kind = groups[0].dialect->config;
    for (int64_t i = 1; i < group_count; i++) {
        const fp8_dialect *d = groups[i].dialect;
        FP8_FAIL_IF(kind != FP8_CONFIG_CT || d->config != FP8_CONFIG_CT, err, FP8_E_UNSUPPORTED,
                    "one config cannot announce %s and %s together: only compressed-tensors "
                    "schemes can be mixed",
                    groups[0].dialect->name, d->name);
    }
    FP8_FAIL_IF(!groups[0].dialect->writable, err, FP8_E_UNSUPPORTED, "%s is read only",
                groups[0].dialect->name);
    if (!writers[kind])
        return FP8_OK;
    fp8_text t = {.ctx = ctx};
    writers[kind](&t, &(announcement){groups, group_count, kept, kept_count});
    return fp8_text_finish(&t, text, NULL, err);
}

/* text with its NUL to dst, if there is room. */
static void put_out(const char *text, uint64_t length, char *dst, uint64_t room, uint64_t *bytes)
{
    *bytes = length;
    if (dst && length < room)
        memcpy(dst, text, length + 1);
}

fp8_status fp8_scheme_config(const fp8_context *ctx, const char *scheme, const char *const *kept,
                             int64_t kept_count, char *dst, uint64_t room, uint64_t *bytes,
                             fp8_error *err)
{
    FP8_FAIL_IF(!ctx || !scheme || !bytes || (kept_count > 0 && !kept), err, FP8_E_ARGUMENT,
                "scheme config: %s is NULL",
                !ctx      ? "ctx"
                : !scheme ? "scheme"
                : !bytes  ? "bytes"
                          : "kept");
    FP8_FAIL_IF(kept_count < 0, err, FP8_E_ARGUMENT, "scheme config: kept_count is %lld",
                (long long)kept_count);
    fp8_config_group group = {0};
    char *text;
    FP8_TRY(fp8_dialect_need(scheme, NULL, &group.dialect, err));
    FP8_TRY(fp8_announce_config(ctx, &group, 1, kept, kept_count, &text, err));
    FP8_FAIL_IF(!text, err, FP8_E_UNSUPPORTED, "config.json does not announce %s", scheme);
    put_out(text, strlen(text), dst, room, bytes);
    fp8_release(ctx, text);
    return FP8_OK;
}
