/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c - opening all files of a checkpoint, and finding and reading their tensors. */
#define _GNU_SOURCE
#include "ckpt/checkpoint.h"
#include "base/size.h"
#include "ckpt/index.h"
#include "ckpt/locate.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { MAX_CONFIG_BYTES = 1 << 24 };

/* ---- warnings ---- */

fp8_status fp8_checkpoint_warn(fp8_checkpoint *ckpt, const fp8_error *warning, fp8_error *err)
{
    uint64_t n = (uint64_t)ckpt->warning_count;
    char **lines = fp8_alloc(ckpt->ctx, (n + 1) * sizeof *lines);
    char *line = fp8_copy_text(ckpt->ctx, warning->msg, strlen(warning->msg));
    if (!lines || !line) {
        fp8_release(ckpt->ctx, lines);
        fp8_release(ckpt->ctx, line);
        return fp8_fail(err, FP8_E_NO_MEMORY, "no memory for a warning");
    }
    if (n > 0)
        memcpy(lines, ckpt->warnings, n * sizeof *lines);
    lines[n] = line;
    fp8_release(ckpt->ctx, ckpt->warnings);
    ckpt->warnings = lines;
    ckpt->warning_count++;
    return FP8_OK;
}

const char *fp8_checkpoint_warning(const fp8_checkpoint *ckpt, int64_t i)
{
    return ckpt && i >= 0 && i < ckpt->warning_count ? ckpt->warnings[i] : NULL;
}

/* ---- shards ---- */

static fp8_status read_shard(const fp8_checkpoint *ckpt, const char *file, fp8_shard *shard,
                             fp8_error *err)
{
    int fd;
    shard->path = fp8_join_path(ckpt->ctx, ckpt->directory, file);
    FP8_FAIL_IF(!shard->path, err, FP8_E_NO_MEMORY, "no memory for the path of %s", file);
    shard->file = shard->path + strlen(ckpt->directory) + 1;
    FP8_TRY(fp8_open_regular(shard->path, &fd, &shard->identity, err));
    shard->bytes = (uint64_t)shard->identity.st_size;
    fp8_status status = fp8_st_read(ckpt->ctx, fd, shard->path, &shard->header, err);
    close(fd);
    return status;
}

/* Reads the headers of all files. A file that an index names and that is not there is a fault of
 * the checkpoint, not of the path that was given. */
