/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu.c - what is timed on a GPU, case by case. */
#include "cli/bench_gpu.h"

#include "cli/case_quantize.h"
#include "cli/exit_code.h"
#include "cli/gpu_launch.h"
#include "cli/gpu_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SECONDS 0.1
#define PEAK_SECONDS    0.2  /* at most */
enum { PEAK_EXTENT = 8192 }; /* of the product that is the measure of others */

typedef struct bench {
    const fp8_context *ctx;
    const cli_args *args;
    double seconds; /* of each thing that is timed */
    cli_gpu gpu;
    cli_nvml nvml;
    cli_cublaslt lt;
    cli_gpu_report report;
    cli_series series[CLI_LINEAR_SERIES];
} bench;

/* ---- linear ---- */

static fp8_status record_ours(bench *b, cli_gpu_linear *c, int64_t launches, fp8_error *err)
{
    const cli_recipe recipes[] = {
        [CLI_COLD] = {"cold", cli_gpu_linear_product, c, launches, false},
        [CLI_WARM] = {"warm", cli_gpu_linear_warm, c, launches, false},
        [CLI_APART] = {"apart", cli_gpu_linear_product, c, launches, true},
        [CLI_WHOLE] = {"whole", cli_gpu_linear_whole, c, launches, false},
        [CLI_WHOLE_APART] = {"whole apart", cli_gpu_linear_whole, c, launches, true},
    };
    for (int i = 0; i < CLI_PEERS; i++) {
        if (!c->has_whole && (i == CLI_WHOLE || i == CLI_WHOLE_APART))
            continue;
        const fp8_status status = cli_gpu_record(&b->gpu, &recipes[i], &b->series[i], err);
        if (status != FP8_OK && !recipes[i].apart) /* old drivers cannot part launches */
            return status;
    }
    return FP8_OK;
}

static fp8_status record_peers(bench *b, const cli_gpu_linear *c, int64_t launches, fp8_error *err)
{
    cli_lt_problem problem;
    for (int way = 0; way < CLI_PEER_WAYS && b->lt.missing[0] == 0; way++) {
        cli_series *out = &b->series[CLI_PEERS + way * CLI_LT_FINALISTS];
        if (cli_gpu_linear_peer(c, (cli_peer_way)way, launches, &problem))
            CLI_TRY(cli_cublaslt_record(&b->lt, &b->gpu, &problem, out, err));
    }
    return FP8_OK;
}

static fp8_status sustain(bench *b, cli_gpu_times *t, fp8_error *err)
{
    const cli_series *peer = cli_gpu_faster(b->series, CLI_PEER_SAME);
    CLI_TRY(cli_gpu_sustain(&b->gpu, &b->nvml, &b->series[CLI_COLD], b->seconds, &t->ours, err));
    return peer == NULL ? FP8_OK
                        : cli_gpu_sustain(&b->gpu, &b->nvml, peer, b->seconds, &t->peer, err);
}

static fp8_status time_linear(bench *b, cli_gpu_linear *c, cli_gpu_times *t, fp8_error *err)
{
    int64_t launches;
    CLI_TRY(cli_gpu_launches(&b->gpu, cli_gpu_linear_product, c, c->copies, &launches, err));
    CLI_TRY(record_ours(b, c, launches, err));
    CLI_TRY(record_peers(b, c, launches, err));
    return cli_gpu_time(&b->gpu, b->series, CLI_LINEAR_SERIES, b->seconds, &t->rounds, err);
}

static fp8_status time_host(bench *b, cli_gpu_linear *c, cli_gpu_times *t, fp8_error *err)
{
    CLI_TRY(cli_gpu_host(&b->gpu, cli_gpu_linear_product, c, &t->host, err));
    CLI_TRY(cli_gpu_bare(&b->gpu, cli_gpu_linear_product, c, &t->launch, err));
    if (!c->has_whole)
        return FP8_OK;
    CLI_TRY(cli_gpu_host(&b->gpu, cli_gpu_linear_whole, c, &t->whole_host, err));
    return cli_gpu_bare(&b->gpu, cli_gpu_linear_whole, c, &t->whole_launch, err);
}

static void free_series(bench *b)
{
    for (int i = 0; i < CLI_LINEAR_SERIES; i++)
        cli_series_free(&b->gpu, &b->series[i]);
    memset(b->series, 0, sizeof b->series);
}

static fp8_status bench_linear(bench *b, const cli_linear_scheme *scheme, const cli_shape *shape,
                               fp8_error *err)
{
    cli_gpu_times t = {.series = b->series};
    cli_gpu_linear *c = malloc(sizeof *c);
    if (c == NULL)
        return cli_bench_fail(err, FP8_E_NO_MEMORY, "bench: no memory");
    fp8_status status =
        cli_gpu_linear_make(c, b->ctx, &b->gpu, scheme, *shape, b->lt.missing[0] == 0, err);
    if (status == FP8_OK)
        status = time_linear(b, c, &t, err);
    if (status == FP8_OK)
        status = sustain(b, &t, err);
    if (status == FP8_OK)
        status = time_host(b, c, &t, err);
    if (status == FP8_OK)
        cli_report_gpu_linear(&b->report, c, &t);
    free_series(b);
    cli_gpu_linear_free(c);
    free(c);
    return status;
}

