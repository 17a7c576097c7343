/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_layer.c - the host's side of layers and loads on a GPU over the fake driver: every call
 * of their lives fails once and nothing leaks, a reload stays in place, a load takes no more of the
 * device than its linear. The fake computes nothing. */
#include "backend/cuda/cuda_linear.h"
#include "base/context.h"

#include "support/layer_maker.h"

#include "cuda/fake_fixture.h"

enum { N = 70, K = 64, CUT = 33 }; /* whole rows need no kernel to be padded */

/* Weight-only, a scale a channel. */
static fp8_layer_desc desc_of(int64_t n, int64_t k)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "blk";
    d.n = n;
    d.k = k;
    d.has_bias = 1;
    d.linear.w.grid = (fp8_grid){1, 0};
    return d;
}

static fp8_status write(fp8_load *load, fp8_layer *layer, fp8_load_param param, fp8_tensor data,
                        int64_t row, fp8_error *err)
{
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.param = param;
    piece.data = data;
    piece.row = row;
    return fp8_load_write(load, layer, &piece, err);
}

/* All of a layer; w is codes, with scales of 1, or high precision. */
static fp8_status write_all(fp8_load *load, fp8_layer *layer, const fp8_tensor *w, fp8_error *err)
{
    float ones[N];
    const int64_t rows = w->shape[0], cols = w->shape[1];
    const fp8_tensor column = fp8_vector(ones, FP8_F32, rows);
    for (int64_t i = 0; i < rows; i++)
        ones[i] = 1;
    FP8_TRY(fp8_load_add(load, layer, err));
    FP8_TRY(write(load, layer, FP8_PARAM_WEIGHT, view_of(*w, CUT, rows - CUT, 0, cols), CUT, err));
    if (fp8_dtype_is_fp8(w->dtype))
        FP8_TRY(write(load, layer, FP8_PARAM_SCALE, column, 0, err));
    FP8_TRY(write(load, layer, FP8_PARAM_BIAS, column, 0, err));
    FP8_TRY(write(load, layer, FP8_PARAM_WEIGHT, view_of(*w, 0, CUT, 0, cols), 0, err));
    return fp8_load_finish(load, err);
}

static fp8_status load_twice(const fp8_context *ctx, fp8_layer *layer, fp8_error *err)
{
    fp8_load *load;
    fp8_tensor codes = made_matrix(FP8_E4M3FN, N, K, 1), high = made_matrix(FP8_BF16, N, K, 2);
    fp8_status status = fp8_load_create(ctx, NULL, &load, err);
    if (status == FP8_OK)
        status = write_all(load, layer, &codes, err);
    if (status == FP8_OK)
        status = write_all(load, layer, &high, err);
    fp8_load_free(load);
    free(codes.data);
    free(high.data);
    return status;
}

/* Sources from the host, held on the host, and what a clone of it all is. */
static fp8_status set_and_clone(const fp8_context *ctx, fp8_layer *layer, fp8_error *err)
{
    fp8_tensor w = made_matrix(FP8_F32, N, K, 3), bias = made_vector(FP8_BF16, N, 4);
    const fp8_linear *linear;
    fp8_layer *clone = NULL;
    fp8_status status = fp8_layer_set_bias(layer, &bias, err);
    if (status == FP8_OK)
        status = fp8_layer_set_source(layer, &w, &bias, 1, err);
    if (status == FP8_OK)
        status = fp8_layer_clone(layer, ctx, &clone, err);
    if (status == FP8_OK)
        status = fp8_layer_invalidate(clone, err);
    if (status == FP8_OK)
        status = fp8_layer_acquire(clone, 1, &linear, err);
    if (status == FP8_OK)
        fp8_layer_release(clone);
    fp8_layer_free(clone);
    free(w.data);
    free(bias.data);
    return status;
}

static fp8_status live(const fp8_context *ctx, fp8_error *err)
{
    fp8_layer *layer;
    fp8_layer_desc d = desc_of(N, K);
    d.source = FP8_SOURCE_OFFLOAD;
    FP8_TRY(fp8_layer_create(ctx, &d, &layer, err));
    fp8_status status = load_twice(ctx, layer, err);
    if (status == FP8_OK)
        status = set_and_clone(ctx, layer, err);
    fp8_layer_free(layer);
    return status;
}

static void every_call_fails_once(void **state)
{
    (void)state;
    fail_each_call(live, FP8_OK, 100);
}