static fp8_status read_shards(fp8_checkpoint *ckpt, const fp8_file_list *files, fp8_error *err)
{
    ckpt->shards = fp8_alloc_zeroed(ckpt->ctx, (uint64_t)files->count, sizeof *ckpt->shards);
    FP8_FAIL_IF(!ckpt->shards, err, FP8_E_NO_MEMORY, "no memory for %" PRId64 " shards",
                files->count);
    for (int64_t i = 0; i < files->count; i++) {
        ckpt->shard_count = i + 1;
        fp8_status status = read_shard(ckpt, files->names[i], &ckpt->shards[i], err);
        if (status == FP8_E_NOT_FOUND && ckpt->index_file)
            return fp8_fail(err, FP8_E_FORMAT, "%s/%s names the shard %s, which is not there",
                            ckpt->directory, ckpt->index_file, files->names[i]);
        FP8_TRY(status);
    }
    return FP8_OK;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

fp8_status fp8_shard_open(const fp8_shard *shard, int *fd, fp8_error *err)
{
    struct stat now;
    FP8_TRY(fp8_open_regular(shard->path, fd, &now, err));
    if (same_file(&now, &shard->identity))
        return FP8_OK;
    close(*fd);
    FP8_FAIL_IF((uint64_t)now.st_size < shard->bytes, err, FP8_E_TRUNCATED,
                "%s: has %" PRIu64 " bytes, had %" PRIu64 " when its header was read", shard->path,
                (uint64_t)now.st_size, shard->bytes);
    return fp8_fail(err, FP8_E_MISMATCH, "%s: was changed after its header was read", shard->path);
}

/* ---- opening ---- */

static fp8_status read_index(fp8_checkpoint *ckpt, fp8_index *index, fp8_error *err)
{
    char *text;
    uint64_t bytes;
    FP8_TRY(fp8_read_text(ckpt->ctx, ckpt->directory, ckpt->index_file, FP8_MAX_INDEX_BYTES, &text,
                          &bytes, err));
    fp8_status status = fp8_index_parse(ckpt->ctx, text, bytes, index, err);
    if (status != FP8_OK)
        fp8_error_prefix(err, "%s/%s", ckpt->directory, ckpt->index_file);
    return status;
}

static uint64_t total_bytes(const fp8_checkpoint *ckpt)
{
    uint64_t sum = 0;
    for (int64_t s = 0; s < ckpt->shard_count; s++)
        for (int64_t i = 0; i < ckpt->shards[s].header.count; i++)
            sum += ckpt->shards[s].header.entries[i].end - ckpt->shards[s].header.entries[i].begin;
    return sum;
}

static fp8_status warn_of_total(fp8_checkpoint *ckpt, const fp8_index *index, fp8_error *err)
{
    uint64_t total = total_bytes(ckpt);
    if (index->total_size < 0 || index->total_size == (double)total)
        return FP8_OK;
    fp8_error warning;
    fp8_error_set(&warning, FP8_OK, -1,
                  "%s: total_size is %.0f, the tensors have %" PRIu64 " bytes", ckpt->index_file,
                  index->total_size, total);
    return fp8_checkpoint_warn(ckpt, &warning, err);
}

/* Warns of safetensors files in the directory that the index does not name. */
static fp8_status warn_of_others(fp8_checkpoint *ckpt, const fp8_index *index,
                                 const fp8_file_list *there, fp8_error *err)
{
    int64_t count = 0, named = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < there->count; i++) { /* both lists are sorted */
        while (named < index->files.count && strcmp(index->files.names[named], there->names[i]) < 0)
            named++;
        if (named < index->files.count && !strcmp(index->files.names[named], there->names[i]))
            continue;
        if (count++ == 0)
            first = there->names[i];
    }
    if (count == 0)
        return FP8_OK;
    fp8_error warning;
    fp8_error_set(&warning, FP8_OK, -1,
                  "%s does not name %" PRId64
                  " of the .safetensors files beside it, such as %s; they "
                  "are not read",
                  ckpt->index_file, count, first);
    return fp8_checkpoint_warn(ckpt, &warning, err);
}

/* The headers of the files that the index names. */
static fp8_status read_named(fp8_checkpoint *ckpt, fp8_error *err)
{
    fp8_index index;
    FP8_TRY(read_index(ckpt, &index, err));
    fp8_file_list files = index.files;
    index.files = (fp8_file_list){0};
    fp8_index_free(ckpt->ctx, &index);
    fp8_status status = read_shards(ckpt, &files, err);
    fp8_file_list_free(ckpt->ctx, &files);
    return status;
}

/* It names the files that it named when it was first read. */
static bool names_the_shards(const fp8_index *index, const fp8_checkpoint *ckpt)
{
    bool same = index->files.count == ckpt->shard_count;
    for (int64_t i = 0; same && i < ckpt->shard_count; i++)
        same = !strcmp(index->files.names[i], ckpt->shards[i].file);
    return same;
}

static fp8_status check_index(fp8_checkpoint *ckpt, const fp8_index *index,
                              const fp8_file_list *there, fp8_error *err)
{
    FP8_FAIL_IF(!names_the_shards(index, ckpt), err, FP8_E_MISMATCH,
                "%s/%s: was changed while it was read", ckpt->directory, ckpt->index_file);
    fp8_status status = fp8_index_check(index, ckpt, err);
    if (status != FP8_OK) {
        fp8_error_prefix(err, "%s/%s", ckpt->directory, ckpt->index_file);
        return status;
    }
    FP8_TRY(warn_of_total(ckpt, index, err));
    return warn_of_others(ckpt, index, there, err);
}

/* Reads what the index names and holds one against the other. The index is read twice: it may be as
 * large as a header, and is not held while these are read. */
static fp8_status open_index(fp8_checkpoint *ckpt, const fp8_file_list *there, fp8_error *err)
{
    fp8_index index;
    FP8_TRY(read_named(ckpt, err));
    FP8_TRY(read_index(ckpt, &index, err));
    fp8_status status = check_index(ckpt, &index, there, err);
    fp8_index_free(ckpt->ctx, &index);
    return status;
}

static fp8_span tensor_name(const void *owner, int64_t i)
{
    const fp8_checkpoint *ckpt = owner;
    const fp8_shard *shard = &ckpt->shards[fp8_checkpoint_shard(ckpt, i)];
    const fp8_st_entry *e = &shard->header.entries[i - shard->first];
    return (fp8_span){shard->header.names + e->name, e->name_bytes};
}

