/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_bench.c - fp8 bench linear|quantize: for each shape and scheme how fast, what share of the
 * machine that is, and how fast other libraries are in the same run. */
#include "cli/bench_gpu.h"
#include "cli/bench_report.h"
#include "cli/exit_code.h"
#include "cli/start.h"
#include "cli/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEAK_SECONDS    0.3  /* at most: cases that are timed for less get no better a peak */
#define AGAIN_SECONDS   0.05 /* for a peak before each case that is timed for longer */
#define DEFAULT_SECONDS 0.5

/* A run of the verb. */
typedef struct bench {
    const fp8_context *ctx;
    const cli_args *args;
    double seconds; /* of each thing that is timed */
    cli_bench_report report;
    cli_timed times[1 + CLI_PEER_COUNT];
} bench;

const char *cli_bench_subject(int64_t i)
{
    static const char *const names[] = {"linear", "quantize"};
    return i >= 0 && i < 2 ? names[i] : NULL;
}

/* What a case is compared with: reading and, unless NULL, the multiply-adds of a level. */
static fp8_status peaks_again(bench *b, const char *isa, fp8_error *err)
{
    cli_peaks *peaks = &b->report.peaks;
    fp8_status status = FP8_OK;
    if (b->seconds <= AGAIN_SECONDS)
        return FP8_OK;
    status = cli_peaks_again(peaks, b->ctx, "read", AGAIN_SECONDS, err);
    if (status == FP8_OK && isa != NULL)
        status = cli_peaks_again(peaks, b->ctx, isa, AGAIN_SECONDS, err);
    return status;
}

/* ---- linear ---- */

/* Times a case and those peers that can do it. */
static void time_linear(bench *b, cli_linear_case *c)
{
    cli_peer_case cases[CLI_PEER_COUNT] = {0};
    cli_timed *times = b->times;
    int place[CLI_PEER_COUNT], count = 1;
    times[0] = (cli_timed){.call = cli_linear_case_call, .arg = c};
    for (int i = 0; i < b->report.peer_count; i++) {
        const cli_peer *peer = &b->report.peers[i];
        place[i] = 0;
        if (peer->missing[0] || !peer->make(peer, &c->shape, &cases[i]))
            continue;
        place[i] = count;
        times[count++] = (cli_timed){.call = cases[i].call, .arg = cases[i].state};
    }
    for (int i = 0; i < count; i++)
        times[i].settles = count > 1;
    const int rounds = cli_time(times, count, b->seconds * count);
    for (int i = b->report.peer_count - 1; i >= 0; i--) { /* each to its own place, last first */
        times[1 + i] = place[i] > 0 ? times[place[i]] : (cli_timed){0};
        if (cases[i].state != NULL)
            cases[i].free(cases[i].state);
    }
    if (c->status == FP8_OK)
        cli_report_linear(&b->report, c, times, rounds);
}

static fp8_status bench_linear(bench *b, const cli_linear_scheme *scheme, const cli_shape *shape,
                               fp8_error *err)
{
    cli_linear_case c;
    fp8_status status = cli_linear_case_make(&c, b->ctx, scheme, *shape, err);
    if (status == FP8_OK)
        status = peaks_again(b, c.chosen.isa, err);
    if (status == FP8_OK) {
        time_linear(b, &c);
        status = c.status;
        *err = c.err;
    }
    cli_linear_case_free(&c);
    return status;
}

/* ---- quantize ---- */

static fp8_status bench_matrix(bench *b, const cli_linear_scheme *scheme, const cli_shape *shape,
                               bool of_x, fp8_error *err)
{
    cli_quantize_case c;
    const fp8_quantize_desc desc = cli_quantize_desc(b->args, of_x ? scheme->x : scheme->w);
    fp8_status status =
        cli_quantize_case_make(&c, b->ctx, cli_dtype_of(b->args->dtype), scheme->scale, &desc,
                               of_x ? shape->m : shape->n, shape->k, err);
    if (status == FP8_OK)
        status = peaks_again(b, NULL, err);
    if (status == FP8_OK) {
        b->times[0] = (cli_timed){.call = cli_quantize_case_call, .arg = &c};
        const int rounds = cli_time(b->times, 1, b->seconds);
        cli_report_quantize(&b->report, &c, scheme, shape, of_x ? "x" : "w", b->times, rounds);
        status = c.status;
        *err = c.err;
    }
    cli_quantize_case_free(&c);
    return cli_quantize_defined(b->args, status, err);
}

