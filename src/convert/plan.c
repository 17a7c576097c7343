/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c - fp8_convert_plan and what a plan tells: options checked, source opened, every tensor
 * decided, the output laid out, nothing written. */
#include "convert/carry.h"
#include "convert/choose.h"
#include "convert/geometry.h"
#include "convert/layout.h"
#include "convert/paths.h"
#include "convert/run.h"
#include "convert/stats.h"
#include "op/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- helpers for all of the pipeline ---- */

fp8_tensor_info fp8_item_info(const fp8_convert *conv, int64_t item)
{
    fp8_tensor_info info;
    (void)fp8_checkpoint_tensor(conv->ckpt, item, &info); /* fails only out of range */
    return info;
}

fp8_matrices fp8_item_matrices(const fp8_convert *conv, int64_t item)
{
    fp8_tensor_info info = fp8_item_info(conv, item);
    fp8_matrices m = {1, 1, info.ndim ? info.shape[0] : 1};
    if (info.ndim >= 2 && !fp8_weight_matrices(info.ndim, info.shape, &m))
        m = (fp8_matrices){1, 0, 0}; /* cannot be: the bytes of the tensor fit in 64 bits */
    if (!info.bytes)
        m = (fp8_matrices){1, 0, 0};
    return m;
}

const fp8_dialect *fp8_item_dialect(const fp8_convert *conv, int64_t item)
{
    return fp8_dialect_at(conv->items[item].dialect - 1);
}

bool fp8_item_reads_codes(const fp8_convert *conv, int64_t item)
{
    return conv->items[item].action == FP8_ACTION_DEQUANTIZE ||
           conv->items[item].action == FP8_ACTION_REQUANTIZE ||
           conv->items[item].action == FP8_ACTION_RENAME;
}

fp8_status fp8_convert_warn(fp8_convert *conv, fp8_error *err, const char *format, ...)
{
    const fp8_context *ctx = conv->ctx;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (conv->warning_count == conv->warning_room) {
        int64_t room = conv->warning_room ? 2 * conv->warning_room : 16;
        char **list = fp8_alloc_zeroed(ctx, (uint64_t)room, sizeof *list);
        FP8_FAIL_IF(!list, err, FP8_E_NO_MEMORY, "no memory for a warning");
        if (conv->warning_count)
            memcpy(list, conv->warnings, (size_t)conv->warning_count * sizeof *list);
        fp8_release(ctx, conv->warnings);
        conv->warnings = list;
        conv->warning_room = room;
    }
    fp8_error line;
    (void)fp8_fail(&line, FP8_OK, "%s", text); /* one line, whatever names it quotes */
    char *copy = fp8_copy_text(ctx, line.msg, strlen(line.msg));
    FP8_FAIL_IF(!copy, err, FP8_E_NO_MEMORY, "no memory for a warning");
    conv->warnings[conv->warning_count++] = copy;
    return FP8_OK;
}

/* ---- options ---- */

static fp8_status check_desc(const fp8_convert_desc *d, fp8_error *err)
{
    FP8_FAIL_IF(d->struct_bytes != sizeof *d, err, FP8_E_ARGUMENT,
                "convert: struct_bytes is %u, this library knows %zu", d->struct_bytes, sizeof *d);
    FP8_FAIL_IF(!d->src || !*d->src || !d->dst || !*d->dst, err, FP8_E_ARGUMENT,
                "convert: %s must be given", !d->src || !*d->src ? "src" : "dst");
    FP8_FAIL_IF(d->verb < FP8_QUANTIZE || d->verb > FP8_CONVERT, err, FP8_E_ARGUMENT,
                "convert: verb %d is none", (int)d->verb);
    FP8_FAIL_IF(d->pattern_count && !d->patterns, err, FP8_E_ARGUMENT, "convert: patterns is NULL");
    FP8_FAIL_IF(d->pattern_count && d->verb == FP8_DEQUANTIZE, err, FP8_E_ARGUMENT,
                "dequantize takes no patterns: all FP8 tensors are dequantized");
    FP8_FAIL_IF(d->dtype != FP8_DTYPE_NONE && d->dtype != FP8_BF16 && d->dtype != FP8_F16 &&
                    d->dtype != FP8_F32,
                err, FP8_E_DTYPE, "dequantize to BF16, F16 or F32, not %s",
                fp8_dtype_name(d->dtype) ? fp8_dtype_name(d->dtype) : "?");
    FP8_FAIL_IF(d->report && !fp8_report_knows(d->report), err, FP8_E_ARGUMENT,
                "report: %s must end in .html or .json", d->report);
    bool parts = d->part_count || d->part_index;
    FP8_FAIL_IF(parts && (d->part_count < 1 || d->part_count > 65536 || d->part_index < 1 ||
                          d->part_index > d->part_count),
                err, FP8_E_ARGUMENT, "part %d of %d: must be 1 to N of N <= 65536", d->part_index,
                d->part_count);
    return FP8_OK;
}