/* Numbers all tensors and finds names that are in two shards. */
static fp8_status number_tensors(fp8_checkpoint *ckpt, fp8_error *err)
{
    for (int64_t s = 0; s < ckpt->shard_count; s++) {
        ckpt->shards[s].first = ckpt->tensor_count;
        ckpt->tensor_count += ckpt->shards[s].header.count;
    }
    FP8_TRY(
        fp8_name_table_create(ckpt->ctx, ckpt->tensor_count, tensor_name, ckpt, &ckpt->names, err));
    for (int64_t i = 0; i < ckpt->tensor_count; i++) {
        int64_t other = fp8_name_table_add(&ckpt->names, i);
        fp8_span name = tensor_name(ckpt, i);
        FP8_FAIL_IF(other >= 0, err, FP8_E_FORMAT, "%s: tensor '%.*s' is in %s and in %s",
                    ckpt->directory, fp8_span_shown(name), name.text,
                    ckpt->shards[fp8_checkpoint_shard(ckpt, other)].file,
                    ckpt->shards[fp8_checkpoint_shard(ckpt, i)].file);
    }
    return FP8_OK;
}

/* A checkpoint without config.json is none the worse. */
static fp8_status read_config(fp8_checkpoint *ckpt, fp8_error *err)
{
    fp8_error why;
    fp8_status status = fp8_read_text(ckpt->ctx, ckpt->directory, "config.json", MAX_CONFIG_BYTES,
                                      &ckpt->config, &ckpt->config_bytes, &why);
    if (status == FP8_E_NOT_FOUND)
        return FP8_OK;
    if (status != FP8_OK && err)
        *err = why;
    return status;
}

static fp8_status open_files(fp8_checkpoint *ckpt, const char *path, fp8_error *err)
{
    fp8_file_list files = {0};
    fp8_status status = fp8_locate(ckpt, path, &files, err);
    if (status == FP8_OK)
        status = ckpt->index_file ? open_index(ckpt, &files, err) : read_shards(ckpt, &files, err);
    fp8_file_list_free(ckpt->ctx, &files);
    FP8_TRY(status);
    FP8_TRY(number_tensors(ckpt, err));
    return read_config(ckpt, err);
}

fp8_status fp8_checkpoint_open(const fp8_context *ctx, const char *path, fp8_checkpoint **out,
                               fp8_error *err)
{
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "checkpoint: out is NULL");
    *out = NULL;
    FP8_FAIL_IF(!ctx || !path, err, FP8_E_ARGUMENT, "checkpoint: %s is NULL", ctx ? "path" : "ctx");
    fp8_checkpoint *ckpt = fp8_alloc_zeroed(ctx, 1, sizeof *ckpt);
    FP8_FAIL_IF(!ckpt, err, FP8_E_NO_MEMORY, "no memory for a checkpoint");
    ckpt->ctx = ctx;
    fp8_status status = open_files(ckpt, path, err);
    if (status == FP8_OK)
        *out = ckpt;
    else
        fp8_checkpoint_close(ckpt);
    return status;
}

void fp8_checkpoint_close(fp8_checkpoint *ckpt)
{
    if (!ckpt)
        return;
    const fp8_context *ctx = ckpt->ctx;
    for (int64_t s = 0; s < ckpt->shard_count; s++) {
        fp8_st_free(ctx, &ckpt->shards[s].header);
        fp8_release(ctx, ckpt->shards[s].path);
    }
    for (int64_t i = 0; i < ckpt->warning_count; i++)
        fp8_release(ctx, ckpt->warnings[i]);
    fp8_release(ctx, ckpt->warnings);
    fp8_release(ctx, ckpt->shards);
    fp8_name_table_free(ctx, &ckpt->names);
    fp8_release(ctx, ckpt->config);
    fp8_release(ctx, ckpt->index_file);
    fp8_release(ctx, ckpt->directory);
    fp8_release(ctx, ckpt);
}

/* ---- tensors ---- */

int64_t fp8_checkpoint_count(const fp8_checkpoint *ckpt)
{
    return ckpt ? ckpt->tensor_count : 0;
}

