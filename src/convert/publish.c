/* SPDX-License-Identifier: Apache-2.0
 *
 * publish.c - how a conversion begins and ends on disk:
 *
 *     DST.partial/ made, files/ in it, both names synced
 *     .. shards, journals ..
 *     index, config, carried files written and synced; report
 *     files/ sealed (seal.h); PUBLISH record (inode of files/) synced
 *     files/ renamed to DST, or exchanged with the old DST
 *     directory of DST synced; DST.partial removed, the journal that has PUBLISH last
 *
 * A crash between any two steps leaves a state in which the next run knows what is left to do: DST
 * is new if and only if its inode is the one recorded; once no record is left, if its seal fits. */
#define _GNU_SOURCE
#include "ckpt/file.h"
#include "convert/carry.h"
#include "convert/durable.h"
#include "convert/paths.h"
#include "convert/run.h"
#include "convert/seal.h"
#include "convert/sheet.h"
#include "convert/stats.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int32_t part_count(const fp8_convert *conv)
{
    return conv->desc.part_count > 0 ? conv->desc.part_count : 1;
}

/* ---- removing ---- */

static fp8_status remove_in_partial(const fp8_convert *conv, const char *name, fp8_error *err)
{
    char *path = fp8_join_path(conv->ctx, conv->partial, name);
    FP8_FAIL_IF(!path, err, FP8_E_NO_MEMORY, "no memory for a path");
    fp8_status status = fp8_remove_tree(path, err);
    fp8_release(conv->ctx, path);
    return status;
}

static fp8_status remove_of_part(const fp8_convert *conv, const char *kind, int32_t part,
                                 fp8_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d", kind, part + 1);
    return remove_in_partial(conv, name, err);
}

/* Removes DST.partial; the journal of `last` goes last, because it knows what has happened. */
static fp8_status remove_partial(const fp8_convert *conv, int32_t last, fp8_error *err)
{
    FP8_TRY(remove_in_partial(conv, "files", err));
    FP8_TRY(remove_in_partial(conv, "old", err));
    FP8_TRY(remove_in_partial(conv, "lock", err));
    for (int32_t p = 0; p < part_count(conv); p++) {
        FP8_TRY(remove_of_part(conv, "stats", p, err));
        if (p != last)
            FP8_TRY(remove_of_part(conv, "journal", p, err));
    }
    FP8_TRY(remove_of_part(conv, "journal", last, err));
    return fp8_remove_tree(conv->partial, err);
}

void fp8_partial_discard(const fp8_run *run)
{
    const fp8_convert *conv = run->conv;
    if (run->parts == 1) {
        (void)remove_partial(conv, 0, NULL);
        return;
    }
    for (int64_t s = 0; s < conv->layout.shard_count; s++) {
        char *path = fp8_join_path(conv->ctx, conv->files, conv->layout.shards[s].file);
        if (path && conv->layout.shards[s].part == run->part)
            (void)fp8_remove_tree(path, NULL);
        fp8_release(conv->ctx, path);
    }
    (void)remove_of_part(conv, "stats", run->part, NULL);
    (void)remove_of_part(conv, "journal", run->part, NULL);
    (void)rmdir(conv->files); /* fail while another part has something in them */
    (void)rmdir(conv->partial);
}

/* ---- beginning ---- */

static bool is_file(const char *path, uint64_t device, uint64_t inode)
{
    struct stat info;
    return !stat(path, &info) && (uint64_t)info.st_dev == device && (uint64_t)info.st_ino == inode;
}

/* Finds the journal that says that DST is the output, if it is. */
static fp8_status find_published(fp8_convert *conv, int32_t *part, int32_t *journals,
                                 fp8_error *err)
{
    *part = -1;
    *journals = 0;
    for (int32_t p = 0; p < part_count(conv); p++) {
        fp8_journal journal;
        fp8_status status = fp8_journal_read(conv, p, &journal, err);
        if (status == FP8_E_NOT_FOUND)
            continue;
        FP8_TRY(status);
        ++*journals;
        if (journal.publishing && is_file(conv->dst, journal.device, journal.inode))
            *part = p;
        fp8_journal_close(conv->ctx, &journal);
    }
    return FP8_OK;
}

