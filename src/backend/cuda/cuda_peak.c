/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_peak.c - how fast a device reads its memory, and copies within it. The host's clock is
 * enough: a try enqueues some milliseconds of work and waits for all of it. */
#define _GNU_SOURCE
#include "backend/cuda/launch.h"
#include "base/context.h"
#include "op/cuda_calls.h"

#include <time.h>

enum {
    BUFFER = 1 << 30, /* bytes: many times any L2 cache */
    AT_ONCE = 8,      /* launches of a try */
    LEAST_TRIES = 4,
};

typedef struct measurement {
    const fp8_context *ctx;
    char *memory; /* BUFFER bytes, and a word */
} measurement;

/* Enqueues one pass over the memory. */
typedef fp8_status pass_fn(const measurement *m, fp8_error *err);

static fp8_status read_pass(const measurement *m, fp8_error *err)
{
    const fp8_cuda_device *device = m->ctx->cuda;
    const fp8_read_args args = {
        .data = m->memory, .sink = (uint32_t *)(void *)(m->memory + BUFFER), .count = BUFFER / 16};
    const fp8_cuda_shape shape = {.grid = {(uint32_t)device->facts.processors * FP8_READ_BLOCKS},
                                  .threads = FP8_READ_THREADS};
    FP8_TRY(fp8_cuda_begin(device, NULL, err));
    const fp8_status status =
        fp8_cuda_launch(device, FP8_CUDA_read_memory, &shape, &args, NULL, err);
    fp8_cuda_leave(device);
    return status;
}

static fp8_status copy_pass(const measurement *m, fp8_error *err)
{
    return fp8_device_copy(m->ctx, m->memory + BUFFER / 2, m->memory, BUFFER / 2, NULL, err);
}

static const struct {
    fp8_peak peak;
    pass_fn *pass;
} peaks[] = {
    {{"read", "memory of the device", "GB/s", 0}, read_pass},
    {{"copy", "within the device's memory, bytes read and written", "GB/s", 0}, copy_pass},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of a pass. */
static fp8_status attempt(const measurement *m, pass_fn *pass, double *seconds, fp8_error *err)
{
    const double start = now();
    for (int i = 0; i < AT_ONCE; i++)
        FP8_TRY(pass(m, err));
    FP8_TRY(fp8_device_wait(m->ctx, NULL, err));
    *seconds = (now() - start) / AT_ONCE;
    return FP8_OK;
}

/* The best of some tries; the first warms up. */
static fp8_status measure(const measurement *m, pass_fn *pass, double seconds, double *value,
                          fp8_error *err)
{
    const double end = now() + seconds;
    double took, least = 0;
    FP8_TRY(attempt(m, pass, &took, err));
    for (int tries = 0; tries < LEAST_TRIES || now() < end; tries++) {
        FP8_TRY(attempt(m, pass, &took, err));
        least = tries == 0 || took < least ? took : least;
    }
    *value = BUFFER / least * 1e-9;
    return FP8_OK;
}

fp8_status fp8_cuda_peak(const fp8_context *ctx, int64_t i, double seconds, fp8_peak *out,
                         fp8_error *err)
{
    measurement m = {.ctx = ctx};
    void *memory;
    FP8_FAIL_IF(i < 0 || i >= (int64_t)(sizeof peaks / sizeof *peaks), err, FP8_E_NOT_FOUND,
                "peak: there is no peak %lld", (long long)i);
    FP8_TRY(fp8_device_alloc(ctx, BUFFER + sizeof(uint32_t), &memory, err));
    m.memory = memory;
    *out = peaks[i].peak;
    const fp8_status status = measure(&m, peaks[i].pass, seconds, &out->value, err);
    fp8_device_free(ctx, memory);
    return status;
}
