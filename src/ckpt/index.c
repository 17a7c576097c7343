/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c - reading and checking the index. The JSON is scanned twice, to count and to fill, like
 * a safetensors header. */
#include "ckpt/index.h"
#include "ckpt/foreign.h"
#include "ckpt/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

/* A scan over the text; while it counts, out->entries is NULL. */
typedef struct scan {
    fp8_json json;
    fp8_index *out;
    bool has_map, has_metadata;
    int64_t count; /* of tensors so far */
} scan;

/* A plain name: not empty, no directory, nothing that leads elsewhere. */
static bool is_plain_name(fp8_span name)
{
    if (name.bytes == 0 || name.bytes > 255)
        return false;
    if (memchr(name.text, '/', name.bytes) || memchr(name.text, 0, name.bytes))
        return false;
    return strcmp(name.text, ".") && strcmp(name.text, "..");
}

/* Decodes a string of the text in place and ends it with NUL; its closing quote has been passed. */
static fp8_span decode(fp8_index *out, fp8_span raw)
{
    char *text = out->text + (raw.text - out->text);
    uint64_t bytes = fp8_json_unescape(raw, text);
    text[bytes] = 0;
    return (fp8_span){text, bytes};
}

static fp8_status read_pair(scan *s, fp8_span key, fp8_error *err)
{
    fp8_index *out = s->out;
    fp8_span file;
    FP8_TRY(fp8_json_string(&s->json, &file, err));
    s->count++;
    if (!out->entries)
        return FP8_OK;
    fp8_span name = decode(out, key);
    file = decode(out, file);
    if (!is_plain_name(file))
        return fp8_fail_at(err, FP8_E_FORMAT, file.text - out->text,
                           "'%.*s' is no plain name of a file in the index's directory",
                           fp8_span_shown(file), file.text);
    out->entries[s->count - 1] = (fp8_index_entry){
        (uint32_t)(name.text - out->text), (uint32_t)name.bytes, (uint32_t)(file.text - out->text)};
    return FP8_OK;
}

static fp8_status read_weight_map(scan *s, fp8_error *err)
{
    FP8_FAIL_IF(s->has_map, err, FP8_E_FORMAT, "it is given twice");
    s->has_map = true;
    FP8_TRY(fp8_json_enter_object(&s->json, err));
    for (;;) {
        fp8_span key;
        bool more;
        FP8_TRY(fp8_json_next_key(&s->json, &key, &more, err));
        if (!more)
            return FP8_OK;
        fp8_status status = read_pair(s, key, err);
        if (status != FP8_OK) {
            fp8_error_prefix(err, "tensor '%.*s'", fp8_span_shown(key), key.text);
            return status;
        }
    }
}

/* total_size may be written as an integer or, as some tools do, with a fraction; doubles are exact
 * up to 8 PiB. */
static fp8_status read_metadata(scan *s, fp8_error *err)
{
    FP8_FAIL_IF(s->has_metadata, err, FP8_E_FORMAT, "it is given twice");
    s->has_metadata = true;
    FP8_TRY(fp8_json_enter_object(&s->json, err));
    for (;;) {
        fp8_span key;
        bool more;
        FP8_TRY(fp8_json_next_key(&s->json, &key, &more, err));
        if (!more)
            return FP8_OK;
        if (!fp8_json_equals(key, "total_size"))
            FP8_TRY(fp8_json_skip(&s->json, NULL, err));
        else
            FP8_TRY(fp8_json_double(&s->json, &s->out->total_size, err));
    }
}

static fp8_status read_member(scan *s, fp8_span key, fp8_error *err)
{
    fp8_status status;
    if (fp8_json_equals(key, "weight_map"))
        status = read_weight_map(s, err);
    else if (fp8_json_equals(key, "metadata"))
        status = read_metadata(s, err);
    else
        status = fp8_json_skip(&s->json, NULL, err);
    if (status != FP8_OK)
        fp8_error_prefix(err, "%.*s", fp8_span_shown(key), key.text);
    return status;
}

static fp8_status scan_index(scan *s, uint64_t bytes, fp8_index *out, fp8_error *err)
{
    *s = (scan){.out = out};
    fp8_json_open(&s->json, out->text, bytes);
    FP8_TRY(fp8_json_enter_object(&s->json, err));
    for (;;) {
        fp8_span key;
        bool more;
        FP8_TRY(fp8_json_next_key(&s->json, &key, &more, err));
        if (!more)
            break;
        FP8_TRY(read_member(s, key, err));
    }
    FP8_FAIL_IF(!s->has_map, err, FP8_E_FORMAT, "weight_map is missing");
    return fp8_json_end(&s->json, err);
}

