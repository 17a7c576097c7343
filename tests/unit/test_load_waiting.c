/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_waiting.c - what waits for the rest of its block is bounded, refused or spilled. */
#include "support/load_fixture.h"
#include "support/sandbox.h"

#include <signal.h>
#include <sys/resource.h>

/* ---- what waits ------------------------------------------------------------------------------ */

static void test_back_pressure(void **state)
{
    (void)state;
    enum { N = 256, K = 128, BLOCK = 128 * 128 * 2 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    options.max_waiting_bytes = BLOCK;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    loading l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 0, 100, 0, K, &err));
    assert_int_equal(load_info(l.load).waiting_bytes, BLOCK);
    assert_refused(write_rect(&l, &w, 200, 56, 0, K, &err), FP8_E_NO_SPACE,
                   "32768 bytes must wait for the rest of their block, 32768 wait already, and "
                   "max_waiting_bytes is 32768");
    assert_done(write_rect(&l, &w, 100, 28, 0, K, &err)); /* the block is full, the room free */
    assert_int_equal(load_info(l.load).waiting_bytes, 0);
    assert_done(write_rect(&l, &w, 200, 56, 0, K, &err));
    assert_done(write_rect(&l, &w, 128, 72, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    assert_int_equal(load_info(l.load).peak_waiting_bytes, BLOCK);
    end_loading(&l);
    free(w.data);
}

static void test_what_exceeds_the_bound_is_spilled(void **state)
{
    (void)state;
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    options.spill = sandbox_make();
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (uint64_t bound = 1; bound < 100000; bound *= 50) {
            options.max_waiting_bytes = bound;
            load_in_pieces(grids[g], FP8_BF16, &options);
        }
    sandbox_remove();
}

/* More than one slab of a weight that is read back. */
static void test_a_large_weight_is_spilled_and_read_in_slabs(void **state)
{
    (void)state;
    enum { N = 700, K = 2100 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){0, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    options.spill = sandbox_make();
    options.max_waiting_bytes = 1;
    loading l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 300, 400, 0, K, &err));
    assert_int_equal(load_info(l.load).spilled_bytes, N * K * 2);
    assert_int_equal(load_info(l.load).waiting_bytes, 0);
    assert_done(write_rect(&l, &w, 0, 300, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    sandbox_remove();
    free(w.data);
}

static void test_a_spill_directory_that_is_not_there(void **state)
{
    (void)state;
    const fp8_layer_desc d = desc_of(128, 128, (fp8_grid){128, 128});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, 128, 128, 1);
    options.spill = "/nowhere/at/all";
    options.max_waiting_bytes = 1;
    loading l = begin_loading(ctx, &d, &options);
    assert_refused(write_rect(&l, &w, 0, 5, 0, 128, &err), FP8_E_NOT_FOUND,
                   "layer blk: weight: spill directory /nowhere/at/all: cannot make a file");
    assert_done(write_rect(&l, &w, 0, 128, 0, 128, &err)); /* nothing was taken before */
    end_loading(&l);
    free(w.data);
}

/* A spill file that cannot grow: the piece has not been, and may come again. */
static void test_a_spill_file_that_cannot_be_written(void **state)
{
    (void)state;
    enum { N = 200, K = 200 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){0, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    struct rlimit before, small;
    options.spill = sandbox_make();
    options.max_waiting_bytes = 1;
    loading l = begin_loading(ctx, &d, &options);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_refused(write_rect(&l, &w, 0, 100, 0, K, &err), FP8_E_IO, "cannot write");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(load_info(l.load).spilled_bytes, 0);
    assert_done(write_rect(&l, &w, 0, 100, 0, K, &err));
    assert_done(write_rect(&l, &w, 100, 100, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    sandbox_remove();
    free(w.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_what_exceeds_the_bound_is_spilled),
        cmocka_unit_test(test_a_large_weight_is_spilled_and_read_in_slabs),
        cmocka_unit_test(test_a_spill_directory_that_is_not_there),
        cmocka_unit_test(test_a_spill_file_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