static void memory_that_cannot_be_pinned_is_plain(void **state)
{
    fake_start *t = *state;
    t->fake->fail_name = "cuMemHostAlloc";
    assert_done(live(t->ctx, &err));
    assert_int_equal(t->fake->pinned, 0);
}

static void a_reload_stays_in_place(void **state)
{
    fake_start *t = *state;
    const fp8_layer_desc d = desc_of(N, K);
    const fp8_linear *before, *after;
    fp8_layer *layer;
    fp8_load *load;
    fp8_tensor w = made_matrix(FP8_E4M3FN, N, K, 1);
    assert_done(fp8_layer_create(t->ctx, &d, &layer, &err));
    assert_done(fp8_load_create(t->ctx, NULL, &load, &err));
    assert_done(write_all(load, layer, &w, &err));
    assert_done(fp8_layer_acquire(layer, 0, &before, &err));
    const void *codes = before->cuda->codes, *scales = before->cuda->scales;
    fp8_layer_release(layer);
    assert_done(write_all(load, layer, &w, &err));
    assert_done(fp8_layer_acquire(layer, 0, &after, &err));
    assert_ptr_equal(before, after);
    assert_ptr_equal(codes, after->cuda->codes);
    assert_ptr_equal(scales, after->cuda->scales);
    assert_int_equal(t->fake->memories, 1);
    fp8_layer_release(layer);
    fp8_load_free(load);
    fp8_layer_free(layer);
    free(w.data);
}

/* High precision is quantized on its way: the device never holds it. */
static void the_device_holds_the_linear_and_no_more(void **state)
{
    fake_start *t = *state;
    enum { ROWS = 70, COLS = 1 << 16 };
    const fp8_layer_desc d = desc_of(ROWS, COLS);
    fp8_layer *layer;
    fp8_load *load;
    fp8_layer_info info;
    fp8_tensor w = made_matrix(FP8_F32, ROWS, COLS, 1);
    assert_done(fp8_layer_create(t->ctx, &d, &layer, &err));
    assert_done(fp8_load_create(t->ctx, NULL, &load, &err));
    assert_done(write_all(load, layer, &w, &err));
    assert_int_equal(fp8_layer_get_info(layer, &info), FP8_OK);
    assert_int_equal(info.code_bytes, (uint64_t)ROWS * COLS);
    assert_true(t->fake->most <=
                (long long)(info.code_bytes + info.scale_bytes + info.other_bytes));
    assert_int_equal(t->fake->most, t->fake->bytes);
    assert_true(t->fake->pinned <= 2);
    fp8_layer_invalidate(layer, NULL);
    assert_done(fp8_layer_set_source(layer, &w, NULL, 1, &err));
    assert_int_equal(t->fake->most, t->fake->bytes);
    fp8_load_free(load);
    fp8_layer_free(layer);
    free(w.data);
}

/* A layer on the CPU cannot read what a source on a device holds. */
static void a_clone_elsewhere_has_a_source_of_its_own(void **state)
{
    fake_start *t = *state;
    fp8_context *cpu;
    fp8_layer_desc d = desc_of(N, K);
    fp8_layer *layer, *here, *there;
    fp8_layer_info info;
    if (!fp8_cuda_has_kernels())
        skip();
    d.lazy = 1;
    const fp8_tensor w = fp8_matrix(fake_driver_memory(0), FP8_BF16, N, K);
    assert_done(fp8_context_create(NULL, &cpu, &err));
    assert_done(fp8_layer_create(t->ctx, &d, &layer, &err));
    assert_done(fp8_layer_set_source(layer, &w, NULL, 1, &err));
    assert_done(fp8_layer_clone(layer, t->ctx, &there, &err));
    assert_int_equal(fp8_layer_get_info(there, &info), FP8_OK);
    assert_int_equal(info.source_bytes, 0);
    assert_done(fp8_layer_clone(layer, cpu, &here, &err));
    assert_int_equal(fp8_layer_get_info(here, &info), FP8_OK);
    assert_int_equal(info.source_bytes, N * K * 2);
    fp8_layer_free(here);
    fp8_layer_free(there);
    fp8_layer_free(layer);
    fp8_context_free(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        fake_test(memory_that_cannot_be_pinned_is_plain),
        fake_test(a_reload_stays_in_place),
        fake_test(the_device_holds_the_linear_and_no_more),
        fake_test(a_clone_elsewhere_has_a_source_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
