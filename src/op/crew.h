/* SPDX-License-Identifier: Apache-2.0
 *
 * crew.h - tasks shared by a known number of workers, so that each can have its own part of the
 * workspace. A worker has a range of tasks that follow each other, the same in every run, so that
 * it finds in its cache what it left there; when it is done it helps the others. Who does which
 * task is left to chance; nothing but time may depend on it. */
#ifndef FP8_OP_CREW_H
#define FP8_OP_CREW_H

#include "base/context.h"
#include "base/size.h"

enum { FP8_CREW_RANGES = 32 }; /* at most: more workers share them */

/* A range has a cache line of its own. */
typedef struct fp8_crew_range {
    _Alignas(64) int64_t next; /* task that nobody has taken */
} fp8_crew_range;

typedef struct fp8_crew {
    int64_t tasks;
    void (*task)(void *arg, int64_t task, int64_t worker);
    void *arg;
    int64_t ranges;
    fp8_crew_range range[FP8_CREW_RANGES];
} fp8_crew;

/* First task of a range. */
static inline int64_t fp8_crew_begin(const fp8_crew *crew, int64_t range)
{
    const int64_t each = crew->tasks / crew->ranges, more = crew->tasks % crew->ranges;
    return range * each + fp8_min_i64(range, more);
}

static inline void fp8_crew_worker(void *arg, int64_t worker)
{
    fp8_crew *crew = arg;
    for (int64_t i = 0; i < crew->ranges; i++) {
        const int64_t range = (worker + i) % crew->ranges;
        const int64_t end = fp8_crew_begin(crew, range + 1);
        int64_t task;
        while ((task = __atomic_fetch_add(&crew->range[range].next, 1, __ATOMIC_RELAXED)) < end)
            crew->task(crew->arg, task, worker);
    }
}

/* task(arg, i, worker) for i in [0, tasks), with 0 <= worker < workers. */
static inline void fp8_run_crew(const fp8_context *ctx, int64_t workers, int64_t tasks,
                                void (*task)(void *arg, int64_t task, int64_t worker), void *arg)
{
    fp8_crew crew = {.tasks = tasks, .task = task, .arg = arg};
    workers = fp8_min_i64(workers, tasks);
    crew.ranges = fp8_min_i64(workers, FP8_CREW_RANGES);
    for (int64_t r = 0; r < crew.ranges; r++)
        crew.range[r].next = fp8_crew_begin(&crew, r);
    fp8_run_parallel(ctx, workers, fp8_crew_worker, &crew);
}

#endif
