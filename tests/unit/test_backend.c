/* SPDX-License-Identifier: Apache-2.0
 *
 * test_backend.c - the table of kernels: each row is complete and alone at its level, and the pick
 * is the highest level under the cap. */
#include "op/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static void rows_are_complete_and_alone(void **state)
{
    (void)state;
    const fp8_kernel *a, *b;
    for (size_t i = 0; (a = fp8_kernel_at(i)); i++) {
        assert_true(a->name && a->fn.cast);
        for (size_t k = i + 1; (b = fp8_kernel_at(k)); k++) {
            assert_string_not_equal(a->name, b->name);
            if (a->op == b->op && a->isa == b->isa && a->from == b->from && a->to == b->to)
                fail_msg("%s and %s do the same", a->name, b->name);
        }
    }
}

static void the_pick_is_the_highest_level_under_the_cap(void **state)
{
    (void)state;
    const fp8_kernel *row;
    for (size_t i = 0; (row = fp8_kernel_at(i)); i++) {
        assert_ptr_equal(fp8_kernel_pick(row->isa, row->op, row->from, row->to), row);
        for (int cap = FP8_ISA_SCALAR; cap <= FP8_ISA_LAST; cap++) {
            const fp8_kernel *got = fp8_kernel_pick((fp8_isa)cap, row->op, row->from, row->to);
            assert_true(!got || (int)got->isa <= cap);
            assert_true((int)row->isa > cap || (got && got->isa >= row->isa));
        }
    }
}

static void what_no_kernel_does_is_not_picked(void **state)
{
    (void)state;
    assert_null(fp8_kernel_pick(FP8_ISA_LAST, FP8_OP_CAST, FP8_F64, FP8_F32));
    assert_null(fp8_kernel_pick(FP8_ISA_SCALAR, FP8_OP_CAST, FP8_F16, FP8_E5M2FNUZ));
    const fp8_kernel *any = fp8_kernel_pick(FP8_ISA_SCALAR, FP8_OP_DEQUANTIZE, FP8_E5M2, FP8_BF16);
    assert_non_null(any);
    assert_int_equal(any->from, FP8_DTYPE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete_and_alone),
        cmocka_unit_test(the_pick_is_the_highest_level_under_the_cap),
        cmocka_unit_test(what_no_kernel_does_is_not_picked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