int64_t fp8_checkpoint_shard(const fp8_checkpoint *ckpt, int64_t i)
{
    int64_t low = 0, high = ckpt->shard_count - 1;
    while (low < high) { /* the last shard that begins at or before i */
        int64_t middle = low + (high - low + 1) / 2;
        if (ckpt->shards[middle].first <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int64_t fp8_checkpoint_index(const fp8_checkpoint *ckpt, const char *name, uint64_t bytes)
{
    return fp8_name_table_find(&ckpt->names, name, bytes);
}

fp8_status fp8_checkpoint_tensor(const fp8_checkpoint *ckpt, int64_t i, fp8_tensor_info *out)
{
    if (!ckpt || !out || i < 0 || i >= ckpt->tensor_count)
        return FP8_E_ARGUMENT;
    const fp8_shard *shard = &ckpt->shards[fp8_checkpoint_shard(ckpt, i)];
    const fp8_st_header *h = &shard->header;
    const fp8_st_entry *e = &h->entries[i - shard->first];
    *out = (fp8_tensor_info){
        .name = h->names + e->name,
        .name_bytes = e->name_bytes,
        .dtype = (fp8_dtype)e->dtype,
        .ndim = e->ndim,
        .shape = h->shapes + e->shape,
        .bytes = e->end - e->begin,
        .file = shard->path,
        .offset = h->data_offset + e->begin,
    };
    return FP8_OK;
}

fp8_status fp8_checkpoint_find(const fp8_checkpoint *ckpt, const char *name, size_t name_bytes,
                               fp8_tensor_info *out)
{
    if (!ckpt || !name || !out)
        return FP8_E_ARGUMENT;
    int64_t i = fp8_checkpoint_index(ckpt, name, name_bytes);
    return i < 0 ? FP8_E_NOT_FOUND : fp8_checkpoint_tensor(ckpt, i, out);
}

static bool ranges_end(const fp8_read_ranges *r, uint64_t *end)
{
    uint64_t last;
    return fp8_size_mul(r->count ? r->count - 1 : 0, r->step, &last) &&
           fp8_size_add(last, r->begin, end) && fp8_size_add(*end, r->bytes, end);
}

/* dst = the ranges of a tensor that begins at byte `data` of the open file. */
static fp8_status read_each(int fd, const fp8_read_ranges *r, uint64_t data, void *dst,
                            const char *file, fp8_error *err)
{
    const uint64_t first = data + r->begin;
    for (uint64_t i = 0; i < r->count; i++)
        FP8_TRY(fp8_pread_all(fd, (char *)dst + i * r->bytes, r->bytes, first + i * r->step, file,
                              err));
    return FP8_OK;
}

fp8_status fp8_checkpoint_read_ranges(const fp8_checkpoint *ckpt, const fp8_tensor_info *info,
                                      const fp8_read_ranges *ranges, void *dst, fp8_error *err)
{
    int64_t i = fp8_checkpoint_index(ckpt, info->name, info->name_bytes);
    FP8_FAIL_IF(i < 0, err, FP8_E_ARGUMENT, "checkpoint read: no tensor '%s'", info->name);
    fp8_tensor_info own;
    FP8_TRY(fp8_checkpoint_tensor(ckpt, i, &own));
    uint64_t end;
    FP8_FAIL_IF(!ranges_end(ranges, &end) || end > own.bytes, err, FP8_E_ARGUMENT,
                "checkpoint read: bytes [%" PRIu64 ", +%" PRIu64 ") lie outside tensor '%s' of "
                "%" PRIu64 " bytes",
                ranges->begin, ranges->bytes, own.name, own.bytes);
    int fd;
    FP8_TRY(fp8_shard_open(&ckpt->shards[fp8_checkpoint_shard(ckpt, i)], &fd, err));
    fp8_status status = read_each(fd, ranges, own.offset, dst, own.file, err);
    close(fd);
    return status;
}

fp8_status fp8_checkpoint_read(const fp8_checkpoint *ckpt, const fp8_tensor_info *info,
                               uint64_t begin, uint64_t bytes, void *dst, fp8_error *err)
{
    FP8_FAIL_IF(!ckpt || !info || (!dst && bytes), err, FP8_E_ARGUMENT,
                "checkpoint read: %s is NULL",
                !ckpt   ? "ckpt"
                : !info ? "info"
                        : "dst");
    const fp8_read_ranges one = {begin, bytes, 0, 1};
    return fp8_checkpoint_read_ranges(ckpt, info, &one, dst, err);
}
