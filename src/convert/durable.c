/* SPDX-License-Identifier: Apache-2.0
 *
 * durable.c - writing, syncing, making and removing. */
#define _GNU_SOURCE
#include "convert/durable.h"
#include "ckpt/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MODE = 0666, DIRECTORY_MODE = 0777, TREE_FDS = 16 };
enum { LEAST_KERNEL_COPY = 4096 }; /* fewer bytes are faster through memory */

/* A file that we write to or make is never merely "not found": the place is unusable. */
static fp8_status fail_write(fp8_error *err, int os_errno, const char *verb, const char *path)
{
    fp8_status status = fp8_fail_os(err, os_errno, "cannot %s %s", verb, path);
    if (status != FP8_E_NOT_FOUND)
        return status;
    if (err)
        err->code = FP8_E_IO;
    return FP8_E_IO;
}

fp8_status fp8_pwrite_all(int fd, const void *src, uint64_t bytes, uint64_t offset,
                          const char *path, fp8_error *err)
{
    const char *from = src;
    while (bytes) {
        ssize_t n = pwrite(fd, from, bytes < 1u << 30 ? bytes : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_write(err, n < 0 ? errno : EIO, "write", path);
        from += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return FP8_OK;
}

/* The kernel or the file system cannot copy between these two files: no error of the disk. */
static bool cannot_copy(int code)
{
    return code == EXDEV || code == EINVAL || code == ENOSYS || code == EOPNOTSUPP ||
           code == EPERM || code == EBADF || code == ETXTBSY;
}

fp8_status fp8_copy_bytes(const fp8_copy *copy, char *buffer, uint64_t room, fp8_error *err)
{
    uint64_t done = 0;
    bool by_kernel = copy->bytes >= LEAST_KERNEL_COPY;
    while (done < copy->bytes) {
        off_t from = (off_t)(copy->from_offset + done), to = (off_t)(copy->to_offset + done);
        uint64_t left = copy->bytes - done;
        if (by_kernel) {
            ssize_t n = copy_file_range(copy->from, &from, copy->to, &to, left, 0);
            if (n > 0)
                done += (uint64_t)n;
            else if (n < 0 && !cannot_copy(errno) && errno != EINTR)
                return fail_write(err, errno, "copy to", copy->to_path);
            else
                by_kernel = n < 0 && errno == EINTR; /* 0: let pread say what the end means */
            continue;
        }
        uint64_t n = left < room ? left : room;
        FP8_TRY(fp8_pread_all(copy->from, buffer, n, (uint64_t)from, copy->from_path, err));
        FP8_TRY(fp8_pwrite_all(copy->to, buffer, n, (uint64_t)to, copy->to_path, err));
        done += n;
    }
    return FP8_OK;
}

fp8_status fp8_open_output(const char *path, int flags, int *fd, fp8_error *err)
{
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, FILE_MODE);
    return *fd < 0 ? fail_write(err, errno, "create", path) : FP8_OK;
}

fp8_status fp8_sync_file(int fd, const char *path, fp8_error *err)
{
    return fdatasync(fd) ? fail_write(err, errno, "sync", path) : FP8_OK;
}

fp8_status fp8_sync_directory(const char *path, fp8_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_write(err, errno, "open", path);
    /* EINVAL: a file system that cannot sync directories */
    int code = fsync(fd) && errno != EINVAL ? errno : 0;
    close(fd);
    return code ? fail_write(err, code, "sync", path) : FP8_OK;
}

fp8_status fp8_sync_parent(const fp8_context *ctx, const char *path, fp8_error *err)
{
    const char *slash = strrchr(path, '/');
    char *parent = fp8_copy_text(ctx, path, slash > path ? (uint64_t)(slash - path) : 1);
    FP8_FAIL_IF(!parent, err, FP8_E_NO_MEMORY, "no memory for a path");
    fp8_status status = fp8_sync_directory(parent, err);
    fp8_release(ctx, parent);
    return status;
}

fp8_status fp8_make_directory(const char *path, fp8_error *err)
{
    if (mkdir(path, DIRECTORY_MODE) && errno != EEXIST)
        return fail_write(err, errno, "make", path);
    return FP8_OK;
}

/* Where the next bytes of a text go. */
typedef struct text_file {
    int fd;
    const char *path;
    uint64_t offset;
} text_file;

static fp8_status to_file(void *user, const char *text, uint64_t bytes, fp8_error *err)
{
    text_file *file = user;
    FP8_TRY(fp8_pwrite_all(file->fd, text, bytes, file->offset, file->path, err));
    file->offset += bytes;
    return FP8_OK;
}

fp8_status fp8_put_text(const fp8_context *ctx, int fd, const char *path, fp8_text_source put,
                        const void *owner, fp8_error *err)
{
    text_file file = {fd, path, 0};
    fp8_text text = {.ctx = ctx, .drain = to_file, .user = &file};
    fp8_status status = put(owner, &text, err);
    fp8_status closed = fp8_text_close(&text, status == FP8_OK ? err : NULL);
    return status == FP8_OK ? closed : status;
}

fp8_status fp8_write_file(const fp8_context *ctx, const char *directory, const char *file,
                          fp8_text_source put, const void *owner, fp8_error *err)
{
    char *path = fp8_join_path(ctx, directory, file);
    FP8_FAIL_IF(!path, err, FP8_E_NO_MEMORY, "no memory for a path");
    int fd = -1;
    fp8_status status = fp8_open_output(path, O_TRUNC, &fd, err);
    if (status == FP8_OK)
        status = fp8_put_text(ctx, fd, path, put, owner, err);
    if (status == FP8_OK)
        status = fp8_sync_file(fd, path, err);
    if (fd >= 0 && close(fd) && status == FP8_OK)
        status = fail_write(err, errno, "close", path);
    fp8_release(ctx, path);
    return status;
}

typedef struct text_span {
    const char *text;
    uint64_t bytes;
} text_span;

static fp8_status put_span(const void *owner, fp8_text *out, fp8_error *err)
{
    const text_span *span = owner;
    (void)err;
    fp8_text_put_bytes(out, span->text, span->bytes);
    return FP8_OK;
}

fp8_status fp8_write_text(const fp8_context *ctx, const char *directory, const char *file,
                          const char *text, uint64_t bytes, fp8_error *err)
{
    text_span span = {text, bytes};
    return fp8_write_file(ctx, directory, file, put_span, &span, err);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)where;
    int code = type == FTW_DP ? rmdir(path) : unlink(path);
    return code && errno != ENOENT ? errno : 0;
}

fp8_status fp8_remove_tree(const char *path, fp8_error *err)
{
    int code = nftw(path, remove_one, TREE_FDS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    if (code == 0 || (code < 0 && errno == ENOENT))
        return FP8_OK;
    return fail_write(err, code < 0 ? errno : code, "remove", path);
}
