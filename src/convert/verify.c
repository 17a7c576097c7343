/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c - fp8_verify: opens the checkpoint (and its source), runs the table of rules, sums up. A
 * checkpoint that cannot be opened is one finding, named by the kind of its defect. */
#include "convert/verify.h"

#include "ckpt/engine.h"
#include "ckpt/file.h"
#include "convert/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* In the order in which their findings are of use: what stands on something broken comes later. */
static const fp8_verify_rule rules[] = {
    {"index", fp8_verify_index},
    {"index-unlisted", fp8_verify_index_unlisted},
    {"leftover-file", fp8_verify_leftover},
    {"config-missing", fp8_verify_config_missing},
    {"plain-cast", fp8_verify_plain_cast},
    {"config-unknown", fp8_verify_config_unknown},
    {"nothing-quantized", fp8_verify_nothing_quantized},
    {"activation-scheme", fp8_verify_activation_scheme},
    {"config-format", fp8_verify_config_format},
    {"input-scale", fp8_verify_input_scale},
    {"ignore-missing", fp8_verify_ignore_missing},
    {"ignore-quantized", fp8_verify_ignore_quantized},
    {"ignore-unmatched", fp8_verify_ignore_unmatched},
    {"tied-head", fp8_verify_tied_head},
    {"roles", fp8_verify_roles}, /* found by ckpt/roles.h, which names the rules */
    {"scale-value", fp8_verify_scale_value},
    {"weights", fp8_verify_weights}, /* a table of its own */
    {"engine", fp8_verify_for_engine},
};

/* With a source only. */
static const fp8_verify_rule source_rules[] = {
    {"tensor-missing", fp8_verify_tensor_missing}, {"tensor-extra", fp8_verify_tensor_extra},
    {"tensor-shape", fp8_verify_tensor_shape},     {"kept-changed", fp8_verify_kept},
    {"config-changed", fp8_verify_config_changed}, {"file-missing", fp8_verify_file_missing},
};

/* What a checkpoint that does not open is guilty of. */
static const struct {
    fp8_status status;
    const char *rule;
} open_rules[] = {
    {FP8_E_FORMAT, "container"},       {FP8_E_TRUNCATED, "truncated"},
    {FP8_E_NOT_FOUND, "container"},    {FP8_E_MISMATCH, "container"},
    {FP8_E_ARGUMENT, "config-broken"}, {FP8_E_UNSUPPORTED, "container"},
};

void fp8_found(fp8_verification *v, bool is_error, const char *tensor, const char *message)
{
    fp8_finding finding = {is_error, v->rule, tensor ? tensor : "", message};
    if (is_error)
        v->summary->errors++;
    else
        v->summary->warnings++;
    if (v->fn)
        v->fn(v->user, &finding);
}

fp8_tensor_info fp8_subject_tensor(const fp8_subject *s, int64_t i)
{
    fp8_tensor_info info;
    (void)fp8_checkpoint_tensor(s->ckpt, i, &info);
    return info;
}

int64_t fp8_subject_find(const fp8_subject *s, const fp8_tensor_info *info)
{
    return fp8_checkpoint_index(s->ckpt, info->name, info->name_bytes);
}

void fp8_shape_text(const fp8_tensor_info *info, char text[64])
{
    size_t at = 0;
    text[at++] = '[';
    for (int32_t d = 0; d < info->ndim && at < 40; d++)
        at += (size_t)snprintf(text + at, 64 - at, d ? ",%" PRId64 : "%" PRId64, info->shape[d]);
    snprintf(text + at, 64 - at, "]");
}

static fp8_status open_subject(const fp8_context *ctx, const char *path, fp8_subject *s,
                               fp8_error *err)
{
    FP8_TRY(fp8_checkpoint_open(ctx, path, &s->ckpt, err));
    FP8_TRY(fp8_roles_assign(ctx, s->ckpt, &s->roles, err));
    return fp8_config_read(s->ckpt->config, s->ckpt->config_bytes, &s->config, err);
}

static void close_subject(const fp8_context *ctx, fp8_subject *s)
{
    fp8_roles_free(ctx, &s->roles);
    fp8_checkpoint_close(s->ckpt);
}

/* A DST.partial in which there is no journal yet; `files` is files/ in it. */
static bool is_begun(const char *folder, const char *files)
{
    static const char tail[] = ".partial";
    enum { TAIL = sizeof tail - 1 };
    struct stat st;
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    return n > TAIL && !memcmp(folder + n - TAIL, tail, TAIL) && !stat(files, &st) &&
           S_ISDIR(st.st_mode);
}

/* *unfinished: the path is the DST.partial of a conversion, or files/ in it, or a file in that. */
static fp8_status find_unfinished(fp8_verification *v, bool is_folder, bool *unfinished,
                                  fp8_error *err)
{
    const char *path = v->desc->path, *slash = is_folder ? NULL : strrchr(path, '/');
    char *folder = is_folder ? fp8_copy_text(v->ctx, path, strlen(path))
                   : slash   ? fp8_copy_text(v->ctx, path, (uint64_t)(slash - path) + 1)
                             : fp8_copy_text(v->ctx, ".", 1);
    char *above = folder ? fp8_join_path(v->ctx, folder, "..") : NULL;
    char *files = folder ? fp8_join_path(v->ctx, folder, "files") : NULL;
    fp8_status status = FP8_OK;
    if (above && files)
        *unfinished =
            fp8_journal_is_in(folder) || fp8_journal_is_in(above) || is_begun(folder, files);
    else
        status = fp8_fail(err, FP8_E_NO_MEMORY, "verify: no memory for a path");
    fp8_release(v->ctx, files);
    fp8_release(v->ctx, above);
    fp8_release(v->ctx, folder);
    return status;
}

