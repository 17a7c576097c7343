/* SPDX-License-Identifier: Apache-2.0
 *
 * durable.h - the few system calls that put bytes on disk for good, with words for their failures.
 * All writing of the pipeline goes through here. */
#ifndef FP8_CONVERT_DURABLE_H
#define FP8_CONVERT_DURABLE_H

#include "ckpt/text.h"

/* All bytes at their offset, however many calls that takes. Errors: IO, NO_SPACE. */
fp8_status fp8_pwrite_all(int fd, const void *src, uint64_t bytes, uint64_t offset,
                          const char *path, fp8_error *err);
/* Copies bytes from file to file in the kernel, or through buffer[room] where it cannot. */
typedef struct fp8_copy {
    int from, to;
    uint64_t from_offset, to_offset, bytes;
    const char *from_path, *to_path;
} fp8_copy;
fp8_status fp8_copy_bytes(const fp8_copy *copy, char *buffer, uint64_t room, fp8_error *err);
/* Creates or opens `path` for writing; `flags` are added to O_RDWR | O_CREAT. */
fp8_status fp8_open_output(const char *path, int flags, int *fd, fp8_error *err);
/* fdatasync. */
fp8_status fp8_sync_file(int fd, const char *path, fp8_error *err);
/* fsync of a directory, so that the names in it last. */
fp8_status fp8_sync_directory(const char *path, fp8_error *err);
/* The same for the directory that holds `path`. */
fp8_status fp8_sync_parent(const fp8_context *ctx, const char *path, fp8_error *err);
/* mkdir; fine if it is there already. */
fp8_status fp8_make_directory(const char *path, fp8_error *err);
/* Puts all of a text. */
typedef fp8_status (*fp8_text_source)(const void *owner, fp8_text *out, fp8_error *err);
/* The first bytes of the open file, through a small buffer. Errors: IO, NO_SPACE, NO_MEMORY and
 * those of `put`. */
fp8_status fp8_put_text(const fp8_context *ctx, int fd, const char *path, fp8_text_source put,
                        const void *owner, fp8_error *err);
/* A whole file: written, synced, closed. */
fp8_status fp8_write_file(const fp8_context *ctx, const char *directory, const char *file,
                          fp8_text_source put, const void *owner, fp8_error *err);
/* The same of a text that is at hand. */
fp8_status fp8_write_text(const fp8_context *ctx, const char *directory, const char *file,
                          const char *text, uint64_t bytes, fp8_error *err);
/* A file or a directory with all that is in it; symbolic links are removed, not followed. Fine if
 * there is nothing. */
fp8_status fp8_remove_tree(const char *path, fp8_error *err);

#endif
