/* SPDX-License-Identifier: Apache-2.0
 *
 * columns.c - one pass to measure, one to print. */
#include "cli/columns.h"

#include "cli/escape.h"

#include <string.h>

static void measure(const cli_columns *columns, const char *const cells[], size_t widths[])
{
    for (int i = 0; i < columns->count; i++) {
        size_t width = cli_text_width(cells[i], strlen(cells[i]));
        if (width > widths[i])
            widths[i] = width;
    }
}

static void print(FILE *out, const cli_columns *columns, const char *const cells[],
                  const size_t widths[])
{
    for (int i = 0; i < columns->count; i++) {
        size_t bytes = strlen(cells[i]);
        int pad = (int)(widths[i] - cli_text_width(cells[i], bytes));
        if (columns->right[i] == 'r')
            fprintf(out, "%*s", pad, "");
        cli_text_print(out, cells[i], bytes);
        if (i + 1 == columns->count)
            break;
        fprintf(out, "%*s  ", columns->right[i] == 'r' ? 0 : pad, "");
    }
    fputc('\n', out);
}

void cli_columns_print(FILE *out, const cli_columns *columns, int64_t rows)
{
    size_t widths[CLI_MAX_COLUMNS] = {0};
    const char *cells[CLI_MAX_COLUMNS];
    measure(columns, columns->heads, widths);
    for (int64_t i = 0; i < rows; i++) {
        columns->row(columns->user, i, cells);
        measure(columns, cells, widths);
    }
    print(out, columns, columns->heads, widths);
    for (int64_t i = 0; i < rows; i++) {
        columns->row(columns->user, i, cells);
        print(out, columns, cells, widths);
    }
}