static fp8_status find_dialect(const fp8_convert *conv, const char *name, const fp8_dialect **out,
                               fp8_error *err)
{
    FP8_TRY(fp8_dialect_need(name, conv->engine, out, err));
    const char *reason;
    fp8_verdict verdict = fp8_engine_dialect(conv->engine, *out, &reason);
    bool refused = verdict == FP8_REFUSED || verdict == FP8_MISREAD;
    FP8_FAIL_IF(refused && conv->desc.engine, err, FP8_E_UNSUPPORTED, "%s for %s: %s", name,
                conv->engine, reason);
    return FP8_OK;
}

/* The engine asked for, or else the first that loads the scheme. */
static fp8_status settle_engine(fp8_convert *conv, const char *scheme, fp8_error *err)
{
    conv->engine = fp8_engine_find(conv->desc.engine);
    FP8_FAIL_IF(!conv->engine, err, FP8_E_UNSUPPORTED, "there is no engine '%s'",
                conv->desc.engine);
    for (int64_t i = 0; !conv->desc.engine && fp8_engine_name(i); i++) {
        const fp8_dialect *dialect = fp8_dialect_find(scheme, fp8_engine_name(i));
        const char *reason;
        fp8_verdict verdict =
            dialect ? fp8_engine_dialect(fp8_engine_name(i), dialect, &reason) : FP8_REFUSED;
        if (verdict == FP8_LOADS || verdict == FP8_SLOW) {
            conv->engine = fp8_engine_name(i);
            break;
        }
    }
    return FP8_OK;
}

static fp8_status settle_scheme(fp8_convert *conv, fp8_error *err)
{
    fp8_convert_desc *d = &conv->desc;
    const char *scheme = d->scheme ? d->scheme : "hf-block";
    FP8_TRY(settle_engine(conv, scheme, err));
    FP8_TRY(fp8_rule_parse(d->numerics ? d->numerics : "best", &conv->rule, err));
    if (d->verb == FP8_DEQUANTIZE)
        return FP8_OK;
    FP8_TRY(find_dialect(conv, scheme, &conv->dialect, err));
    d->scheme = conv->dialect->name;
    return FP8_OK;
}

static fp8_status settle_pattern(fp8_convert *conv, const fp8_pattern *from, fp8_pattern_state *out,
                                 fp8_error *err)
{
    static const char *const flags[] = {"--keep", "--only", "--set"};
    const fp8_context *ctx = conv->ctx;
    FP8_FAIL_IF(from->kind < FP8_PATTERN_KEEP || from->kind > FP8_PATTERN_SET || !from->text, err,
                FP8_E_ARGUMENT, "a pattern has no text or a kind that is none");
    FP8_FAIL_IF(from->kind == FP8_PATTERN_SET && !from->scheme, err, FP8_E_ARGUMENT,
                "--set '%s' names no scheme", from->text);
    out->kind = from->kind;
    if (from->kind == FP8_PATTERN_SET)
        FP8_TRY(find_dialect(conv, from->scheme, &out->dialect, err));
    const char *scheme = out->dialect ? out->dialect->name : "";
    size_t room = strlen(from->text) + strlen(scheme) + 16;
    out->text = fp8_copy_text(ctx, from->text, strlen(from->text));
    out->reason = fp8_alloc(ctx, room);
    FP8_FAIL_IF(!out->text || !out->reason, err, FP8_E_NO_MEMORY, "no memory for a pattern");
    snprintf(out->reason, room, "%s '%s%s%s'", flags[from->kind], from->text,
             out->dialect ? "=" : "", scheme);
    return fp8_matcher_create(ctx, from->text, &out->matcher, err);
}

static fp8_status settle_patterns(fp8_convert *conv, fp8_error *err)
{
    uint64_t n = conv->desc.pattern_count;
    conv->patterns = fp8_alloc_zeroed(conv->ctx, n, sizeof *conv->patterns);
    FP8_FAIL_IF(!conv->patterns, err, FP8_E_NO_MEMORY, "no memory for %llu patterns",
                (unsigned long long)n);
    conv->pattern_count = (int64_t)n;
    for (uint64_t i = 0; i < n; i++)
        FP8_TRY(settle_pattern(conv, &conv->desc.patterns[i], &conv->patterns[i], err));
    conv->desc.patterns = NULL;
    return FP8_OK;
}

static fp8_status copy_texts(fp8_convert *conv, fp8_error *err)
{
    fp8_convert_desc *d = &conv->desc;
    conv->src = fp8_copy_text(conv->ctx, d->src, strlen(d->src));
    FP8_FAIL_IF(!conv->src, err, FP8_E_NO_MEMORY, "no memory for a path");
    if (d->report) {
        conv->report = fp8_copy_text(conv->ctx, d->report, strlen(d->report));
        FP8_FAIL_IF(!conv->report, err, FP8_E_NO_MEMORY, "no memory for a path");
    }
    return FP8_OK;
}

