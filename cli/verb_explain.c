/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_explain.c - fp8 explain: for each shape and scheme the kernel that a linear would run with,
 * and for each other the reason why not. */
#include "cli/columns.h"
#include "cli/exit_code.h"
#include "cli/json_out.h"
#include "cli/linear_scheme.h"
#include "cli/start.h"
#include "cli/verbs.h"

#include <stdio.h>
#include <string.h>

/* One question to the library. */
typedef struct question {
    const fp8_context *ctx;
    const cli_linear_scheme *scheme;
    fp8_activation activation;
    fp8_linear_desc desc;
    cli_shape shape;
    fp8_candidate candidate; /* the last answer */
} question;

static fp8_status ask(question *q, int64_t i, fp8_error *err)
{
    return fp8_explain(q->ctx, &q->desc, q->shape.m, q->shape.n, q->shape.k,
                       cli_linear_x_dtype(q->activation), FP8_E4M3FN, i, &q->candidate, err);
}

static void candidate_row(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS])
{
    question *q = user;
    fp8_error err;
    ask(q, i, &err);
    cells[0] = q->candidate.chosen ? "*" : "";
    cells[1] = q->candidate.kernel;
    cells[2] = q->candidate.isa;
    cells[3] = q->candidate.reason;
}

static void print_text(question *q, int64_t count)
{
    char shape[CLI_SHAPE_NAME];
    const cli_columns columns = {4, {"", "KERNEL", "LEVEL", "REASON"}, "llll", candidate_row, q};
    printf("%s %s, activation %s: %s\n", cli_shape_name(shape, &q->shape), q->scheme->name,
           cli_activation_name(q->activation), q->scheme->words);
    cli_columns_print(stdout, &columns, count);
    putchar('\n');
}

static void print_json(cli_json *json, question *q, int64_t count)
{
    char shape[CLI_SHAPE_NAME];
    fp8_error err;
    cli_json_begin(json, NULL, '{');
    cli_json_text(json, "shape", cli_shape_name(shape, &q->shape));
    cli_json_text(json, "scheme", q->scheme->name);
    cli_json_text(json, "activation", cli_activation_name(q->activation));
    cli_json_begin(json, "candidates", '[');
    for (int64_t i = 0; i < count; i++) {
        ask(q, i, &err);
        cli_json_begin(json, NULL, '{');
        cli_json_text(json, "kernel", q->candidate.kernel);
        cli_json_text(json, "isa", q->candidate.isa);
        cli_json_bool(json, "chosen", q->candidate.chosen);
        cli_json_text(json, "reason", q->candidate.reason);
        cli_json_end(json, '}');
    }
    cli_json_end(json, ']');
    cli_json_end(json, '}');
}

/* Answers one question; *err is set if the library refuses it. */
static fp8_status answer(const cli_args *args, cli_json *json, question *q, fp8_error *err)
{
    int64_t count = 0;
    fp8_status status;
    q->activation =
        args->activation != NULL ? cli_activation_of(args->activation) : q->scheme->activation;
    q->desc = cli_linear_desc(q->scheme, q->activation);
    while ((status = ask(q, count, err)) == FP8_OK)
        count++;
    if (status != FP8_E_NOT_FOUND)
        return status;
    if (args->json)
        print_json(json, q, count);
    else
        print_text(q, count);
    return FP8_OK;
}

static fp8_status answer_all(const cli_args *args, cli_json *json, const fp8_context *ctx,
                             fp8_error *err)
{
    question q = {.ctx = ctx};
    for (size_t s = 0; s < args->shapes.count; s++) {
        q.shape = args->shapes.items[s];
        for (int64_t i = 0; (q.scheme = cli_linear_scheme_at(i)) != NULL; i++) {
            if (args->scheme != NULL && strcmp(args->scheme, q.scheme->name) != 0)
                continue;
            const fp8_status status = answer(args, json, &q, err);
            if (status != FP8_OK)
                return status;
        }
    }
    return FP8_OK;
}

static int explain(const cli_args *args, const fp8_context *ctx)
{
    cli_json json = {.out = stdout};
    fp8_error err = {0};
    if (args->json) {
        cli_json_begin(&json, NULL, '{');
        cli_json_begin(&json, "cases", '[');
    }
    const fp8_status status = answer_all(args, &json, ctx, &err);
    if (args->json) {
        cli_json_end(&json, ']');
        if (status != FP8_OK)
            cli_json_error(&json, &err);
        cli_json_end(&json, '}');
    }
    return status == FP8_OK ? CLI_DONE : cli_fail(&err, 0, "");
}

int cli_run_explain(const cli_args *args)
{
    fp8_context *ctx;
    if (args->shapes.count == 0)
        return cli_usage_error("explain needs --shape MxNxK, such as 1x4096x4096");
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE)
        code = explain(args, ctx);
    fp8_context_free(ctx);
    return code;
}
