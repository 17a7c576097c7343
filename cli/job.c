/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c - one conversion from arguments to exit code. */
#define _GNU_SOURCE
#include "cli/job.h"

#include "cli/escape.h"
#include "cli/exit_code.h"
#include "cli/json_out.h"
#include "cli/plan_view.h"
#include "cli/progress_line.h"
#include "cli/signals.h"
#include "cli/start.h"
#include "cli/tensor_text.h"
#include "cli/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static fp8_convert_desc describe(const cli_args *args, fp8_verb verb)
{
    fp8_convert_desc desc = FP8_CONVERT_DESC_INIT;
    desc.verb = verb;
    desc.src = args->paths[0];
    desc.dst = args->output;
    desc.scheme = args->scheme;
    desc.engine = args->engine;
    desc.numerics = args->numerics;
    desc.dtype = verb == FP8_DEQUANTIZE ? cli_dtype_of(args->dtype) : FP8_DTYPE_NONE;
    desc.keep_nan = args->nan != NULL && strcmp(args->nan, "keep") == 0;
    desc.patterns = args->patterns;
    desc.pattern_count = args->pattern_count;
    desc.max_memory_bytes = args->max_memory;
    desc.max_shard_bytes = args->max_shard_size;
    desc.resume = args->resume;
    desc.force = args->force;
    desc.part_index = args->part_index;
    desc.part_count = args->part_count;
    desc.report = args->report;
    desc.activation_scales = args->activation_scales;
    return desc;
}

/* Prints warnings from number *next on; more may have come since the last call. */
static void print_warnings(const cli_args *args, const fp8_convert *conv, int64_t *next)
{
    const char *warning;
    for (; (warning = fp8_convert_warning(conv, *next)) != NULL; ++*next) {
        if (!args->quiet)
            cli_warning(warning);
    }
}

static bool exists(const char *path, const char *suffix)
{
    char whole[4096];
    struct stat info;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    int bytes = snprintf(whole, sizeof whole, "%.*s%s", (int)length, path, suffix);
    return bytes > 0 && (size_t)bytes < sizeof whole && stat(whole, &info) == 0;
}

/* The next run can succeed without another source, other options or another DST. */
static bool can_go_on(fp8_status status)
{
    return status == FP8_E_STOPPED || status == FP8_E_IO || status == FP8_E_NO_SPACE ||
           status == FP8_E_NO_MEMORY;
}

/* A run that failed: says whether it can go on. */
static int run_failed(const cli_args *args, const fp8_error *err)
{
    bool left = exists(args->output, ".partial");
    const char *hint = !left || !can_go_on(err->code) ? ""
                       : args->resume                 ? "; to go on, run the same command again"
                                      : "; to go on, run the same command with --resume";
    if (err->code != FP8_E_STOPPED)
        return cli_fail(err, args->json, hint);
    fp8_error stopped = *err;
    snprintf(stopped.msg, sizeof stopped.msg, "interrupted, %s",
             left ? "what is done is kept" : "nothing was written");
    return cli_fail(&stopped, args->json, hint);
}

static void print_result(const cli_args *args, const fp8_convert *conv, double seconds)
{
    char before[CLI_UNIT_TEXT], after[CLI_UNIT_TEXT], speed[CLI_UNIT_TEXT];
    fp8_plan_summary sum;
    fp8_convert_summary(conv, &sum);
    cli_text_print(stdout, args->output, strlen(args->output));
    if (args->part_count > 1)
        printf(": part %d of %d done%s", args->part_index, args->part_count,
               exists(args->output, "") ? ", all parts are there" : "");
    printf(": %" PRId64 " tensors, %" PRId64 " changed, %" PRId64 " kept; %s -> %s; %.1f s, %s/s\n",
           sum.tensors, sum.changed, sum.kept, cli_format_bytes(before, sum.bytes_in),
           cli_format_bytes(after, sum.bytes_out), seconds,
           cli_format_bytes(speed, seconds > 0 ? (uint64_t)((double)sum.bytes_in / seconds) : 0));
}

static void print_result_json(const cli_args *args, const fp8_convert *conv, double seconds)
{
    cli_json json = {.out = stdout};
    fp8_plan_summary sum;
    fp8_convert_summary(conv, &sum);
    cli_json_begin(&json, NULL, '{');
    cli_json_text(&json, "output", args->output);
    cli_json_bool(&json, "complete", exists(args->output, ""));
    cli_json_counts(&json, &sum);
    cli_json_real(&json, "seconds", seconds);
    cli_json_warnings(&json, conv);
    cli_json_end(&json, '}');
}

static int run(const cli_args *args, fp8_convert *conv, int64_t *warnings)
{
    fp8_error err = {0};
    cli_meter meter = cli_meter_create(args->progress, args->quiet);
    double start = now();
    if (args->verbose && !args->json) {
        cli_plan_print_rows(conv);
        cli_flush();
    }
    cli_signals_stop(conv);
    fp8_status status = fp8_convert_run(conv, cli_meter_step, &meter, &err);
    cli_signals_release();
    double seconds = now() - start;
    cli_meter_clear(&meter);
    print_warnings(args, conv, warnings);
    if (status != FP8_OK)
        return run_failed(args, &err);
    if (args->json)
        print_result_json(args, conv, seconds);
    else if (!args->quiet)
        print_result(args, conv, seconds);
    return CLI_DONE;
}

static int plan_and_run(const cli_args *args, const fp8_context *ctx, fp8_verb verb)
{
    fp8_error err = {0};
    fp8_convert *conv = NULL;
    fp8_convert_desc desc = describe(args, verb);
    int64_t warnings = 0;
    if (fp8_convert_plan(ctx, &desc, &conv, &err) != FP8_OK)
        return cli_fail(&err, args->json, "");
    print_warnings(args, conv, &warnings);
    if (args->dry_run && args->report != NULL && !args->quiet)
        cli_warning("--dry-run writes nothing, so no report either");
    int code = args->dry_run ? cli_plan_print(args, conv) : run(args, conv, &warnings);
    fp8_convert_free(conv);
    return code;
}

int cli_job(const cli_args *args, fp8_verb verb)
{
    if (args->output == NULL)
        return cli_usage_error("where to? -o names the directory to make");
    size_t length = strlen(args->output);
    if (length > 12 && strcmp(args->output + length - 12, ".safetensors") == 0)
        return cli_usage_error("-o %s: DST is a directory; the files in it get names of their own",
                               args->output);
    fp8_context *ctx = NULL;
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE)
        code = plan_and_run(args, ctx, verb);
    fp8_context_free(ctx);
    return code;
}