/* The caller's texts may go once the plan is made. */
static void forget_texts(fp8_convert *conv)
{
    conv->desc.src = conv->src;
    conv->desc.dst = conv->dst;
    conv->desc.report = conv->report;
    conv->desc.engine = conv->engine;
    conv->desc.numerics = conv->desc.activation_scales = NULL;
}

/* The dtype of what is given back its precision. CONVERT leaves such weights beside the others of
 * the model, whose dtype the config tells. */
static void settle_dtype(fp8_convert *conv)
{
    fp8_convert_desc *d = &conv->desc;
    if (d->dtype == FP8_DTYPE_NONE && d->verb == FP8_CONVERT)
        d->dtype = conv->config.dtype;
    if (d->dtype == FP8_DTYPE_NONE)
        d->dtype = FP8_BF16;
}

/* ---- static activation scales ---- */

static bool needs_activation_scale(const fp8_convert *conv, int64_t i)
{
    const fp8_item *it = &conv->items[i];
    return it->dialect && fp8_item_dialect(conv, i)->input_suffix;
}

static fp8_status check_activation_scale(const fp8_convert *conv, int64_t i, fp8_error *err)
{
    fp8_tensor_info info = fp8_item_info(conv, i);
    float value;
    if (conv->activation)
        return fp8_activation_find(conv->activation, info.name, info.name_bytes, &value, err);
    int64_t source = conv->roles.tensors[i].input;
    bool carried = conv->desc.verb == FP8_CONVERT && source >= 0;
    FP8_FAIL_IF(!carried, err, FP8_E_UNSUPPORTED,
                "%s: scheme %s needs a static activation scale: give --activation-scales FILE",
                info.name, fp8_item_dialect(conv, i)->name);
    info = fp8_item_info(conv, source);
    FP8_FAIL_IF(info.bytes != (uint64_t)fp8_dtype_bits(info.dtype) / 8 || info.bytes > 8, err,
                FP8_E_SCALE, "%s: %s has %llu bytes, an activation scale is one number", info.file,
                info.name, (unsigned long long)info.bytes);
    return FP8_OK;
}

static fp8_status check_activation_scales(fp8_convert *conv, fp8_error *err)
{
    for (int64_t i = 0; i < conv->count; i++)
        if (needs_activation_scale(conv, i))
            FP8_TRY(check_activation_scale(conv, i, err));
    return FP8_OK;
}

/* ---- the plan ---- */

static fp8_status open_source(fp8_convert *conv, fp8_error *err)
{
    FP8_TRY(fp8_checkpoint_open(conv->ctx, conv->src, &conv->ckpt, err));
    conv->count = fp8_checkpoint_count(conv->ckpt);
    fp8_status status =
        fp8_config_read(conv->ckpt->config, conv->ckpt->config_bytes, &conv->config, err);
    if (status == FP8_E_FORMAT)
        fp8_error_prefix(err, "%s", conv->src);
    FP8_TRY(status);
    FP8_TRY(fp8_roles_assign(conv->ctx, conv->ckpt, &conv->roles, err));
    conv->items = fp8_alloc_zeroed(conv->ctx, (uint64_t)conv->count, sizeof *conv->items);
    FP8_FAIL_IF(!conv->items, err, FP8_E_NO_MEMORY, "no memory for %lld tensors",
                (long long)conv->count);
    for (int64_t i = 0; fp8_checkpoint_warning(conv->ckpt, i); i++)
        FP8_TRY(fp8_convert_warn(conv, err, "%s", fp8_checkpoint_warning(conv->ckpt, i)));
    return FP8_OK;
}

static fp8_status plan(fp8_convert *conv, fp8_error *err)
{
    FP8_TRY(copy_texts(conv, err));
    FP8_TRY(settle_scheme(conv, err));
    FP8_TRY(settle_patterns(conv, err));
    FP8_TRY(open_source(conv, err));
    settle_dtype(conv);
    FP8_TRY(fp8_paths_settle(conv, err));
    if (conv->desc.activation_scales)
        FP8_TRY(
            fp8_activation_open(conv->ctx, conv->desc.activation_scales, &conv->activation, err));
    FP8_TRY(fp8_choose(conv, err));
    FP8_TRY(check_activation_scales(conv, err));
    FP8_TRY(fp8_describe_check(conv, err));
    FP8_TRY(fp8_layout_make(conv, err));
    FP8_TRY(fp8_limits_set(conv, err));
    FP8_TRY(fp8_carry_measure(conv, err));
    FP8_TRY(fp8_paths_free_bytes(conv, &conv->disk_free_bytes, err));
    forget_texts(conv);
    FP8_TRY(fp8_fingerprint(conv, err));
    return fp8_paths_check_resumed(conv, err);
}

