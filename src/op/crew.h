/* SPDX-License-Identifier: Apache-2.0
 *
 * crew.h - tasks shared by a known number of workers, so that each can have its own part of the
 * workspace. Who does which task is left to chance; nothing may depend on it. */
#ifndef FP8_OP_CREW_H
#define FP8_OP_CREW_H

#include "base/context.h"
#include "base/size.h"

typedef struct fp8_crew {
    int64_t tasks;
    void (*task)(void *arg, int64_t task, int64_t worker);
    void *arg;
    int64_t next; /* task that nobody has taken; starts at 0 */
} fp8_crew;

static inline void fp8_crew_worker(void *arg, int64_t worker)
{
    fp8_crew *crew = arg;
    int64_t task;
    while ((task = __atomic_fetch_add(&crew->next, 1, __ATOMIC_RELAXED)) < crew->tasks)
        crew->task(crew->arg, task, worker);
}

/* task(arg, i, worker) for i in [0, tasks), with 0 <= worker < workers. */
static inline void fp8_run_crew(const fp8_context *ctx, int64_t workers, int64_t tasks,
                                void (*task)(void *arg, int64_t task, int64_t worker), void *arg)
{
    fp8_crew crew = {tasks, task, arg, 0};
    fp8_run_parallel(ctx, fp8_min_i64(workers, tasks), fp8_crew_worker, &crew);
}

#endif
