/* SPDX-License-Identifier: Apache-2.0
 *
 * pipe.c - the ring and its threads. One lock guards the positions, the flags and the regions; no
 * file is touched and no arithmetic done under it. */
#define _GNU_SOURCE
#include "convert/pipe.h"
#include "convert/source.h"
#include "convert/work.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

enum { TICK_NS = 50 * 1000 * 1000 };

typedef struct worker_thread worker_thread;

typedef struct pipeline {
    fp8_convert *conv;
    fp8_cursor *cursor;
    const fp8_sink *sink;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any of what follows */
    fp8_job *slots;         /* [slot_count] */
    int64_t slot_count;
    int64_t head, take, tail; /* see pipe.h; slot = position modulo slot_count */
    bool ended;               /* the cursor has no more jobs */
    bool stopped;             /* everybody shall go home */
    char *memory;             /* of all slots, then of all workers */
    pthread_t *threads;       /* reader, then workers */
    worker_thread *workers;
    int32_t worker_count, started;
} pipeline;

struct worker_thread {
    pipeline *pipe;
    fp8_worker worker;
};

static void signal_all(pipeline *p)
{
    pthread_cond_broadcast(&p->changed);
}

/* ---- reader ---- */

static fp8_status read_scales_job(fp8_source *source, fp8_job *job, fp8_error *err)
{
    const fp8_convert *conv = source->conv;
    const fp8_role_info *role = &conv->roles.tensors[job->item];
    uint64_t in = (uint64_t)fp8_dtype_bits(role->scale) / 8;
    job->map = (fp8_slot_map){.out = conv->limits.slab_bytes / 2};
    return fp8_source_read(source, role->partner, (uint64_t)job->row * in, (uint64_t)job->rows * in,
                           job->memory, err);
}

static fp8_status read_job(fp8_source *source, fp8_job *job, fp8_error *err)
{
    if (job->kind == FP8_JOB_COPY) { /* done when its turn comes; let the disk begin now */
        fp8_source_advise(source, job->item, (uint64_t)job->row, (uint64_t)job->rows,
                          POSIX_FADV_WILLNEED);
        return FP8_OK;
    }
    if (job->kind == FP8_JOB_SCALES)
        return read_scales_job(source, job, err);
    const fp8_geometry *g = job->g;
    uint64_t width = (uint64_t)g->m.cols * (uint64_t)fp8_dtype_bits(g->in) / 8;
    uint64_t begin = (uint64_t)(job->expert * g->m.rows + job->row) * width;
    uint64_t bytes = (uint64_t)job->rows * width;
    FP8_TRY(fp8_source_read(source, job->item, begin, bytes, job->memory + job->map.in, err));
    if (job->kind == FP8_JOB_ENCODE || job->kind == FP8_JOB_DECODE)
        fp8_source_advise(source, job->item, begin, bytes, POSIX_FADV_DONTNEED);
    if (!g->reads_codes || g->bare)
        return FP8_OK;
    uint64_t row = (uint64_t)g->from_cols * (uint64_t)fp8_dtype_bits(g->scale_in) / 8;
    uint64_t first = (uint64_t)(job->expert * g->from_rows + job->scale_row);
    return fp8_source_read(source, source->conv->roles.tensors[job->item].partner, first * row,
                           (uint64_t)job->scale_rows * row, job->memory + job->map.scales_in, err);
}

static void *reader_main(void *arg)
{
    pipeline *p = arg;
    fp8_source source;
    fp8_source_init(&source, p->conv);
    pthread_mutex_lock(&p->lock);
    while (!p->stopped) {
        if (p->head - p->tail == p->slot_count) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        fp8_job *job = &p->slots[p->head % p->slot_count];
        if (!fp8_cursor_next(p->cursor, job))
            break;
        pthread_mutex_unlock(&p->lock);
        job->status = read_job(&source, job, &job->err);
        pthread_mutex_lock(&p->lock);
        p->head++;
        signal_all(p);
    }
    p->ended = true;
    signal_all(p);
    pthread_mutex_unlock(&p->lock);
    fp8_source_close(&source);
    return NULL;
}

/* ---- workers ---- */

/* The second pass over a region begins when its first pass is complete. The jobs of the first pass
 * stand before it in the ring, so somebody has them. */
static bool must_wait(const fp8_job *job)
{
    return job->kind == FP8_JOB_ENCODE && job->region && job->region->pending;
}

