/* SPDX-License-Identifier: Apache-2.0
 *
 * describe.c - the json of the output: config.json with the quantization spliced in or cut out, and
 * hf_quant_config.json where the dialect has one. The ignore list is the set of modules that were
 * kept, no more and no less. */
#include "ckpt/announce.h"
#include "convert/durable.h"
#include "convert/run.h"

#include <stdlib.h>
#include <string.h>

/* Names of modules, all in one block of memory. */
typedef struct modules {
    const char **names;
    int64_t count;
    char *text;
} modules;

typedef bool (*choice_fn)(const fp8_convert *conv, int64_t item, const fp8_dialect *dialect);

/* Weights of two or more dimensions in high precision: what a loader might take for a linear. */
static bool is_kept(const fp8_convert *conv, int64_t item, const fp8_dialect *dialect)
{
    (void)dialect;
    const fp8_item *it = &conv->items[item];
    fp8_tensor_info info = fp8_item_info(conv, item);
    bool high = it->action == FP8_ACTION_KEEP || it->action == FP8_ACTION_DEQUANTIZE;
    bool weight = fp8_module_bytes(info.name, info.name_bytes) < info.name_bytes ||
                  it->kind == FP8_KIND_EXPERTS || it->kind == FP8_KIND_EXPERTS_IN_OUT;
    return high && weight && info.ndim >= 2;
}

static bool is_of_dialect(const fp8_convert *conv, int64_t item, const fp8_dialect *dialect)
{
    const fp8_item *it = &conv->items[item];
    return it->dialect && fp8_item_dialect(conv, item) == dialect;
}

/* A tied output head is a module without a tensor of its own; loaders must leave it alone too. */
static bool lacks_head(const fp8_convert *conv)
{
    static const char head[] = "lm_head.weight";
    return conv->config.tied && fp8_checkpoint_index(conv->ckpt, head, sizeof head - 1) < 0;
}

