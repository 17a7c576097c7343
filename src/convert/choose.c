/* SPDX-License-Identifier: Apache-2.0
 *
 * choose.c - what becomes of each tensor, and the reason that is shown for it. In this order:
 *
 *     what it is (roles) -> its kind (names) -> the user's patterns, later ones win
 *     -> what the dialect, the rule and the engine can do -> what is fused with it
 *
 * A weight that cannot be quantized is kept with the reason; only a request that contradicts itself
 * is an error. Looks at headers, never at values. */
#define _GNU_SOURCE /* memmem */
#include "convert/choose.h"
#include "convert/fused.h"
#include "number/dtype.h"
#include "op/quantize.h"

#include <string.h>

/* ---- helpers of the plan ---- */

static uint8_t dialect_number(const fp8_dialect *dialect)
{
    for (int64_t i = 0; fp8_dialect_at(i); i++)
        if (fp8_dialect_at(i) == dialect)
            return (uint8_t)(i + 1);
    return 0;
}

static void set_item(fp8_item *it, fp8_action action, const char *reason)
{
    it->action = (uint8_t)action;
    it->reason = reason;
    if (action == FP8_ACTION_KEEP || action == FP8_ACTION_DROP || action == FP8_ACTION_DEQUANTIZE)
        it->dialect = 0;
}

static bool is_linear(uint8_t kind)
{
    return kind == FP8_KIND_LINEAR || kind == FP8_KIND_CONV1D || kind == FP8_KIND_EXPERTS ||
           kind == FP8_KIND_EXPERTS_IN_OUT;
}

/* ---- patterns ---- */

/* What the patterns say of one tensor. */
typedef struct wish {
    fp8_pattern_state *last; /* the last one that matched; NULL = none */
    bool only_missed;        /* there are --only patterns and none matched */
} wish;

static fp8_status ask_patterns(fp8_convert *conv, const fp8_tensor_info *info, wish *out,
                               fp8_error *err)
{
    bool only = false, chosen = false;
    *out = (wish){NULL, false};
    for (int64_t i = 0; i < conv->pattern_count; i++) {
        fp8_pattern_state *p = &conv->patterns[i];
        bool hit = false;
        FP8_TRY(fp8_matcher_test(p->matcher, info->name, info->name_bytes, &hit, err));
        only |= p->kind == FP8_PATTERN_ONLY;
        if (!hit)
            continue;
        p->hits++;
        chosen |= p->kind == FP8_PATTERN_ONLY;
        out->last = p;
    }
    out->only_missed = only && !chosen;
    return FP8_OK;
}

/* The weight was quantized as its last pattern wished. */
static void note_obeyed(const wish *w, const fp8_item *it)
{
    if (w->last)
        w->last->obeyed += it->action != FP8_ACTION_KEEP;
}

/* The pattern spells out the tensor's own module ("*lm_head", "re:.*mlp\.gate$"): that is what it
 * takes to quantize an output head or a router, which "*" alone must not do. */
static bool names_module(const fp8_pattern_state *p, const fp8_tensor_info *info)
{
    uint64_t end = fp8_module_bytes(info->name, info->name_bytes), begin = end;
    while (begin && info->name[begin - 1] != '.')
        begin--;
    return memmem(p->text, strlen(p->text), info->name + begin, end - begin) != NULL;
}

/* ---- one weight in high precision ---- */

/* dtype of the scales that the rule stores in this dialect. */
static fp8_dtype scale_dtype(const fp8_convert *conv, const fp8_dialect *dialect, fp8_dtype in)
{
    bool in_input = conv->rule == FP8_RULE_COMPRESSED_TENSORS && dialect->scale == FP8_F32;
    return in_input ? in : dialect->scale;
}

fp8_quantize_desc fp8_item_quantize_desc(const fp8_convert *conv, int64_t item)
{
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.rule = conv->rule;
    desc.grid = fp8_item_grid(conv, item);
    return desc;
}

/* The scales of a row-wise dialect run along the columns of a transposed weight. */
fp8_grid fp8_item_grid(const fp8_convert *conv, int64_t item)
{
    const fp8_grid grid = fp8_item_dialect(conv, item)->grid;
    return conv->items[item].transposed ? (fp8_grid){grid.cols, grid.rows} : grid;
}

