/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer.c - the life of a layer: its states, what each policy keeps, when codes are made
 * again, addresses that stay, copies, memory that runs out, and each misuse refused by its own
 * status and words. */
#include "support/counted_alloc.h"
#include "support/layer_fixture.h"
#include "support/meter.h"

/* ---- states ---------------------------------------------------------------------------------- */

static void test_declared_layer_has_nothing(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_KEEP, 0);
    const fp8_linear *linear;
    assert_state(layer, FP8_LAYER_DECLARED);
    assert_string_equal(info_of(layer).name, "model.layers.0.mlp.up_proj");
    assert_int_equal(info_of(layer).code_bytes, 0);
    assert_refused(fp8_layer_acquire(layer, 0, &linear, &err), FP8_E_STATE,
                   "layer model.layers.0.mlp.up_proj: no weight was set or loaded");
    fp8_layer_free(layer);
}

static void test_codes_are_made_on_set_or_on_use(void **state)
{
    (void)state;
    for (int source = 0; source <= FP8_SOURCE_DISCARD; source++)
        for (int lazy = 0; lazy <= 1; lazy++) {
            fp8_layer *layer = layer_of((fp8_source_policy)source, lazy);
            assert_done(fp8_layer_set_source(layer, &w1, &bias1, 0, &err));
            assert_state(layer, lazy ? FP8_LAYER_PENDING : FP8_LAYER_READY);
            assert_is(layer, &w1);
            assert_state(layer, FP8_LAYER_READY);
            fp8_layer_free(layer);
        }
}

static void test_each_policy_holds_what_it_says(void **state)
{
    (void)state;
    const uint64_t copy = (uint64_t)N * K * 2 + N * 4;
    fp8_layer *keep = layer_of(FP8_SOURCE_KEEP, 0), *offload = layer_of(FP8_SOURCE_OFFLOAD, 0);
    fp8_layer *discard = layer_of(FP8_SOURCE_DISCARD, 0), *later = layer_of(FP8_SOURCE_DISCARD, 1);
    fp8_layer *const all[] = {keep, offload, discard, later};
    for (int i = 0; i < 4; i++)
        assert_done(fp8_layer_set_source(all[i], &w1, &bias1, 0, &err));
    assert_int_equal(info_of(keep).source_bytes, 0);
    assert_int_equal(info_of(offload).source_bytes, copy);
    assert_int_equal(info_of(discard).source_bytes, 0);
    assert_int_equal(info_of(later).source_bytes, copy);
    assert_is(later, &w1);
    assert_int_equal(info_of(later).source_bytes, 0);
    for (int i = 0; i < 4; i++)
        fp8_layer_free(all[i]);
}

static void test_offloaded_source_is_a_copy(void **state)
{
    (void)state;
    fp8_tensor w = made_matrix(FP8_BF16, K, N, 1), bias = made_vector(FP8_F32, 2 * N, 3);
    fp8_tensor turned = fp8_matrix(w.data, FP8_BF16, N, K), every_second = bias;
    turned.stride[0] = 1;
    turned.stride[1] = N;
    every_second.shape[0] = N;
    every_second.stride[0] = 2;
    fp8_layer *layer = layer_of(FP8_SOURCE_OFFLOAD, 1);
    const fp8_layer_desc d = desc_of(FP8_SOURCE_KEEP, 0);
    fp8_linear *want;
    assert_done(fp8_linear_create(ctx, &d.linear, &turned, NULL, &every_second, &want, &err));
    assert_done(fp8_layer_set_source(layer, &turned, &every_second, 0, &err));
    memset(w.data, 0xff, (size_t)N * K * 2);
    memset(bias.data, 0xff, (size_t)N * 8);
    const fp8_linear *mine;
    assert_done(fp8_layer_acquire(layer, 0, &mine, &err));
    assert_same_linear(mine, want);
    fp8_layer_release(layer);
    fp8_linear_free(want);
    fp8_layer_free(layer);
    free(w.data);
    free(bias.data);
}