static fp8_span entry_name(const void *owner, int64_t i)
{
    const fp8_index *index = owner;
    return (fp8_span){index->text + index->entries[i].name, index->entries[i].name_bytes};
}

static fp8_status check_names(const fp8_context *ctx, fp8_index *out, fp8_error *err)
{
    FP8_TRY(fp8_name_table_create(ctx, out->count, entry_name, out, &out->names, err));
    for (int64_t i = 0; i < out->count; i++) {
        fp8_span name = entry_name(out, i);
        FP8_FAIL_IF(fp8_name_table_add(&out->names, i) >= 0, err, FP8_E_FORMAT,
                    "weight_map: tensor '%.*s' is listed twice", fp8_span_shown(name), name.text);
    }
    return FP8_OK;
}

static fp8_span entry_file(const void *owner, int64_t i)
{
    const fp8_index *index = owner;
    const char *file = index->text + index->entries[i].file;
    return (fp8_span){file, strlen(file)};
}

static int compare_file(const void *name, const void *element)
{
    return strcmp(name, *(char *const *)element);
}

/* Makes out->files of the names that the entries point to, and the entries point there. */
static fp8_status number_files(const fp8_context *ctx, fp8_index *out, fp8_error *err)
{
    fp8_name_table table;
    FP8_TRY(fp8_name_table_create(ctx, out->count, entry_file, out, &table, err));
    fp8_status status = FP8_OK;
    for (int64_t i = 0; i < out->count && status == FP8_OK; i++) {
        fp8_span file = entry_file(out, i);
        if (fp8_name_table_add(&table, i) < 0)
            status = fp8_file_list_add(ctx, &out->files, file.text, file.bytes, err);
    }
    fp8_name_table_free(ctx, &table);
    FP8_TRY(status);
    fp8_file_list_sort(&out->files);
    for (int64_t i = 0; i < out->count; i++) {
        char **found = bsearch(entry_file(out, i).text, out->files.names, (size_t)out->files.count,
                               sizeof *found, compare_file);
        out->entries[i].file = (uint32_t)(found - out->files.names);
    }
    return FP8_OK;
}

static fp8_status fill_index(const fp8_context *ctx, uint64_t bytes, fp8_index *out, fp8_error *err)
{
    scan s;
    const char *foreign = fp8_foreign_format(out->text, bytes);
    FP8_FAIL_IF(foreign && out->text[0] != '{', err, FP8_E_FORMAT, "not an index, but %s", foreign);
    FP8_TRY(scan_index(&s, bytes, out, err));
    FP8_FAIL_IF(s.count == 0, err, FP8_E_FORMAT, "weight_map lists no tensor");
    out->count = s.count;
    out->entries = fp8_alloc_zeroed(ctx, (uint64_t)s.count, sizeof *out->entries);
    FP8_FAIL_IF(!out->entries, err, FP8_E_NO_MEMORY,
                "no memory for an index of %" PRId64 " tensors", s.count);
    FP8_TRY(scan_index(&s, bytes, out, err));
    FP8_TRY(check_names(ctx, out, err));
    return number_files(ctx, out, err);
}

fp8_status fp8_index_parse(const fp8_context *ctx, char *text, uint64_t bytes, fp8_index *out,
                           fp8_error *err)
{
    *out = (fp8_index){.text = text, .total_size = -1};
    fp8_status status = fill_index(ctx, bytes, out, err);
    if (status != FP8_OK)
        fp8_index_free(ctx, out);
    return status;
}

void fp8_index_free(const fp8_context *ctx, fp8_index *index)
{
    fp8_name_table_free(ctx, &index->names);
    fp8_file_list_free(ctx, &index->files);
    fp8_release(ctx, index->entries);
    fp8_release(ctx, index->text);
    *index = (fp8_index){0};
}

/* ---- checking ---- */

/* A kind of warning: how often, and the first of them. */
typedef struct oddity {
    int64_t count;
    fp8_error first;
} oddity;

