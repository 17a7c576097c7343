/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_devices.c - two GPUs in one process: linears on each, run in turn and from many threads,
 * give what they give alone; layers move between them and are loaded by a rank on each; memory and
 * streams of the other one are refused in words. Skipped where there is one GPU. */
#include "support/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "support/gpu_run.h"
#include "support/ranks.h"

enum { DEVICES = 2, N = 384, K = 512 };
static fp8_context *cpu, *gpus[DEVICES];
static gpu_driver driver;

static const char *const schemes[] = {"tensor", "channel", "block", "mxfp8", "weight-only"};
enum { SCHEMES = sizeof schemes / sizeof *schemes };

static fp8_linear *linear_new(const fp8_context *on, const char *scheme, uint64_t salt)
{
    fp8_linear_desc desc;
    fp8_linear *linear;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, salt), bias = made_vector(FP8_F32, N, salt + 1);
    assert_done(fp8_online_linear(scheme, 0, &desc, &err));
    assert_done(fp8_linear_create(on, &desc, &w, NULL, &bias, &linear, &err));
    free(w.data);
    free(bias.data);
    return linear;
}

/* ---- at the same time ---- */

/* A linear of a device, rows for it, a stream, and what it gives alone. */
typedef struct work {
    fp8_linear *linear;
    gpu_running run;
    void *stream;
    float *want;
    long wrong;
} work;

static work work_new(int device, const char *scheme, uint64_t salt)
{
    work w = {.linear = linear_new(gpus[device], scheme, salt)};
    w.stream = gpu_stream_new(&driver, device);
    w.want = gpu_output(gpus[device], w.linear);
    w.run = gpu_running_new(gpus[device], w.linear);
    return w;
}

static void work_free(work *w)
{
    gpu_running_free(&w->run);
    fp8_linear_free(w->linear);
    free(w->want);
}

static fp8_status start(work *w)
{
    return fp8_linear_run(w->linear, &w->run.x.t, NULL, &w->run.y.t, w->run.space.t.data,
                          w->run.bytes, w->stream, NULL);
}

static void check(work *w)
{
    if (fp8_device_wait(w->run.y.ctx, w->stream, NULL) != FP8_OK)
        w->wrong++;
    gpu_tensor_read(&w->run.y, &w->run.host);
    w->wrong += memcmp(w->run.host.data, w->want, GPU_ROWS * N * sizeof(float)) != 0;
}

static void devices_in_turn_give_what_they_give_alone(void **state)
{
    (void)state;
    enum { ROUNDS = 8 };
    for (int s = 0; s < SCHEMES; s++) {
        work all[DEVICES] = {work_new(0, schemes[s], 3), work_new(1, schemes[s], 9)};
        for (int round = 0; round < ROUNDS; round++)
            for (int d = 0; d < DEVICES; d++)
                assert_int_equal(start(&all[d]), FP8_OK);
        for (int d = 0; d < DEVICES; d++) {
            check(&all[d]);
            assert_int_equal(all[d].wrong, 0);
            work_free(&all[d]);
        }
    }
}

static void *work_on(void *arg)
{
    enum { ROUNDS = 30 };
    work *w = arg;
    for (int round = 0; round < ROUNDS; round++) {
        w->wrong += start(w) != FP8_OK;
        check(w);
    }
    return NULL;
}

static void threads_work_on_both(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    work all[THREADS];
    for (int t = 0; t < THREADS; t++)
        all[t] = work_new(t % DEVICES, schemes[t % SCHEMES], 20 + (uint64_t)t);
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, work_on, &all[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        assert_int_equal(all[t].wrong, 0);
        work_free(&all[t]);
    }
}

/* ---- from one to the other ---- */

static fp8_layer *clone_of(const fp8_layer *from, const fp8_context *on)
{
    fp8_layer *made;
    assert_done(fp8_layer_clone(from, on, &made, &err));
    return made;
}

