/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_timing.c - graphs of launches, their rounds, and bursts of calls. */
#include "cli/gpu_timing.h"

#include "cli/timing.h"

#include <stdlib.h>

#define GRAPH_SECONDS 2.4e-3 /* about, of the work in a graph */
#define BATCH_SECONDS 20e-3  /* of a sustained run, between two looks at the clock */
#define HOST_SECONDS  20e-3  /* of bursts: where a launch works for long, few do */
enum { THREAD_LOCAL = 1, BURST = 50, LEAST_BURSTS = 3, MOST_BURSTS = 20 };

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Waits for the second event; *seconds between both. */
static fp8_status elapsed(cli_gpu *gpu, double *seconds, fp8_error *err)
{
    float ms;
    CLI_GPU_TRY(gpu, err, cuEventSynchronize, gpu->to);
    CLI_GPU_TRY(gpu, err, cuEventElapsedTime, &ms, gpu->from, gpu->to);
    *seconds = (double)ms * 1e-3;
    return FP8_OK;
}

fp8_status cli_gpu_launches(cli_gpu *gpu, cli_enqueue_fn *enqueue, void *arg, int64_t copies,
                            int64_t *launches, fp8_error *err)
{
    enum { TRIED = 4 };
    double seconds = 0;
    for (int round = 0; round < 2; round++) { /* the first warms up */
        CLI_GPU_TRY(gpu, err, cuEventRecord, gpu->from, gpu->stream);
        for (int64_t i = 0; i < TRIED; i++)
            CLI_TRY(enqueue(arg, i, gpu->stream, err));
        CLI_GPU_TRY(gpu, err, cuEventRecord, gpu->to, gpu->stream);
        CLI_TRY(elapsed(gpu, &seconds, err));
    }
    const double wanted = GRAPH_SECONDS / (seconds / TRIED + 1e-9);
    const int64_t some = wanted < 1                       ? 1
                         : wanted < CLI_GPU_MOST_LAUNCHES ? (int64_t)wanted
                                                          : CLI_GPU_MOST_LAUNCHES;
    *launches = (some + copies - 1) / copies * copies;
    return FP8_OK;
}

/* What is captured next begins after all that was: kernels are tied to each other by an edge of its
 * own kind, which an empty node between does not carry on. */
static fp8_status part(cli_gpu *gpu, fp8_error *err)
{
    enum { SET = 1 };
    struct CUgraph_st *graph;
    struct CUgraphNode_st *const *after, *empty;
    unsigned int status;
    uint64_t id;
    size_t count;
    CLI_GPU_TRY(gpu, err, cuStreamGetCaptureInfo, gpu->stream, &status, &id, &graph, &after,
                &count);
    CLI_GPU_TRY(gpu, err, cuGraphAddEmptyNode, &empty, graph, after, count);
    CLI_GPU_TRY(gpu, err, cuStreamUpdateCaptureDependencies, gpu->stream, &empty, 1, SET);
    return FP8_OK;
}

static fp8_status enqueue_all(cli_gpu *gpu, const cli_recipe *r, fp8_error *err)
{
    for (int64_t i = 0; i < r->launches; i++) {
        CLI_TRY(r->enqueue(r->arg, i, gpu->stream, err));
        if (r->apart)
            CLI_TRY(part(gpu, err));
    }
    return FP8_OK;
}

fp8_status cli_gpu_record(cli_gpu *gpu, const cli_recipe *recipe, cli_series *out, fp8_error *err)
{
    struct CUgraph_st *graph = NULL;
    *out = (cli_series){.name = recipe->name, .launches = recipe->launches};
    CLI_GPU_TRY(gpu, err, cuStreamBeginCapture, gpu->stream, THREAD_LOCAL);
    fp8_status status = enqueue_all(gpu, recipe, err);
    const unsigned int ended = gpu->cuStreamEndCapture(gpu->stream, &graph);
    if (status == FP8_OK)
        status = cli_gpu_check(ended, "cuStreamEndCapture", err);
    if (status == FP8_OK)
        status = cli_gpu_check(gpu->cuGraphInstantiateWithFlags(&out->graph, graph, 0),
                               "cuGraphInstantiateWithFlags", err);
    if (graph != NULL)
        gpu->cuGraphDestroy(graph);
    return status;
}

void cli_series_free(cli_gpu *gpu, cli_series *series)
{
    if (series->graph != NULL)
        gpu->cuGraphExecDestroy(series->graph);
    series->graph = NULL;
}

