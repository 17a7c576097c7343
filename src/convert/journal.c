/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.c - records, their checks, and the fingerprint. */
#define _GNU_SOURCE
#include "convert/journal.h"
#include "ckpt/file.h"
#include "convert/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { FORMAT_VERSION = 1 };

_Static_assert(sizeof(fp8_record) == 64, "a record has 64 bytes, none of them padding");

static uint64_t check_of(const fp8_record *record)
{
    return XXH3_64bits(record, offsetof(fp8_record, check));
}

/* "partial/kind.3", from fp8_alloc. */
static char *part_path(const fp8_convert *conv, const char *kind, int32_t part)
{
    char file[64];
    snprintf(file, sizeof file, "%s.%d", kind, part + 1);
    return fp8_join_path(conv->ctx, conv->partial, file);
}

/* ---- reading ---- */

static bool begins(int directory, const char *name)
{
    fp8_record record;
    const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool whole = fd >= 0 && read(fd, &record, sizeof record) == sizeof record;
    if (fd >= 0)
        close(fd);
    return whole && record.kind == FP8_RECORD_BEGIN && record.check == check_of(&record);
}

static bool is_locked(int directory, const char *name)
{
    const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return locked;
}

/* Whether `holds` is true of a journal in a folder. */
static bool any_journal(const char *directory, bool (*holds)(int directory, const char *name))
{
    static const char head[] = "journal.";
    DIR *dir = opendir(directory);
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        found = !strncmp(entry->d_name, head, sizeof head - 1) && holds(dirfd(dir), entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

bool fp8_journal_is_in(const char *directory)
{
    return any_journal(directory, begins);
}

fp8_status fp8_journal_check_free(const char *directory, fp8_error *err)
{
    FP8_FAIL_IF(any_journal(directory, is_locked), err, FP8_E_STATE,
                "%s: another process is at work on it", directory);
    return FP8_OK;
}

static fp8_status check_begin(const fp8_convert *conv, int32_t part, const fp8_journal *journal,
                              const fp8_record *record, fp8_error *err)
{
    int32_t count = conv->desc.part_count > 0 ? conv->desc.part_count : 1;
    bool fits = record->kind == FP8_RECORD_BEGIN && record->a == conv->fingerprint[0] &&
                record->b == conv->fingerprint[1] && record->c == (uint64_t)part &&
                record->d == (uint64_t)count;
    FP8_FAIL_IF(!fits, err, FP8_E_MISMATCH,
                "%s: begun with other options, another source or another version: remove %s to "
                "start over",
                journal->path, conv->partial);
    return FP8_OK;
}

static fp8_status take_record(fp8_journal *journal, const fp8_record *record, fp8_record_fn fn,
                              void *user, fp8_error *err)
{
    switch (record->kind) {
    case FP8_RECORD_SCANNED:
        journal->scanned = true;
        break;
    case FP8_RECORD_PART:
        journal->part_done = true;
        break;
    case FP8_RECORD_PUBLISH:
        journal->publishing = true;
        journal->device = record->a;
        journal->inode = record->b;
        break;
    default:
        return fn && record->kind != FP8_RECORD_BEGIN ? fn(user, record, err) : FP8_OK;
    }
    return FP8_OK;
}

/* Reads whole records up to the first that does not fit. */
static fp8_status read_records(fp8_convert *conv, int32_t part, fp8_journal *journal,
                               fp8_record_fn fn, void *user, fp8_error *err)
{
    struct stat info;
    if (fstat(journal->fd, &info))
        return fp8_fail_os(err, errno, "cannot read %s", journal->path);
    uint64_t whole = (uint64_t)info.st_size / sizeof(fp8_record);
    for (uint64_t i = 0; i < whole; i++) {
        fp8_record record;
        FP8_TRY(fp8_pread_all(journal->fd, &record, sizeof record, i * sizeof record, journal->path,
                              err));
        if (record.check != check_of(&record))
            break;
        if (i == 0)
            FP8_TRY(check_begin(conv, part, journal, &record, err));
        FP8_TRY(take_record(journal, &record, fn, user, err));
        journal->bytes += sizeof record;
    }
    return FP8_OK;
}

/* ---- opening ---- */

static fp8_status lock_journal(fp8_journal *journal, fp8_error *err)
{
    int code = flock(journal->fd, LOCK_EX | LOCK_NB);
    FP8_FAIL_IF(code && errno == EWOULDBLOCK, err, FP8_E_STATE,
                "%s: another process is at work on it", journal->path);
    return FP8_OK; /* a file system without locks is no reason to refuse */
}

static fp8_status open_stats(fp8_convert *conv, int32_t part, bool writes, fp8_journal *journal,
                             fp8_error *err)
{
    if (!conv->report)
        return FP8_OK;
    char *path = part_path(conv, "stats", part);
    FP8_FAIL_IF(!path, err, FP8_E_NO_MEMORY, "no memory for a path");
    fp8_status status = FP8_OK;
    if (writes)
        status = fp8_open_output(path, 0, &journal->stats_fd, err);
    else if ((journal->stats_fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        status = fp8_fail_os(err, errno, "cannot read %s", path);
    fp8_release(conv->ctx, path);
    return status;
}

static fp8_status begin_journal(fp8_convert *conv, int32_t part, fp8_journal *journal,
                                fp8_error *err)
{
    int32_t count = conv->desc.part_count > 0 ? conv->desc.part_count : 1;
    fp8_record record = {.kind = FP8_RECORD_BEGIN,
                         .a = conv->fingerprint[0],
                         .b = conv->fingerprint[1],
                         .c = (uint64_t)part,
                         .d = (uint64_t)count};
    FP8_TRY(fp8_journal_append(journal, &record, 1, err));
    return fp8_sync_directory(conv->partial, err);
}

static fp8_status open_journal(fp8_convert *conv, int32_t part, bool create, fp8_journal *out,
                               fp8_record_fn fn, void *user, fp8_error *err)
{
    if (create)
        FP8_TRY(fp8_open_output(out->path, 0, &out->fd, err));
    else if ((out->fd = open(out->path, O_RDWR | O_CLOEXEC)) < 0)
        return fp8_fail_os(err, errno, "cannot open %s", out->path);
    FP8_TRY(lock_journal(out, err));
    FP8_TRY(read_records(conv, part, out, fn, user, err));
    if (ftruncate(out->fd, (off_t)out->bytes))
        return fp8_fail_os(err, errno, "cannot cut %s", out->path);
    if (!out->bytes)
        FP8_TRY(begin_journal(conv, part, out, err));
    return open_stats(conv, part, true, out, err);
}

fp8_status fp8_journal_open(fp8_convert *conv, int32_t part, bool create, fp8_journal *out,
                            fp8_record_fn fn, void *user, fp8_error *err)
{
    *out = (fp8_journal){.fd = -1, .stats_fd = -1, .path = part_path(conv, "journal", part)};
    FP8_FAIL_IF(!out->path, err, FP8_E_NO_MEMORY, "no memory for a path");
    fp8_status status = open_journal(conv, part, create, out, fn, user, err);
    if (status != FP8_OK)
        fp8_journal_close(conv->ctx, out);
    return status;
}

fp8_status fp8_journal_read(fp8_convert *conv, int32_t part, fp8_journal *out, fp8_error *err)
{
    *out = (fp8_journal){.fd = -1, .stats_fd = -1, .path = part_path(conv, "journal", part)};
    FP8_FAIL_IF(!out->path, err, FP8_E_NO_MEMORY, "no memory for a path");
    fp8_status status = FP8_OK;
    out->fd = open(out->path, O_RDONLY | O_CLOEXEC);
    if (out->fd < 0)
        status = fp8_fail_os(err, errno, "cannot open %s", out->path);
    if (status == FP8_OK)
        status = read_records(conv, part, out, NULL, NULL, err);
    if (status == FP8_OK)
        status = open_stats(conv, part, false, out, err);
    if (status != FP8_OK)
        fp8_journal_close(conv->ctx, out);
    return status;
}

void fp8_journal_close(const fp8_context *ctx, fp8_journal *journal)
{
    if (journal->fd >= 0)
        close(journal->fd);
    if (journal->stats_fd >= 0)
        close(journal->stats_fd);
    fp8_release(ctx, journal->path);
    *journal = (fp8_journal){.fd = -1, .stats_fd = -1};
}

/* ---- writing ---- */

fp8_status fp8_journal_append(fp8_journal *journal, fp8_record *records, int64_t n, fp8_error *err)
{
    if (!n)
        return FP8_OK;
    uint64_t bytes = (uint64_t)n * sizeof *records;
    for (int64_t i = 0; i < n; i++)
        records[i].check = check_of(&records[i]);
    FP8_TRY(fp8_pwrite_all(journal->fd, records, bytes, journal->bytes, journal->path, err));
    FP8_TRY(fp8_sync_file(journal->fd, journal->path, err));
    journal->bytes += bytes;
    return FP8_OK;
}

fp8_status fp8_journal_put_stats(fp8_journal *journal, int64_t item, const fp8_tensor_stats *stats,
                                 fp8_error *err)
{
    return fp8_pwrite_all(journal->stats_fd, stats, sizeof *stats, (uint64_t)item * sizeof *stats,
                          "the statistics", err);
}

fp8_status fp8_journal_sync_stats(fp8_journal *journal, fp8_error *err)
{
    return journal->stats_fd < 0 ? FP8_OK : fp8_sync_file(journal->stats_fd, "the statistics", err);
}

fp8_status fp8_journal_get_stats(const fp8_journal *journal, int64_t item, fp8_tensor_stats *out,
                                 fp8_error *err)
{
    return fp8_pread_all(journal->stats_fd, out, sizeof *out, (uint64_t)item * sizeof *out,
                         "the statistics", err);
}

/* ---- fingerprint ---- */

static void add_text(XXH3_state_t *state, const char *text)
{
    if (text)
        XXH3_128bits_update(state, text, strlen(text) + 1);
    XXH3_128bits_update(state, text ? "+" : "-", 1); /* NULL and "" differ */
}

static void add_number(XXH3_state_t *state, uint64_t number)
{
    XXH3_128bits_update(state, &number, sizeof number);
}

static void add_options(XXH3_state_t *state, const fp8_convert *conv)
{
    const fp8_convert_desc *d = &conv->desc;
    add_number(state, FORMAT_VERSION);
    add_text(state, fp8_version());
    add_number(state, (uint64_t)d->verb);
    add_text(state, d->scheme);
    add_text(state, conv->engine);
    add_number(state, (uint64_t)conv->rule);
    add_number(state, (uint64_t)d->dtype);
    add_number(state, d->keep_nan != 0);
    add_number(state, d->max_shard_bytes);
    add_number(state, (uint64_t)d->part_count);
    add_number(state, d->report != NULL);
    add_number(state, (uint64_t)conv->pattern_count);
    for (int64_t i = 0; i < conv->pattern_count; i++)
        add_text(state, conv->patterns[i].reason);
    add_number(state, fp8_activation_hash(conv->activation));
}

/* Size and time of each shard: data that was rewritten in place has another time. */
static void add_shard(XXH3_state_t *state, const fp8_shard *shard)
{
    add_text(state, shard->file);
    add_number(state, shard->bytes);
    add_number(state, (uint64_t)shard->identity.st_mtim.tv_sec);
    add_number(state, (uint64_t)shard->identity.st_mtim.tv_nsec);
}

static void add_tensor(XXH3_state_t *state, const fp8_convert *conv, int64_t i)
{
    fp8_tensor_info info = fp8_item_info(conv, i);
    add_number(state, info.name_bytes);
    XXH3_128bits_update(state, info.name, info.name_bytes);
    add_number(state, (uint64_t)info.dtype);
    add_number(state, (uint64_t)info.ndim);
    XXH3_128bits_update(state, info.shape, (size_t)info.ndim * sizeof *info.shape);
    add_number(state, info.offset);
}

fp8_status fp8_fingerprint(fp8_convert *conv, fp8_error *err)
{
    XXH3_state_t *state = XXH3_createState();
    FP8_FAIL_IF(!state, err, FP8_E_NO_MEMORY, "no memory for a fingerprint");
    XXH3_128bits_reset(state);
    add_options(state, conv);
    add_text(state, conv->ckpt->config);
    for (int64_t s = 0; s < conv->ckpt->shard_count; s++)
        add_shard(state, &conv->ckpt->shards[s]);
    for (int64_t i = 0; i < conv->count; i++)
        add_tensor(state, conv, i);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    conv->fingerprint[0] = hash.low64;
    conv->fingerprint[1] = hash.high64;
    XXH3_freeState(state);
    return FP8_OK;
}