static const fp8_linear *linear_of(fp8_layer *layer)
{
    const fp8_linear *linear;
    assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
    fp8_layer_release(layer);
    return linear;
}

static void layers_move_between_the_devices(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        fp8_layer_desc d = FP8_LAYER_DESC_INIT;
        fp8_layer *here, *there, *back, *home;
        fp8_tensor w = made_matrix(FP8_BF16, N, K, 5), bias = made_vector(FP8_F32, N, 6);
        d.name = "blk";
        d.n = N;
        d.k = K;
        d.source = FP8_SOURCE_DISCARD;
        assert_done(fp8_online_linear(schemes[s], 0, &d.linear, &err));
        assert_done(fp8_layer_create(gpus[0], &d, &here, &err));
        assert_done(fp8_layer_set_source(here, &w, &bias, 0, &err));
        there = clone_of(here, gpus[1]);
        back = clone_of(there, gpus[0]);
        home = clone_of(there, cpu);
        assert_same_weight(linear_of(here), linear_of(there));
        assert_same_weight(linear_of(here), linear_of(home));
        assert_same_weight(linear_of(here), linear_of(back));
        assert_same_output(gpus[0], linear_of(here), linear_of(back));
        fp8_layer_free(here); /* the others stand alone */
        fp8_layer *again = clone_of(there, NULL);
        assert_same_output(gpus[1], linear_of(there), linear_of(again));
        fp8_layer_free(there);
        fp8_layer_free(back);
        fp8_layer_free(home);
        fp8_layer_free(again);
        free(w.data);
        free(bias.data);
    }
}

/* ---- a rank on each ---- */

typedef struct shares {
    fp8_tensor w;
    fp8_layer *layers[DEVICES];
    fp8_status status[DEVICES];
    fp8_error err[DEVICES];
} shares;

static fp8_layer_desc share_desc(int32_t rank, int32_t ranks)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "blk";
    d.n = N;
    d.k = K;
    d.cut = FP8_CUT_ROWS;
    d.rank = rank;
    d.ranks = ranks;
    d.linear.w.grid = (fp8_grid){0, 0};
    return d;
}

static fp8_status load_share(const fp8_context *on, const fp8_layer_desc *d, const fp8_comm *comm,
                             const fp8_tensor *w, fp8_layer **out, fp8_error *err)
{
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    fp8_load *load = NULL;
    if (comm)
        options.comm = *comm;
    piece.param = FP8_PARAM_WEIGHT;
    piece.data = *w;
    fp8_status status = fp8_layer_create(on, d, out, err);
    if (status == FP8_OK)
        status = fp8_load_create(on, &options, &load, err);
    if (status == FP8_OK)
        status = fp8_load_add(load, *out, err);
    if (status == FP8_OK)
        status = fp8_load_write(load, *out, &piece, err);
    if (status == FP8_OK)
        status = fp8_load_finish(load, err);
    fp8_load_free(load);
    return status;
}

static void load_rank(void *arg, int rank, const fp8_comm *comm)
{
    shares *s = arg;
    const fp8_layer_desc d = share_desc(rank, DEVICES);
    s->status[rank] = load_share(gpus[rank], &d, comm, &s->w, &s->layers[rank], &s->err[rank]);
}

