/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_source.c - rules that need the source: nothing missing, nothing added, kept tensors equal
 * to the bit, config.json and the other files carried over. */
#define _GNU_SOURCE
#include "convert/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The tensor carries model values of its own: no scale of a weight, no marker. */
static bool is_own(const fp8_subject *s, int64_t i)
{
    fp8_role role = s->roles.tensors[i].role;
    return role == FP8_ROLE_PLAIN || role == FP8_ROLE_WEIGHT || role == FP8_ROLE_BARE_CODES;
}

/* Rule tensor-missing: every tensor of the source is there. */
fp8_status fp8_verify_tensor_missing(fp8_verification *v, fp8_error *err)
{
    (void)err;
    for (int64_t i = 0; i < fp8_checkpoint_count(v->source.ckpt); i++) {
        fp8_tensor_info info = fp8_subject_tensor(&v->source, i);
        char shape[64];
        if (!is_own(&v->source, i) || fp8_subject_find(&v->subject, &info) >= 0)
            continue;
        fp8_shape_text(&info, shape);
        FP8_FOUND_ERROR(v, info.name, "the source has the tensor, %s %s, the checkpoint does not",
                        fp8_dtype_name(info.dtype), shape);
    }
    return FP8_OK;
}

/* Rule tensor-extra: no tensor but scales and markers was added. */
fp8_status fp8_verify_tensor_extra(fp8_verification *v, fp8_error *err)
{
    (void)err;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        fp8_tensor_info info = fp8_subject_tensor(&v->subject, i);
        char shape[64];
        if (!is_own(&v->subject, i) || fp8_subject_find(&v->source, &info) >= 0)
            continue;
        fp8_shape_text(&info, shape);
        FP8_FOUND_ERROR(v, info.name, "the tensor, %s %s, is not in the source",
                        fp8_dtype_name(info.dtype), shape);
    }
    return FP8_OK;
}

/* Rule tensor-shape: shapes are those of the source. */
fp8_status fp8_verify_tensor_shape(fp8_verification *v, fp8_error *err)
{
    (void)err;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        fp8_tensor_info info = fp8_subject_tensor(&v->subject, i), from;
        int64_t at = is_own(&v->subject, i) ? fp8_subject_find(&v->source, &info) : -1;
        char ours[64], theirs[64];
        if (at < 0)
            continue;
        from = fp8_subject_tensor(&v->source, at);
        if (fp8_same_shape(&info, &from))
            continue;
        fp8_shape_text(&info, ours);
        fp8_shape_text(&from, theirs);
        FP8_FOUND_ERROR(v, info.name, "the shape is %s, that of the source %s", ours, theirs);
    }
    return FP8_OK;
}

/* A kept tensor and its source, slab by slab. */
struct kept {
    fp8_slab_pool *pool;
    const fp8_values *ours, *theirs;
    bool round; /* the dtypes differ: ours must be theirs, rounded once */
    fp8_slabs slabs;
    uint64_t raw, source_raw, scales; /* bytes of a worker's pieces */
    struct kept_facts {
        int64_t differing, first;
    } * parts;
};

/* Reads our slab, and theirs as it should be in our dtype. */
static fp8_status read_both(const struct kept *k, const fp8_slab *slab, char *ours, char *theirs,
                            char *room, fp8_error *err)
{
    const fp8_context *ctx = &k->pool->serial;
    FP8_TRY(fp8_values_raw(k->ours, slab, ours, err));
    if (!k->round)
        return fp8_values_raw(k->theirs, slab, theirs, err);
    fp8_tensor scales;
    int64_t row0 = 0;
    bool quantized = fp8_values_quantized(k->theirs);
    float *real = (float *)(void *)room;
    char *raw = room + (uint64_t)fp8_slabs_extent(&k->slabs) * sizeof(float);
    FP8_TRY(fp8_values_raw(k->theirs, slab, raw, err));
    if (quantized)
        FP8_TRY(fp8_values_scales(k->theirs, slab, raw + k->source_raw, &scales, &row0, err));
    FP8_TRY(
        fp8_values_real(ctx, k->theirs, slab, raw, quantized ? &scales : NULL, row0, real, err));
    int saturate =
        fp8_dtype_bits(k->ours->info.dtype) == 8; /* as whoever casts weights to FP8 does */
    return fp8_cast(ctx, real, FP8_F32, theirs, k->ours->info.dtype, slab->elements, saturate, NULL,
                    err);
}

