/* SPDX-License-Identifier: Apache-2.0
 *
 * columns.h - a table of texts on stdout, its columns as wide as their longest text. */
#ifndef FP8_CLI_COLUMNS_H
#define FP8_CLI_COLUMNS_H

#include <stdint.h>
#include <stdio.h>

#define CLI_MAX_COLUMNS 8

typedef struct cli_columns {
    int count;
    const char *heads[CLI_MAX_COLUMNS];
    const char *right; /* one character a column: 'r' = aligned right, 'l' = left */
    /* Sets cells[count] of row i; each must stay valid until the next call. */
    void (*row)(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS]);
    void *user;
} cli_columns;

/* Prints the heads and `rows` rows; asks for each row twice. */
void cli_columns_print(FILE *out, const cli_columns *columns, int64_t rows);

#endif