static void test_kept_source_is_quantized_again_when_its_version_moves(void **state)
{
    (void)state;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    fp8_layer *layer = layer_of(FP8_SOURCE_KEEP, 0);
    const fp8_linear *before, *after;
    assert_done(fp8_layer_set_source(layer, &w, &bias1, 7, &err));
    memcpy(w.data, w2.data, (size_t)N * K * 2);
    assert_done(fp8_layer_acquire(layer, 7, &before, &err));
    fp8_layer_release(layer);
    assert_int_equal(info_of(layer).reloads, 0); /* nobody said that it had changed */
    assert_done(fp8_layer_acquire(layer, 8, &after, &err));
    fp8_layer_release(layer);
    assert_ptr_equal(before, after); /* in place */
    assert_int_equal(info_of(layer).reloads, 1);
    assert_int_equal(info_of(layer).version, 8);
    const fp8_layer_desc d = desc_of(FP8_SOURCE_KEEP, 0);
    fp8_linear *want;
    assert_done(fp8_linear_create(ctx, &d.linear, &w2, NULL, &bias1, &want, &err));
    assert_same_linear(after, want);
    fp8_linear_free(want);
    fp8_layer_free(layer);
    free(w.data);
}

static void test_invalidate_makes_codes_again_or_loses_them(void **state)
{
    (void)state;
    for (int source = 0; source <= FP8_SOURCE_DISCARD; source++) {
        fp8_layer *layer = layer_of((fp8_source_policy)source, 0);
        assert_done(fp8_layer_set_source(layer, &w1, &bias1, 0, &err));
        assert_done(fp8_layer_invalidate(layer, &err));
        assert_int_equal(info_of(layer).code_bytes, 0);
        if (source == FP8_SOURCE_DISCARD) {
            const fp8_linear *linear;
            assert_state(layer, FP8_LAYER_LOST);
            assert_refused(fp8_layer_acquire(layer, 0, &linear, &err), FP8_E_STATE,
                           "invalidated and its source was not kept");
            assert_done(fp8_layer_set_source(layer, &w1, &bias1, 0, &err));
        } else {
            assert_state(layer, FP8_LAYER_PENDING);
        }
        assert_is(layer, &w1);
        fp8_layer_free(layer);
    }
}

static void test_a_new_source_replaces_the_old_in_place(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_DISCARD, 0);
    const fp8_linear *before, *after;
    assert_done(fp8_layer_set_source(layer, &w1, &bias1, 0, &err));
    assert_done(fp8_layer_acquire(layer, 0, &before, &err));
    fp8_layer_release(layer);
    assert_done(fp8_layer_set_source(layer, &w2, &bias1, 0, &err));
    assert_done(fp8_layer_acquire(layer, 0, &after, &err));
    fp8_layer_release(layer);
    assert_ptr_equal(before, after);
    assert_is(layer, &w2);
    fp8_layer_free(layer);
}

static void test_a_refused_source_changes_nothing(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_OFFLOAD, 0);
    fp8_tensor bad = made_matrix(FP8_BF16, N, K, 2);
    const uint16_t nan_bits = 0x7fc0;
    memcpy((char *)bad.data + 2 * (K + 5), &nan_bits, 2);
    assert_done(fp8_layer_set_source(layer, &w1, &bias1, 3, &err));
    assert_refused(fp8_layer_set_source(layer, &bad, &bias1, 4, &err), FP8_E_NAN,
                   "layer model.layers.0.mlp.up_proj: element [1,5] is NaN");
    assert_int_equal(info_of(layer).version, 3);
    assert_is(layer, &w1);
    fp8_layer_free(layer);
    free(bad.data);
}

