/* SPDX-License-Identifier: Apache-2.0
 *
 * tune_file.h - the file that `fp8 tune` writes and a context loads; fp8-tune(1) has its format. */
#ifndef FP8_CLI_TUNE_FILE_H
#define FP8_CLI_TUNE_FILE_H

#include "cli/shapes.h"
#include "fp8.h"

typedef struct cli_tune_row {
    const char *kind, *kernel; /* static */
    cli_shape shape;
    int64_t ns;
} cli_tune_row;

typedef struct cli_tune_rows {
    cli_tune_row *items;
    size_t count, room;
} cli_tune_rows;

/* Whether the kind and shape are there. */
bool cli_tune_has(const cli_tune_rows *rows, const char *kind, const cli_shape *shape);
/* CLI_DONE, or CLI_MEMORY after a message. Free with cli_tune_rows_free. */
int cli_tune_add(cli_tune_rows *rows, const cli_tune_row *row);
void cli_tune_rows_free(cli_tune_rows *rows);

/* Before hours of measuring: CLI_USAGE, with a message, if `path` is there and must not be
 * replaced, which nothing but a regular file ever is; CLI_IO if its folder takes no file. */
int cli_tune_check(const char *path, bool force);
/* Writes `path`.partial, makes it durable and renames it to `path`. CLI_DONE, or CLI_IO after a
 * message; then `path` is as it was. */
int cli_tune_write(const char *path, const fp8_gpu_info *gpu, const cli_tune_rows *rows);

#endif