static fp8_status warn_of(fp8_checkpoint *ckpt, const oddity *o, fp8_error *err)
{
    if (o->count == 0)
        return FP8_OK;
    fp8_error warning = o->first;
    if (o->count > 1)
        fp8_error_set(&warning, FP8_OK, -1, "%s (and %" PRId64 " more)", o->first.msg,
                      o->count - 1);
    return fp8_checkpoint_warn(ckpt, &warning, err);
}

/* What the check works with. */
typedef struct check {
    const fp8_index *index;
    fp8_checkpoint *ckpt;
    bool *present; /* [index->count]: the tensor is in the file that it is listed for */
    oddity unlisted, copies;
} check;

static fp8_span shard_tensor(const fp8_shard *shard, int64_t i)
{
    const fp8_st_entry *e = &shard->header.entries[i];
    return (fp8_span){shard->header.names + e->name, e->name_bytes};
}

static void mark_present(const check *c, uint32_t s)
{
    const fp8_shard *shard = &c->ckpt->shards[s];
    for (int64_t i = 0; i < shard->header.count; i++) {
        fp8_span name = shard_tensor(shard, i);
        int64_t k = fp8_name_table_find(&c->index->names, name.text, name.bytes);
        if (k >= 0 && c->index->entries[k].file == s)
            c->present[k] = true;
    }
}

/* Whether tensor `name` of shard s stays in the checkpoint: it does unless it is a copy of one that
 * the index lists for another shard. */
static fp8_status judge(check *c, uint32_t s, fp8_span name, bool *stays, fp8_error *err)
{
    char *const *files = c->index->files.names;
    int64_t k = fp8_name_table_find(&c->index->names, name.text, name.bytes);
    *stays = k < 0 || c->index->entries[k].file == s;
    if (k < 0 && c->unlisted.count++ == 0)
        fp8_error_set(&c->unlisted.first, FP8_OK, -1, "%s does not list tensor '%.*s' of %s",
                      c->ckpt->index_file, fp8_span_shown(name), name.text, files[s]);
    if (*stays)
        return FP8_OK;
    const char *listed = files[c->index->entries[k].file];
    FP8_FAIL_IF(!c->present[k], err, FP8_E_FORMAT,
                "weight_map: tensor '%.*s' is not in %s, but in %s", fp8_span_shown(name),
                name.text, listed, files[s]);
    if (c->copies.count++ == 0)
        fp8_error_set(&c->copies.first, FP8_OK, -1,
                      "tensor '%.*s' is in %s and in %s, which is not read", fp8_span_shown(name),
                      name.text, listed, files[s]);
    return FP8_OK;
}

/* Judges all tensors of a shard; those that do not stay are taken out of its header. */
static fp8_status check_shard(check *c, uint32_t s, fp8_error *err)
{
    fp8_shard *shard = &c->ckpt->shards[s];
    fp8_st_entry *entries = shard->header.entries;
    int64_t kept = 0;
    for (int64_t i = 0; i < shard->header.count; i++) {
        bool stays;
        FP8_TRY(judge(c, s, shard_tensor(shard, i), &stays, err));
        if (stays)
            entries[kept++] = entries[i];
    }
    shard->header.count = kept;
    return FP8_OK;
}

static fp8_status check_all(check *c, fp8_error *err)
{
    for (uint32_t s = 0; s < c->ckpt->shard_count; s++)
        mark_present(c, s);
    for (uint32_t s = 0; s < c->ckpt->shard_count; s++)
        FP8_TRY(check_shard(c, s, err));
    for (int64_t k = 0; k < c->index->count; k++) {
        fp8_span name = entry_name(c->index, k);
        FP8_FAIL_IF(!c->present[k], err, FP8_E_FORMAT,
                    "weight_map: tensor '%.*s' is not in %s nor in any other shard",
                    fp8_span_shown(name), name.text,
                    c->index->files.names[c->index->entries[k].file]);
    }
    FP8_TRY(warn_of(c->ckpt, &c->unlisted, err));
    return warn_of(c->ckpt, &c->copies, err);
}

fp8_status fp8_index_check(const fp8_index *index, fp8_checkpoint *ckpt, fp8_error *err)
{
    check c = {.index = index, .ckpt = ckpt};
    c.present = fp8_alloc_zeroed(ckpt->ctx, (uint64_t)index->count, sizeof *c.present);
    FP8_FAIL_IF(!c.present, err, FP8_E_NO_MEMORY, "no memory for an index of %" PRId64 " tensors",
                index->count);
    fp8_status status = check_all(&c, err);
    fp8_release(ckpt->ctx, c.present);
    return status;
}
