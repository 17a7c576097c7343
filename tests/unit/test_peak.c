/* SPDX-License-Identifier: Apache-2.0
 *
 * test_peak.c - fp8_machine_peak: which peaks there are at each level, and that each is a speed.
 * What it is depends on the machine and on what else runs there, so only its order is checked. */
#include "support/counted_alloc.h"
#include "support/levels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

#define SECONDS 1e-3

static void each_level_up_to_the_cap_has_a_peak(void **state)
{
    (void)state;
    for (int isa = FP8_ISA_SCALAR; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 1);
        fp8_peak peak;
        if (!ctx)
            continue;
        for (int i = 1; i <= isa; i++) {
            assert_int_equal(fp8_machine_peak(ctx, i, SECONDS, &peak, NULL), FP8_OK);
            assert_string_equal(peak.name, fp8_isa_name((fp8_isa)i));
            assert_string_equal(peak.unit, "GFLOP/s");
            assert_true(peak.value > 0.1 && peak.value < 1e6);
        }
        assert_int_equal(fp8_machine_peak(ctx, isa + 1, SECONDS, &peak, NULL), FP8_E_NOT_FOUND);
        fp8_context_free(ctx);
    }
}

static void reading_has_a_speed(void **state)
{
    (void)state;
    fp8_context *ctx = context_at_level(FP8_ISA_SCALAR, 2);
    fp8_peak peak;
    assert_int_equal(fp8_machine_peak(ctx, 0, SECONDS, &peak, NULL), FP8_OK);
    assert_string_equal(peak.name, "read");
    assert_string_equal(peak.unit, "GB/s");
    assert_true(peak.value > 0.1 && peak.value < 1e5);
    fp8_context_free(ctx);
}

static void memory_may_be_short(void **state)
{
    (void)state;
    counted_alloc a = {.fail_at = 1};
    fp8_context *ctx = counted_context(&a);
    fp8_peak peak;
    assert_int_equal(fp8_machine_peak(ctx, 0, SECONDS, &peak, NULL), FP8_E_NO_MEMORY);
    fp8_context_free(ctx);
    assert_int_equal(a.live, 0);
}

static void bad_questions_are_refused(void **state)
{
    (void)state;
    fp8_context *ctx = context_at_level(FP8_ISA_SCALAR, 1);
    fp8_peak peak;
    fp8_error err;
    assert_int_equal(fp8_machine_peak(NULL, 0, SECONDS, &peak, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_machine_peak(ctx, 0, SECONDS, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_machine_peak(ctx, 0, -1, &peak, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_machine_peak(ctx, 0, 1e99, &peak, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_machine_peak(ctx, -1, SECONDS, &peak, &err), FP8_E_NOT_FOUND);
    assert_int_equal(fp8_machine_peak(ctx, 99, SECONDS, &peak, &err), FP8_E_NOT_FOUND);
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_level_up_to_the_cap_has_a_peak),
        cmocka_unit_test(reading_has_a_speed),
        cmocka_unit_test(memory_may_be_short),
        cmocka_unit_test(bad_questions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