static fp8_status compare_kept_slab(void *arg, int64_t i, char *memory, fp8_error *err)
{
    struct kept *k = arg;
    fp8_slab slab = fp8_slab_at(&k->slabs, i);
    char *ours = memory, *theirs = ours + k->raw;
    FP8_TRY(read_both(k, &slab, ours, theirs, theirs + k->raw, err));
    uint64_t bits = (uint64_t)fp8_dtype_bits(k->ours->info.dtype);
    uint64_t bytes = ((uint64_t)slab.elements * bits + 7) / 8, size = bits >= 8 ? bits / 8 : 1;
    if (!memcmp(ours, theirs, bytes))
        return FP8_OK;
    struct kept_facts *out = &k->parts[i];
    for (uint64_t at = 0; at < bytes; at += size)
        if (memcmp(ours + at, theirs + at, size) && !out->differing++)
            out->first = slab.first + (int64_t)(at * 8 / bits);
    return FP8_OK;
}

/* Elements that are not as the source has them, and the first of them. */
static fp8_status compare_kept(fp8_verification *v, const fp8_values *ours,
                               const fp8_values *theirs, struct kept_facts *sum, fp8_error *err)
{
    struct kept k = {.pool = &v->pool, .ours = ours, .theirs = theirs};
    bool quantized = fp8_values_quantized(theirs);
    k.round = quantized || ours->info.dtype != theirs->info.dtype;
    k.slabs = fp8_slabs_of(ours, quantized);
    uint64_t n = (uint64_t)fp8_slabs_extent(&k.slabs);
    k.raw = fp8_piece_bytes((n * (uint64_t)fp8_dtype_bits(ours->info.dtype) + 7) / 8);
    k.source_raw = fp8_piece_bytes((n * (uint64_t)fp8_dtype_bits(theirs->info.dtype) + 7) / 8);
    k.scales = fp8_values_scale_bytes(theirs, &k.slabs);
    uint64_t bytes = 2 * k.raw + (k.round ? n * sizeof(float) + k.source_raw + k.scales : 0);
    k.parts = fp8_alloc_zeroed(v->ctx, (uint64_t)k.slabs.count, sizeof *k.parts);
    FP8_FAIL_IF(!k.parts, err, FP8_E_NO_MEMORY, "%s: no memory", ours->info.name);
    fp8_status status = fp8_slab_run(&v->pool, k.slabs.count, bytes, compare_kept_slab, &k, err);
    *sum = (struct kept_facts){0, 0};
    for (int64_t i = 0; i < k.slabs.count && status == FP8_OK; i++) {
        if (!sum->differing)
            sum->first = k.parts[i].first;
        sum->differing += k.parts[i].differing;
    }
    fp8_release(v->ctx, k.parts);
    return status;
}

/* Another tensor of the source whose bytes ours are; -1 if there is none. Only tensors of the same
 * size are read, and only after a difference was found. */
static fp8_status find_kept(fp8_verification *v, const fp8_values *ours, int64_t *at,
                            fp8_error *err)
{
    *at = -1;
    for (int64_t i = 0; i < fp8_checkpoint_count(v->source.ckpt) && *at < 0; i++) {
        fp8_values other;
        struct kept_facts facts;
        fp8_values_of(v->source.ckpt, &v->source.roles, i, &other);
        if (other.info.dtype != ours->info.dtype || !fp8_same_shape(&other.info, &ours->info) ||
            v->searches >= FP8_MAX_SEARCHES)
            continue;
        v->searches++;
        FP8_TRY(compare_kept(v, ours, &other, &facts, err));
        if (!facts.differing)
            *at = i;
    }
    return FP8_OK;
}