/* Opens what is verified; *opened = false if that came to a finding. */
static fp8_status open_or_find(fp8_verification *v, bool *opened, fp8_error *err)
{
    struct stat st;
    bool unfinished = false;
    fp8_error why = {FP8_OK, 0, -1, ""};
    const char *path = v->desc->path;
    if (stat(path, &st))
        return fp8_fail_os(err, errno, "verify: %s", path);
    FP8_TRY(find_unfinished(v, S_ISDIR(st.st_mode), &unfinished, err));
    if (unfinished) {
        v->rule = "unfinished";
        FP8_FOUND_ERROR(v, NULL,
                        "%s belongs to a conversion that has not ended; the same command with "
                        "--resume goes on with it, if none does",
                        path);
        return FP8_OK;
    }
    fp8_status status = open_subject(v->ctx, path, &v->subject, &why);
    *opened = status == FP8_OK;
    if (*opened)
        return FP8_OK;
    for (size_t i = 0; i < sizeof open_rules / sizeof *open_rules; i++)
        if (open_rules[i].status == status) {
            v->rule = open_rules[i].rule;
            fp8_found(v, true, NULL, why.msg);
            return FP8_OK;
        }
    if (err)
        *err = why;
    return status;
}

static void count_tensors(fp8_verification *v)
{
    v->summary->tensors = fp8_checkpoint_count(v->subject.ckpt);
    v->summary->quantized = v->subject.roles.weights;
}

/* That a pattern of config.json takes too much work is told once; other rules still look. */
static fp8_status run_rule(fp8_verification *v, const fp8_verify_rule *rule, fp8_error *err)
{
    fp8_error why = {FP8_OK, 0, -1, ""};
    v->rule = rule->name;
    const fp8_status status = rule->check(v, &why);
    if (status == FP8_E_ARGUMENT) {
        v->rule = "config-broken";
        if (!v->config_broken)
            fp8_found(v, true, NULL, why.msg);
        v->config_broken = true;
        return FP8_OK;
    }
    if (status != FP8_OK && err)
        *err = why;
    return status;
}

static fp8_status run_rules(fp8_verification *v, const fp8_verify_rule *table, size_t n,
                            fp8_error *err)
{
    for (size_t i = 0; i < n; i++)
        FP8_TRY(run_rule(v, &table[i], err));
    return FP8_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void sum_up(fp8_verification *v)
{
    int64_t n = v->sqnr_count;
    if (n == 0)
        return;
    qsort(v->sqnr, (size_t)n, sizeof *v->sqnr, by_value);
    v->summary->worst_sqnr_db = v->sqnr[0];
    double low = v->sqnr[(n - 1) / 2], high = v->sqnr[n / 2];
    v->summary->median_sqnr_db = isfinite(low) && isfinite(high) ? (low + high) / 2 : low;
}

static fp8_status verify(fp8_verification *v, fp8_error *err)
{
    bool opened = false;
    FP8_TRY(open_or_find(v, &opened, err));
    if (!opened)
        return FP8_OK;
    count_tensors(v);
    v->sqnr = fp8_alloc_zeroed(v->ctx, (uint64_t)v->summary->quantized, sizeof *v->sqnr);
    FP8_FAIL_IF(!v->sqnr, err, FP8_E_NO_MEMORY, "verify: no memory");
    if (v->desc->against)
        FP8_TRY(open_subject(v->ctx, v->desc->against, &v->source, err));
    FP8_TRY(run_rules(v, rules, sizeof rules / sizeof *rules, err));
    if (v->source.ckpt)
        FP8_TRY(run_rules(v, source_rules, sizeof source_rules / sizeof *source_rules, err));
    sum_up(v);
    return FP8_OK;
}

fp8_status fp8_verify(const fp8_context *ctx, const fp8_verify_desc *desc, fp8_finding_fn fn,
                      void *user, fp8_verify_summary *out, fp8_error *err)
{
    FP8_TRY(fp8_need_cpu(ctx, "verify", err));
    FP8_FAIL_IF(!desc || !out, err, FP8_E_ARGUMENT, "verify: %s is NULL", desc ? "out" : "desc");
    FP8_FAIL_IF(desc->struct_bytes != sizeof *desc, err, FP8_E_ARGUMENT,
                "verify: struct_bytes is %u, this library knows %zu", desc->struct_bytes,
                sizeof *desc);
    FP8_FAIL_IF(!desc->path, err, FP8_E_ARGUMENT, "verify: path is NULL");
    FP8_FAIL_IF(desc->engine && !fp8_engine_find(desc->engine), err, FP8_E_ARGUMENT,
                "verify: engine \"%s\" is unknown", desc->engine);
    FP8_FAIL_IF(desc->tp < 0, err, FP8_E_ARGUMENT, "verify: tp is %d, must be >= 0", desc->tp);
    fp8_verification v = {
        .ctx = ctx, .desc = desc, .fn = fn, .user = user, .summary = out, .rule = ""};
    *out = (fp8_verify_summary){0, 0, 0, 0, 0, INFINITY, INFINITY};
    fp8_slab_pool_init(ctx, &v.pool);
    fp8_status status = verify(&v, err);
    fp8_slab_pool_free(&v.pool);
    fp8_release(ctx, v.sqnr);
    close_subject(ctx, &v.source);
    close_subject(ctx, &v.subject);
    return status;
}
