/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_pieces.c - a layer from pieces: any pieces in any order give what the whole weight
 * gives, high precision or codes; whole blocks never wait; ranges written twice, and ranges that
 * never come. */
#include "support/load_fixture.h"

/* ---- any pieces, any order ------------------------------------------------------------------- */

static void test_any_pieces_in_any_order(void **state)
{
    (void)state;
    const fp8_dtype dtypes[] = {FP8_BF16, FP8_F32, FP8_F16};
    for (int round = 0; round < 5; round++)
        for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
            load_in_pieces(grids[g], dtypes[round % 3], NULL);
}

static void test_single_elements_in_any_order(void **state)
{
    (void)state;
    enum { N = 6, K = 40 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){4, 16});
    rect pieces[N * K];
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    loading l = begin_loading(ctx, &d, NULL);
    cut_up(pieces, N * K, N, K);
    for (int i = 0; i < N * K; i++)
        assert_done(write_rect(&l, &w, pieces[i].row, 1, pieces[i].col, 1, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    free(w.data);
}

static void test_whole_blocks_never_wait(void **state)
{
    (void)state;
    enum { N = 300, K = 320 };
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    for (size_t g = 1; g < sizeof grids / sizeof *grids; g++) {
        const int64_t rows = grids[g].rows ? grids[g].rows : N;
        const int64_t cols = grids[g].cols ? grids[g].cols : K;
        fp8_layer_desc d = desc_of(N, K, grids[g]);
        loading l = begin_loading(ctx, &d, NULL);
        for (int64_t i = 0; i < N; i += rows)
            for (int64_t j = 0; j < K; j += cols)
                assert_done(write_rect(&l, &w, i, fp8_min_i64(rows, N - i), j,
                                       fp8_min_i64(cols, K - j), &err));
        assert_int_equal(load_info(l.load).peak_waiting_bytes, 0);
        assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
        end_loading(&l);
    }
    free(w.data);
}

static void test_strided_pieces(void **state)
{
    (void)state;
    enum { N = 130, K = 140 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    fp8_tensor w = made_matrix(FP8_BF16, K, N, 1), turned = w;
    turned.shape[0] = N;
    turned.shape[1] = K;
    turned.stride[0] = 1;
    turned.stride[1] = N;
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &turned, 0, 70, 0, K, &err));
    assert_done(write_rect(&l, &turned, 70, N - 70, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &turned, NULL);
    end_loading(&l);
    free(w.data);
}

/* ---- twice, never ---------------------------------------------------------------------------- */

static void test_a_range_written_twice(void **state)
{
    (void)state;
    enum { N = 64, K = 64 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), other = made_matrix(FP8_BF16, N, K, 2);
    loading l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 0, 40, 0, K, &err));
    assert_refused(write_rect(&l, &w, 39, 25, 0, K, &err), FP8_E_EXISTS,
                   "layer blk: weight: some of rows [39,+25), columns [0,+64)");
    assert_int_equal(layer_info(l.layer).loading, 1);
    assert_done(write_rect(&l, &w, 40, 24, 0, K, &err));
    assert_refused(write_rect(&l, &w, 0, 1, 0, K, &err), FP8_E_EXISTS, "written before");
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    options.duplicates = FP8_DUPLICATE_IGNORE;
    l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 10, 30, 0, K, &err));
    for (int i = 0; i < 3; i++) /* what came first stays, and coming again is no progress */
        assert_done(write_rect(&l, &other, 10, 30, 0, K, &err));
    assert_int_equal(layer_info(l.layer).state, FP8_LAYER_DECLARED);
    memcpy((char *)other.data + 10 * K * 2, (char *)w.data + 10 * K * 2, 30 * K * 2);
    assert_done(write_rect(&l, &other, 0, N, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &other, NULL);
    assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
    end_loading(&l);
    free(w.data);
    free(other.data);
}

static void test_what_never_came_is_named(void **state)
{
    (void)state;
    enum { N = 64, K = 96 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 32});
    d.has_bias = 1;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &w, 0, 10, 0, K, &err));
    assert_done(write_rect(&l, &w, 10, 54, 32, 64, &err));
    assert_string_equal(fp8_load_missing(l.load, 0),
                        "blk: weight: rows [10,64) of 64, columns [0,32) of 96");
    assert_string_equal(fp8_load_missing(l.load, 1),
                        "blk: bias: rows [0,64) of 64, columns [0,1) of 1");
    assert_null(fp8_load_missing(l.load, 2));
    assert_null(fp8_load_missing(l.load, -1));
    assert_refused(fp8_load_finish(l.load, &err), FP8_E_NOT_FOUND,
                   "never came: blk: weight: rows [10,64) of 64, columns [0,32) of 96; and more "
                   "ranges: 1");
    assert_done(write_rect(&l, &w, 10, 54, 0, 32, &err));
    assert_refused(fp8_load_finish(l.load, &err), FP8_E_NOT_FOUND, "never came: blk: bias");
    assert_int_equal(layer_info(l.layer).state, FP8_LAYER_DECLARED);
    end_loading(&l);
    free(w.data);
}

