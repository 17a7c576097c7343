/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c - opening and reading regular files. */
#define _GNU_SOURCE
#include "ckpt/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

char *fp8_join_path(const fp8_context *ctx, const char *directory, const char *file)
{
    size_t head = strlen(directory), tail = strlen(file);
    char *path = fp8_alloc(ctx, head + tail + 2);
    if (!path)
        return NULL;
    memcpy(path, directory, head);
    path[head] = '/';
    memcpy(path + head + 1, file, tail + 1);
    return path;
}

static const char *kind_of_file(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    return S_ISFIFO(mode) ? "a FIFO" : "a device"; /* open(2) itself refuses a socket */
}

fp8_status fp8_open_regular(const char *path, int *fd, struct stat *info, fp8_error *err)
{
    struct stat own;
    if (!info)
        info = &own;
    /* Not blocking: open(2) on a FIFO without a writer would wait for ever. */
    int found = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (found < 0)
        return fp8_fail_os(err, errno, "open %s", path);
    if (fstat(found, info)) {
        int os_errno = errno;
        close(found);
        return fp8_fail_os(err, os_errno, "stat %s", path);
    }
    if (!S_ISREG(info->st_mode)) {
        close(found);
        return fp8_fail(err, FP8_E_FORMAT, "%s: is %s, must be a regular file", path,
                        kind_of_file(info->st_mode));
    }
    *fd = found;
    return FP8_OK;
}

fp8_status fp8_pread_all(int fd, void *dst, uint64_t bytes, uint64_t offset, const char *path,
                         fp8_error *err)
{
    const uint64_t limit = 1u << 30; /* one call never takes more than 2 GiB - 4096 */
    uint64_t done = 0;
    while (done < bytes) {
        uint64_t left = bytes - done;
        ssize_t n =
            pread(fd, (char *)dst + done, left < limit ? left : limit, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fp8_fail_os(err, errno, "read %s at byte %" PRIu64, path, offset + done);
        if (n == 0)
            return fp8_fail_at(err, FP8_E_TRUNCATED, (int64_t)(offset + done),
                               "%s: ends at byte %" PRIu64 ", %" PRIu64 " more were to be read",
                               path, offset + done, left);
        done += (uint64_t)n;
    }
    return FP8_OK;
}

/* The text of the open file. */
static fp8_status read_all(const fp8_context *ctx, int fd, const char *path, uint64_t size,
                           uint64_t max_bytes, char **text, fp8_error *err)
{
    FP8_FAIL_IF(size > max_bytes, err, FP8_E_FORMAT,
                "%s: has %" PRIu64 " bytes, must have at most %" PRIu64, path, size, max_bytes);
    char *buffer = fp8_alloc(ctx, size + 1);
    FP8_FAIL_IF(!buffer, err, FP8_E_NO_MEMORY, "%s: no memory for %" PRIu64 " bytes", path, size);
    fp8_status status = fp8_pread_all(fd, buffer, size, 0, path, err);
    if (status != FP8_OK) {
        fp8_release(ctx, buffer);
        return status;
    }
    buffer[size] = 0;
    *text = buffer;
    return FP8_OK;
}

fp8_status fp8_read_text(const fp8_context *ctx, const char *directory, const char *file,
                         uint64_t max_bytes, char **text, uint64_t *bytes, fp8_error *err)
{
    int fd;
    struct stat info;
    char *path = fp8_join_path(ctx, directory, file);
    FP8_FAIL_IF(!path, err, FP8_E_NO_MEMORY, "no memory for the path of %s", file);
    fp8_status status = fp8_open_regular(path, &fd, &info, err);
    if (status == FP8_OK) {
        *bytes = (uint64_t)info.st_size;
        status = read_all(ctx, fd, path, *bytes, max_bytes, text, err);
        close(fd);
    }
    fp8_release(ctx, path);
    return status;
}
