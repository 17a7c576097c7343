/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h - timing two things side by side: rounds of one and the other in turn, in one process, so
 * that what disturbs the machine disturbs both; the ratio of the medians counts, not the times. */
#ifndef FP8_BENCH_BENCH_H
#define FP8_BENCH_BENCH_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { BENCH_ROUNDS = 15 };

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef void (*bench_fn)(void *arg);

/* Seconds of `count` calls. */
static inline double bench_once(bench_fn fn, void *arg, int64_t count)
{
    const double start = bench_now();
    for (int64_t i = 0; i < count; i++)
        fn(arg);
    return bench_now() - start;
}

/* Median seconds a call of each, after one call of each that is not counted. A round lasts about
 * `seconds`. */
static inline void bench_pair(bench_fn ours, void *our_arg, bench_fn peer, void *peer_arg,
                              double seconds, double *our_time, double *peer_time)
{
    double a[BENCH_ROUNDS], b[BENCH_ROUNDS];
    const double first = bench_once(ours, our_arg, 1), peer_first = bench_once(peer, peer_arg, 1);
    const int64_t n = 1 + (int64_t)(seconds / (first + 1e-9));
    const int64_t m = 1 + (int64_t)(seconds / (peer_first + 1e-9));
    for (int r = 0; r < BENCH_ROUNDS; r++) {
        a[r] = bench_once(ours, our_arg, n) / (double)n;
        b[r] = bench_once(peer, peer_arg, m) / (double)m;
    }
    qsort(a, BENCH_ROUNDS, sizeof *a, bench_compare);
    qsort(b, BENCH_ROUNDS, sizeof *b, bench_compare);
    *our_time = a[BENCH_ROUNDS / 2];
    *peer_time = b[BENCH_ROUNDS / 2];
}

#endif