/* A format without partial blocks cannot hold a matrix whose size is no multiple of the block. */
static const char *keeps_partial(const fp8_dialect *dialect, int64_t rows, int64_t cols)
{
    bool whole = (dialect->grid.rows <= 1 || rows % dialect->grid.rows == 0) &&
                 (dialect->grid.cols <= 1 || cols % dialect->grid.cols == 0);
    return dialect->whole_blocks && !whole
               ? "not a multiple of the block, and the format has no partial blocks"
               : NULL;
}

/* Why a weight of this kind cannot be written in the dialect for the engine; NULL = it can. */
static const char *cannot_write(const fp8_convert *conv, int64_t item, const fp8_dialect *dialect)
{
    fp8_matrices m = fp8_item_matrices(conv, item);
    const fp8_item *it = &conv->items[item];
    bool swap = it->transposed;
    int64_t out = swap ? m.cols : m.rows, in = swap ? m.rows : m.cols;
    if (m.rows * m.cols == 0)
        return "has no elements";
    if (swap && dialect->grid.rows != dialect->grid.cols && dialect->grid.cols > 1)
        return "stored [in, out], and the dialect has no groups along columns";
    bool stacked = it->kind == FP8_KIND_EXPERTS || it->kind == FP8_KIND_EXPERTS_IN_OUT;
    if (stacked && (dialect->grid.rows == 0 || dialect->scale_shape != FP8_SCALES_GRID))
        return "stacked experts, and the dialect has no scales for each";
    if (stacked && dialect->config == FP8_CONFIG_CT)
        return "stacked experts, and compressed-tensors knows Linear modules only";
    const char *reason = keeps_partial(dialect, out, in);
    if (reason)
        return reason;
    fp8_tensor_info info = fp8_item_info(conv, item);
    fp8_verdict verdict =
        fp8_engine_weight(conv->engine, dialect, info.name, info.name_bytes, m, swap, &reason);
    return verdict == FP8_REFUSED || verdict == FP8_MISREAD ? reason : NULL;
}

/* The rule, the grid and the dtypes go together. */
static fp8_status check_rule(fp8_convert *conv, int64_t item, fp8_dtype in, fp8_error *err)
{
    fp8_item *it = &conv->items[item];
    const fp8_dialect *dialect = fp8_item_dialect(conv, item);
    fp8_matrices m = fp8_item_matrices(conv, item);
    fp8_quantize_desc desc = fp8_item_quantize_desc(conv, item);
    it->scale = (uint8_t)scale_dtype(conv, dialect, in);
    fp8_quant q;
    if (fp8_quant_prepare(&q, &desc, in, dialect->code, (fp8_dtype)it->scale, m.rows, m.cols,
                          err) == FP8_OK)
        return FP8_OK;
    fp8_tensor_info info = fp8_item_info(conv, item);
    fp8_error_prefix(err, "%s", info.name);
    return err ? err->code : FP8_E_UNSUPPORTED;
}

/* Quantizes item i in `dialect`, or keeps it with the reason. */
static fp8_status try_quantize(fp8_convert *conv, int64_t i, const fp8_dialect *dialect,
                               fp8_action action, fp8_dtype in, const char *reason, fp8_error *err)
{
    fp8_item *it = &conv->items[i];
    it->transposed = it->kind == FP8_KIND_CONV1D || it->kind == FP8_KIND_EXPERTS_IN_OUT;
    const char *obstacle = cannot_write(conv, i, dialect);
    if (obstacle) {
        set_item(it, FP8_ACTION_KEEP, obstacle);
        return FP8_OK;
    }
    set_item(it, action, reason);
    it->dialect = dialect_number(dialect);
    return check_rule(conv, i, in, err);
}

/* A user's wish for a head or router that the engine or the file could not honour. */
static fp8_status check_forced(const fp8_convert *conv, int64_t i, const fp8_dialect *dialect,
                               const fp8_pattern_state *p, fp8_error *err)
{
    if (conv->items[i].kind != FP8_KIND_HEAD)
        return FP8_OK;
    fp8_tensor_info info = fp8_item_info(conv, i);
    FP8_FAIL_IF(conv->config.tied, err, FP8_E_UNSUPPORTED,
                "%s: %s, but the output head is tied to the embedding, which stays as it is",
                info.name, p->reason);
    FP8_FAIL_IF(!strcmp(conv->engine, "vllm") && dialect->config == FP8_CONFIG_HF_FP8, err,
                FP8_E_UNSUPPORTED, "%s: %s, but vllm cannot load an output head in %s", info.name,
                p->reason, dialect->name);
    return FP8_OK;
}

