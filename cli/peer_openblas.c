/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_openblas.c - OpenBLAS through its C interface: cblas_sgemm, and cblas_sbgemm (bf16 operands,
 * fp32 result) where it was built with it. */
#include "cli/bench_data.h"
#include "cli/peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                      const float *a, int lda, const float *b, int ldb, float beta, float *c,
                      int ldc);
typedef void sbgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                       const uint16_t *a, int lda, const uint16_t *b, int ldb, float beta, float *c,
                       int ldc);
typedef void set_threads_fn(int threads);

/* What was loaded; set once, before anything is timed. */
static struct {
    sgemm_fn *sgemm;
    sbgemm_fn *sbgemm;
} openblas;

typedef struct blas_case {
    cli_shape shape;
    fp8_tensor x, y, w[CLI_MOST_COPIES];
    int copies, next;
} blas_case;

static void call(void *state)
{
    blas_case *c = state;
    const int m = (int)c->shape.m, n = (int)c->shape.n, k = (int)c->shape.k;
    const void *w = c->w[c->next].data;
    c->next = (c->next + 1) % c->copies;
    if (c->x.dtype == FP8_F32)
        openblas.sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1, c->x.data, k, w, k, 0,
                       c->y.data, n);
    else
        openblas.sbgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, m, n, k, 1, c->x.data, k, w, k, 0,
                        c->y.data, n);
}

static void release(void *state)
{
    blas_case *c = state;
    free(c->x.data);
    free(c->y.data);
    for (int i = 0; i < c->copies; i++)
        free(c->w[i].data);
    free(c);
}

static bool make(const cli_peer *peer, const cli_shape *shape, cli_peer_case *out)
{
    bool cold;
    if (shape->m == 0 || shape->n == 0 || shape->k == 0)
        return false;
    blas_case *c = calloc(1, sizeof *c);
    if (c == NULL)
        return false;
    const double bytes = (double)shape->n * (double)shape->k * fp8_dtype_bits(peer->dtype) / 8;
    c->shape = *shape;
    c->copies = cli_bench_copies(shape->m, bytes, &cold);
    c->x = cli_bench_matrix(peer->dtype, shape->m, shape->k);
    c->y = cli_bench_matrix(FP8_F32, shape->m, shape->n);
    bool good = c->x.data != NULL && c->y.data != NULL;
    for (int i = 0; i < c->copies; i++) {
        c->w[i] = good ? cli_bench_matrix(peer->dtype, shape->n, shape->k) : (fp8_tensor){0};
        good = good && c->w[i].data != NULL;
    }
    if (good)
        *out = (cli_peer_case){c, call, release};
    else
        release(c);
    return good;
}

/* A function of a library; NULL if it has none of that name. */
#define LOOK_UP(library, type, name) ((type *)(uintptr_t)dlsym(library, name))

void cli_openblas_open(cli_peer peers[2], int threads)
{
    peers[0] = (cli_peer){"openblas-f32", FP8_F32, make, ""};
    peers[1] = (cli_peer){"openblas-bf16", FP8_BF16, make, ""};
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        for (int i = 0; i < 2; i++)
            snprintf(peers[i].missing, CLI_PEER_TEXT, "libopenblas.so.0 is not installed");
        return;
    }
    set_threads_fn *set_threads = LOOK_UP(library, set_threads_fn, "openblas_set_num_threads");
    openblas.sgemm = LOOK_UP(library, sgemm_fn, "cblas_sgemm");
    openblas.sbgemm = LOOK_UP(library, sbgemm_fn, "cblas_sbgemm");
    if (set_threads != NULL)
        set_threads(threads);
    if (openblas.sgemm == NULL)
        snprintf(peers[0].missing, CLI_PEER_TEXT, "libopenblas.so.0 has no cblas_sgemm");
    if (openblas.sbgemm == NULL)
        snprintf(peers[1].missing, CLI_PEER_TEXT, "libopenblas.so.0 has no cblas_sbgemm");
}
