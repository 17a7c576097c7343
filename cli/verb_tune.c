/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_tune.c - fp8 tune: for each shape and kind of scales the fastest kernel on this GPU, into a
 * file that contexts load. */
#include "cli/exit_code.h"
#include "cli/fields.h"
#include "cli/start.h"
#include "cli/tune_case.h"
#include "cli/tune_file.h"
#include "cli/verbs.h"

#include <string.h>

#define DEFAULT_SECONDS 0.02

/* Schemes among whose kernels there is a choice, and what the file calls them; the first ones are
 * measured where none is asked for. Whole: from bf16, quantized by the kernel or before it. */
static const struct {
    const char *scheme, *kind;
    bool whole;
} kinds[] = {{"gemm", "channel", false},
             {"block", "block", false},
             {"channel", "whole_channel", true},
             {"block", "whole_block", true},
             {"w8a16", "wide_channel", false},
             {"mxfp8", "wide_mx", false},
             {"channel", "channel", false},
             {"tensor", "channel", false},
             {"fast", "fast", false}};
enum { KINDS = sizeof kinds / sizeof *kinds, USUAL_KINDS = 6 };
/* More rows of X take so much longer than the quantizer that what is best from codes is best. */
enum { MOST_WHOLE_ROWS = 256 };

typedef struct tune {
    const fp8_context *ctx;
    const cli_args *args;
    cli_json *json;
    cli_gpu gpu;
    fp8_gpu_info info;
    cli_tune_rows rows;
    fp8_error err; /* of the library, or none */
} tune;

const char *cli_tune_scheme(int64_t i)
{
    return i >= 0 && i < KINDS ? kinds[i].scheme : NULL;
}

static void report(const tune *t, int kind, const cli_shape *shape, const cli_tune_result *r)
{
    char name[CLI_SHAPE_NAME];
    cli_fields_begin(t->json, NULL, "tune");
    cli_field_text(t->json, "shape", cli_shape_name(name, shape));
    cli_field_text(t->json, "scheme", kinds[kind].scheme);
    cli_field_text(t->json, "kind", kinds[kind].kind);
    cli_field_text(t->json, "kernel", r->kernel);
    cli_field_real(t->json, "us", r->seconds * 1e6);
    cli_field_text(t->json, "before", r->chosen);
    cli_field_real(t->json, "before_us", r->chosen_seconds * 1e6);
    cli_field_real(t->json, "gain", r->chosen_seconds / r->seconds);
    cli_field_int(t->json, "candidates", r->candidates);
    cli_field_int(t->json, "timed", r->timed);
    cli_fields_end(t->json);
}

static int tune_one(tune *t, int kind, const cli_shape *shape)
{
    const cli_linear_scheme *scheme = cli_linear_scheme_find(kinds[kind].scheme);
    const double seconds = t->args->seconds > 0 ? t->args->seconds : DEFAULT_SECONDS;
    cli_tune_result result;
    if (shape->m * shape->n * shape->k == 0 || cli_tune_has(&t->rows, kinds[kind].kind, shape) ||
        (kinds[kind].whole && shape->m > MOST_WHOLE_ROWS))
        return CLI_DONE;
    if (cli_tune_case(t->ctx, &t->gpu, scheme, kinds[kind].whole, *shape, seconds, &result,
                      &t->err) != FP8_OK)
        return cli_fail(&t->err, 0, "");
    if (result.kernel == NULL) {
        char name[CLI_SHAPE_NAME], text[160];
        snprintf(text, sizeof text, "%s %s: there is one kernel for it here, nothing to choose",
                 cli_shape_name(name, shape), scheme->name);
        cli_warning(text);
        return CLI_DONE;
    }
    report(t, kind, shape, &result);
    const int64_t ns = (int64_t)(result.seconds * 1e9 + 0.5);
    return cli_tune_add(&t->rows,
                        &(cli_tune_row){kinds[kind].kind, result.kernel, *shape, ns > 0 ? ns : 1});
}

static int tune_all(tune *t, const cli_shapes *shapes)
{
    const char *wanted = t->args->scheme;
    int code = CLI_DONE;
    for (size_t s = 0; s < shapes->count; s++)
        for (int i = 0; i < KINDS && code == CLI_DONE; i++)
            if (wanted == NULL ? i < USUAL_KINDS : strcmp(wanted, kinds[i].scheme) == 0)
                code = tune_one(t, i, &shapes->items[s]);
    return code;
}

static int open_and_tune(tune *t, const cli_shapes *shapes)
{
    fp8_status status = fp8_gpu(t->args->device_index, &t->info, &t->err);
    if (status == FP8_OK)
        status = cli_gpu_open(&t->gpu, t->args->device_index, &t->err);
    int code = status == FP8_OK ? tune_all(t, shapes) : cli_fail(&t->err, 0, "");
    if (code == CLI_DONE)
        code = cli_tune_write(t->args->output, &t->info, &t->rows);
    cli_gpu_close(&t->gpu);
    return code;
}

static int tune_shapes(const cli_args *args, const cli_shapes *shapes)
{
    fp8_context *ctx;
    cli_json json = {.out = stdout};
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE) {
        tune t = {.ctx = ctx, .args = args, .json = args->json ? &json : NULL};
        if (args->json) {
            cli_json_begin(&json, NULL, '{');
            cli_json_begin(&json, "cases", '[');
        }
        code = open_and_tune(&t, shapes);
        if (args->json) {
            cli_json_end(&json, ']');
            if (t.err.code != FP8_OK)
                cli_json_error(&json, &t.err);
            cli_json_end(&json, '}');
        }
        cli_tune_rows_free(&t.rows);
    }
    fp8_context_free(ctx);
    return code;
}

int cli_run_tune(const cli_args *args)
{
    cli_shapes shapes = {0};
    if (args->device != FP8_DEVICE_CUDA)
        return cli_usage_error("tune measures a GPU: --device cuda, or cuda:N");
    if (args->output == NULL)
        return cli_usage_error("tune needs -o FILE, the file to write");
    if (args->shapes.count == 0 && args->shape_file == NULL)
        return cli_usage_error("tune needs --shape MxNxK, such as 16x4096x4096, or --shapes FILE");
    int code = cli_tune_check(args->output, args->force);
    if (code == CLI_DONE)
        code = cli_collect_shapes(args, &shapes);
    if (code == CLI_DONE)
        code = tune_shapes(args, &shapes);
    cli_shapes_free(&shapes);
    return code;
}