/* QUANTIZE, and CONVERT of what the source left in high precision. */
static fp8_status choose_plain(fp8_convert *conv, int64_t i, fp8_error *err)
{
    fp8_item *it = &conv->items[i];
    fp8_tensor_info info = fp8_item_info(conv, i);
    const char *reason;
    wish w;
    FP8_TRY(ask_patterns(conv, &info, &w, err));
    it->kind = (uint8_t)fp8_name_kind(&conv->config, info.name, info.name_bytes, info.dtype,
                                      info.ndim, info.shape, &reason);
    set_item(it, FP8_ACTION_KEEP, reason);
    const fp8_dialect *dialect = w.last && w.last->dialect ? w.last->dialect : conv->dialect;
    bool asked = w.last && w.last->kind != FP8_PATTERN_KEEP;
    if (!fp8_dtype_is_high(info.dtype))
        return FP8_OK;
    it->by_user = w.last || w.only_missed;
    if (asked && (it->kind == FP8_KIND_HEAD || it->kind == FP8_KIND_ROUTER) &&
        names_module(w.last, &info) && info.ndim == 2) {
        FP8_TRY(check_forced(conv, i, dialect, w.last, err));
        FP8_TRY(
            try_quantize(conv, i, dialect, FP8_ACTION_QUANTIZE, info.dtype, w.last->reason, err));
        note_obeyed(&w, it);
        return FP8_OK;
    }
    if (!is_linear(it->kind))
        return FP8_OK;
    if (w.last && w.last->kind == FP8_PATTERN_KEEP)
        it->reason = w.last->reason;
    else if (!asked && w.only_missed)
        it->reason = "not chosen by --only";
    else if (!asked && conv->desc.verb == FP8_CONVERT)
        it->reason = "not quantized in the source";
    else
        FP8_TRY(try_quantize(conv, i, dialect, FP8_ACTION_QUANTIZE, info.dtype,
                             asked ? w.last->reason : reason, err));
    note_obeyed(&w, it);
    return FP8_OK;
}

/* ---- one weight in FP8 ---- */

/* Every scale of the source can be written in the output's dtype without rounding. */
static bool scales_widen(fp8_dtype from, fp8_dtype to)
{
    return from == to ||
           (to == FP8_F32 && (from == FP8_BF16 || from == FP8_F16 || from == FP8_E8M0FNU));
}

static bool same_grid(fp8_grid a, fp8_grid b)
{
    return a.rows == b.rows && a.cols == b.cols;
}

static fp8_status choose_codes(fp8_convert *conv, int64_t i, fp8_error *err)
{
    fp8_item *it = &conv->items[i];
    fp8_tensor_info info = fp8_item_info(conv, i);
    const fp8_role_info *role = &conv->roles.tensors[i];
    const char *reason;
    FP8_FAIL_IF(role->problem && role->problem->unreadable, err, FP8_E_FORMAT, "%s: %s: %s",
                info.file, info.name, role->problem->text);
    bool bare = role->role == FP8_ROLE_BARE_CODES;
    FP8_FAIL_IF(
        bare && conv->roles.config.kind != FP8_CONFIG_NONE, err, FP8_E_FORMAT,
        "%s: %s holds FP8 codes but there is no scale for it, although the config says that "
        "the model is quantized",
        info.file, info.name);
    it->kind = (uint8_t)fp8_name_kind(&conv->config, info.name, info.name_bytes, FP8_BF16,
                                      info.ndim, info.shape, &reason);
    if (conv->desc.verb == FP8_DEQUANTIZE) {
        set_item(it, FP8_ACTION_DEQUANTIZE, bare ? "FP8 without a scale" : "FP8 with scales");
        return FP8_OK;
    }
    wish w;
    FP8_TRY(ask_patterns(conv, &info, &w, err));
    FP8_FAIL_IF((w.last && w.last->kind == FP8_PATTERN_KEEP) || w.only_missed, err,
                FP8_E_UNSUPPORTED,
                "%s is in FP8 already and cannot stay in another dialect than the rest: dequantize "
                "first, or use --set",
                info.name);
    const fp8_dialect *dialect = w.last && w.last->dialect ? w.last->dialect : conv->dialect;
    FP8_TRY(try_quantize(conv, i, dialect, FP8_ACTION_REQUANTIZE, FP8_F32,
                         "other grid, codes or scale dtype", err));
    note_obeyed(&w, it);
    if (it->action != FP8_ACTION_REQUANTIZE) { /* cannot be written: give it back its precision */
        set_item(it, FP8_ACTION_DEQUANTIZE, it->reason);
        return FP8_OK;
    }
    if (!bare && info.dtype == dialect->code && scales_widen(role->scale, dialect->scale) &&
        same_grid(role->grid, fp8_item_grid(conv, i))) {
        set_item(it, FP8_ACTION_RENAME, "same grid: codes are copied");
        it->scale = (uint8_t)dialect->scale;
    }
    return FP8_OK;
}

