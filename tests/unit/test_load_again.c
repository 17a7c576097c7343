/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_again.c - loading anew: in place, the old weight until the new is whole, tensor by
 * tensor. */
#include "support/load_fixture.h"

/* ---- anew ------------------------------------------------------------------------------------ */

static void test_loading_anew_keeps_the_address_and_the_old_weight_until_whole(void **state)
{
    (void)state;
    enum { N = 100, K = 200 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    d.has_bias = 1;
    fp8_tensor w[2] = {made_matrix(FP8_BF16, N, K, 1), made_matrix(FP8_BF16, N, K, 2)};
    fp8_tensor bias[2] = {made_vector(FP8_F32, N, 3), made_vector(FP8_F32, N, 4)};
    loading l = begin_loading(ctx, &d, NULL);
    const fp8_linear *first, *now;
    assert_done(write_rect(&l, &w[0], 0, N, 0, K, &err));
    assert_done(write_at(&l, FP8_PARAM_BIAS, 0, bias[0], 0, 0, &err));
    assert_done(fp8_layer_acquire(l.layer, 0, &first, &err));
    fp8_layer_release(l.layer);
    fp8_load_free(l.load);
    for (int abandoned = 1; abandoned >= 0; abandoned--) {
        assert_done(fp8_load_create(ctx, NULL, &l.load, &err));
        assert_done(fp8_load_add(l.load, l.layer, &err));
        assert_done(write_rect(&l, &w[1], 0, 50, 0, K, &err));
        assert_done(write_at(&l, FP8_PARAM_BIAS, 0, bias[1], 0, 0, &err));
        assert_layer_is(l.layer, ctx, &d.linear, &w[0], &bias[0]);
        if (!abandoned)
            assert_done(write_rect(&l, &w[1], 50, 50, 0, K, &err));
        fp8_load_free(l.load);
    }
    assert_layer_is(l.layer, ctx, &d.linear, &w[1], &bias[1]);
    assert_done(fp8_layer_acquire(l.layer, 0, &now, &err));
    fp8_layer_release(l.layer);
    assert_ptr_equal(first, now);
    assert_int_equal(layer_info(l.layer).reloads, 1);
    fp8_layer_free(l.layer);
    for (int i = 0; i < 2; i++) {
        free(w[i].data);
        free(bias[i].data);
    }
}

/* A loaded weight is not made again of a source that was set before. */
static void test_a_load_replaces_a_source(void **state)
{
    (void)state;
    enum { N = 40, K = 64 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_tensor old = made_matrix(FP8_BF16, N, K, 1), w = made_matrix(FP8_BF16, N, K, 2);
    loading l = begin_loading(ctx, &d, NULL);
    const fp8_linear *linear;
    fp8_load_free(l.load);
    assert_done(fp8_layer_set_source(l.layer, &old, NULL, 1, &err));
    assert_done(fp8_load_create(ctx, NULL, &l.load, &err));
    assert_done(fp8_load_add(l.load, l.layer, &err));
    assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
    assert_done(fp8_layer_acquire(l.layer, 2, &linear, &err)); /* another version */
    fp8_layer_release(l.layer);
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    free(old.data);
    free(w.data);
}

/* The same load takes a layer again, one tensor after the other, as trainers send them. */
static void test_a_session_of_many_reloads(void **state)
{
    (void)state;
    enum { N = 40, K = 64, LAYERS = 40, ROUNDS = 4 }; /* the room for them grows twice */
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_layer *layers[LAYERS];
    fp8_load *load;
    assert_done(fp8_load_create(ctx, NULL, &load, &err));
    for (int i = 0; i < LAYERS; i++)
        assert_done(fp8_layer_create(ctx, &d, &layers[i], &err));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LAYERS; i++)
            assert_done(fp8_load_add(load, layers[i], &err));
        for (int i = LAYERS - 1; i >= 0; i--) {
            fp8_tensor w = made_matrix(FP8_BF16, N, K, (uint64_t)(round * LAYERS + i));
            const loading l = {layers[i], load};
            assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
            assert_layer_is(layers[i], ctx, &d.linear, &w, NULL);
            free(w.data);
        }
        assert_done(fp8_load_finish(load, &err));
        assert_int_equal(load_info(load).layers, LAYERS);
        assert_int_equal(load_info(load).whole, LAYERS);
    }
    fp8_load_free(load);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(layer_info(layers[i]).reloads, ROUNDS - 1);
        fp8_layer_free(layers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading_anew_keeps_the_address_and_the_old_weight_until_whole),
        cmocka_unit_test(test_a_load_replaces_a_source),
        cmocka_unit_test(test_a_session_of_many_reloads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
