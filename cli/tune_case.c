/* SPDX-License-Identifier: Apache-2.0
 *
 * tune_case.c - the candidates of a product as series of launches: each is tried once, those near
 * the best go into rounds. */
#include "cli/tune_case.h"

#include <stdlib.h>
#include <string.h>

#define NEAR 1.2 /* times the best try: what goes into the rounds */
enum { MOST_CANDIDATES = 256 };

typedef struct candidate {
    cli_gpu_linear *linear;
    bool whole;
    const char *kernel;
    bool chosen;
    double tried; /* seconds */
} candidate;

typedef struct tuning {
    cli_gpu *gpu;
    bool whole; /* from bf16 that is quantized */
    cli_gpu_linear linear;
    candidate candidates[MOST_CANDIDATES];
    cli_series series[MOST_CANDIDATES]; /* of the candidate of the same number */
    int count;
    int64_t launches;
} tuning;

static fp8_status enqueue(void *arg, int64_t i, void *stream, fp8_error *err)
{
    const candidate *c = arg;
    cli_gpu_linear *l = c->linear;
    return fp8_linear_run_kernel((c->whole ? l->whole : l->product)[i % l->copies], c->kernel,
                                 c->whole ? &l->x_high : &l->x,
                                 c->whole ? NULL : cli_gpu_linear_x_scales(l), &l->y, l->workspace,
                                 l->workspace_bytes, stream, err);
}

static fp8_status explain(const fp8_context *ctx, const cli_linear_scheme *scheme, bool whole,
                          const cli_shape *s, int64_t i, fp8_candidate *out, fp8_error *err)
{
    const fp8_activation activation = whole ? FP8_ACTIVATION_DYNAMIC : cli_linear_product(scheme);
    const fp8_linear_desc desc = cli_linear_desc(scheme, activation);
    return fp8_explain(ctx, &desc, s->m, s->n, s->k, cli_linear_x_dtype(activation), FP8_E4M3FN, i,
                       out, err);
}

/* What the library chooses among; slower kernels for what those cannot do are never chosen where
 * those can. */
static fp8_status find_candidates(tuning *t, fp8_error *err)
{
    const cli_gpu_linear *l = &t->linear;
    fp8_candidate found;
    fp8_status status = FP8_OK;
    for (int64_t i = 0; t->count < MOST_CANDIDATES; i++) {
        status = explain(l->ctx, l->scheme, t->whole, &l->shape, i, &found, err);
        if (status != FP8_OK)
            break;
        if (strcmp(found.isa, "sm_90a") == 0)
            t->candidates[t->count++] =
                (candidate){&t->linear, t->whole, found.kernel, found.chosen != 0, 0};
    }
    return status == FP8_E_NOT_FOUND ? FP8_OK : status;
}

static fp8_status try_candidate(tuning *t, int i, fp8_error *err)
{
    candidate *c = &t->candidates[i];
    const cli_recipe recipe = {c->kernel, enqueue, c, t->launches, false};
    CLI_TRY(cli_gpu_record(t->gpu, &recipe, &t->series[i], err));
    for (int turn = 0; turn < 2; turn++) /* the first warms up */
        CLI_TRY(cli_gpu_replay(t->gpu, &t->series[i], 1, &c->tried, err));
    return FP8_OK;
}

/* Leaves the graphs of those near the best, and of the library's choice. */
static int keep_near(tuning *t)
{
    double best = t->candidates[0].tried;
    int kept = 0;
    for (int i = 1; i < t->count; i++)
        best = t->candidates[i].tried < best ? t->candidates[i].tried : best;
    for (int i = 0; i < t->count; i++) {
        if (t->candidates[i].tried <= NEAR * best || t->candidates[i].chosen)
            kept++;
        else
            cli_series_free(t->gpu, &t->series[i]);
    }
    return kept;
}

static fp8_status time_all(tuning *t, double seconds, cli_tune_result *out, fp8_error *err)
{
    int rounds;
    CLI_TRY(cli_gpu_launches(t->gpu, cli_gpu_linear_product, &t->linear, t->linear.copies,
                             &t->launches, err));
    for (int i = 0; i < t->count; i++) {
        const fp8_status status = try_candidate(t, i, err);
        if (status != FP8_OK) {
            const fp8_error why = *err;
            return cli_bench_fail(err, status, "tune: %s: %.900s", t->candidates[i].kernel,
                                  why.msg);
        }
    }
    out->timed = keep_near(t);
    CLI_TRY(cli_gpu_time(t->gpu, t->series, t->count, seconds, &rounds, err));
    for (int i = 0; i < t->count; i++) {
        const cli_series *s = &t->series[i];
        if (s->graph == NULL)
            continue;
        if (out->kernel == NULL || s->median < out->seconds) {
            out->kernel = t->candidates[i].kernel;
            out->seconds = s->median;
        }
        if (t->candidates[i].chosen) {
            out->chosen = t->candidates[i].kernel;
            out->chosen_seconds = s->median;
        }
    }
    return FP8_OK;
}

fp8_status cli_tune_case(const fp8_context *ctx, cli_gpu *gpu, const cli_linear_scheme *scheme,
                         bool whole, cli_shape shape, double seconds, cli_tune_result *out,
                         fp8_error *err)
{
    *out = (cli_tune_result){0};
    tuning *t = calloc(1, sizeof *t);
    if (t == NULL)
        return cli_bench_fail(err, FP8_E_NO_MEMORY, "tune: no memory");
    t->gpu = gpu;
    t->whole = whole;
    fp8_status status = cli_gpu_linear_make(&t->linear, ctx, gpu, scheme, shape, false, err);
    if (status == FP8_OK)
        status = find_candidates(t, err);
    out->candidates = t->count;
    if (status == FP8_OK && t->count > 0)
        status = time_all(t, seconds, out, err);
    for (int i = 0; i < t->count; i++)
        cli_series_free(gpu, &t->series[i]);
    cli_gpu_linear_free(&t->linear);
    free(t);
    return status;
}
