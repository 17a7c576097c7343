/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_refused.c - pieces and calls that are wrong, layers without elements, memory that runs
 * out: what was refused has not been. */
#include "support/counted_alloc.h"
#include "support/load_fixture.h"
#include "support/meter.h"

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_a_refused_piece_has_not_been(void **state)
{
    (void)state;
    enum { N = 140, K = 140 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), bad = made_matrix(FP8_BF16, N, K, 1);
    const uint16_t infinity = 0x7f80;
    memcpy((char *)bad.data + 2 * (131 * K + 139), &infinity, 2); /* in a strip that must wait */
    memcpy((char *)bad.data + 2 * (3 * K + 2), &infinity, 2);     /* in a whole block */
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(write_rect(&l, &bad, 0, 130, 0, K, &err), FP8_E_NAN, "infinity");
    assert_int_equal(load_info(l.load).waiting_bytes, 0);
    assert_done(write_rect(&l, &w, 0, 130, 0, K, &err));
    assert_refused(
        write_rect(&l, &bad, 130, 5, 0, K, &err), FP8_E_NAN,
        "layer blk: weight: from [130,0] of the rank's share on: element [1,139] is infinity");
    fp8_tensor f32 = made_matrix(FP8_F32, N, K, 1);
    assert_refused(write_rect(&l, &f32, 130, 5, 0, K, &err), FP8_E_DTYPE,
                   "weight is F32, its other pieces are BF16");
    assert_done(write_rect(&l, &w, 130, 10, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    free(w.data);
    free(bad.data);
    free(f32.data);
}

static void test_bad_pieces_are_refused(void **state)
{
    (void)state;
    enum { N = 64, K = 32 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){32, 0});
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), v = made_vector(FP8_F32, N, 1);
    fp8_tensor codes = made_matrix(FP8_E4M3FN, N, K, 1), ints = w;
    loading l = begin_loading(ctx, &d, NULL);
    fp8_load_piece p = FP8_LOAD_PIECE_INIT;
    p.data = w;
    p.struct_bytes = 0;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "struct_bytes");
    p.struct_bytes = sizeof p;
    p.part = 1;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "no part 1 of 1");
    p.part = -2;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "no part -2");
    p.part = 0;
    p.param = (fp8_load_param)4;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "no parameter 4");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, 0, w, 1, 0, &err), FP8_E_SHAPE,
                   "rows [1,+64), columns [0,+32) are not inside a tensor [64,32]");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, 0, w, 0, -1, &err), FP8_E_SHAPE, "not inside");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, 0, w, INT64_MAX, 0, &err), FP8_E_SHAPE,
                   "not inside");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, 0, v, 0, 0, &err), FP8_E_SHAPE, "1 dimensions");
    assert_refused(write_at(&l, FP8_PARAM_BIAS, 0, v, 0, 0, &err), FP8_E_ARGUMENT, "no bias");
    assert_refused(write_at(&l, FP8_PARAM_INPUT_SCALE, 0, v, 0, 0, &err), FP8_E_ARGUMENT,
                   "take no scale");
    ints.dtype = FP8_I16;
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, 0, ints, 0, 0, &err), FP8_E_DTYPE, "I16");
    ((float *)v.data)[1] = -1;
    v.shape[0] = 2;
    assert_refused(write_at(&l, FP8_PARAM_SCALE, 0, v, 0, 0, &err), FP8_E_SCALE,
                   "must be finite and positive");
    assert_done(write_rect(&l, &w, 0, 32, 0, K, &err));
    assert_refused(write_rect(&l, &codes, 32, 32, 0, K, &err), FP8_E_DTYPE, "F8_E4M3");
    assert_refused(write_at(&l, FP8_PARAM_SCALE, 0, v, 0, 0, &err), FP8_E_STATE,
                   "makes its own scales");
    end_loading(&l);
    free(w.data);
    free(v.data);
    free(codes.data);
}

