/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_inspect.c - fp8 inspect: files, dialect, totals and tensors of a checkpoint, from its
 * headers. */
#include "cli/columns.h"
#include "cli/escape.h"
#include "cli/exit_code.h"
#include "cli/groups.h"
#include "cli/json_out.h"
#include "cli/start.h"
#include "cli/tensor_text.h"
#include "cli/units.h"
#include "cli/verbs.h"

#include <inttypes.h>
#include <string.h>

#define MAX_DTYPE 32

/* Totals over a checkpoint. */
typedef struct totals {
    int64_t files;
    uint64_t bytes;
    int64_t dtype_tensors[MAX_DTYPE]; /* by fp8_dtype */
    uint64_t dtype_bytes[MAX_DTYPE];
} totals;

/* Tensors come ordered by file, so a file ends where the next one's name begins. */
static totals count(const fp8_checkpoint *ckpt)
{
    totals sum = {0};
    const char *file = NULL;
    int64_t tensors = fp8_checkpoint_count(ckpt);
    for (int64_t i = 0; i < tensors; i++) {
        fp8_tensor_info info;
        fp8_checkpoint_tensor(ckpt, i, &info);
        if (file == NULL || strcmp(file, info.file) != 0)
            sum.files++;
        file = info.file;
        sum.bytes += info.bytes;
        if ((unsigned)info.dtype < MAX_DTYPE) {
            sum.dtype_tensors[info.dtype]++;
            sum.dtype_bytes[info.dtype] += info.bytes;
        }
    }
    return sum;
}

/* ---- text ---- */

typedef struct rows_text {
    const fp8_checkpoint *ckpt;
    const cli_groups *groups;
    char shape[CLI_SHAPE_TEXT], bytes[CLI_UNIT_TEXT], count[24];
} rows_text;

static void tensor_row(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS])
{
    rows_text *rows = user;
    fp8_tensor_info info;
    fp8_checkpoint_tensor(rows->ckpt, i, &info);
    cells[0] = info.name;
    cells[1] = cli_shape_text(rows->shape, info.ndim, info.shape);
    cells[2] = cli_dtype_text(info.dtype);
    cells[3] = cli_format_bytes(rows->bytes, info.bytes);
    const char *slash = strrchr(info.file, '/');
    cells[4] = slash != NULL ? slash + 1 : info.file;
}

static void group_row(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS])
{
    rows_text *rows = user;
    const cli_group *group = &rows->groups->items[i];
    snprintf(rows->count, sizeof rows->count, "%" PRId64, group->count);
    cells[0] = group->name;
    cells[1] = rows->count;
    cells[2] = group->cells[0];
    cells[3] = group->cells[1];
    cells[4] = cli_format_bytes(rows->bytes, group->bytes_in);
}

static bool group_all(const fp8_checkpoint *ckpt, cli_groups *groups)
{
    int64_t tensors = fp8_checkpoint_count(ckpt);
    for (int64_t i = 0; i < tensors; i++) {
        fp8_tensor_info info;
        char shape[CLI_SHAPE_TEXT];
        fp8_checkpoint_tensor(ckpt, i, &info);
        const char *const cells[CLI_GROUP_CELLS] = {cli_shape_text(shape, info.ndim, info.shape),
                                                    cli_dtype_text(info.dtype), "", ""};
        if (!cli_groups_add(groups, info.name, info.name_bytes, cells, info.bytes, 0))
            return false;
    }
    return cli_groups_finish(groups);
}

static int print_tensors(const fp8_checkpoint *ckpt, bool all)
{
    rows_text rows = {.ckpt = ckpt};
    cli_groups groups = {0};
    int code = CLI_DONE;
    cli_columns full = {
        5, {"TENSOR", "SHAPE", "DTYPE", "BYTES", "FILE"}, "lllrl", tensor_row, &rows};
    cli_columns folded = {
        5, {"TENSOR", "COUNT", "SHAPE", "DTYPE", "BYTES"}, "lrllr", group_row, &rows};
    if (all) {
        cli_columns_print(stdout, &full, fp8_checkpoint_count(ckpt));
    } else if (group_all(ckpt, &groups)) {
        rows.groups = &groups;
        cli_columns_print(stdout, &folded, (int64_t)groups.count);
    } else {
        cli_error("out of memory");
        code = CLI_MEMORY;
    }
    cli_groups_free(&groups);
    return code;
}

