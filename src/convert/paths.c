/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c - the checks before anything is written. */
#define _GNU_SOURCE
#include "convert/paths.h"
#include "ckpt/file.h"
#include "convert/journal.h"
#include "convert/seal.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

bool fp8_path_exists(const char *path)
{
    struct stat info;
    return !lstat(path, &info);
}

/* realpath into memory of the context. */
static fp8_status resolve(const fp8_context *ctx, const char *path, char **out, fp8_error *err)
{
    char real[PATH_MAX];
    *out = NULL;
    if (!realpath(path, real))
        return fp8_fail_os(err, errno, "cannot resolve %s", path);
    *out = fp8_copy_text(ctx, real, strlen(real));
    FP8_FAIL_IF(!*out, err, FP8_E_NO_MEMORY, "no memory for a path");
    return FP8_OK;
}

/* `inner` is `outer` or lies in it; both absolute and resolved. */
static bool is_inside(const char *inner, const char *outer)
{
    size_t n = strlen(outer);
    if (!strcmp(outer, "/"))
        return true;
    return !strncmp(inner, outer, n) && (inner[n] == '/' || inner[n] == 0);
}

/* Splits dst into the folder that is to hold it, resolved, and its name. */
static fp8_status settle_dst(fp8_convert *conv, fp8_error *err)
{
    const fp8_context *ctx = conv->ctx;
    const char *dst = conv->desc.dst;
    size_t n = strlen(dst);
    while (n > 1 && dst[n - 1] == '/')
        n--;
    size_t begin = n;
    while (begin && dst[begin - 1] != '/')
        begin--;
    const char *name = dst + begin;
    size_t name_bytes = n - begin;
    bool dots = (name_bytes == 1 && name[0] == '.') ||
                (name_bytes == 2 && name[0] == '.' && name[1] == '.');
    FP8_FAIL_IF(!name_bytes || dots || name[0] == '/', err, FP8_E_ARGUMENT,
                "%s: not the name of a new folder", dst);
    char *head = fp8_copy_text(ctx, begin ? dst : ".", begin ? begin : 1);
    char *tail = fp8_copy_text(ctx, name, name_bytes);
    char *parent = NULL;
    fp8_status status;
    if (head && tail)
        status = resolve(ctx, head, &parent, err);
    else
        status = fp8_fail(err, FP8_E_NO_MEMORY, "no memory for a path");
    if (status == FP8_E_NOT_FOUND)
        status = fp8_fail(err, FP8_E_IO, "%s: the folder that shall hold it does not exist", dst);
    if (status == FP8_OK && access(parent, W_OK | X_OK))
        status = fp8_fail_os(err, errno, "%s: cannot write in %s", dst, parent);
    if (status == FP8_OK)
        conv->dst = fp8_join_path(ctx, strcmp(parent, "/") ? parent : "", tail);
    fp8_release(ctx, head);
    fp8_release(ctx, tail);
    fp8_release(ctx, parent);
    FP8_TRY(status);
    FP8_FAIL_IF(!conv->dst, err, FP8_E_NO_MEMORY, "no memory for a path");
    return FP8_OK;
}

static fp8_status settle_partial(fp8_convert *conv, fp8_error *err)
{
    static const char tail[] = ".partial";
    size_t n = strlen(conv->dst);
    conv->partial = fp8_alloc(conv->ctx, n + sizeof tail);
    FP8_FAIL_IF(!conv->partial, err, FP8_E_NO_MEMORY, "no memory for a path");
    memcpy(conv->partial, conv->dst, n);
    memcpy(conv->partial + n, tail, sizeof tail);
    conv->files = fp8_join_path(conv->ctx, conv->partial, "files");
    FP8_FAIL_IF(!conv->files, err, FP8_E_NO_MEMORY, "no memory for a path");
    return FP8_OK;
}

static fp8_status check_nesting(const fp8_convert *conv, const char *source, fp8_error *err)
{
    bool folder = !conv->ckpt->single_file;
    FP8_FAIL_IF(folder && is_inside(conv->dst, source), err, FP8_E_ARGUMENT,
                "%s lies inside the source %s", conv->dst, source);
    FP8_FAIL_IF(is_inside(source, conv->dst), err, FP8_E_ARGUMENT, "the source %s lies inside %s",
                source, conv->dst);
    FP8_FAIL_IF(is_inside(source, conv->partial), err, FP8_E_ARGUMENT,
                "the source %s lies inside %s", source, conv->partial);
    return FP8_OK;
}

fp8_status fp8_paths_check_partial(const fp8_convert *conv, fp8_error *err)
{
    FP8_TRY(fp8_journal_check_free(conv->partial, err));
    FP8_FAIL_IF(!conv->desc.force, err, FP8_E_EXISTS,
                "%s is left of an earlier run: --resume to go on with it, --force to start over",
                conv->partial);
    return FP8_OK;
}