static void test_bad_calls_are_refused(void **state)
{
    (void)state;
    const fp8_layer_desc d = desc_of(8, 8, (fp8_grid){0, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_load *other;
    fp8_load_info info;
    fp8_load_piece p = FP8_LOAD_PIECE_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, 8, 8, 1);
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(fp8_load_create(ctx, NULL, &other, &err));
    assert_refused(fp8_load_add(other, l.layer, &err), FP8_E_STATE, "in a load already");
    assert_refused(fp8_load_write(other, l.layer, &p, &err), FP8_E_ARGUMENT, "not added");
    assert_refused(fp8_load_dummy(other, l.layer, 0, &err), FP8_E_STATE, "not in this load");
    assert_refused(fp8_layer_set_source(l.layer, &w, NULL, 0, &err), FP8_E_STATE, "at work");
    fp8_layer *copy;
    assert_refused(fp8_layer_clone(l.layer, NULL, &copy, &err), FP8_E_STATE, "at work");
    fp8_load_free(other);
    options.struct_bytes = 1;
    assert_refused(fp8_load_create(ctx, &options, &other, &err), FP8_E_ARGUMENT, "struct_bytes");
    options.struct_bytes = sizeof options;
    options.spill = "/tmp";
    assert_refused(fp8_load_create(ctx, &options, &other, &err), FP8_E_ARGUMENT, "spill");
    options.spill = NULL;
    options.duplicates = (fp8_duplicate)2;
    assert_refused(fp8_load_create(ctx, &options, &other, &err), FP8_E_ARGUMENT, "duplicates 2");
    assert_refused(fp8_load_create(NULL, NULL, &other, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_create(ctx, NULL, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_add(NULL, l.layer, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_write(l.load, l.layer, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_finish(NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_checkpoint(l.load, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_dummy(NULL, l.layer, 0, &err), FP8_E_ARGUMENT, "NULL");
    assert_int_equal(fp8_load_get_info(NULL, &info), FP8_E_ARGUMENT);
    assert_null(fp8_load_missing(NULL, 0));
    fp8_load_free(NULL);
    end_loading(&l);
    free(w.data);
}

static void test_layers_without_elements(void **state)
{
    (void)state;
    const fp8_layer_desc none = desc_of(0, 8, (fp8_grid){1, 0}),
                         thin = desc_of(8, 0, (fp8_grid){0, 0});
    loading a = begin_loading(ctx, &none, NULL), b = begin_loading(ctx, &thin, NULL);
    assert_done(fp8_load_finish(a.load, &err));
    assert_done(fp8_load_finish(b.load, &err));
    assert_int_equal(layer_info(a.layer).state, FP8_LAYER_READY);
    assert_int_equal(layer_info(b.layer).state, FP8_LAYER_READY);
    end_loading(&a);
    end_loading(&b);
}

static void test_codes_without_elements_have_no_scale(void **state)
{
    (void)state;
    uint8_t nothing = 0;
    float scale = 3;
    fp8_layer_desc d = desc_of(8, 0, (fp8_grid){0, 0});
    fp8_tensor bias = made_vector(FP8_F32, 8, 1);
    const fp8_linear *linear;
    d.has_bias = 1;
    for (int given = 0; given <= 1; given++) { /* a checkpoint may have one all the same */
        loading l = begin_loading(ctx, &d, NULL);
        assert_done(
            write_at(&l, FP8_PARAM_WEIGHT, 0, fp8_matrix(&nothing, FP8_E4M3FN, 8, 0), 0, 0, &err));
        if (given)
            assert_done(
                write_at(&l, FP8_PARAM_SCALE, 0, fp8_matrix(&scale, FP8_F32, 1, 1), 0, 0, &err));
        assert_done(write_at(&l, FP8_PARAM_BIAS, 0, bias, 0, 0, &err));
        assert_done(fp8_load_finish(l.load, &err));
        assert_done(fp8_layer_acquire(l.layer, 0, &linear, &err));
        float *y = output_of(linear, 1);
        assert_memory_equal(y, bias.data, 8 * sizeof *y);
        free(y);
        fp8_layer_release(l.layer);
        end_loading(&l);
    }
    free(bias.data);
}

/* A load of one layer in strips that wait, with a bias, and a list of what is missing. */
static fp8_status load_once(const fp8_context *c, void *arg)
{
    const fp8_tensor *w = arg;
    fp8_layer_desc d = desc_of(140, 140, (fp8_grid){128, 128});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    loading l = {0};
    options.spill = "/tmp";
    options.max_waiting_bytes = 1000;
    fp8_status status = fp8_layer_create(c, &d, &l.layer, NULL);
    if (status == FP8_OK)
        status = fp8_load_create(c, &options, &l.load, NULL);
    if (status == FP8_OK)
        status = fp8_load_add(l.load, l.layer, NULL);
    if (status == FP8_OK)
        status = write_rect(&l, w, 0, 70, 0, 140, NULL);
    if (status == FP8_OK)
        status = write_rect(&l, w, 70, 70, 0, 130, NULL);
    if (status == FP8_OK && fp8_load_finish(l.load, NULL) == FP8_E_NO_MEMORY)
        status = FP8_E_NO_MEMORY;
    if (status == FP8_OK)
        status = write_rect(&l, w, 70, 70, 130, 10, NULL);
    end_loading(&l);
    return status;
}

/* The last piece of a layer whose weight is empty: if there is no memory to finish it, the piece
 * has not been, and comes again. */
static fp8_status load_bias_alone(const fp8_context *c, void *arg)
{
    fp8_layer_desc d = desc_of(8, 0, (fp8_grid){1, 0});
    loading l = {0};
    d.has_bias = 1;
    fp8_status status = fp8_layer_create(c, &d, &l.layer, NULL);
    if (status == FP8_OK)
        status = fp8_load_create(c, NULL, &l.load, NULL);
    if (status == FP8_OK)
        status = fp8_load_add(l.load, l.layer, NULL);
    if (status == FP8_OK) {
        status = write_at(&l, FP8_PARAM_BIAS, 0, *(fp8_tensor *)arg, 0, 0, NULL);
        if (status == FP8_E_NO_MEMORY) /* it runs out once */
            assert_done(write_at(&l, FP8_PARAM_BIAS, 0, *(fp8_tensor *)arg, 0, 0, &err));
        assert_done(fp8_load_finish(l.load, &err));
    }
    end_loading(&l);
    return status;
}

static void test_memory_may_run_out_at_the_end(void **state)
{
    (void)state;
    fp8_tensor bias = made_vector(FP8_F32, 8, 1);
    assert_true(meter_try(load_bias_alone, &bias) > 10);
    free(bias.data);
}

static void test_memory_may_run_out_anywhere(void **state)
{
    (void)state;
    fp8_tensor w = made_matrix(FP8_BF16, 140, 140, 1);
    assert_true(meter_try(load_once, &w) > 20);
    free(w.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refused_piece_has_not_been),
        cmocka_unit_test(test_bad_pieces_are_refused),
        cmocka_unit_test(test_bad_calls_are_refused),
        cmocka_unit_test(test_layers_without_elements),
        cmocka_unit_test(test_codes_without_elements_have_no_scale),
        cmocka_unit_test(test_memory_may_run_out_anywhere),
        cmocka_unit_test(test_memory_may_run_out_at_the_end),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