static void *worker_main(void *arg)
{
    fp8_worker *w = &((worker_thread *)arg)->worker;
    pipeline *p = ((worker_thread *)arg)->pipe;
    pthread_mutex_lock(&p->lock);
    while (!p->stopped) {
        if (p->take == p->head) {
            if (p->ended)
                break;
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        fp8_job *job = &p->slots[p->take++ % p->slot_count];
        while (must_wait(job) && !p->stopped)
            pthread_cond_wait(&p->changed, &p->lock);
        pthread_mutex_unlock(&p->lock);
        if (job->status == FP8_OK)
            fp8_work(w, job);
        pthread_mutex_lock(&p->lock);
        if (job->kind == FP8_JOB_AMAX)
            job->region->pending--;
        job->done = true;
        signal_all(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- writer ---- */

static struct timespec soon(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += TICK_NS;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* Waits for the next finished job or a tick. The lock is held. */
static fp8_job *next_finished(pipeline *p)
{
    struct timespec until = soon();
    for (;;) {
        fp8_job *job = &p->slots[p->tail % p->slot_count];
        if (p->tail < p->head && job->done)
            return job;
        if ((p->ended && p->tail == p->head) ||
            pthread_cond_timedwait(&p->changed, &p->lock, &until) == ETIMEDOUT)
            return NULL;
    }
}

static fp8_status write_all(pipeline *p, fp8_error *err)
{
    fp8_status status = FP8_OK;
    pthread_mutex_lock(&p->lock);
    while (status == FP8_OK && !(p->ended && p->tail == p->head)) {
        fp8_job *job = next_finished(p);
        pthread_mutex_unlock(&p->lock);
        if (job)
            status = p->sink->take(p->sink->user, job, err);
        if (status == FP8_OK)
            status = p->sink->tick(p->sink->user, err);
        pthread_mutex_lock(&p->lock);
        p->tail += job != NULL;
        signal_all(p);
    }
    p->stopped = true;
    signal_all(p);
    pthread_mutex_unlock(&p->lock);
    return status;
}

/* ---- setting up ---- */

static fp8_status start_threads(pipeline *p, bool stats, fp8_error *err)
{
    const fp8_limits *lim = &p->conv->limits;
    char *scratch = p->memory + (uint64_t)p->slot_count * lim->slab_bytes;
    for (int32_t i = 0; i <= p->worker_count; i++) {
        int code;
        if (i == 0)
            code = pthread_create(&p->threads[0], NULL, reader_main, p);
        else {
            fp8_worker *w = &p->workers[i - 1].worker;
            p->workers[i - 1].pipe = p;
            fp8_worker_init(w, p->conv);
            w->scratch = scratch + (uint64_t)(i - 1) * lim->scratch_bytes;
            w->stats = stats;
            w->lock = &p->lock;
            code = pthread_create(&p->threads[i], NULL, worker_main, &p->workers[i - 1]);
        }
        if (code)
            return fp8_fail(err, FP8_E_NO_MEMORY, "cannot start thread %d: %s", i + 1,
                            strerror(code));
        p->started++;
    }
    return FP8_OK;
}

static void join_threads(pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    signal_all(p);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < p->started; i++)
        pthread_join(p->threads[i], NULL);
}

static fp8_status allocate(pipeline *p, fp8_error *err)
{
    const fp8_context *ctx = p->conv->ctx;
    const fp8_limits *lim = &p->conv->limits;
    uint64_t bytes =
        (uint64_t)p->slot_count * lim->slab_bytes + (uint64_t)p->worker_count * lim->scratch_bytes;
    p->memory = fp8_alloc(ctx, bytes);
    p->slots = fp8_alloc_zeroed(ctx, (uint64_t)p->slot_count, sizeof *p->slots);
    p->threads = fp8_alloc_zeroed(ctx, (uint64_t)p->worker_count + 1, sizeof *p->threads);
    p->workers = fp8_alloc_zeroed(ctx, (uint64_t)p->worker_count, sizeof *p->workers);
    FP8_FAIL_IF(!p->memory || !p->slots || !p->threads || !p->workers, err, FP8_E_NO_MEMORY,
                "no memory for %llu bytes of slabs", (unsigned long long)bytes);
    for (int64_t i = 0; i < p->slot_count; i++)
        p->slots[i].memory = p->memory + (uint64_t)i * lim->slab_bytes;
    return FP8_OK;
}

static void release(pipeline *p)
{
    const fp8_context *ctx = p->conv->ctx;
    fp8_release(ctx, p->memory);
    fp8_release(ctx, p->slots);
    fp8_release(ctx, p->threads);
    fp8_release(ctx, p->workers);
}

static void init_sync(pipeline *p)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
}

fp8_status fp8_pipe_run(fp8_convert *conv, fp8_cursor *cursor, bool stats, const fp8_sink *sink,
                        fp8_error *err)
{
    pipeline p = {.conv = conv,
                  .cursor = cursor,
                  .sink = sink,
                  .slot_count = conv->limits.slots,
                  .worker_count = conv->ctx->threads};
    init_sync(&p);
    fp8_status status = allocate(&p, err);
    if (status == FP8_OK)
        status = start_threads(&p, stats, err);
    if (status == FP8_OK)
        status = write_all(&p, err);
    join_threads(&p);
    pthread_cond_destroy(&p.changed);
    pthread_mutex_destroy(&p.lock);
    release(&p);
    return status;
}
