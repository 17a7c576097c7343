/* SPDX-License-Identifier: Apache-2.0
 *
 * timing.c - rounds, medians and bests. */
#define _GNU_SOURCE
#include "cli/timing.h"

#include <stdlib.h>
#include <time.h>

#define LEAST_SAMPLE 3e-4 /* seconds, so that the step of the clock is nothing, .. */
#define LONG_SAMPLE  3e-3 /* .. and of what has settled worth the wait */
#define SETTLE       0.05 /* OpenBLAS's threads spin for 2^26 cycles, libgomp's for some 10 ms */

double cli_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds a call of `calls` of them. */
static double once(const cli_timed *item, int64_t calls)
{
    const double start = cli_now();
    for (int64_t i = 0; i < calls; i++)
        item->call(item->arg);
    return (cli_now() - start) / (double)calls;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Calls that do not count keep its own threads awake until the others' sleep: a pause would send
 * all to sleep, and a virtual machine gives idle processors away. */
static double sample(const cli_timed *item)
{
    const double settled = cli_now() + SETTLE;
    while (item->settles && cli_now() < settled)
        item->call(item->arg);
    return once(item, item->calls);
}

/* The first call, which may make things that later ones find, does not count. */
static void warm_up(cli_timed *item)
{
    once(item, 1);
    const double seconds = once(item, 1);
    item->calls = 1 + (int64_t)((item->settles ? LONG_SAMPLE : LEAST_SAMPLE) / (seconds + 1e-9));
}

int cli_time(cli_timed *items, int count, double seconds)
{
    int rounds = 0;
    for (int i = 0; i < count; i++)
        warm_up(&items[i]);
    const double end = cli_now() + seconds;
    while (rounds < CLI_LEAST_ROUNDS || (rounds < CLI_MOST_ROUNDS && cli_now() < end)) {
        for (int i = 0; i < count; i++)
            items[i].samples[rounds] = sample(&items[i]);
        rounds++;
    }
    for (int i = 0; i < count; i++) {
        qsort(items[i].samples, (size_t)rounds, sizeof *items[i].samples, compare);
        items[i].best = items[i].samples[0];
        items[i].median = items[i].samples[rounds / 2];
    }
    return rounds;
}