/* ---- quantize ---- */

/* A series that the library refuses is left out: not every rule has it. */
static fp8_status record_or_leave(bench *b, const cli_recipe *recipe, cli_series *out,
                                  fp8_error *err)
{
    const fp8_status status = cli_gpu_record(&b->gpu, recipe, out, err);
    if (status == FP8_E_UNSUPPORTED)
        out->graph = NULL;
    return status == FP8_E_UNSUPPORTED ? FP8_OK : status;
}

static fp8_status time_matrix(bench *b, cli_gpu_quantize *c, cli_gpu_times *t, fp8_error *err)
{
    int64_t n;
    CLI_TRY(cli_gpu_launches(&b->gpu, cli_gpu_quantize_forth, c, c->copies, &n, err));
    const cli_recipe recipes[CLI_QUANTIZE_SERIES] = {
        [CLI_FORTH] = {"quantize", cli_gpu_quantize_forth, c, n, false},
        [CLI_STATIC] = {"static", cli_gpu_quantize_static, c, n, false},
        [CLI_BACK] = {"dequantize", cli_gpu_quantize_back, c, n, false},
        [CLI_COPY] = {"copy", cli_gpu_quantize_copy, c, n, false},
    };
    for (int i = 0; i < CLI_QUANTIZE_SERIES; i++)
        CLI_TRY(record_or_leave(b, &recipes[i], &b->series[i], err));
    CLI_TRY(cli_gpu_time(&b->gpu, b->series, CLI_QUANTIZE_SERIES, b->seconds, &t->rounds, err));
    CLI_TRY(cli_gpu_host(&b->gpu, cli_gpu_quantize_forth, c, &t->host, err));
    return cli_gpu_bare(&b->gpu, cli_gpu_quantize_forth, c, &t->launch, err);
}

static fp8_status bench_matrix(bench *b, const cli_linear_scheme *scheme, const cli_shape *shape,
                               bool of_x, fp8_error *err)
{
    cli_gpu_times t = {.series = b->series};
    const fp8_quantize_desc desc = cli_quantize_desc(b->args, of_x ? scheme->x : scheme->w);
    cli_gpu_quantize *c = malloc(sizeof *c);
    if (c == NULL)
        return cli_bench_fail(err, FP8_E_NO_MEMORY, "bench: no memory");
    fp8_status status =
        cli_gpu_quantize_make(c, b->ctx, &b->gpu, cli_dtype_of(b->args->dtype), scheme->scale,
                              &desc, of_x ? shape->m : shape->n, shape->k, err);
    if (status == FP8_OK)
        status = time_matrix(b, c, &t, err);
    if (status == FP8_OK)
        cli_report_gpu_quantize(&b->report, c, scheme, shape, of_x ? "x" : "w", &t);
    free_series(b);
    cli_gpu_quantize_free(c);
    free(c);
    return cli_quantize_defined(b->args, status, err);
}

/* What the scheme quantizes: X where it does so itself, and W. */
static fp8_status bench_quantize(bench *b, const cli_linear_scheme *scheme, const cli_shape *shape,
                                 fp8_error *err)
{
    if (scheme->activation == FP8_ACTIVATION_CODES || scheme->accumulation)
        return FP8_OK; /* as channel */
    if (scheme->activation == FP8_ACTIVATION_DYNAMIC)
        CLI_TRY(bench_matrix(b, scheme, shape, true, err));
    return bench_matrix(b, scheme, shape, false, err);
}

/* ---- the verb ---- */

static fp8_status bench_all(bench *b, bool linear, const cli_shapes *shapes, fp8_error *err)
{
    const char *wanted = b->args->scheme;
    const cli_linear_scheme *scheme;
    for (size_t s = 0; s < shapes->count; s++) {
        for (int64_t i = 0; (scheme = cli_linear_scheme_at(i)) != NULL; i++) {
            const cli_shape *shape = &shapes->items[s];
            if (cli_flush() != 0) /* nobody reads on */
                return FP8_OK;
            if ((wanted != NULL && strcmp(wanted, scheme->name) != 0) ||
                shape->m * shape->n * shape->k == 0)
                continue; /* nothing is launched for no element */
            CLI_TRY((linear ? bench_linear : bench_quantize)(b, scheme, shape, err));
        }
    }
    return FP8_OK;
}

/* FP8 operations of a multiprocessor in a clock, sums in fp32 without sparsity, by NVIDIA's data
 * sheets: their figure over multiprocessors and boost clock. */