static void modules_free(const fp8_context *ctx, modules *m)
{
    fp8_release(ctx, m->names);
    fp8_release(ctx, m->text);
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The modules of all items chosen, and `extra` unless it is NULL, sorted. */
static fp8_status list_modules(const fp8_convert *conv, choice_fn choice,
                               const fp8_dialect *dialect, const char *extra, modules *out,
                               fp8_error *err)
{
    const uint64_t extra_bytes = extra ? strlen(extra) + 1 : 0;
    uint64_t bytes = extra_bytes;
    int64_t n = extra ? 1 : 0;
    for (int64_t i = 0; i < conv->count; i++)
        if (choice(conv, i, dialect)) {
            bytes += fp8_item_info(conv, i).name_bytes + 1;
            n++;
        }
    *out = (modules){fp8_alloc_zeroed(conv->ctx, (uint64_t)n, sizeof *out->names), 0,
                     fp8_alloc(conv->ctx, bytes)};
    FP8_FAIL_IF(!out->names || !out->text, err, FP8_E_NO_MEMORY, "no memory for %lld names",
                (long long)n);
    char *text = out->text;
    if (extra) {
        out->names[out->count++] = memcpy(text, extra, extra_bytes);
        text += extra_bytes;
    }
    for (int64_t i = 0; i < conv->count; i++)
        if (choice(conv, i, dialect)) {
            fp8_tensor_info info = fp8_item_info(conv, i);
            uint64_t module = fp8_module_bytes(info.name, info.name_bytes);
            memcpy(text, info.name, module);
            text[module] = 0;
            out->names[out->count++] = text;
            text += module + 1;
        }
    qsort(out->names, (size_t)out->count, sizeof *out->names, compare_texts);
    return FP8_OK;
}

enum { GROUPS = 32 };

typedef struct groups {
    fp8_config_group list[GROUPS];
    modules modules[GROUPS];
    int64_t count;
} groups;

static void groups_free(const fp8_context *ctx, groups *g)
{
    for (int64_t i = 0; i < g->count; i++)
        modules_free(ctx, &g->modules[i]);
}

/* One group for each dialect that some item has. */
static fp8_status list_groups(const fp8_convert *conv, groups *out, fp8_error *err)
{
    bool used[256] = {false};
    for (int64_t i = 0; i < conv->count; i++)
        used[conv->items[i].dialect] = true;
    for (int64_t row = 0; fp8_dialect_at(row); row++) {
        const fp8_dialect *dialect = fp8_dialect_at(row);
        if (!used[row + 1])
            continue;
        FP8_FAIL_IF(out->count == GROUPS, err, FP8_E_UNSUPPORTED, "more than %d schemes", GROUPS);
        modules *m = &out->modules[out->count];
        fp8_status status = list_modules(conv, is_of_dialect, dialect, NULL, m, err);
        out->list[out->count++] = (fp8_config_group){dialect, m->names, m->count};
        FP8_TRY(status);
    }
    return FP8_OK;
}

/* Both texts, NULL where there is none to write. */
static fp8_status make_texts(const fp8_convert *conv, groups *g, modules *kept, char **value,
                             char **modelopt, fp8_error *err)
{
    FP8_TRY(list_groups(conv, g, err));
    if (!g->count)
        return FP8_OK;
    FP8_TRY(list_modules(conv, is_kept, NULL, lacks_head(conv) ? "lm_head" : NULL, kept, err));
    FP8_TRY(
        fp8_announce_config(conv->ctx, g->list, g->count, kept->names, kept->count, value, err));
    return fp8_announce_modelopt(conv->ctx, g->list[0].dialect, kept->names, kept->count, modelopt,
                                 err);
}

static fp8_status announce(const fp8_convert *conv, char **value, char **modelopt, fp8_error *err)
{
    *value = *modelopt = NULL;
    groups *g = fp8_alloc_zeroed(conv->ctx, 1, sizeof *g);
    FP8_FAIL_IF(!g, err, FP8_E_NO_MEMORY, "no memory for the groups of the config");
    modules kept = {0};
    fp8_status status = make_texts(conv, g, &kept, value, modelopt, err);
    groups_free(conv->ctx, g);
    modules_free(conv->ctx, &kept);
    fp8_release(conv->ctx, g);
    return status;
}

/* *out = the text of config.json, from fp8_alloc; NULL if there is none to write. */
static fp8_status make_config(const fp8_convert *conv, const char *value, char **out,
                              uint64_t *bytes, fp8_error *err)
{
    const fp8_checkpoint *ckpt = conv->ckpt;
    *out = NULL;
    *bytes = 0;
    if (!ckpt->config && !value)
        return FP8_OK;
    const char *text = ckpt->config ? ckpt->config : "{\n}\n";
    uint64_t length = ckpt->config ? ckpt->config_bytes : strlen(text);
    return fp8_config_splice(conv->ctx, text, length, value, out, bytes, err);
}

fp8_status fp8_describe_check(fp8_convert *conv, fp8_error *err)
{
    char *value, *modelopt, *config = NULL;
    fp8_status status = announce(conv, &value, &modelopt, err);
    if (status == FP8_OK)
        status = make_config(conv, value, &config, &conv->config_bytes, err);
    conv->config_bytes += modelopt ? strlen(modelopt) : 0;
    fp8_release(conv->ctx, value);
    fp8_release(conv->ctx, modelopt);
    fp8_release(conv->ctx, config);
    return status;
}

fp8_status fp8_describe_output(fp8_convert *conv, fp8_error *err)
{
    char *value, *modelopt, *config = NULL;
    uint64_t bytes;
    fp8_status status = announce(conv, &value, &modelopt, err);
    if (status == FP8_OK)
        status = make_config(conv, value, &config, &bytes, err);
    if (status == FP8_OK && config)
        status = fp8_write_text(conv->ctx, conv->files, "config.json", config, bytes, err);
    if (status == FP8_OK && modelopt)
        status = fp8_write_text(conv->ctx, conv->files, "hf_quant_config.json", modelopt,
                                strlen(modelopt), err);
    fp8_release(conv->ctx, value);
    fp8_release(conv->ctx, modelopt);
    fp8_release(conv->ctx, config);
    return status;
}
