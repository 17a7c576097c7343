/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_timing.h - times of what is enqueued on a GPU. Many launches are captured into a graph, so
 * that the host does not count; the graphs of a case are replayed in rounds, each in an order of
 * its own, so that clock and power drift meet all of them alike. */
#ifndef FP8_CLI_GPU_TIMING_H
#define FP8_CLI_GPU_TIMING_H

#include "cli/gpu_driver.h"
#include "cli/nvml.h"

/* Enqueues launch number i of what `arg` is. */
typedef fp8_status cli_enqueue_fn(void *arg, int64_t i, void *stream, fp8_error *err);

enum { CLI_GPU_MOST_ROUNDS = 101, CLI_GPU_LEAST_ROUNDS = 5, CLI_GPU_MOST_LAUNCHES = 400 };

/* A graph, and what its rounds took. */
typedef struct cli_series {
    const char *name; /* static */
    struct CUgraphExec_st *graph;
    int64_t launches;
    double median, best; /* seconds a launch */
    double samples[CLI_GPU_MOST_ROUNDS];
} cli_series;

/* How many launches a graph should have, a multiple of `copies`: some milliseconds of work. Runs
 * `enqueue` a few times. Errors: those of enqueue, DEVICE. */
fp8_status cli_gpu_launches(cli_gpu *gpu, cli_enqueue_fn *enqueue, void *arg, int64_t copies,
                            int64_t *launches, fp8_error *err);
/* Captures launches of i = 0, 1 ..; apart: with an empty node between, so that none begins before
 * the one before it has ended, even where kernels allow it. */
typedef struct cli_recipe {
    const char *name;
    cli_enqueue_fn *enqueue;
    void *arg;
    int64_t launches;
    bool apart;
} cli_recipe;
/* Free with cli_series_free. Errors: those of enqueue, DEVICE. */
fp8_status cli_gpu_record(cli_gpu *gpu, const cli_recipe *recipe, cli_series *out, fp8_error *err);
void cli_series_free(cli_gpu *gpu, cli_series *series);
/* Replays a graph `times` times; *seconds a launch. Errors: DEVICE. */
fp8_status cli_gpu_replay(cli_gpu *gpu, const cli_series *series, int times, double *seconds,
                          fp8_error *err);
/* Times all for about `seconds` each; *rounds of it. Those without a graph stay at 0. */
fp8_status cli_gpu_time(cli_gpu *gpu, cli_series *series, int count, double seconds, int *rounds,
                        fp8_error *err);

/* One graph again and again: means of the second half. */
typedef struct cli_sustained {
    double seconds; /* a launch */
    cli_nvml_state state;
} cli_sustained;
fp8_status cli_gpu_sustain(cli_gpu *gpu, const cli_nvml *nvml, const cli_series *series,
                           double seconds, cli_sustained *out, fp8_error *err);
/* Seconds of the host for a call that enqueues: the best of some bursts. */
fp8_status cli_gpu_host(cli_gpu *gpu, cli_enqueue_fn *enqueue, void *arg, double *seconds,
                        fp8_error *err);

#endif