static fp8_status report_kept(fp8_verification *v, const fp8_values *ours, const fp8_values *theirs,
                              const struct kept_facts *facts, fp8_error *err)
{
    int64_t other;
    FP8_TRY(find_kept(v, ours, &other, err));
    fp8_tensor_info info = {.name = ""};
    if (other >= 0)
        info = fp8_subject_tensor(&v->source, other);
    FP8_FOUND_ERROR(v, ours->info.name,
                    "%lld of %lld elements (%s, %s in the source) are not as in the source, the "
                    "first is element %lld%s%s",
                    (long long)facts->differing, (long long)fp8_values_count(ours),
                    fp8_dtype_name(ours->info.dtype), fp8_dtype_name(theirs->info.dtype),
                    (long long)facts->first, other >= 0 ? "; the bytes are those of " : "",
                    info.name);
    return FP8_OK;
}

/* Rule kept-changed: tensors that are not quantized are those of the source, to the bit; of another
 * dtype, or from FP8, rounded once. */
fp8_status fp8_verify_kept(fp8_verification *v, fp8_error *err)
{
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        fp8_values ours, theirs;
        struct kept_facts facts;
        fp8_values_of(v->subject.ckpt, &v->subject.roles, i, &ours);
        if (!is_own(&v->subject, i) || fp8_values_quantized(&ours) || ours.role->problem)
            continue;
        int64_t at = fp8_subject_find(&v->source, &ours.info);
        if (at < 0)
            continue;
        fp8_values_of(v->source.ckpt, &v->source.roles, at, &theirs);
        bool numeric = fp8_values_numeric(&ours) && fp8_values_numeric(&theirs);
        if (!fp8_same_shape(&ours.info, &theirs.info))
            continue;
        if (ours.info.dtype != theirs.info.dtype && !numeric) {
            FP8_FOUND_ERROR(v, ours.info.name, "the dtype is %s, that of the source %s",
                            fp8_dtype_name(ours.info.dtype), fp8_dtype_name(theirs.info.dtype));
            continue;
        }
        FP8_TRY(compare_kept(v, &ours, &theirs, &facts, err));
        v->summary->compared++;
        if (facts.differing)
            FP8_TRY(report_kept(v, &ours, &theirs, &facts, err));
    }
    return FP8_OK;
}

/* The value of a top-level key of a config; text NULL if it is not there. */
static fp8_status value_of(fp8_span config, fp8_span key, fp8_span *out, fp8_error *err)
{
    fp8_json j;
    fp8_span other, value;
    bool more;
    *out = (fp8_span){NULL, 0};
    fp8_json_open(&j, config.text, config.bytes);
    FP8_TRY(fp8_json_enter_object(&j, err));
    for (;;) {
        FP8_TRY(fp8_json_next_key(&j, &other, &more, err));
        if (!more)
            return FP8_OK;
        FP8_TRY(fp8_json_skip(&j, &value, err));
        if (other.bytes == key.bytes && !memcmp(other.text, key.text, key.bytes))
            *out = value;
    }
}

/* The next character outside white space; strings are taken as they are, so a blank in one that
 * moved counts as equal, which no writer does. */
static char next_dense(fp8_span s, uint64_t *at)
{
    while (*at < s.bytes && strchr(" \t\r\n", s.text[*at]))
        ++*at;
    return *at < s.bytes ? s.text[(*at)++] : 0;
}