static fp8_status check_existing(const fp8_convert *conv, fp8_error *err)
{
    const fp8_convert_desc *d = &conv->desc;
    struct stat info;
    bool partial = fp8_path_exists(conv->partial);
    if (!lstat(conv->dst, &info)) {
        FP8_FAIL_IF(!d->force && !d->resume, err, FP8_E_EXISTS,
                    "%s exists: give another name, or --force to replace it", conv->dst);
        FP8_FAIL_IF(!S_ISDIR(info.st_mode), err, FP8_E_EXISTS,
                    "%s exists and is no folder; it will not be replaced", conv->dst);
    }
    return partial && !d->resume && d->part_count <= 1 ? fp8_paths_check_partial(conv, err)
                                                       : FP8_OK;
}

/* The report is written last, after what may be hours: its folder must take it. */
static fp8_status check_report(const fp8_convert *conv, fp8_error *err)
{
    if (!conv->report)
        return FP8_OK;
    const char *slash = strrchr(conv->report, '/');
    uint64_t n = slash ? (uint64_t)(slash - conv->report) + 1 : 1;
    char *folder = fp8_copy_text(conv->ctx, slash ? conv->report : ".", n);
    FP8_FAIL_IF(!folder, err, FP8_E_NO_MEMORY, "no memory for a path");
    struct stat info;
    int code = access(folder, W_OK | X_OK) ? errno : 0;
    if (!code && !stat(conv->report, &info))
        code = S_ISDIR(info.st_mode) ? EISDIR : 0;
    if (!code && !access(conv->report, F_OK) && access(conv->report, W_OK))
        code = errno;
    fp8_release(conv->ctx, folder);
    FP8_FAIL_IF(code == ENOENT, err, FP8_E_IO,
                "report: %s: the folder that shall hold it does not exist", conv->report);
    return code ? fp8_fail_os(err, code, "report: cannot write %s", conv->report) : FP8_OK;
}

fp8_status fp8_paths_settle(fp8_convert *conv, fp8_error *err)
{
    FP8_TRY(settle_dst(conv, err));
    FP8_TRY(settle_partial(conv, err));
    char *source;
    const char *path = conv->ckpt->single_file ? conv->ckpt->shards[0].path : conv->ckpt->directory;
    FP8_TRY(resolve(conv->ctx, path, &source, err));
    fp8_status status = check_nesting(conv, source, err);
    fp8_release(conv->ctx, source);
    FP8_TRY(status);
    FP8_TRY(check_report(conv, err));
    return check_existing(conv, err);
}

bool fp8_paths_complete(const fp8_convert *conv)
{
    return conv->desc.resume && !fp8_path_exists(conv->partial) && fp8_seal_fits(conv);
}

fp8_status fp8_paths_check_resumed(const fp8_convert *conv, fp8_error *err)
{
    const fp8_convert_desc *d = &conv->desc;
    bool alone = !fp8_path_exists(conv->partial) && fp8_path_exists(conv->dst);
    FP8_FAIL_IF(d->resume && !d->force && alone && !fp8_seal_fits(conv), err, FP8_E_EXISTS,
                "%s exists, and is not known to be the unaltered output of this source and these "
                "options: give another name, or --force to replace it",
                conv->dst);
    return FP8_OK;
}

/* ---- space ---- */

fp8_status fp8_paths_free_bytes(const fp8_convert *conv, uint64_t *out, fp8_error *err)
{
    struct statvfs fs;
    const char *slash = strrchr(conv->dst, '/');
    char *parent =
        fp8_copy_text(conv->ctx, conv->dst, slash > conv->dst ? (uint64_t)(slash - conv->dst) : 1);
    FP8_FAIL_IF(!parent, err, FP8_E_NO_MEMORY, "no memory for a path");
    int code = statvfs(parent, &fs) ? errno : 0;
    fp8_release(conv->ctx, parent);
    if (code)
        return fp8_fail_os(err, code, "%s: cannot tell the free space", conv->dst);
    *out = (uint64_t)fs.f_bavail * fs.f_frsize;
    return FP8_OK;
}

/* Bytes that one output file of DST.partial occupies already. */
static uint64_t occupied(const fp8_convert *conv, const char *file)
{
    struct stat info;
    char *path = fp8_join_path(conv->ctx, conv->files, file);
    bool there = path && !stat(path, &info);
    fp8_release(conv->ctx, path);
    return there ? (uint64_t)info.st_blocks * 512 : 0;
}

fp8_status fp8_paths_check_space(const fp8_convert *conv, int32_t part, fp8_error *err)
{
    uint64_t available, needed;
    needed = conv->layout.index_bytes + conv->config_bytes + conv->carried_bytes;
    FP8_TRY(fp8_paths_free_bytes(conv, &available, err));
    for (int64_t s = 0; s < conv->layout.shard_count; s++) {
        const fp8_out_shard *shard = &conv->layout.shards[s];
        if (shard->part != part)
            continue;
        uint64_t there = occupied(conv, shard->file), bytes = shard->head_bytes + shard->data_bytes;
        needed += bytes > there ? bytes - there : 0;
    }
    FP8_FAIL_IF(needed > available, err, FP8_E_NO_SPACE,
                "%s needs %llu bytes, and the disk has %llu free", conv->dst,
                (unsigned long long)needed, (unsigned long long)available);
    return FP8_OK;
}