/* ---- every tensor ---- */

static fp8_status choose_one(fp8_convert *conv, int64_t i, fp8_error *err)
{
    fp8_item *it = &conv->items[i];
    *it = (fp8_item){.group = -1, .shard = -1};
    const fp8_role_info *role = &conv->roles.tensors[i];
    fp8_tensor_info info = fp8_item_info(conv, i);
    switch (role->role) {
    case FP8_ROLE_WEIGHT:
    case FP8_ROLE_BARE_CODES:
        return choose_codes(conv, i, err);
    case FP8_ROLE_SCALE:
        set_item(it, FP8_ACTION_DROP, "scales: written with their weight");
        return FP8_OK;
    case FP8_ROLE_INPUT_SCALE:
        set_item(it, FP8_ACTION_DROP,
                 "activation scale: written with its weight if the dialect "
                 "has one");
        return FP8_OK;
    case FP8_ROLE_MARKER:
        set_item(it, FP8_ACTION_DROP, "marker of the source's dialect");
        return FP8_OK;
    case FP8_ROLE_STRAY_SCALE:
        FP8_FAIL_IF(role->problem->unreadable, err, FP8_E_FORMAT, "%s: %s: %s", info.file,
                    info.name, role->problem->text);
        set_item(it, FP8_ACTION_DROP, "scale of a weight that is not FP8");
        return fp8_convert_warn(conv, err, "%s: a scale whose weight is not FP8; left out",
                                info.name);
    case FP8_ROLE_KV_SCALE:
        set_item(it, FP8_ACTION_KEEP, "scale of the KV cache");
        return FP8_OK;
    case FP8_ROLE_PLAIN:
        break;
    }
    if (conv->desc.verb == FP8_DEQUANTIZE) {
        set_item(it, FP8_ACTION_KEEP,
                 fp8_dtype_is_fp8(info.dtype) ? "FP8 values" : "not quantized");
        return FP8_OK;
    }
    return choose_plain(conv, i, err);
}

/* The verb fits what the source is. */
static fp8_status check_source(const fp8_convert *conv, fp8_error *err)
{
    const fp8_roles *roles = &conv->roles;
    bool codes = false;
    int64_t first = -1;
    FP8_FAIL_IF(conv->count == 0, err, FP8_E_MISMATCH, "%s: holds no tensor", conv->src);
    for (int64_t i = 0; i < conv->count && !codes; i++)
        if (roles->tensors[i].role == FP8_ROLE_WEIGHT ||
            roles->tensors[i].role == FP8_ROLE_BARE_CODES)
            codes = true, first = i;
    const char *which = codes ? fp8_item_info(conv, first).name : "config.json";
    if (conv->desc.verb == FP8_QUANTIZE) {
        FP8_FAIL_IF(codes || roles->quantized, err, FP8_E_MISMATCH,
                    "%s: already quantized (%s says so): use convert or dequantize", conv->src,
                    which);
        return FP8_OK;
    }
    FP8_FAIL_IF(!codes && roles->quantized, err, FP8_E_UNSUPPORTED,
                "%s: quantized by a method that is not read (%s)", conv->src,
                roles->config.method[0] ? roles->config.method : "unknown");
    FP8_FAIL_IF(!codes, err, FP8_E_MISMATCH, "%s: holds no FP8 weight%s", conv->src,
                conv->desc.verb == FP8_CONVERT ? ": use quantize" : "");
    return FP8_OK;
}

/* Takes item i out of the output's dialect: what was FP8 gets its high precision back. */
static void keep_with_others(fp8_convert *conv, int64_t i)
{
    fp8_item *it = &conv->items[i];
    fp8_action action = fp8_item_reads_codes(conv, i) ? FP8_ACTION_DEQUANTIZE : FP8_ACTION_KEEP;
    it->transposed = 0;
    set_item(it, action, "fused with a weight that is kept");
}

/* Some members of a fused set are kept and some are not, or not alike: keeps all in high precision
 * where a limit of the dialect or the engine is the cause, an error where the user is. */
