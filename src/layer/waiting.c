/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.c - blocks of waiting bytes: malloc'ed up to a bound, then ranges of an unlinked file,
 * handed out one after the other and all free again when the last is given back. */
#define _GNU_SOURCE /* O_TMPFILE is Linux; mkostemp for file systems without it */
#include "layer/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fp8_wait_open(fp8_wait_room *room, const fp8_context *ctx, const fp8_load_desc *desc)
{
    *room =
        (fp8_wait_room){.ctx = ctx, .max = desc->max_waiting_bytes, .spill = desc->spill, .fd = -1};
}

void fp8_wait_close(fp8_wait_room *room)
{
    if (room->fd >= 0)
        (void)close(room->fd);
    room->fd = -1;
}

/* A file that is gone when it is closed. */
static int open_nameless(const char *directory, char *path, size_t path_bytes)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    const int n = snprintf(path, path_bytes, "%s/fp8-spill-XXXXXX", directory);
    if (n < 0 || (size_t)n >= path_bytes) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static fp8_status open_spill(fp8_wait_room *room, fp8_error *err)
{
    char path[4096];
    if (room->fd >= 0)
        return FP8_OK;
    room->fd = open_nameless(room->spill, path, sizeof path);
    return room->fd >= 0
               ? FP8_OK
               : fp8_fail_os(err, errno, "spill directory %s: cannot make a file", room->spill);
}

fp8_status fp8_wait_take(fp8_wait_room *room, uint64_t bytes, fp8_wait_block *out, fp8_error *err)
{
    *out = (fp8_wait_block){.bytes = bytes};
    if (room->max && (bytes > room->max || room->used > room->max - bytes)) {
        FP8_FAIL_IF(!room->spill, err, FP8_E_NO_SPACE,
                    "%llu bytes must wait for the rest of their block, %llu wait already, and "
                    "max_waiting_bytes is %llu",
                    (unsigned long long)bytes, (unsigned long long)room->used,
                    (unsigned long long)room->max);
        FP8_TRY(open_spill(room, err));
        out->offset = room->end;
        room->end += bytes;
        room->spilled += bytes;
        return FP8_OK;
    }
    out->data = fp8_alloc(room->ctx, bytes);
    FP8_FAIL_IF(!out->data, err, FP8_E_NO_MEMORY,
                "no memory for %llu bytes that wait for the rest of their block",
                (unsigned long long)bytes);
    room->used += bytes;
    if (room->used > room->peak)
        room->peak = room->used;
    return FP8_OK;
}

void fp8_wait_give(fp8_wait_room *room, fp8_wait_block *block)
{
    if (block->data) {
        room->used -= block->bytes;
        fp8_release(room->ctx, block->data);
    } else {
        room->spilled -= block->bytes;
        if (room->spilled == 0)
            room->end = 0;
    }
    *block = (fp8_wait_block){0};
}

fp8_status fp8_wait_put(fp8_wait_room *room, const fp8_wait_block *block, uint64_t at,
                        const void *src, uint64_t bytes, fp8_error *err)
{
    if (block->data) {
        memcpy(block->data + at, src, (size_t)bytes);
        return FP8_OK;
    }
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(room->fd, (const char *)src + done, (size_t)(bytes - done),
                                 (off_t)(block->offset + at + done));
        if (n < 0 && errno != EINTR)
            return fp8_fail_os(err, errno, "spill directory %s: cannot write", room->spill);
        done += n > 0 ? (uint64_t)n : 0;
    }
    return FP8_OK;
}

fp8_status fp8_wait_get(fp8_wait_room *room, const fp8_wait_block *block, uint64_t at, void *dst,
                        uint64_t bytes, fp8_error *err)
{
    if (block->data) {
        memcpy(dst, block->data + at, (size_t)bytes);
        return FP8_OK;
    }
    for (uint64_t done = 0; done < bytes;) {
        const ssize_t n = pread(room->fd, (char *)dst + done, (size_t)(bytes - done),
                                (off_t)(block->offset + at + done));
        if (n < 0 && errno != EINTR)
            return fp8_fail_os(err, errno, "spill directory %s: cannot read", room->spill);
        FP8_FAIL_IF(n == 0, err, FP8_E_IO, "spill directory %s: the file has become shorter",
                    room->spill);
        done += n > 0 ? (uint64_t)n : 0;
    }
    return FP8_OK;
}