/* An earlier run may have ended between its rename and its last removal. */
static fp8_status finish_earlier(fp8_convert *conv, bool *published, fp8_error *err)
{
    int32_t part, journals;
    FP8_TRY(find_published(conv, &part, &journals, err));
    /* without --force DST can only be there because the output was: its journal is gone already */
    bool cleaning =
        !journals && (conv->desc.force ? fp8_seal_fits(conv) : fp8_path_exists(conv->dst));
    *published = part >= 0 || cleaning;
    return *published ? remove_partial(conv, part >= 0 ? part : 0, err) : FP8_OK;
}

/* Another part began it, with the same options. */
static fp8_status check_companions(fp8_convert *conv, fp8_error *err)
{
    int32_t part, journals;
    FP8_TRY(find_published(conv, &part, &journals, err));
    char name[64];
    snprintf(name, sizeof name, "journal.%d", conv->desc.part_index);
    char *own = fp8_join_path(conv->ctx, conv->partial, name);
    FP8_FAIL_IF(!own, err, FP8_E_NO_MEMORY, "no memory for a path");
    bool there = fp8_path_exists(own);
    fp8_release(conv->ctx, own);
    FP8_FAIL_IF(there, err, FP8_E_EXISTS,
                "%s: part %d was begun earlier: --resume to go on with it", conv->partial,
                conv->desc.part_index);
    return FP8_OK;
}

fp8_status fp8_partial_open(fp8_convert *conv, bool *published, fp8_error *err)
{
    const fp8_convert_desc *d = &conv->desc;
    *published = false;
    if (fp8_path_exists(conv->partial)) {
        if (d->resume)
            FP8_TRY(finish_earlier(conv, published, err));
        else if (d->part_count > 1)
            FP8_TRY(check_companions(conv, err));
        else {
            FP8_TRY(fp8_paths_check_partial(conv, err));
            FP8_TRY(fp8_remove_tree(conv->partial, err));
        }
    }
    if (*published)
        return FP8_OK;
    FP8_TRY(fp8_make_directory(conv->partial, err));
    FP8_TRY(fp8_make_directory(conv->files, err));
    FP8_TRY(fp8_sync_directory(conv->partial, err));
    return fp8_sync_parent(conv->ctx, conv->partial, err);
}

/* ---- ending ---- */

fp8_status fp8_parts_done(fp8_convert *conv, bool *all, fp8_error *err)
{
    *all = true;
    for (int32_t p = 0; p < part_count(conv) && *all; p++) {
        fp8_journal journal;
        fp8_status status = fp8_journal_read(conv, p, &journal, err);
        if (status == FP8_OK) {
            *all = journal.part_done;
            fp8_journal_close(conv->ctx, &journal);
        } else if (status == FP8_E_NOT_FOUND)
            *all = false;
        else
            return status;
    }
    FP8_FAIL_IF(!*all && part_count(conv) == 1, err, FP8_E_IO,
                "%s was removed or replaced while it was worked on", conv->partial);
    return FP8_OK;
}

static fp8_status put_index(const void *conv, fp8_text *out, fp8_error *err)
{
    return fp8_sheet_index(conv, out, err);
}

static fp8_status write_index(const fp8_convert *conv, fp8_error *err)
{
    const char *file = conv->layout.index_file;
    return file ? fp8_write_file(conv->ctx, conv->files, file, put_index, conv, err) : FP8_OK;
}

static fp8_status write_report(fp8_convert *conv, fp8_error *err)
{
    if (!conv->report)
        return FP8_OK;
    int32_t parts = part_count(conv), opened = 0;
    fp8_journal *journals = fp8_alloc_zeroed(conv->ctx, (uint64_t)parts, sizeof *journals);
    FP8_FAIL_IF(!journals, err, FP8_E_NO_MEMORY, "no memory for %d journals", parts);
    fp8_status status = FP8_OK;
    while (status == FP8_OK && opened < parts) {
        status = fp8_journal_read(conv, opened, &journals[opened], err);
        opened += status == FP8_OK;
    }
    conv->journals = journals;
    if (status == FP8_OK)
        status = fp8_report_write(conv->ctx, conv, conv->report, err);
    conv->journals = NULL;
    for (int32_t p = 0; p < opened; p++)
        fp8_journal_close(conv->ctx, &journals[p]);
    fp8_release(conv->ctx, journals);
    return status;
}