/* The values are equal but for white space. */
static bool same_value(fp8_span a, fp8_span b)
{
    uint64_t i = 0, k = 0;
    char x, y;
    do {
        x = next_dense(a, &i);
        y = next_dense(b, &k);
        if (x != y)
            return false;
    } while (x);
    return true;
}

/* What config.json says besides the quantization, wherever that stands. */
static fp8_status rest_of_config(const fp8_checkpoint *ckpt, fp8_span *out, fp8_error *err)
{
    char *text;
    FP8_TRY(fp8_config_splice(ckpt->ctx, ckpt->config, ckpt->config_bytes, NULL, &text, &out->bytes,
                              err));
    out->text = text;
    return FP8_OK;
}

static fp8_status compare_members(fp8_verification *v, fp8_span ours, fp8_span theirs,
                                  fp8_error *err)
{
    fp8_json j;
    fp8_span key, value, our_value;
    bool more;
    fp8_json_open(&j, theirs.text, theirs.bytes);
    FP8_TRY(fp8_json_enter_object(&j, err));
    for (;;) {
        FP8_TRY(fp8_json_next_key(&j, &key, &more, err));
        if (!more)
            return FP8_OK;
        FP8_TRY(fp8_json_skip(&j, &value, err));
        FP8_TRY(value_of(ours, key, &our_value, err));
        if (!our_value.text)
            FP8_FOUND_ERROR(v, NULL, "config.json lacks \"%.*s\"", (int)key.bytes, key.text);
        else if (!same_value(value, our_value))
            FP8_FOUND_ERROR(v, NULL, "config.json: \"%.*s\" is not as in the source",
                            (int)key.bytes, key.text);
    }
}

/* Rule config-changed: what config.json says besides the quantization is what the source's says. */
fp8_status fp8_verify_config_changed(fp8_verification *v, fp8_error *err)
{
    fp8_span ours = {NULL, 0}, theirs = {NULL, 0};
    if (!v->source.ckpt->config)
        return FP8_OK;
    if (!v->subject.ckpt->config) {
        FP8_FOUND_ERROR(v, NULL, "the source has a config.json, the checkpoint has none");
        return FP8_OK;
    }
    fp8_status status = rest_of_config(v->subject.ckpt, &ours, err);
    if (status == FP8_OK)
        status = rest_of_config(v->source.ckpt, &theirs, err);
    if (status == FP8_OK)
        status = compare_members(v, ours, theirs, err);
    fp8_release(v->subject.ckpt->ctx, (void *)(uintptr_t)ours.text);
    fp8_release(v->source.ckpt->ctx, (void *)(uintptr_t)theirs.text);
    return status;
}

/* A file of the source that belongs to the model but holds no weights. */
static bool is_carried(const char *name)
{
    static const char *const ours[] = {".safetensors", ".index.json", ".bin", ".pt", ".pth"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        size_t m = strlen(ours[i]);
        if (n >= m && !strcmp(name + n - m, ours[i]))
            return false;
    }
    return name[0] != '.' && strcmp(name, "config.json") != 0;
}

/* Rule file-missing, a warning: tokenizer, generation settings, licence .. came along. */
fp8_status fp8_verify_file_missing(fp8_verification *v, fp8_error *err)
{
    const fp8_checkpoint *ours = v->subject.ckpt, *theirs = v->source.ckpt;
    if (ours->single_file || theirs->single_file)
        return FP8_OK;
    int dir = open(ours->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return fp8_fail_os(err, errno, "%s", ours->directory);
    DIR *list = opendir(theirs->directory);
    fp8_status status = list ? FP8_OK : fp8_fail_os(err, errno, "%s", theirs->directory);
    struct dirent *entry;
    while (list && (entry = readdir(list)))
        if (is_carried(entry->d_name) && faccessat(dir, entry->d_name, F_OK, 0))
            FP8_FOUND_WARNING(v, NULL, "the source has %s, the checkpoint does not", entry->d_name);
    if (list)
        closedir(list);
    close(dir);
    return status;
}