/* Each has its rows of the codes of the whole weight, with the scale of all of it. */
static void a_rank_on_each_agrees_with_the_other(void **state)
{
    (void)state;
    shares s = {.w = made_matrix(FP8_BF16, N, K, 40)};
    const fp8_layer_desc whole_desc = share_desc(0, 1);
    fp8_layer *whole;
    ((uint16_t *)s.w.data)[(N - 1) * K + 3] = 0x4640; /* 12288, in the last rank's rows */
    assert_done(load_share(cpu, &whole_desc, NULL, &s.w, &whole, &err));
    assert_true(run_ranks(DEVICES, load_rank, &s) > 0);
    exported want = export_of(linear_of(whole));
    for (int r = 0; r < DEVICES; r++) {
        if (s.status[r] != FP8_OK)
            fail_msg("rank %d: %s", r, s.err[r].msg);
        exported got = export_of(linear_of(s.layers[r]));
        assert_int_equal(got.info.n, N / DEVICES);
        assert_memory_equal(got.scales.data, want.scales.data, sizeof(float));
        assert_memory_equal(got.codes.data, (char *)want.codes.data + r * N / DEVICES * K,
                            N / DEVICES * K);
        exported_free(&got);
        fp8_layer_free(s.layers[r]);
    }
    exported_free(&want);
    fp8_layer_free(whole);
    free(s.w.data);
}

/* ---- what belongs to the other ---- */

static void run_refused(const work *w, const fp8_tensor *x, fp8_tensor *y, void *space,
                        void *stream, const char *words)
{
    assert_refused(fp8_linear_run(w->linear, x, NULL, y, space, w->run.bytes, stream, &err),
                   FP8_E_ARGUMENT, words);
}

static void what_belongs_to_the_other_is_refused(void **state)
{
    (void)state;
    work a = work_new(0, "channel", 3), b = work_new(1, "channel", 3);
    const fp8_tensor *x = &a.run.x.t;
    fp8_tensor *y = &a.run.y.t;
    void *space = a.run.space.t.data;
    run_refused(&a, &b.run.x.t, y, space, a.stream, "x is");
    run_refused(&a, x, &b.run.y.t, space, a.stream, "y is");
    run_refused(&a, x, y, b.run.space.t.data, a.stream, "the workspace is");
    run_refused(&a, x, y, space, b.stream, "the stream belongs to another device");
    assert_refused(fp8_device_wait(gpus[0], b.stream, &err), FP8_E_ARGUMENT, "the stream");
    fp8_linear_desc desc;
    fp8_linear *linear;
    fp8_quantize_desc how = FP8_QUANTIZE_DESC_INIT;
    const fp8_tensor w = fp8_matrix(b.run.x.t.data, FP8_BF16, GPU_ROWS, K);
    fp8_tensor codes = fp8_matrix(space, FP8_E4M3FN, 1, K),
               scale = fp8_matrix(space, FP8_F32, 1, 1);
    const fp8_tensor row = fp8_matrix(b.run.x.t.data, FP8_BF16, 1, K);
    scale.data = (char *)space + K;
    how.nan = FP8_NAN_PROPAGATE;
    assert_done(fp8_online_linear("channel", 0, &desc, &err));
    assert_refused(fp8_linear_create(gpus[0], &desc, &w, NULL, NULL, &linear, &err), FP8_E_ARGUMENT,
                   "memory that cuda:0 can read");
    assert_refused(fp8_quantize(gpus[0], &how, &row, &codes, &scale, NULL, &err), FP8_E_ARGUMENT,
                   "x is");
    assert_int_equal(start(&a), FP8_OK); /* and both go on */
    assert_int_equal(start(&b), FP8_OK);
    check(&a);
    check(&b);
    assert_int_equal(a.wrong + b.wrong, 0);
    work_free(&a);
    work_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_in_turn_give_what_they_give_alone),
        cmocka_unit_test(threads_work_on_both),
        cmocka_unit_test(layers_move_between_the_devices),
        cmocka_unit_test(a_rank_on_each_agrees_with_the_other),
        cmocka_unit_test(what_belongs_to_the_other_is_refused),
    };
    int failed = GPU_SKIPPED;
    gpus[0] = gpu_context_of(0);
    gpus[1] = gpus[0] ? gpu_context_of(1) : NULL;
    if (gpus[1] && fp8_context_create(NULL, &cpu, NULL) == FP8_OK) {
        driver = gpu_driver_find();
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    fp8_context_free(cpu);
    fp8_context_free(gpus[1]);
    fp8_context_free(gpus[0]);
    return failed;
}
