/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_diff.c - fp8 diff: the tensors that differ, each with how much. */
#include "cli/escape.h"
#include "cli/exit_code.h"
#include "cli/json_out.h"
#include "cli/start.h"
#include "cli/tensor_text.h"
#include "cli/verbs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const kinds[] = {
    [FP8_DIFF_SAME] = "same",   [FP8_DIFF_VALUES] = "values", [FP8_DIFF_DTYPE] = "dtype",
    [FP8_DIFF_SHAPE] = "shape", [FP8_DIFF_ONLY_A] = "only-a", [FP8_DIFF_ONLY_B] = "only-b",
};

/* What the callback needs and counts. */
typedef struct listener {
    const cli_args *args;
    cli_json json;
    int64_t tensors, differing;
} listener;

static void print_row(const fp8_diff_row *row)
{
    printf("%-6s  ", kinds[row->kind]);
    cli_text_print(stdout, row->name, strlen(row->name));
    if (row->kind == FP8_DIFF_DTYPE)
        printf("  %s -> %s", cli_dtype_text(row->dtype_a), cli_dtype_text(row->dtype_b));
    if ((row->kind == FP8_DIFF_VALUES || row->kind == FP8_DIFF_DTYPE) && row->differing > 0) {
        printf("  %" PRId64 " elements, by at most %.6g", row->differing, row->max_abs_error);
        if (isfinite(row->sqnr_db))
            printf(", SQNR %.2f dB", row->sqnr_db);
    }
    putchar('\n');
}

static void json_row(cli_json *json, const fp8_diff_row *row)
{
    cli_json_begin(json, NULL, '{');
    cli_json_text(json, "name", row->name);
    cli_json_text(json, "kind", kinds[row->kind]);
    cli_json_text(json, "dtype_a", cli_dtype_text(row->dtype_a));
    cli_json_text(json, "dtype_b", cli_dtype_text(row->dtype_b));
    cli_json_int(json, "differing", row->differing);
    cli_json_real(json, "max_abs_error", row->max_abs_error);
    cli_json_real(json, "sqnr_db", row->sqnr_db);
    cli_json_end(json, '}');
}

static void on_row(void *user, const fp8_diff_row *row)
{
    listener *to = user;
    to->tensors++;
    to->differing += row->kind != FP8_DIFF_SAME;
    if (to->args->json)
        json_row(&to->json, row);
    else if (!to->args->quiet && (row->kind != FP8_DIFF_SAME || to->args->verbose))
        print_row(row);
}

static int diff(const cli_args *args, const fp8_context *ctx)
{
    fp8_error err = {0};
    listener to = {.args = args, .json = {.out = stdout}};
    if (args->json) {
        cli_json_begin(&to.json, NULL, '{');
        cli_json_begin(&to.json, "tensors", '[');
    }
    fp8_status status = fp8_diff(ctx, args->paths[0], args->paths[1], on_row, &to, &err);
    if (args->json) {
        cli_json_end(&to.json, ']');
        if (status == FP8_OK) {
            cli_json_int(&to.json, "compared", to.tensors);
            cli_json_int(&to.json, "differing", to.differing);
        } else {
            cli_json_error(&to.json, &err);
        }
        cli_json_end(&to.json, '}');
    }
    if (status != FP8_OK)
        return cli_fail(&err, 0, "");
    if (!args->json && !args->quiet)
        printf("%" PRId64 " tensors: %" PRId64 " differ\n", to.tensors, to.differing);
    return to.differing > 0 ? CLI_BAD : CLI_DONE;
}

int cli_run_diff(const cli_args *args)
{
    fp8_context *ctx;
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE)
        code = diff(args, ctx);
    fp8_context_free(ctx);
    return code;
}