static int print_text(const cli_args *args, const fp8_checkpoint *ckpt, const char *scheme)
{
    char bytes[CLI_UNIT_TEXT];
    totals sum = count(ckpt);
    int code = print_tensors(ckpt, args->verbose);
    putchar('\n');
    cli_text_print(stdout, args->paths[0], strlen(args->paths[0]));
    printf(": %" PRId64 " tensors, %s in %" PRId64 " file%s; scheme: %s\n",
           fp8_checkpoint_count(ckpt), cli_format_bytes(bytes, sum.bytes), sum.files,
           sum.files == 1 ? "" : "s", scheme);
    for (int i = 0; i < MAX_DTYPE; i++) {
        if (sum.dtype_tensors[i] > 0)
            printf("  %-11s %8" PRId64 " tensors  %9s\n", cli_dtype_text((fp8_dtype)i),
                   sum.dtype_tensors[i], cli_format_bytes(bytes, sum.dtype_bytes[i]));
    }
    return code;
}

/* ---- JSON ---- */

static void json_dtypes(cli_json *json, const totals *sum)
{
    cli_json_begin(json, "dtypes", '{');
    for (int i = 0; i < MAX_DTYPE; i++) {
        if (sum->dtype_tensors[i] == 0)
            continue;
        cli_json_begin(json, cli_dtype_text((fp8_dtype)i), '{');
        cli_json_int(json, "tensors", sum->dtype_tensors[i]);
        cli_json_size(json, "bytes", sum->dtype_bytes[i]);
        cli_json_end(json, '}');
    }
    cli_json_end(json, '}');
}

static void json_tensors(cli_json *json, const fp8_checkpoint *ckpt)
{
    int64_t tensors = fp8_checkpoint_count(ckpt);
    cli_json_begin(json, "tensors", '[');
    for (int64_t i = 0; i < tensors; i++) {
        fp8_tensor_info info;
        fp8_checkpoint_tensor(ckpt, i, &info);
        cli_json_begin(json, NULL, '{');
        cli_json_text_n(json, "name", info.name, info.name_bytes);
        cli_json_text(json, "dtype", cli_dtype_text(info.dtype));
        cli_json_shape(json, "shape", info.ndim, info.shape);
        cli_json_size(json, "bytes", info.bytes);
        cli_json_text(json, "file", info.file);
        cli_json_size(json, "offset", info.offset);
        cli_json_end(json, '}');
    }
    cli_json_end(json, ']');
}

static void print_json(const cli_args *args, const fp8_checkpoint *ckpt, const char *scheme)
{
    cli_json json = {.out = stdout};
    const char *warning;
    totals sum = count(ckpt);
    cli_json_begin(&json, NULL, '{');
    cli_json_text(&json, "path", args->paths[0]);
    cli_json_text(&json, "scheme", scheme);
    cli_json_int(&json, "files", sum.files);
    cli_json_size(&json, "bytes", sum.bytes);
    json_dtypes(&json, &sum);
    cli_json_begin(&json, "warnings", '[');
    for (int64_t i = 0; (warning = fp8_checkpoint_warning(ckpt, i)) != NULL; i++)
        cli_json_text(&json, NULL, warning);
    cli_json_end(&json, ']');
    json_tensors(&json, ckpt);
    cli_json_end(&json, '}');
}

static int print(const cli_args *args, const fp8_checkpoint *ckpt)
{
    const char *warning, *scheme = fp8_checkpoint_dialect(ckpt);
    if (scheme == NULL) {
        fp8_error err = {.code = FP8_E_NO_MEMORY, .msg = "out of memory"};
        return cli_fail(&err, args->json, "");
    }
    if (!args->quiet) {
        for (int64_t i = 0; (warning = fp8_checkpoint_warning(ckpt, i)) != NULL; i++)
            cli_warning(warning);
    }
    if (args->json) {
        print_json(args, ckpt, scheme);
        return CLI_DONE;
    }
    return args->quiet ? CLI_DONE : print_text(args, ckpt, scheme);
}

int cli_run_inspect(const cli_args *args)
{
    fp8_error err = {0};
    fp8_checkpoint *ckpt = NULL;
    fp8_context *ctx;
    int code = cli_context(args, &ctx);
    if (code != CLI_DONE)
        return code;
    if (fp8_checkpoint_open(ctx, args->paths[0], &ckpt, &err) == FP8_OK)
        code = print(args, ckpt);
    else
        code = cli_fail(&err, args->json, "");
    fp8_checkpoint_close(ckpt);
    fp8_context_free(ctx);
    return code;
}