fp8_status fp8_convert_plan(const fp8_context *ctx, const fp8_convert_desc *desc, fp8_convert **out,
                            fp8_error *err)
{
    FP8_FAIL_IF(!desc || !out, err, FP8_E_ARGUMENT, "convert: %s is NULL", desc ? "out" : "desc");
    *out = NULL;
    FP8_TRY(fp8_need_cpu(ctx, "convert", err));
    FP8_TRY(check_desc(desc, err));
    fp8_convert *conv = fp8_alloc_zeroed(ctx, 1, sizeof *conv);
    FP8_FAIL_IF(!conv, err, FP8_E_NO_MEMORY, "no memory for a plan");
    conv->ctx = ctx;
    conv->desc = *desc;
    fp8_status status = plan(conv, err);
    if (status != FP8_OK) {
        fp8_convert_free(conv);
        return status;
    }
    *out = conv;
    return FP8_OK;
}

void fp8_convert_free(fp8_convert *conv)
{
    if (!conv)
        return;
    const fp8_context *ctx = conv->ctx;
    for (int64_t i = 0; i < conv->pattern_count; i++) {
        fp8_matcher_free(conv->patterns[i].matcher);
        fp8_release(ctx, conv->patterns[i].text);
        fp8_release(ctx, conv->patterns[i].reason);
    }
    for (int64_t i = 0; i < conv->warning_count; i++)
        fp8_release(ctx, conv->warnings[i]);
    fp8_layout_free(ctx, &conv->layout);
    fp8_activation_free(ctx, conv->activation);
    fp8_roles_free(ctx, &conv->roles);
    fp8_checkpoint_close(conv->ckpt);
    fp8_release(ctx, conv->patterns);
    fp8_release(ctx, conv->warnings);
    fp8_release(ctx, conv->items);
    fp8_release(ctx, conv->src);
    fp8_release(ctx, conv->dst);
    fp8_release(ctx, conv->partial);
    fp8_release(ctx, conv->files);
    fp8_release(ctx, conv->report);
    fp8_release(ctx, conv);
}

/* ---- what it tells ---- */

int64_t fp8_convert_count(const fp8_convert *conv)
{
    return conv ? conv->count : 0;
}

fp8_status fp8_convert_row(const fp8_convert *conv, int64_t i, fp8_plan_row *out)
{
    static const char *const actions[] = {"keep",       "quantize", "dequantize",
                                          "requantize", "rename",   "drop"};
    if (!conv || !out || i < 0 || i >= conv->count)
        return FP8_E_ARGUMENT;
    const fp8_item *it = &conv->items[i];
    fp8_tensor_info info = fp8_item_info(conv, i);
    fp8_piece piece;
    bool written = fp8_item_piece(conv, i, FP8_PART_DATA, &piece);
    *out = (fp8_plan_row){
        .name = info.name,
        .action = actions[it->action],
        .scheme = it->dialect ? fp8_item_dialect(conv, i)->name : "",
        .reason = it->reason,
        .dtype_in = info.dtype,
        .dtype_out = written ? piece.dtype : FP8_DTYPE_NONE,
        .ndim = info.ndim,
        .shape = info.shape,
        .bytes_in = info.bytes,
        .bytes_out = fp8_item_bytes_out(conv, i),
    };
    return FP8_OK;
}

void fp8_convert_summary(const fp8_convert *conv, fp8_plan_summary *out)
{
    if (!out)
        return;
    *out = (fp8_plan_summary){.tensors = 0};
    if (!conv)
        return;
    *out = (fp8_plan_summary){.tensors = conv->count, .shards_out = conv->layout.shard_count};
    for (int64_t i = 0; i < conv->count; i++) {
        out->kept += conv->items[i].action == FP8_ACTION_KEEP;
        out->bytes_in += fp8_item_info(conv, i).bytes;
    }
    out->changed = conv->count - out->kept;
    for (int64_t s = 0; s < conv->layout.shard_count; s++)
        out->bytes_out += conv->layout.shards[s].data_bytes;
    out->disk_bytes = conv->layout.bytes + conv->config_bytes + conv->carried_bytes;
    out->peak_memory_bytes = fp8_limits_peak(conv);
    out->disk_free_bytes = conv->disk_free_bytes;
}

const char *fp8_convert_warning(const fp8_convert *conv, int64_t i)
{
    return conv && i >= 0 && i < conv->warning_count ? conv->warnings[i] : NULL;
}

void fp8_convert_stop(fp8_convert *conv)
{
    if (conv)
        atomic_store_explicit(&conv->stop, 1, memory_order_relaxed);
}