fp8_status fp8_convert_stats(const fp8_convert *conv, int64_t i, fp8_tensor_stats *out,
                             bool *measured, fp8_error *err)
{
    FP8_FAIL_IF(!conv->journals, err, FP8_E_STATE, "no statistics outside of a report");
    FP8_FAIL_IF(i < 0 || i >= conv->count, err, FP8_E_ARGUMENT, "row %lld of %lld", (long long)i,
                (long long)conv->count);
    const fp8_item *it = &conv->items[i];
    *measured = fp8_item_encodes(it);
    *out = (fp8_tensor_stats){0};
    if (!*measured)
        return FP8_OK;
    int32_t part = conv->layout.shards[it->shard].part;
    return fp8_journal_get_stats(&conv->journals[part], i, out, err);
}

static fp8_status record_publish(fp8_run *run, fp8_error *err)
{
    struct stat info;
    if (stat(run->conv->files, &info))
        return fp8_fail_os(err, errno, "cannot read %s", run->conv->files);
    fp8_record record = {
        .kind = FP8_RECORD_PUBLISH, .a = (uint64_t)info.st_dev, .b = (uint64_t)info.st_ino};
    return fp8_journal_append(&run->journal, &record, 1, err);
}

static fp8_status fail_rename(const fp8_convert *conv, fp8_error *err)
{
    int code = errno;
    FP8_FAIL_IF(code == EEXIST || code == ENOTEMPTY, err, FP8_E_EXISTS,
                "%s has come into being meanwhile; the result stays in %s", conv->dst, conv->files);
    return fp8_fail_os(err, code, "cannot rename %s to %s", conv->files, conv->dst);
}

/* The old DST goes aside first where the file system cannot exchange two names. */
static fp8_status replace_dst(fp8_convert *conv, fp8_error *err)
{
    if (!renameat2(AT_FDCWD, conv->files, AT_FDCWD, conv->dst, RENAME_EXCHANGE))
        return FP8_OK;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return fail_rename(conv, err);
    char *old = fp8_join_path(conv->ctx, conv->partial, "old");
    FP8_FAIL_IF(!old, err, FP8_E_NO_MEMORY, "no memory for a path");
    bool moved = !rename(conv->dst, old) && !rename(conv->files, conv->dst);
    fp8_release(conv->ctx, old);
    return moved ? FP8_OK : fail_rename(conv, err);
}

static fp8_status rename_to_dst(fp8_convert *conv, fp8_error *err)
{
    if (conv->desc.force && fp8_path_exists(conv->dst))
        return replace_dst(conv, err);
    if (!renameat2(AT_FDCWD, conv->files, AT_FDCWD, conv->dst, RENAME_NOREPLACE))
        return FP8_OK;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
        return fail_rename(conv, err);
    return rename(conv->files, conv->dst) ? fail_rename(conv, err) : FP8_OK;
}

static fp8_status finish_files(fp8_convert *conv, fp8_error *err)
{
    FP8_TRY(fp8_carry_copy(conv, err));
    FP8_TRY(write_index(conv, err));
    FP8_TRY(fp8_describe_output(conv, err));
    fp8_seal_put(conv);
    FP8_TRY(fp8_sync_directory(conv->files, err));
    return write_report(conv, err);
}

static fp8_status publish_locked(fp8_run *run, fp8_error *err)
{
    fp8_convert *conv = run->conv;
    bool all;
    FP8_TRY(fp8_parts_done(conv, &all, err));
    if (!all) /* another part was quicker and has removed the journals */
        return FP8_OK;
    FP8_TRY(finish_files(conv, err));
    FP8_TRY(record_publish(run, err));
    FP8_TRY(rename_to_dst(conv, err));
    FP8_TRY(fp8_sync_parent(conv->ctx, conv->dst, err));
    return remove_partial(conv, run->part, err);
}

fp8_status fp8_publish(fp8_run *run, fp8_error *err)
{
    const fp8_convert *conv = run->conv;
    int fd;
    char *path = fp8_join_path(conv->ctx, conv->partial, "lock");
    FP8_FAIL_IF(!path, err, FP8_E_NO_MEMORY, "no memory for a path");
    fp8_status status = fp8_open_output(path, 0, &fd, err);
    fp8_release(conv->ctx, path);
    if (status != FP8_OK) /* gone with DST.partial: another part was quicker */
        return run->parts > 1 && !fp8_path_exists(conv->partial) ? FP8_OK : status;
    (void)flock(fd, LOCK_EX);
    status = publish_locked(run, err);
    close(fd);
    return status;
}
