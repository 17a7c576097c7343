/* SPDX-License-Identifier: Apache-2.0
 *
 * test_scales.c - scales and operands of every row of the table of rules at each instruction set,
 * against the plain code: amaxes of every binade, with the fractions at which an exponent or a
 * rounding changes, zero, subnormal, infinite and NaN ones, and all short lengths. */
#include "../support/levels.h"
#include "number/dtype.h"
#include "number/number.h"
#include "op/quantize.h"
#include "op/rules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

enum { FRACTIONS = 64, MOST = 256 * FRACTIONS };
static float amaxes[MOST];

/* The amaxes of one exponent side by side, so that most vectors are of one kind. */
static int64_t fill_amaxes(fp8_dtype in)
{
    static const uint32_t borders[] = {0x100000, 0x200000, 0x3FFFFF, 0x400000, 0x500000,
                                       0x600000, 0x700000, 0x740000, 0x77FFFF, 0x780000};
    enum { BORDERS = sizeof borders / sizeof *borders };
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(in);
    for (uint32_t i = 0; i < MOST; i++) {
        const uint32_t kind = i % FRACTIONS;
        uint32_t fraction = kind < 24   ? kind
                            : kind < 28 ? 0x7FFFFF - (kind - 24)
                                        : kind * 0x9E3779B1u & 0x7FFFFF;
        if (kind >= 28 && kind < 28 + 3 * BORDERS)
            fraction = borders[(kind - 28) / 3] + (kind - 28) % 3 - 1;
        uint32_t element;
        facts->store(&element, 0, fp8_f32_of_bits(i / FRACTIONS << 23 | fraction), true);
        amaxes[i] = fp8_f32_of_bits(fp8_bits_of_f32(facts->load(&element, 0)) & 0x7FFFFFFF);
        if (amaxes[i] != amaxes[i])
            amaxes[i] = fp8_f32_of_bits(0x7FC00000);
    }
    return MOST;
}

/* n units through the context, and the same through the plain code. */
static void check_scales(const fp8_context *plain, const fp8_context *ctx, const fp8_quant *q,
                         const float *amax, int64_t n)
{
    static unsigned char want[MOST * 4], got[MOST * 4 + 1];
    static float want_operand[MOST], got_operand[MOST];
    const size_t bytes = (size_t)(n * fp8_dtype_bits(q->scale) / 8);
    fp8_error want_err = {0}, err = {0};
    memset(got, 0x5A, sizeof got);
    const fp8_status status = fp8_quant_scales(plain, q, amax, n, want, want_operand, &want_err);
    /* Operands replace the amaxes, and the scales lie at an odd address. */
    memcpy(got_operand, amax, (size_t)n * sizeof *amax);
    assert_int_equal(fp8_quant_scales(ctx, q, got_operand, n, got + 1, got_operand, &err), status);
    if (status != FP8_OK) {
        assert_int_equal(err.pos, want_err.pos);
        assert_string_equal(err.msg, want_err.msg);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got_operand[i], &want_operand[i], sizeof(float)))
            fail_msg("%s, %s to %s, scales %s: amax %a: operand %a, want %a",
                     fp8_rule_name(q->desc.rule), fp8_dtype_name(q->in), fp8_dtype_name(q->code),
                     fp8_dtype_name(q->scale), (double)amax[i], (double)got_operand[i],
                     (double)want_operand[i]);
    assert_memory_equal(got + 1, want, bytes);
    for (size_t i = bytes + 1; i < bytes + 65 && i < sizeof got; i++)
        assert_int_equal(got[i], 0x5A);
}

/* All amaxes at once where none is refused; in pieces of one exponent; and short ones. */
static void check_request(const fp8_context *plain, const fp8_context *ctx, const fp8_quant *q)
{
    const int64_t n = fill_amaxes(q->in);
    check_scales(plain, ctx, q, amaxes, n);
    for (int64_t i = 0; i < n; i += FRACTIONS)
        check_scales(plain, ctx, q, amaxes + i, FRACTIONS);
    for (int64_t count = 0; count < 70; count++)
        check_scales(plain, ctx, q, amaxes + 120 * FRACTIONS + count, count);
}

/* Every request that some row of the table defines. */
static int each_request(const fp8_context *plain, const fp8_context *ctx, float scale_ub)
{
    static const fp8_grid grids[] = {{0, 0}, {1, 0}, {1, 128}, {1, 32}, {128, 128}};
    static const fp8_dtype reals[] = {FP8_F32, FP8_F16, FP8_BF16};
    static const fp8_dtype codes[] = {FP8_E4M3FN, FP8_E4M3FNUZ, FP8_E5M2};
    static const fp8_dtype scales[] = {FP8_F32, FP8_F16, FP8_BF16, FP8_E8M0FNU};
    int requests = 0;
    for (int i = 0; fp8_rule_name(i / 5); i++)
        for (int k = 0; k < 3 * 3 * 4 * 2; k++) {
            fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
            fp8_quant q;
            desc.rule = (fp8_rule)(i / 5);
            desc.grid = grids[i % 5];
            desc.nan = desc.rule == FP8_RULE_BEST ? FP8_NAN_PROPAGATE : FP8_NAN_ORIGINAL;
            desc.pow2_scales = k % 2;
            desc.scale_ub = scale_ub;
            if (fp8_quant_prepare(&q, &desc, reals[k / 2 % 3], codes[k / 6 % 3], scales[k / 18],
                                  128, 128, NULL) != FP8_OK)
                continue;
            requests++;
            check_request(plain, ctx, &q);
        }
    return requests;
}

static void each_level_finds_the_scales_of_the_plain_code(void **state)
{
    (void)state;
    fp8_context *plain = context_at_level(FP8_ISA_SCALAR, 1);
    for (fp8_isa isa = FP8_ISA_SCALAR; isa <= fp8_isa_detect(); isa++) {
        fp8_context *ctx = context_at_level(isa, 1);
        assert_in_range(each_request(plain, ctx, 0), 500, 1000);
        assert_in_range(each_request(plain, ctx, 1.5f), 100, 1000);
        fp8_context_free(ctx);
    }
    fp8_context_free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_level_finds_the_scales_of_the_plain_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
