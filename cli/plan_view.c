/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_view.c - a plan as a table and as JSON. */
#include "cli/plan_view.h"

#include "cli/columns.h"
#include "cli/exit_code.h"
#include "cli/groups.h"
#include "cli/json_out.h"
#include "cli/tensor_text.h"
#include "cli/units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One row of the table, written out. */
typedef struct row_text {
    char shape[CLI_SHAPE_TEXT], dtype[48], action[96];
    char before[CLI_UNIT_TEXT], after[CLI_UNIT_TEXT], count[24];
} row_text;

static void describe(const fp8_plan_row *row, row_text *text)
{
    cli_shape_text(text->shape, row->ndim, row->shape);
    snprintf(text->action, sizeof text->action, "%s%s%s", row->action, *row->scheme ? " " : "",
             row->scheme);
    if (row->dtype_in == row->dtype_out)
        snprintf(text->dtype, sizeof text->dtype, "%s", cli_dtype_text(row->dtype_in));
    else
        snprintf(text->dtype, sizeof text->dtype, "%s -> %s", cli_dtype_text(row->dtype_in),
                 cli_dtype_text(row->dtype_out));
}

/* ---- every tensor ---- */

typedef struct full_rows {
    const fp8_convert *conv;
    row_text text;
} full_rows;

static void full_row(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS])
{
    full_rows *rows = user;
    fp8_plan_row row;
    fp8_convert_row(rows->conv, i, &row);
    describe(&row, &rows->text);
    cells[0] = row.name;
    cells[1] = rows->text.shape;
    cells[2] = rows->text.dtype;
    cells[3] = rows->text.action;
    cells[4] = cli_format_bytes(rows->text.before, row.bytes_in);
    cells[5] = cli_format_bytes(rows->text.after, row.bytes_out);
    cells[6] = row.reason;
}

static void print_full(const fp8_convert *conv)
{
    full_rows rows = {.conv = conv};
    cli_columns columns = {7,
                           {"TENSOR", "SHAPE", "DTYPE", "ACTION", "BEFORE", "AFTER", "REASON"},
                           "llllrrl",
                           full_row,
                           &rows};
    cli_columns_print(stdout, &columns, fp8_convert_count(conv));
}

/* ---- layers that are alike on one line ---- */

typedef struct group_rows {
    const cli_groups *groups;
    row_text text;
} group_rows;

static void group_row(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS])
{
    group_rows *rows = user;
    const cli_group *group = &rows->groups->items[i];
    snprintf(rows->text.count, sizeof rows->text.count, "%" PRId64, group->count);
    cells[0] = group->name;
    cells[1] = rows->text.count;
    cells[2] = group->cells[0];
    cells[3] = group->cells[1];
    cells[4] = group->cells[2];
    cells[5] = cli_format_bytes(rows->text.before, group->bytes_in);
    cells[6] = cli_format_bytes(rows->text.after, group->bytes_out);
    cells[7] = group->cells[3];
}

static bool group_all(const fp8_convert *conv, cli_groups *groups)
{
    int64_t count = fp8_convert_count(conv);
    for (int64_t i = 0; i < count; i++) {
        fp8_plan_row row;
        row_text text;
        fp8_convert_row(conv, i, &row);
        describe(&row, &text);
        const char *const cells[CLI_GROUP_CELLS] = {text.shape, text.dtype, text.action,
                                                    row.reason};
        if (!cli_groups_add(groups, row.name, strlen(row.name), cells, row.bytes_in, row.bytes_out))
            return false;
    }
    return cli_groups_finish(groups);
}

static int print_groups(const fp8_convert *conv)
{
    cli_groups groups = {0};
    bool grouped = group_all(conv, &groups);
    if (grouped) {
        group_rows rows = {.groups = &groups};
        cli_columns columns = {
            8,
            {"TENSOR", "COUNT", "SHAPE", "DTYPE", "ACTION", "BEFORE", "AFTER", "REASON"},
            "lrlllrrl",
            group_row,
            &rows};
        cli_columns_print(stdout, &columns, (int64_t)groups.count);
    } else {
        cli_error("out of memory");
    }
    cli_groups_free(&groups);
    return grouped ? CLI_DONE : CLI_MEMORY;
}

/* ---- totals ---- */

static void print_totals(const fp8_convert *conv)
{
    char before[CLI_UNIT_TEXT], after[CLI_UNIT_TEXT], memory[CLI_UNIT_TEXT], free_[CLI_UNIT_TEXT];
    fp8_plan_summary sum;
    fp8_convert_summary(conv, &sum);
    printf("\n%" PRId64 " tensors: %" PRId64 " changed, %" PRId64 " kept; %s -> %s in %" PRId64
           " file%s\n",
           sum.tensors, sum.changed, sum.kept, cli_format_bytes(before, sum.bytes_in),
           cli_format_bytes(after, sum.bytes_out), sum.shards_out, sum.shards_out == 1 ? "" : "s");
    printf("memory: at most %s\n", cli_format_memory(memory, sum.peak_memory_bytes));
    printf("disk: needs %s, %s free%s\n", cli_format_bytes(after, sum.disk_bytes),
           cli_format_bytes(free_, sum.disk_free_bytes),
           sum.disk_bytes > sum.disk_free_bytes ? ": NOT ENOUGH" : "");
}

/* ---- JSON ---- */

static void json_row(cli_json *json, const fp8_plan_row *row)
{
    cli_json_begin(json, NULL, '{');
    cli_json_text(json, "name", row->name);
    cli_json_text(json, "action", row->action);
    cli_json_text(json, "scheme", row->scheme);
    cli_json_text(json, "reason", row->reason);
    cli_json_text(json, "dtype_in", cli_dtype_text(row->dtype_in));
    cli_json_text(json, "dtype_out", cli_dtype_text(row->dtype_out));
    cli_json_shape(json, "shape", row->ndim, row->shape);
    cli_json_size(json, "bytes_in", row->bytes_in);
    cli_json_size(json, "bytes_out", row->bytes_out);
    cli_json_end(json, '}');
}

static void print_json(const fp8_convert *conv)
{
    cli_json json = {.out = stdout};
    fp8_plan_summary sum;
    fp8_convert_summary(conv, &sum);
    cli_json_begin(&json, NULL, '{');
    cli_json_begin(&json, "summary", '{');
    cli_json_counts(&json, &sum);
    cli_json_size(&json, "peak_memory_bytes", sum.peak_memory_bytes);
    cli_json_size(&json, "disk_bytes", sum.disk_bytes);
    cli_json_size(&json, "disk_free_bytes", sum.disk_free_bytes);
    cli_json_end(&json, '}');
    cli_json_warnings(&json, conv);
    cli_json_begin(&json, "tensors", '[');
    int64_t count = fp8_convert_count(conv);
    for (int64_t i = 0; i < count; i++) {
        fp8_plan_row row;
        fp8_convert_row(conv, i, &row);
        json_row(&json, &row);
    }
    cli_json_end(&json, ']');
    cli_json_end(&json, '}');
}

void cli_plan_print_rows(const fp8_convert *conv)
{
    print_full(conv);
    print_totals(conv);
}

int cli_plan_print(const cli_args *args, const fp8_convert *conv)
{
    if (args->json) {
        print_json(conv);
        return CLI_DONE;
    }
    if (args->quiet)
        return CLI_DONE;
    if (args->verbose) {
        cli_plan_print_rows(conv);
        return CLI_DONE;
    }
    int code = print_groups(conv);
    if (code == CLI_DONE)
        print_totals(conv);
    return code;
}
