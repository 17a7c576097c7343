/* SPDX-License-Identifier: Apache-2.0
 *
 * shapes.h - the sizes of linear layers as people write them: MxNxK on the command line, "M N K" a
 * line in a file. */
#ifndef FP8_CLI_SHAPES_H
#define FP8_CLI_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Y[m,n] = X[m,k] W[n,k]^T. Each is 0 to CLI_MOST_EXTENT. */
typedef struct cli_shape {
    int64_t m, n, k;
} cli_shape;

#define CLI_MOST_EXTENT 16777216
#define CLI_SHAPE_NAME  40

typedef struct cli_shapes {
    cli_shape *items;
    size_t count, room;
} cli_shapes;

/* "1x4096x14336" and nothing else. */
bool cli_parse_shape(const char *text, cli_shape *shape);
/* "1x4096x14336". */
const char *cli_shape_name(char out[CLI_SHAPE_NAME], const cli_shape *shape);

/* The functions below print what is wrong and return an exit code; the list stays valid. Free it
 * with cli_shapes_free. */
int cli_shapes_add(cli_shapes *shapes, cli_shape shape);
/* Adds the lines of a file: M N K, between spaces; '#' begins a comment. */
int cli_shapes_read(cli_shapes *shapes, const char *path);
/* Replaces the list by every N and K of it, once each, with every M of "1,16,64". */
int cli_shapes_set_m(cli_shapes *shapes, const char *list);
void cli_shapes_free(cli_shapes *shapes);

#endif
