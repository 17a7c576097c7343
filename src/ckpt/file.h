/* SPDX-License-Identifier: Apache-2.0
 *
 * file.h - reading files that may not be what their names promise. Only regular files are read: a
 * FIFO, a device or a directory is refused before it can block or surprise. */
#ifndef FP8_CKPT_FILE_H
#define FP8_CKPT_FILE_H

#include "base/context.h"

#include <stdbool.h>
#include <sys/stat.h>

/* "directory/file", from fp8_alloc; NULL if there is no memory. */
char *fp8_join_path(const fp8_context *ctx, const char *directory, const char *file);

/* Opens a regular file for reading, symbolic links followed; *info may be NULL. Errors: NOT_FOUND,
 * FORMAT (not a regular file), IO. */
fp8_status fp8_open_regular(const char *path, int *fd, struct stat *info, fp8_error *err);

/* dst = bytes [offset, offset + bytes) of the file, however many calls that takes; `path` is for
 * messages. Errors: IO, TRUNCATED (the file ends before). */
fp8_status fp8_pread_all(int fd, void *dst, uint64_t bytes, uint64_t offset, const char *path,
                         fp8_error *err);

/* A whole file of at most max_bytes from the directory (config.json, hf_quant_config.json),
 * NUL-terminated, from fp8_alloc. Errors: NOT_FOUND if it is not there, FORMAT (too large, not a
 * regular file), TRUNCATED, IO, NO_MEMORY. */
fp8_status fp8_read_text(const fp8_context *ctx, const char *directory, const char *file,
                         uint64_t max_bytes, char **text, uint64_t *bytes, fp8_error *err);

#endif
