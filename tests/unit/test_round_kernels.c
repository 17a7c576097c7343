/* SPDX-License-Identifier: Apache-2.0
 *
 * test_round_kernels.c - every kernel that rounds to the numbers of codes against encoding by the
 * reference and decoding: all 65536 inputs, the scales of every amax, operands at which quotients
 * are midpoints, all short lengths, units that do and do not fill vectors, and no byte written or
 * read outside. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/quant_kernels.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

enum { ALL = 65536, MOST = 300 };

static bool is_round(const fp8_kernel *kernel)
{
    return (kernel->op == FP8_OP_ROUND_DIVIDE || kernel->op == FP8_OP_ROUND_MULTIPLY) &&
           kernel->isa <= fp8_isa_detect();
}

#define EACH_KERNEL(k)                                         \
    for (size_t i_ = 0; (k = fp8_kernel_at(i_)) != NULL; i_++) \
        if (is_round(k))

/* x[n] through a kernel, and encoded and decoded. */
static void check(const fp8_kernel *kernel, const uint16_t *x, int64_t n, int64_t unit,
                  const float *operand)
{
    const fp8_rule_row row = {.multiply = kernel->op == FP8_OP_ROUND_MULTIPLY};
    fp8_quant q = {.row = &row, .in = kernel->from, .code = kernel->to, .cols = n};
    q.unit_cols = unit;
    q.multiply = row.multiply;
    q.desc.nan = FP8_NAN_PROPAGATE;
    uint8_t *codes = malloc((size_t)n + 1);
    uint16_t *got = malloc(((size_t)n + 1) * sizeof *got);
    got[n] = 0x5A5A;
    fp8_ref_encode_row(&q, x, 1, operand, codes, 1);
    kernel->fn.round(&(fp8_round_run){x, got, operand, n, unit});
    for (int64_t j = 0; j < n; j++) {
        const float want = fp8_dtype_facts_of(kernel->to)->load(codes, j);
        const float found = fp8_f32_of_bits((uint32_t)got[j] << 16);
        if (isnan(want) ? !isnan(found) : fp8_bits_of_f32(want) != fp8_bits_of_f32(found))
            fail_msg("%s: n %lld unit %lld: x 0x%04x operand %a: %a, want %a", kernel->name,
                     (long long)n, (long long)unit, x[j], (double)operand[j / unit], (double)found,
                     (double)want);
    }
    assert_int_equal(got[n], 0x5A5A);
    free(codes);
    free(got);
}

/* The same with the operand that stands for a scale. */
static void check_scale(const fp8_kernel *kernel, const uint16_t *x, int64_t n, float scale)
{
    const float operand = kernel->op == FP8_OP_ROUND_MULTIPLY ? 1 / scale : scale;
    if (fp8_round_takes(operand))
        check(kernel, x, n, n, &operand);
}

static void all_inputs_are_rounded_alike(void **state)
{
    (void)state;
    static const float ends[] = {0x1p-64f, 0x1p64f, 1, 0.3f, 1.7e-5f, 117.25f, 0x1.fffffcp-1f};
    uint16_t *x = malloc(ALL * sizeof *x);
    const fp8_kernel *kernel;
    int kernels = 0;
    for (int i = 0; i < ALL; i++)
        x[i] = (uint16_t)i;
    EACH_KERNEL(kernel)
    {
        kernels++;
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            check(kernel, x, ALL, ALL, &ends[e]);
        for (int amax = 128; amax < 256; amax += 3)
            check_scale(kernel, x, ALL, (float)amax / 64 / 448);
    }
    free(x);
    assert_true(kernels > 0 || fp8_isa_detect() < FP8_ISA_AVX512);
}

/* Scales by which a significand becomes a midpoint between codes, and their neighbours. */
static void quotients_at_midpoints_are_rounded_alike(void **state)
{
    (void)state;
    const fp8_kernel *kernel;
    EACH_KERNEL(kernel)
    for (int significand = 128; significand < 256; significand++) {
        uint16_t x[512];
        for (int i = 0; i < 512; i++) /* of either sign and any exponent */
            x[i] = (uint16_t)(i << 7 | (significand & 0x7F));
        for (int middle = 1; middle < 32; middle++)
            for (int d = -2; d <= 2; d++) {
                const uint32_t bits = fp8_bits_of_f32((float)significand / (float)middle);
                check_scale(kernel, x, 512, fp8_f32_of_bits(bits + (uint32_t)d));
            }
    }
}

static void all_lengths_and_units_are_rounded_alike(void **state)
{
    (void)state;
    static const int64_t units[] = {1, 3, 16, 31, 32, 33, 64, 100, 128, 400};
    const fp8_kernel *kernel;
    float operand[MOST];
    uint32_t seed = 7;
    for (int j = 0; j < MOST; j++)
        operand[j] = (float)(1 + next_random(&seed) % 1000) / 300;
    EACH_KERNEL(kernel)
    for (int64_t n = 0; n < MOST; n += n < 140 ? 1 : 7) {
        uint16_t *x = malloc((size_t)n * sizeof *x + !n); /* a sanitizer sees what is beyond */
        for (int64_t j = 0; j < n; j++)
            x[j] = (uint16_t)(next_random(&seed) >> 9);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++)
            check(kernel, x, n, units[u], operand);
        free(x);
    }
}

static void operands_at_the_ends_are_not_taken(void **state)
{
    (void)state;
    static const float none[] = {0,         -1,        0x1p-65f, 0x1.8p64f,     INFINITY,
                                 -INFINITY, 0x1p-140f, NAN,      0x1.fffffep3f, 0x1.fffffep-9f};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(fp8_round_takes(none[i]));
    assert_true(fp8_round_takes(1) && fp8_round_takes(0x1p-64f) && fp8_round_takes(0x1p64f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_inputs_are_rounded_alike),
        cmocka_unit_test(quotients_at_midpoints_are_rounded_alike),
        cmocka_unit_test(all_lengths_and_units_are_rounded_alike),
        cmocka_unit_test(operands_at_the_ends_are_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
