/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h - tensor-parallel ranks as threads of one process, and what a linear's weight is worth.
 * Include layer_maker.h's needs with it. */
#ifndef RANKS_H
#define RANKS_H

#include "support/layer_maker.h"

#include <pthread.h>

enum { MAX_RANKS = 8, MAX_AGREED = 1 << 16 };

/* A group of ranks that agree; one max at a time, all in the same order. */
typedef struct rank_group {
    int ranks;
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    float values[MAX_AGREED];
    int64_t calls; /* of max, by all ranks */
} rank_group;

static inline fp8_status rank_max(void *user, const char *name, float *values, int64_t n,
                                  fp8_error *err)
{
    rank_group *g = user;
    (void)name;
    (void)err;
    if (n > MAX_AGREED)
        return FP8_E_UNSUPPORTED;
    if (pthread_barrier_wait(&g->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        memset(g->values, 0, (size_t)n * sizeof(float));
    pthread_barrier_wait(&g->barrier);
    pthread_mutex_lock(&g->lock);
    g->calls++;
    for (int64_t i = 0; i < n; i++)
        if (values[i] > g->values[i])
            g->values[i] = values[i];
    pthread_mutex_unlock(&g->lock);
    pthread_barrier_wait(&g->barrier);
    memcpy(values, g->values, (size_t)n * sizeof(float));
    pthread_barrier_wait(&g->barrier);
    return FP8_OK;
}

typedef struct rank_task {
    rank_group *group;
    int rank;
    void (*body)(void *arg, int rank, const fp8_comm *comm);
    void *arg;
} rank_task;

static inline void *rank_thread(void *arg)
{
    rank_task *t = arg;
    const fp8_comm comm = {rank_max, t->group};
    t->body(t->arg, t->rank, &comm);
    return NULL;
}

/* body(arg, rank, comm) for all ranks at once; returns how often they agreed. Nothing in body may
 * end the test. */
static inline int64_t run_ranks(int ranks, void (*body)(void *arg, int rank, const fp8_comm *comm),
                                void *arg)
{
    static rank_group g;
    rank_task tasks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    g.ranks = ranks;
    g.calls = 0;
    pthread_barrier_init(&g.barrier, NULL, (unsigned)ranks);
    pthread_mutex_init(&g.lock, NULL);
    for (int r = 0; r < ranks; r++) {
        tasks[r] = (rank_task){&g, r, body, arg};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_thread, &tasks[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&g.barrier);
    pthread_mutex_destroy(&g.lock);
    return g.calls;
}

/* real[k,n] = W^T of a linear without activation scales and bias, exact: X is one-hot. Free it. */
static inline float *reals_transposed(const fp8_linear *linear)
{
    fp8_linear_info info;
    fp8_error err = {0};
    uint64_t bytes;
    assert_int_equal(fp8_linear_get_info(linear, &info), FP8_OK);
    const int64_t k = info.k, n = info.n;
    float *one = calloc((size_t)(k * k + 1), sizeof *one);
    for (int64_t i = 0; i < k; i++)
        one[i * k + i] = 1;
    fp8_tensor x = fp8_matrix(one, FP8_F32, k, k);
    fp8_tensor y = fp8_matrix(calloc((size_t)(k * n + 1), sizeof(float)), FP8_F32, k, n);
    assert_int_equal(fp8_linear_workspace(linear, k, &bytes, NULL), FP8_OK);
    void *workspace = malloc(bytes + 1);
    if (fp8_linear_run(linear, &x, NULL, &y, workspace, bytes, NULL, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    free(workspace);
    free(one);
    return y.data;
}

#endif
