/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.c - fp8_machine_peak: how fast this machine reads memory and multiplies, measured on all
 * threads of a context (backend/cuda does its own). The best of several tries counts, since what
 * disturbs only slows. */
#define _GNU_SOURCE
#include "op/peak.h"
#include "base/size.h"
#include "op/backend.h"
#include "op/cuda_calls.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LEAST_TRIES = 16,
    READ_TRIES = 8, /* that read the buffer once together: each finds its part in no cache */
    LINE = 64,      /* bytes of a cache line */
    STREAMS = 4,
    AHEAD = 2048,           /* bytes */
    LEAST_READ = 128 << 20, /* bytes of the buffer that is read */
    MOST_READ = 512 << 20,
    PIECE = 1 << 20, /* of the buffer, for one task */
    FIRST_ROUNDS = 1 << 10,
};
#define TRY_SECONDS     1e-3 /* of multiply-adds: so short that some try is not disturbed */
#define DEFAULT_SECONDS 0.1

typedef struct measurement {
    const fp8_context *ctx;
    const fp8_kernel *kernel; /* of multiply-adds */
    int64_t rounds;
    const uint64_t *buffer;
    int64_t pieces; /* of the buffer */
    int64_t first;  /* of those that a try reads */
    uint64_t sink;  /* so that nothing is left out; added to by all threads */
    double amount;  /* bytes or operations of a task */
} measurement;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A word of each line, fetched ahead: reading one stream leaves a part of what the memory gives. */
uint64_t fp8_read_lines(const void *memory, int64_t bytes)
{
    uint64_t sum[STREAMS] = {0};
    for (int64_t at = 0; at < bytes / STREAMS; at += LINE)
        for (int s = 0; s < STREAMS; s++) {
            const char *line = (const char *)memory + s * (bytes / STREAMS) + at;
            uint64_t word;
            __builtin_prefetch((const void *)((uintptr_t)line + AHEAD)); /* need not exist */
            memcpy(&word, line, sizeof word);
            sum[s] += word;
        }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static void read_piece(void *arg, int64_t piece)
{
    measurement *m = arg;
    const uint64_t sum =
        fp8_read_lines(m->buffer + (m->first + piece) % m->pieces * (PIECE / 8), PIECE);
    __atomic_fetch_add(&m->sink, sum, __ATOMIC_RELAXED);
}

static void multiply(void *arg, int64_t thread)
{
    measurement *m = arg;
    fp8_peak_run run = {.rounds = m->rounds};
    (void)thread;
    m->kernel->fn.peak(&run);
    __atomic_fetch_add(&m->sink, (uint64_t)(run.sum != 0), __ATOMIC_RELAXED);
}

/* The best rate of some tries that last about `seconds` together; each does `tasks` tasks. */
static double best_rate(measurement *m, void (*task)(void *, int64_t), int64_t tasks,
                        double seconds)
{
    const double end = now() + seconds;
    double best = 0;
    for (int tries = 0; tries < LEAST_TRIES || now() < end; tries++) {
        const double start = now();
        fp8_run_parallel(m->ctx, tasks, task, m);
        const double rate = m->amount * (double)tasks / (now() - start);
        best = rate > best ? rate : best;
        m->first += tasks;
    }
    return best * 1e-9;
}

/* Twice the last cache, within limits, since some systems say what is far too large. */
static int64_t read_bytes(void)
{
    const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const int64_t bytes = fp8_min_i64(cache > LEAST_READ / 2 ? 2 * cache : LEAST_READ, MOST_READ);
    return bytes / PIECE * PIECE;
}

static fp8_status measure_read(const fp8_context *ctx, double seconds, fp8_peak *out,
                               fp8_error *err)
{
    const int64_t bytes = read_bytes();
    uint8_t *memory = fp8_alloc_streamed(ctx, (uint64_t)bytes + LINE);
    FP8_FAIL_IF(!memory, err, FP8_E_NO_MEMORY, "peak: no memory for %lld bytes", (long long)bytes);
    memset(memory, 1, (size_t)bytes + LINE); /* else all pages are the one page of zeros */
    const uintptr_t aligned = ((uintptr_t)memory + LINE - 1) / LINE * LINE;
    measurement m = {
        .ctx = ctx, .buffer = (const uint64_t *)aligned, .pieces = bytes / PIECE, .amount = PIECE};
    *out = (fp8_peak){"read", "memory, all threads", "GB/s", 0};
    out->value = best_rate(&m, read_piece, m.pieces / READ_TRIES, seconds);
    fp8_release(ctx, memory);
    return FP8_OK;
}

/* Kernel i of multiply-adds that ctx may use, lowest level first; NULL past the last. */
static const fp8_kernel *peak_kernel(const fp8_context *ctx, int64_t i)
{
    for (int isa = FP8_ISA_SCALAR; isa <= (int)ctx->isa; isa++) {
        const fp8_kernel *kernel;
        for (size_t k = 0; (kernel = fp8_kernel_at(k)); k++)
            if (kernel->op == FP8_OP_PEAK && (int)kernel->isa == isa && i-- == 0)
                return kernel;
    }
    return NULL;
}

static void measure_multiply(const fp8_context *ctx, const fp8_kernel *kernel, double seconds,
                             fp8_peak *out)
{
    measurement m = {.ctx = ctx, .kernel = kernel};
    fp8_peak_run run = {.rounds = FIRST_ROUNDS};
    double took;
    do {
        run.rounds *= 2;
        const double start = now();
        kernel->fn.peak(&run);
        took = now() - start;
    } while (took < TRY_SECONDS);
    m.rounds = run.rounds;
    m.amount = run.operations;
    *out = (fp8_peak){fp8_isa_name(kernel->isa),
                      kernel->from == FP8_BF16 ? "BF16 dot product" : "F32 multiply-add", "GFLOP/s",
                      0};
    out->value = best_rate(&m, multiply, ctx->threads, seconds);
}

fp8_status fp8_machine_peak(const fp8_context *ctx, int64_t i, double seconds, fp8_peak *out,
                            fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "peak: the context is NULL");
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "peak: out is NULL");
    FP8_FAIL_IF(!(seconds >= 0 && seconds <= 3600), err, FP8_E_ARGUMENT,
                "peak: seconds is %g, must be 0..3600", seconds);
    if (seconds == 0)
        seconds = DEFAULT_SECONDS;
    if (ctx->cuda)
        return fp8_cuda_peak(ctx, i, seconds, out, err);
    if (i == 0)
        return measure_read(ctx, seconds, out, err);
    const fp8_kernel *kernel = i > 0 ? peak_kernel(ctx, i - 1) : NULL;
    FP8_FAIL_IF(!kernel, err, FP8_E_NOT_FOUND, "peak: there is no peak %lld", (long long)i);
    measure_multiply(ctx, kernel, seconds, out);
    return FP8_OK;
}
