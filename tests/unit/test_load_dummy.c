/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_dummy.c - made-up weights, for any ranks and beside what was loaded. */
#include "support/load_fixture.h"

/* ---- made-up weights ------------------------------------------------------------------------- */

static void test_dummy_weights_are_the_same_for_any_ranks(void **state)
{
    (void)state;
    enum { N = 48, K = 64 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    d.has_bias = 1;
    loading whole = begin_loading(ctx, &d, NULL);
    assert_done(fp8_load_dummy(whole.load, whole.layer, 9, &err));
    assert_done(fp8_load_finish(whole.load, &err));
    const fp8_linear *all, *part;
    assert_done(fp8_layer_acquire(whole.layer, 0, &all, &err));
    exported e = export_of(all);
    fp8_layer_release(whole.layer);
    for (int r = 0; r < 3; r++) {
        d.cut = FP8_CUT_ROWS;
        d.rank = r;
        d.ranks = 3;
        loading l = begin_loading(ctx, &d, NULL);
        assert_done(fp8_load_dummy(l.load, l.layer, 9, &err));
        assert_done(fp8_layer_acquire(l.layer, 0, &part, &err));
        exported f = export_of(part);
        assert_memory_equal(f.codes.data, (char *)e.codes.data + r * 16 * K, 16 * K);
        assert_memory_equal(f.scales.data, (char *)e.scales.data + r * 16 * 4, 16 * 4);
        fp8_layer_release(l.layer);
        exported_free(&f);
        end_loading(&l);
    }
    exported_free(&e);
    assert_refused(fp8_load_dummy(whole.load, whole.layer, 9, &err), FP8_E_STATE, "whole");
    end_loading(&whole);
}

static void test_dummy_fills_what_is_missing_of_codes(void **state)
{
    (void)state;
    fp8_layer_desc d = desc_of(40, 64, (fp8_grid){1, 32});
    d.linear.w_scale = FP8_E8M0FNU;
    d.linear.activation = FP8_ACTIVATION_STATIC;
    d.linear.x.grid = (fp8_grid){0, 0};
    fp8_tensor w = made_matrix(FP8_E4M3FN, 40, 64, 1);
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &w, 3, 4, 0, 64, &err));
    assert_done(fp8_load_dummy(l.load, l.layer, 1, &err));
    const fp8_linear *mine;
    assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
    exported e = export_of(mine);
    fp8_layer_release(l.layer);
    assert_memory_equal((char *)e.codes.data + 3 * 64, (char *)w.data + 3 * 64, 4 * 64);
    exported_free(&e);
    end_loading(&l);
    free(w.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dummy_weights_are_the_same_for_any_ranks),
        cmocka_unit_test(test_dummy_fills_what_is_missing_of_codes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