static fp8_status settle_fused(fp8_convert *conv, const int64_t *members, int n, fp8_error *err)
{
    const fp8_item *first = &conv->items[members[0]];
    bool kept = false, by_user = false;
    int other = 0;
    for (int k = 0; k < n; k++) {
        const fp8_item *it = &conv->items[members[k]];
        kept |= it->dialect == 0 && !it->by_user;
        by_user |= it->by_user != 0;
        other = it->dialect != first->dialect ? k : other;
    }
    if (!other)
        return FP8_OK;
    const fp8_item *it = &conv->items[members[other]];
    FP8_FAIL_IF(by_user || !kept, err, FP8_E_UNSUPPORTED,
                "%s makes one matrix of %s (%s) and %s (%s): quantize both alike or neither",
                conv->engine, fp8_item_info(conv, members[0]).name, first->reason,
                fp8_item_info(conv, members[other]).name, it->reason);
    for (int k = 0; k < n; k++)
        if (conv->items[members[k]].dialect)
            keep_with_others(conv, members[k]);
    return FP8_OK;
}

/* Modules that the engine fuses are quantized alike, and share the scale of a per-tensor grid. */
static fp8_status check_fused(fp8_convert *conv, int64_t i, fp8_error *err)
{
    int64_t members[FP8_FUSED_PARTS];
    int n = fp8_fused_members(conv, i, members);
    if (n < 2 || members[0] != i)
        return FP8_OK;
    FP8_TRY(settle_fused(conv, members, n, err));
    bool share = true;
    for (int k = 0; k < n; k++) {
        const fp8_item *it = &conv->items[members[k]];
        share &= fp8_item_encodes(it) && fp8_item_dialect(conv, members[k])->grid.rows == 0 &&
                 fp8_item_matrices(conv, members[k]).experts == 1;
    }
    for (int k = 0; k < n && share; k++)
        conv->items[members[k]].group = (int32_t)conv->group_count;
    conv->group_count += share;
    return FP8_OK;
}

static fp8_status check_patterns(const fp8_convert *conv, fp8_error *err)
{
    for (int64_t i = 0; i < conv->pattern_count; i++)
        FP8_FAIL_IF(!conv->patterns[i].hits, err, FP8_E_NOT_FOUND, "%s matches no tensor of %s",
                    conv->patterns[i].reason, conv->src);
    return FP8_OK;
}

/* A --set whose tensors are all kept, by their kind or by a later pattern, is likely a mistake. */
static fp8_status warn_of_patterns(fp8_convert *conv, fp8_error *err)
{
    for (int64_t i = 0; i < conv->pattern_count; i++) {
        const fp8_pattern_state *p = &conv->patterns[i];
        if (p->kind == FP8_PATTERN_SET && !p->obeyed)
            FP8_TRY(fp8_convert_warn(conv, err, "%s changes no tensor: see the reasons in the plan",
                                     p->reason));
    }
    return FP8_OK;
}

fp8_status fp8_choose(fp8_convert *conv, fp8_error *err)
{
    FP8_TRY(check_source(conv, err));
    int64_t changed = 0;
    for (int64_t i = 0; i < conv->count; i++) {
        FP8_TRY(choose_one(conv, i, err));
        changed += conv->items[i].action != FP8_ACTION_KEEP;
    }
    FP8_TRY(check_patterns(conv, err));
    FP8_TRY(warn_of_patterns(conv, err));
    conv->group_count = 0;
    for (int64_t i = 0; i < conv->count && fp8_engine_fuses(conv->engine); i++)
        FP8_TRY(check_fused(conv, i, err));
    return changed
               ? FP8_OK
               : fp8_convert_warn(conv, err, "no tensor is quantized: see the reasons in the plan");
}

fp8_status fp8_choose_keep_nan(fp8_convert *conv, int64_t item, int64_t pos, fp8_error *err)
{
    int64_t members[FP8_FUSED_PARTS] = {item};
    int n = fp8_engine_fuses(conv->engine) ? fp8_fused_members(conv, item, members) : 1;
    if (n < 1)
        members[0] = item, n = 1;
    fp8_tensor_info info = fp8_item_info(conv, item);
    for (int k = 0; k < n; k++) {
        fp8_item *it = &conv->items[members[k]];
        if (!fp8_item_encodes(it))
            continue;
        it->group = -1;
        it->transposed = 0;
        set_item(it, FP8_ACTION_KEEP,
                 members[k] == item ? "holds NaN or infinity"
                                    : "fused with a tensor that holds NaN");
    }
    return fp8_convert_warn(conv, err,
                            "%s: NaN or infinity at element %lld; kept in high precision",
                            info.name, (long long)pos);
}