/* What the scheme quantizes: X where it does so itself, and W. */
static fp8_status bench_quantize(bench *b, const cli_linear_scheme *scheme, const cli_shape *shape,
                                 fp8_error *err)
{
    fp8_status status = FP8_OK;
    if (scheme->activation == FP8_ACTIVATION_CODES || scheme->accumulation)
        return FP8_OK; /* as channel */
    if (scheme->activation == FP8_ACTIVATION_DYNAMIC)
        status = bench_matrix(b, scheme, shape, true, err);
    return status == FP8_OK ? bench_matrix(b, scheme, shape, false, err) : status;
}

/* ---- the verb ---- */

static fp8_status bench_all(bench *b, bool linear, const cli_shapes *shapes, fp8_error *err)
{
    const cli_linear_scheme *scheme;
    for (size_t s = 0; s < shapes->count; s++) {
        for (int64_t i = 0; (scheme = cli_linear_scheme_at(i)) != NULL; i++) {
            if (cli_flush() != 0) /* nobody reads on */
                return FP8_OK;
            const char *wanted = b->args->scheme;
            if (wanted != NULL && strcmp(wanted, scheme->name) != 0)
                continue;
            const fp8_status status =
                (linear ? bench_linear : bench_quantize)(b, scheme, &shapes->items[s], err);
            if (status != FP8_OK)
                return status;
        }
    }
    return FP8_OK;
}

static int run(bench *b, bool linear, const cli_shapes *shapes)
{
    cli_json *json = b->report.json;
    fp8_error err = {0};
    if (json != NULL)
        cli_json_begin(json, NULL, '{');
    const double seconds = b->seconds < PEAK_SECONDS ? b->seconds : PEAK_SECONDS;
    fp8_status status = cli_peaks_measure(&b->report.peaks, b->ctx, seconds, &err);
    if (status == FP8_OK) {
        cli_report_machine(&b->report);
        if (json != NULL)
            cli_json_begin(json, "cases", '[');
        status = bench_all(b, linear, shapes, &err);
        if (json != NULL)
            cli_json_end(json, ']');
    }
    if (json != NULL) {
        if (status != FP8_OK)
            cli_json_error(json, &err);
        cli_json_end(json, '}');
    }
    return status == FP8_OK ? CLI_DONE : cli_fail(&err, 0, "");
}

/* Threads of a context: what its doctor says. */
static int threads_of(const fp8_context *ctx)
{
    const char *line;
    int threads = 1;
    for (int64_t i = 0; (line = fp8_doctor(ctx, i)) != NULL; i++)
        if (strncmp(line, "threads: ", 9) == 0)
            threads = atoi(line + 9);
    return threads;
}

static int bench_cpu(const cli_args *args, const fp8_context *ctx, const cli_shapes *shapes)
{
    cli_json json = {.out = stdout};
    const bool linear = strcmp(args->paths[0], "linear") == 0;
    int code = CLI_MEMORY;
    bench *b = calloc(1, sizeof *b);
    if (b != NULL) {
        b->ctx = ctx;
        b->args = args;
        b->seconds = args->seconds > 0 ? args->seconds : DEFAULT_SECONDS;
        b->report.json = args->json ? &json : NULL;
        b->report.threads = threads_of(ctx);
        b->report.peer_count = linear ? CLI_PEER_COUNT : 0;
        if (linear)
            cli_peers_open(b->report.peers, b->report.threads);
        code = run(b, linear, shapes);
    } else {
        cli_error("out of memory");
    }
    free(b);
    return code;
}

static int bench_shapes(const cli_args *args, const cli_shapes *shapes)
{
    fp8_context *ctx;
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE)
        code = (args->device == FP8_DEVICE_CUDA ? cli_bench_gpu : bench_cpu)(args, ctx, shapes);
    fp8_context_free(ctx);
    return code;
}

/* Options that only quantize takes. */
static int check_subject(const cli_args *args)
{
    const char *option = args->numerics != NULL ? "numerics" : args->dtype != NULL ? "dtype" : NULL;
    if (option == NULL || strcmp(args->paths[0], "linear") != 0)
        return CLI_DONE;
    return cli_usage_error("bench linear does not take --%s, which is for bench quantize", option);
}

int cli_run_bench(const cli_args *args)
{
    cli_shapes shapes = {0};
    int code = check_subject(args);
    if (code == CLI_DONE)
        code = cli_collect_shapes(args, &shapes);
    if (code == CLI_DONE)
        code = bench_shapes(args, &shapes);
    cli_shapes_free(&shapes);
    return code;
}