static void test_a_bias_takes_its_place_beside_the_codes(void **state)
{
    (void)state;
    fp8_layer_desc d = desc_of(FP8_SOURCE_DISCARD, 0);
    fp8_tensor bias2 = made_vector(FP8_F16, N, 8), w = made_matrix(FP8_BF16, N, K, 1);
    const uint16_t nan_bits = 0x7fc0;
    d.has_bias = 0; /* which is about loads */
    d.linear.w.nan = FP8_NAN_PROPAGATE;
    for (int nan = 0; nan <= 1; nan++) {
        fp8_layer *layer;
        const fp8_tensor *const biases[] = {&bias2, NULL, &bias1};
        if (nan)
            memcpy((char *)w.data + 2 * (17 * K + 5), &nan_bits, 2);
        assert_done(fp8_layer_create(ctx, &d, &layer, &err));
        assert_done(fp8_layer_set_source(layer, &w, nan ? NULL : &bias1, 0, &err));
        for (int i = 0; i < 3; i++) {
            assert_done(fp8_layer_set_bias(layer, biases[i], &err));
            assert_layer_is(layer, ctx, &d.linear, &w, biases[i]);
        }
        fp8_layer_free(layer);
    }
    free(w.data);
    free(bias2.data);
}

static void test_a_refused_bias_changes_nothing(void **state)
{
    (void)state;
    fp8_layer *keep = layer_of(FP8_SOURCE_KEEP, 0), *layer = layer_of(FP8_SOURCE_DISCARD, 0);
    fp8_tensor few = bias1, codes = bias1;
    few.shape[0] = N - 1;
    codes.dtype = FP8_E4M3FN;
    assert_done(fp8_layer_set_source(keep, &w1, &bias1, 0, &err));
    assert_refused(fp8_layer_set_bias(keep, NULL, &err), FP8_E_STATE,
                   "layer model.layers.0.mlp.up_proj: its bias comes with its source");
    assert_refused(fp8_layer_set_bias(layer, &bias1, &err), FP8_E_STATE, "not set or loaded");
    assert_done(fp8_layer_set_source(layer, &w1, &bias1, 0, &err));
    assert_refused(fp8_layer_set_bias(layer, &few, &err), FP8_E_SHAPE, "149 elements");
    assert_refused(fp8_layer_set_bias(layer, &codes, &err), FP8_E_DTYPE, "bias is F8_E4M3");
    assert_refused(fp8_layer_set_bias(NULL, &bias1, &err), FP8_E_ARGUMENT, "NULL");
    assert_is(keep, &w1);
    assert_is(layer, &w1);
    fp8_layer_free(keep);
    fp8_layer_free(layer);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void test_a_clone_lives_on_its_own(void **state)
{
    (void)state;
    for (int source = 0; source <= FP8_SOURCE_DISCARD; source++) {
        fp8_context *other;
        fp8_layer *layer = layer_of((fp8_source_policy)source, 0), *copy;
        assert_int_equal(fp8_context_create(NULL, &other, NULL), FP8_OK);
        assert_done(fp8_layer_set_source(layer, &w1, &bias1, 5, &err));
        assert_done(fp8_layer_clone(layer, other, &copy, &err));
        assert_done(fp8_layer_set_source(layer, &w2, &bias1, 6, &err));
        fp8_layer_free(layer);
        assert_int_equal(info_of(copy).version, 5);
        assert_state(copy, FP8_LAYER_READY);
        const fp8_linear *mine;
        fp8_linear *want;
        const fp8_layer_desc d = desc_of(FP8_SOURCE_KEEP, 0);
        if (source != FP8_SOURCE_DISCARD) /* it has a source of its own */
            assert_done(fp8_layer_invalidate(copy, &err));
        assert_done(fp8_layer_acquire(copy, 5, &mine, &err));
        assert_done(fp8_linear_create(ctx, &d.linear, &w1, NULL, &bias1, &want, &err));
        assert_same_linear(mine, want);
        fp8_layer_release(copy);
        fp8_linear_free(want);
        fp8_layer_free(copy);
        fp8_context_free(other);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static fp8_status live(const fp8_context *c, void *arg)
{
    const fp8_layer_part parts[2] = {{"gate_proj", N - 50, 1}, {"up_proj", 50, 1}};
    fp8_layer_desc d = desc_of(*(fp8_source_policy *)arg, 1);
    fp8_layer *layer = NULL, *copy = NULL;
    const fp8_linear *linear;
    d.parts = parts;
    d.part_count = 2;
    fp8_status status = fp8_layer_create(c, &d, &layer, NULL);
    if (status == FP8_OK)
        status = fp8_layer_set_source(layer, &w1, &bias1, 0, NULL);
    if (status == FP8_OK)
        status = fp8_layer_acquire(layer, 0, &linear, NULL);
    if (status == FP8_OK) {
        fp8_layer_release(layer);
        status = fp8_layer_clone(layer, NULL, &copy, NULL);
    }
    fp8_layer_free(copy);
    fp8_layer_free(layer);
    return status;
}

static void test_memory_may_run_out_anywhere(void **state)
{
    (void)state;
    for (fp8_source_policy source = FP8_SOURCE_KEEP; source <= FP8_SOURCE_DISCARD; source++)
        assert_true(meter_try(live, &source) > 5);
}

static void refuse(const fp8_layer_desc *d, fp8_status status, const char *words)
{
    fp8_layer *layer = (fp8_layer *)&layer;
    assert_refused(fp8_layer_create(ctx, d, &layer, &err), status, words);
    assert_null(layer);
}

static void test_bad_descriptions_are_refused(void **state)
{
    (void)state;
    const fp8_layer_part few[1] = {{NULL, N - 1, 1}}, many[2] = {{NULL, N, 1}, {NULL, 1, 1}};
    const fp8_layer_part heads[2] = {{NULL, N - 6, 1}, {NULL, 6, 4}};
    const fp8_layer_desc good = desc_of(FP8_SOURCE_KEEP, 0);
    fp8_layer_desc d = good;
    d.struct_bytes = 8;
    refuse(&d, FP8_E_ARGUMENT, "struct_bytes is 8");
    d = good;
    d.source = (fp8_source_policy)3;
    refuse(&d, FP8_E_ARGUMENT, "source 3 is not 0..2");
    d = good;
    d.cut = FP8_CUT_ROWS;
    d.ranks = 4;
    refuse(&d, FP8_E_SHAPE, "150 rows in 1 replicas cannot be shared by 4 ranks");
    d.cut = FP8_CUT_COLS;
    d.ranks = 7;
    refuse(&d, FP8_E_SHAPE, "260 columns cannot be shared by 7 ranks");
    d.rank = 7;
    refuse(&d, FP8_E_ARGUMENT, "rank 7 of 7");
    d = good;
    d.parts = few;
    d.part_count = 1;
    refuse(&d, FP8_E_SHAPE, "the parts have 149 rows, the weight 150");
    d.parts = many;
    d.part_count = 2;
    refuse(&d, FP8_E_SHAPE, "more rows than the weight, 150");
    d.parts = heads;
    d.cut = FP8_CUT_ROWS;
    d.ranks = 6;
    refuse(&d, FP8_E_SHAPE, "part 1: 4 replicas do not divide 6 ranks");
    d = good;
    d.linear.w_origin.rows = 1;
    refuse(&d, FP8_E_ARGUMENT, "follow from the parts");
    d = good;
    d.linear.w.static_scales = 1;
    refuse(&d, FP8_E_UNSUPPORTED, "not for a grid 128 x 128");
    d = good;
    d.linear.activation = (fp8_activation)9;
    refuse(&d, FP8_E_ARGUMENT, "activation 9");
    d = good;
    d.n = -1;
    refuse(&d, FP8_E_SHAPE, "[-1,260]");
    d = good;
    d.parts = few;
    refuse(&d, FP8_E_ARGUMENT, "parts is given and part_count is 0");
    char name[4000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    d = good;
    d.name = name;
    d.source = (fp8_source_policy)3;
    refuse(&d, FP8_E_ARGUMENT, "xx: source 3 is not 0..2");
}

static void test_bad_calls_are_refused(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_KEEP, 0), *copy;
    const fp8_linear *linear;
    fp8_layer_info info;
    const fp8_layer_desc plain = desc_of(FP8_SOURCE_KEEP, 0);
    assert_refused(fp8_layer_create(NULL, &plain, &copy, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_create(ctx, NULL, &copy, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_create(ctx, &plain, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_set_source(NULL, &w1, NULL, 0, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_set_source(layer, NULL, NULL, 0, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_acquire(NULL, 0, &linear, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_acquire(layer, 0, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_invalidate(NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_clone(NULL, NULL, &copy, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_layer_clone(layer, NULL, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_int_equal(fp8_layer_get_info(NULL, &info), FP8_E_ARGUMENT);
    assert_int_equal(fp8_layer_get_info(layer, NULL), FP8_E_ARGUMENT);
    const fp8_tensor narrow = view_of(w1, 0, N, 0, K - 1);
    assert_refused(fp8_layer_set_source(layer, &narrow, NULL, 0, &err), FP8_E_SHAPE, "weight");
    fp8_layer_free(layer);
    fp8_layer_free(NULL);
    fp8_layer_release(NULL);
}

static void test_online_schemes(void **state)
{
    (void)state;
    fp8_linear_desc d;
    assert_done(fp8_online_linear("tensor", 0, &d, &err));
    assert_int_equal(d.activation, FP8_ACTIVATION_DYNAMIC);
    assert_int_equal(d.x.grid.rows, 1);
    assert_done(fp8_online_linear("channel", 1, &d, &err));
    assert_int_equal(d.activation, FP8_ACTIVATION_NONE);
    assert_int_equal(d.weight_math, FP8_WEIGHT_ROUNDED);
    assert_done(fp8_online_linear("block", 1, &d, &err));
    assert_int_equal(d.x.grid.cols, 128);
    assert_done(fp8_online_linear("mxfp8", 0, &d, &err));
    assert_int_equal(d.w_scale, FP8_E8M0FNU);
    assert_done(fp8_online_linear("weight-only", 1, &d, &err));
    assert_int_equal(d.activation, FP8_ACTIVATION_NONE);
    assert_int_equal(d.weight_math, FP8_WEIGHT_EXACT);
    assert_int_equal(d.w.grid.rows, 1);
    assert_refused(fp8_online_linear("int8", 0, &d, &err), FP8_E_NOT_FOUND,
                   "'int8'; there are tensor, channel, block, mxfp8 and weight-only");
    assert_refused(fp8_online_linear(NULL, 0, &d, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_online_linear("block", 0, NULL, &err), FP8_E_ARGUMENT, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declared_layer_has_nothing),
        cmocka_unit_test(test_codes_are_made_on_set_or_on_use),
        cmocka_unit_test(test_each_policy_holds_what_it_says),
        cmocka_unit_test(test_offloaded_source_is_a_copy),
        cmocka_unit_test(test_kept_source_is_quantized_again_when_its_version_moves),
        cmocka_unit_test(test_invalidate_makes_codes_again_or_loses_them),
        cmocka_unit_test(test_a_new_source_replaces_the_old_in_place),
        cmocka_unit_test(test_a_refused_source_changes_nothing),
        cmocka_unit_test(test_a_bias_takes_its_place_beside_the_codes),
        cmocka_unit_test(test_a_refused_bias_changes_nothing),
        cmocka_unit_test(test_a_clone_lives_on_its_own),
        cmocka_unit_test(test_memory_may_run_out_anywhere),
        cmocka_unit_test(test_bad_descriptions_are_refused),
        cmocka_unit_test(test_bad_calls_are_refused),
        cmocka_unit_test(test_online_schemes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