static fp8_status launch(cli_gpu *gpu, const cli_series *series, int times, fp8_error *err)
{
    CLI_GPU_TRY(gpu, err, cuEventRecord, gpu->from, gpu->stream);
    for (int i = 0; i < times; i++)
        CLI_GPU_TRY(gpu, err, cuGraphLaunch, series->graph, gpu->stream);
    CLI_GPU_TRY(gpu, err, cuEventRecord, gpu->to, gpu->stream);
    return FP8_OK;
}

fp8_status cli_gpu_replay(cli_gpu *gpu, const cli_series *series, int times, double *seconds,
                          fp8_error *err)
{
    CLI_TRY(launch(gpu, series, times, err));
    CLI_TRY(elapsed(gpu, seconds, err));
    *seconds /= (double)(series->launches * times);
    return FP8_OK;
}

/* A round: each once, beginning somewhere and going round by a step that reaches all. */
static fp8_status time_round(cli_gpu *gpu, cli_series *series, int count, int round, fp8_error *err)
{
    const int first = (int)(((unsigned)round * 2654435761u) >> 16) % count;
    const int step = round % 2 ? 1 : count - 1;
    for (int n = 0; n < count; n++) {
        cli_series *s = &series[(first + n * (step ? step : 1)) % count];
        if (s->graph != NULL)
            CLI_TRY(cli_gpu_replay(gpu, s, 1, &s->samples[round], err));
    }
    return FP8_OK;
}

fp8_status cli_gpu_time(cli_gpu *gpu, cli_series *series, int count, double seconds, int *rounds,
                        fp8_error *err)
{
    CLI_TRY(time_round(gpu, series, count, 0, err)); /* warms up, and is overwritten */
    const double end = cli_now() + seconds * count;
    for (*rounds = 0;
         *rounds < CLI_GPU_LEAST_ROUNDS || (*rounds < CLI_GPU_MOST_ROUNDS && cli_now() < end);
         ++*rounds)
        CLI_TRY(time_round(gpu, series, count, *rounds, err));
    for (int i = 0; i < count; i++) {
        if (series[i].graph == NULL)
            continue;
        qsort(series[i].samples, (size_t)*rounds, sizeof *series[i].samples, compare);
        series[i].best = series[i].samples[0];
        series[i].median = series[i].samples[*rounds / 2];
    }
    return FP8_OK;
}

fp8_status cli_gpu_sustain(cli_gpu *gpu, const cli_nvml *nvml, const cli_series *series,
                           double seconds, cli_sustained *out, fp8_error *err)
{
    const double start = cli_now();
    double took, sum = 0;
    int counted = 0, looks = 0;
    *out = (cli_sustained){0};
    CLI_TRY(cli_gpu_replay(gpu, series, 1, &took, err));
    const double batch = BATCH_SECONDS / ((double)series->launches * took + 1e-9);
    const int times = batch < 1 ? 1 : batch > 1000 ? 1000 : (int)batch;
    while (cli_now() < start + seconds || counted == 0) {
        cli_nvml_state state;
        const bool counts = cli_now() >= start + seconds / 2;
        CLI_TRY(launch(gpu, series, times, err));
        if (counts && cli_nvml_read(nvml, &state)) { /* while it is at work */
            out->state.clock_mhz += state.clock_mhz;
            out->state.power_w += state.power_w;
            looks++;
        }
        CLI_TRY(elapsed(gpu, &took, err));
        sum += counts ? took / (double)(series->launches * times) : 0;
        counted += counts;
    }
    out->seconds = sum / counted;
    if (looks > 0)
        out->state = (cli_nvml_state){out->state.clock_mhz / looks, out->state.power_w / looks};
    return FP8_OK;
}

fp8_status cli_gpu_host(cli_gpu *gpu, cli_enqueue_fn *enqueue, void *arg, double *seconds,
                        fp8_error *err)
{
    const double end = cli_now() + HOST_SECONDS;
    *seconds = 0;
    for (int burst = 0; burst < LEAST_BURSTS || (burst < MOST_BURSTS && cli_now() < end); burst++) {
        CLI_GPU_TRY(gpu, err, cuStreamSynchronize, gpu->stream);
        const double start = cli_now();
        for (int64_t i = 0; i < BURST; i++)
            CLI_TRY(enqueue(arg, i, gpu->stream, err));
        const double took = (cli_now() - start) / BURST;
        *seconds = burst == 0 || took < *seconds ? took : *seconds;
    }
    CLI_GPU_TRY(gpu, err, cuStreamSynchronize, gpu->stream);
    return FP8_OK;
}