/* ---- codes ----------------------------------------------------------------------------------- */

static void test_codes_are_taken_as_they_are(void **state)
{
    (void)state;
    enum { N = 150, K = 300 };
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        fp8_layer_desc d = desc_of(N, K, grids[g]);
        fp8_tensor w = made_matrix(FP8_E5M2, N, K, 1);
        const int64_t gr = grids[g].rows ? (N - 1) / grids[g].rows + 1 : 1;
        const int64_t gc = grids[g].cols ? (K - 1) / grids[g].cols + 1 : 1;
        fp8_tensor s = made_matrix(FP8_F32, gr, gc, 2);
        for (int64_t i = 0; i < gr * gc; i++)
            ((float *)s.data)[i] = 0.5F + (float)(i % 9);
        d.linear.w_code = FP8_E5M2;
        loading l = begin_loading(ctx, &d, NULL);
        if (g % 2)
            assert_done(write_at(&l, FP8_PARAM_SCALE, 0, s, 0, 0, &err));
        assert_done(write_rect(&l, &w, 0, 67, 0, K, &err));
        assert_done(write_rect(&l, &w, 67, N - 67, 0, 33, &err));
        assert_done(write_rect(&l, &w, 67, N - 67, 33, K - 33, &err));
        if (!(g % 2))
            assert_done(write_at(&l, FP8_PARAM_SCALE, 0, s, 0, 0, &err));
        const fp8_linear *mine;
        fp8_linear *want;
        assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
        assert_done(fp8_linear_create(ctx, &d.linear, &w, &s, NULL, &want, &err));
        assert_same_linear(mine, want);
        fp8_layer_release(l.layer);
        fp8_linear_free(want);
        end_loading(&l);
        free(w.data);
        free(s.data);
    }
}

static void test_nan_codes_are_seen_whenever_they_come(void **state)
{
    (void)state;
    enum { N = 40, K = 50 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_tensor w = made_matrix(FP8_E4M3FN, N, K, 1), s = made_matrix(FP8_F32, N, 1, 2);
    fp8_tensor bias = made_vector(FP8_F32, N, 3);
    for (int i = 0; i < N; i++)
        ((float *)s.data)[i] = 1;
    ((uint8_t *)w.data)[7 * K + 9] = 0x7f;
    d.has_bias = 1;
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
    assert_done(write_at(&l, FP8_PARAM_BIAS, 0, bias, 0, 0, &err));
    assert_done(write_at(&l, FP8_PARAM_SCALE, 0, s, 0, 0, &err));
    const fp8_linear *mine;
    assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
    float *y = output_of(mine, 1);
    fp8_layer_release(l.layer);
    for (int i = 0; i < N; i++)
        assert_int_equal(y[i] != y[i], i == 7);
    free(y);
    end_loading(&l);
    free(w.data);
    free(s.data);
    free(bias.data);
}

/* A weight whose scale is given is quantized as it comes, with one scale for all of it. */
static void test_a_given_scale_spares_the_waiting(void **state)
{
    (void)state;
    enum { N = 90, K = 70 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){0, 0});
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), codes = made_matrix(FP8_E4M3FN, N, K, 0);
    float scale = 0.03F;
    fp8_tensor s = fp8_matrix(&scale, FP8_F32, 1, 1), scalar = s;
    d.linear.w.static_scales = 1;
    scalar.ndim = 0;
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(write_rect(&l, &w, 0, 10, 0, K, &err), FP8_E_STATE,
                   "the scale of part 0 must be loaded before its weight");
    assert_done(write_at(&l, FP8_PARAM_SCALE, 0, scalar, 0, 0, &err));
    for (int64_t i = 0; i < N; i += 9)
        assert_done(write_rect(&l, &w, i, 9, 0, K, &err));
    assert_int_equal(load_info(l.load).peak_waiting_bytes, 0);
    assert_done(fp8_quantize(ctx, &d.linear.w, &w, &codes, &s, NULL, &err));
    const fp8_linear *mine;
    assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
    exported e = export_of(mine);
    fp8_layer_release(l.layer);
    assert_memory_equal(e.codes.data, codes.data, N * K);
    assert_memory_equal(e.scales.data, &scale, sizeof scale);
    exported_free(&e);
    end_loading(&l);
    free(w.data);
    free(codes.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_pieces_in_any_order),
        cmocka_unit_test(test_single_elements_in_any_order),
        cmocka_unit_test(test_whole_blocks_never_wait),
        cmocka_unit_test(test_strided_pieces),
        cmocka_unit_test(test_a_range_written_twice),
        cmocka_unit_test(test_what_never_came_is_named),
        cmocka_unit_test(test_codes_are_taken_as_they_are),
        cmocka_unit_test(test_nan_codes_are_seen_whenever_they_come),
        cmocka_unit_test(test_a_given_scale_spares_the_waiting),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