static double known_peak(const fp8_gpu_info *gpu, int32_t clock_mhz)
{
    static const struct {
        int32_t capability;
        double operations;
    } rates[] = {{89, 2048}, {90, 8192}, {100, 16384}, {103, 16384}};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (rates[i].capability == gpu->capability)
            return rates[i].operations * gpu->processors * clock_mhz * 1e6;
    return 0;
}

/* The most that a large product reaches by any library here, with a scale a row and a channel. */
static fp8_status measure_product(bench *b, fp8_error *err)
{
    const cli_shape shape = {PEAK_EXTENT, PEAK_EXTENT, PEAK_EXTENT};
    const cli_linear_scheme *scheme = cli_linear_scheme_find("gemm");
    cli_gpu_peaks *peaks = &b->report.peaks;
    cli_gpu_times t = {.series = b->series};
    cli_gpu_linear *c = malloc(sizeof *c);
    if (c == NULL)
        return cli_bench_fail(err, FP8_E_NO_MEMORY, "bench: no memory");
    fp8_status status =
        cli_gpu_linear_make(c, b->ctx, &b->gpu, scheme, shape, b->lt.missing[0] == 0, err);
    if (status == FP8_OK)
        status = time_linear(b, c, &t, err);
    for (int i = 0; i < CLI_LINEAR_SERIES && status == FP8_OK; i++) {
        const double rate = 2.0 * PEAK_EXTENT * PEAK_EXTENT * PEAK_EXTENT / b->series[i].best;
        if (b->series[i].best > 0 && (i == CLI_COLD || i >= CLI_PEERS) && rate > peaks->product) {
            peaks->product = rate;
            peaks->by = i == CLI_COLD ? "fp8" : b->series[i].name;
        }
    }
    free_series(b);
    cli_gpu_linear_free(c);
    free(c);
    return status;
}

static fp8_status measure_peaks(bench *b, bool linear, fp8_error *err)
{
    const double seconds = b->seconds < PEAK_SECONDS ? b->seconds : PEAK_SECONDS;
    fp8_peak read, copy;
    CLI_TRY(fp8_machine_peak(b->ctx, 0, seconds, &read, err));
    CLI_TRY(fp8_machine_peak(b->ctx, 1, seconds, &copy, err));
    b->report.peaks.read = read.value * 1e9;
    b->report.peaks.copy = copy.value * 1e9;
    b->report.peaks.known = known_peak(&b->report.gpu, b->gpu.clock_mhz);
    return linear ? measure_product(b, err) : FP8_OK;
}

static fp8_status open_all(bench *b, bool linear, fp8_error *err)
{
    CLI_TRY(fp8_gpu(b->args->device_index, &b->report.gpu, err));
    CLI_TRY(cli_gpu_open(&b->gpu, b->args->device_index, err));
    cli_nvml_open(&b->nvml, b->gpu.pci);
    if (linear)
        cli_cublaslt_open(&b->lt, b->ctx);
    return FP8_OK;
}

static fp8_status run(bench *b, bool linear, const cli_shapes *shapes, fp8_error *err)
{
    cli_json *json = b->report.json;
    CLI_TRY(open_all(b, linear, err));
    CLI_TRY(measure_peaks(b, linear, err));
    cli_report_gpu(&b->report, linear);
    if (json != NULL)
        cli_json_begin(json, "cases", '[');
    const fp8_status status = bench_all(b, linear, shapes, err);
    if (json != NULL)
        cli_json_end(json, ']');
    return status;
}

static int run_and_close(bench *b, bool linear, const cli_shapes *shapes)
{
    cli_json *json = b->report.json;
    fp8_error err = {0};
    if (json != NULL)
        cli_json_begin(json, NULL, '{');
    const fp8_status status = run(b, linear, shapes, &err);
    if (json != NULL && status != FP8_OK)
        cli_json_error(json, &err);
    if (json != NULL)
        cli_json_end(json, '}');
    cli_cublaslt_close(&b->lt);
    cli_nvml_close(&b->nvml);
    cli_gpu_close(&b->gpu);
    return status == FP8_OK ? CLI_DONE : cli_fail(&err, 0, "");
}

int cli_bench_gpu(const cli_args *args, const fp8_context *ctx, const cli_shapes *shapes)
{
    cli_json json = {.out = stdout};
    char device[32];
    bench *b = calloc(1, sizeof *b);
    if (b == NULL) {
        cli_error("out of memory");
        return CLI_MEMORY;
    }
    snprintf(device, sizeof device, "cuda:%d", args->device_index);
    b->ctx = ctx;
    b->args = args;
    b->seconds = args->seconds > 0 ? args->seconds : DEFAULT_SECONDS;
    b->report = (cli_gpu_report){.json = args->json ? &json : NULL,
                                 .device = device,
                                 .driver = &b->gpu,
                                 .nvml = &b->nvml,
                                 .lt = &b->lt};
    const int code = run_and_close(b, strcmp(args->paths[0], "linear") == 0, shapes);
    free(b);
    return code;
}
