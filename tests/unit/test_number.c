/* SPDX-License-Identifier: Apache-2.0
 *
 * test_number.c - the number formats from their definition: every code decoded by the formula in
 * double, every neighbourhood of a code and of a midpoint encoded and compared with the nearest
 * value found by search, specials, and the table of facts. */
#include "number/dtype.h"
#include "number/number.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

typedef struct {
    const char *name;
    fp8_dtype dtype;
    fp8_format format;
    double max; /* from the formats' specifications, not from the code under test */
} format_case;

static size_t all_formats(format_case *out)
{
    const format_case cases[] = {
        {"e4m3fn", FP8_E4M3FN, fp8_format_e4m3fn(), 448},
        {"e4m3fnuz", FP8_E4M3FNUZ, fp8_format_e4m3fnuz(), 240},
        {"e5m2", FP8_E5M2, fp8_format_e5m2(), 57344},
        {"e5m2fnuz", FP8_E5M2FNUZ, fp8_format_e5m2fnuz(), 57344},
        {"f16", FP8_F16, fp8_format_f16(), 65504},
        {"bf16", FP8_BF16, fp8_format_bf16(), 0x1.fep127},
    };
    memcpy(out, cases, sizeof cases);
    return sizeof cases / sizeof *cases;
}

static int sign_bit_of(const fp8_format *f)
{
    return f->exponent_bits + f->mantissa_bits;
}

/* The value of a finite magnitude, by the formula at the top of number.h. */
static double value_of(uint32_t mag, const fp8_format *f)
{
    int exponent = (int)(mag >> f->mantissa_bits);
    double mantissa = ldexp((double)(mag & ((1u << f->mantissa_bits) - 1)), -f->mantissa_bits);
    if (exponent == 0)
        return ldexp(mantissa, 1 - f->bias);
    return ldexp(1 + mantissa, exponent - f->bias);
}

static void codes_decode_by_the_formula(void **state)
{
    (void)state;
    format_case all[8];
    size_t n = all_formats(all);
    for (size_t k = 0; k < n; k++) {
        const fp8_format *f = &all[k].format;
        assert_true(value_of(f->max_code, f) == all[k].max);
        for (uint32_t code = 0; code < 2u << sign_bit_of(f); code++) {
            uint32_t mag = code & ((1u << sign_bit_of(f)) - 1);
            double sign = code >> sign_bit_of(f) ? -1 : 1;
            double got = fp8_f32_of_bits(fp8_decode(code, *f));
            if (fp8_dtype_is_nan(all[k].dtype, code))
                assert_true(isnan(got));
            else if (mag > f->max_code)
                assert_true(got == sign * (double)INFINITY);
            else
                assert_true(got == sign * value_of(mag, f) && signbit(got) == (sign < 0));
        }
    }
}

/* The magnitude nearest to x >= 0, the even one of two; max_code + 1 from the midpoint above max on
 * (the code after max would be even there). Found by bisection over values alone. */
static uint32_t nearest_by_search(double x, const fp8_format *f)
{
    uint32_t low = 0, high = f->max_code + 1; /* value_of(low) <= x < value_of(high) */
    if (x >= value_of(high, f))
        return high;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (value_of(middle, f) <= x)
            low = middle;
        else
            high = middle;
    }
    double below = x - value_of(low, f), above = value_of(high, f) - x;
    if (below == above)
        return low & 1 ? high : low;
    return below < above ? low : high;
}

static void check_encode(uint32_t bits, const format_case *c)
{
    const fp8_format *f = &c->format;
    double x = fp8_f32_of_bits(bits);
    uint32_t want = nearest_by_search(fabs(x), f);
    uint32_t sign = signbit(x) ? 1u << sign_bit_of(f) : 0;
    if (f->fnuz && want == 0)
        sign = 0;
    uint32_t saturated = sign | (want > f->max_code ? f->max_code : want);
    uint32_t open = sign | (want > f->max_code ? f->overflow_code : want);
    if (fp8_encode(bits, *f, true) != saturated || fp8_encode(bits, *f, false) != open)
        fail_msg("%s of %08x (%a): saturated 0x%x, expected 0x%x; open 0x%x, expected 0x%x",
                 c->name, bits, x, fp8_encode(bits, *f, true), saturated,
                 fp8_encode(bits, *f, false), open);
}

static void codes_midpoints_and_their_neighbours_round_to_nearest(void **state)
{
    (void)state;
    format_case all[8];
    size_t n = all_formats(all);
    for (size_t k = 0; k < n; k++) {
        const fp8_format *f = &all[k].format;
        for (uint32_t mag = 0; mag <= f->max_code; mag++) {
            double points[2] = {value_of(mag, f), (value_of(mag, f) + value_of(mag + 1, f)) / 2};
            for (int p = 0; p < 2; p++) {
                uint32_t bits = fp8_bits_of_f32((float)points[p]);
                for (int step = -1; step <= 1; step++) {
                    if (bits == 0 && step < 0)
                        continue;
                    uint32_t x = bits + (uint32_t)step;
                    if (x >= 0x7F800000)
                        continue;
                    check_encode(x, &all[k]);
                    check_encode(x | 0x80000000, &all[k]);
                }
            }
        }
    }
}

static void random_bits_round_to_nearest(void **state)
{
    (void)state;
    format_case all[8];
    size_t n = all_formats(all);
    uint32_t x = 1;
    for (int i = 0; i < 200000; i++) {
        const uint32_t bits = next_random(&x);
        for (size_t k = 0; k < n; k++)
            if ((bits & 0x7FFFFFFF) < 0x7F800000)
                check_encode(bits, &all[k]);
    }
}

static void specials_follow_the_format(void **state)
{
    (void)state;
    static const struct {
        uint32_t bits;
        uint32_t saturate[6], open[6]; /* in the order of all_formats */
    } rows[] = {
        {0x7F800000,
         {0x7E, 0x7F, 0x7B, 0x7F, 0x7BFF, 0x7F7F},
         {0x7F, 0x80, 0x7C, 0x80, 0x7C00, 0x7F80}},
        {0xFF800000,
         {0xFE, 0xFF, 0xFB, 0xFF, 0xFBFF, 0xFF7F},
         {0xFF, 0x80, 0xFC, 0x80, 0xFC00, 0xFF80}},
        {0x7FC00000,
         {0x7F, 0x80, 0x7F, 0x80, 0x7E00, 0x7FC0},
         {0x7F, 0x80, 0x7F, 0x80, 0x7E00, 0x7FC0}},
        {0xFF800001,
         {0xFF, 0x80, 0xFF, 0x80, 0xFE00, 0xFFC0},
         {0xFF, 0x80, 0xFF, 0x80, 0xFE00, 0xFFC0}},
        {0x7FFFFFFF,
         {0x7F, 0x80, 0x7F, 0x80, 0x7FFF, 0x7FFF},
         {0x7F, 0x80, 0x7F, 0x80, 0x7FFF, 0x7FFF}},
        {0x80000000,
         {0x80, 0x00, 0x80, 0x00, 0x8000, 0x8000},
         {0x80, 0x00, 0x80, 0x00, 0x8000, 0x8000}},
    };
    format_case all[8];
    size_t n = all_formats(all);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(fp8_encode(rows[r].bits, all[k].format, true), rows[r].saturate[k]);
            assert_int_equal(fp8_encode(rows[r].bits, all[k].format, false), rows[r].open[k]);
        }
}

static void powers_of_two_round_as_documented(void **state)
{
    (void)state;
    static const struct {
        float x;
        uint8_t nearest, up;
    } rows[] = {
        {1.0f, 127, 127},     {1.25f, 127, 128},      {1.5f, 128, 128},
        {3.0f, 129, 129},     {2.999f, 128, 129},     {0x1p-127f, 0, 0},
        {0x1p-149f, 0, 0},    {0x1.8p-127f, 1, 1},    {0x1.00001p-127f, 1, 1},
        {0x1p127f, 254, 254}, {0x1.7p127f, 254, 254}, {0x1.8p127f, 255, 254},
        {INFINITY, 255, 254}, {NAN, 255, 255},        {0.0f, 255, 0},
        {-0.0f, 255, 0},      {-1.0f, 255, 0},        {-INFINITY, 255, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(fp8_e8m0fnu_from_f32(rows[i].x), rows[i].nearest);
        assert_int_equal(fp8_e8m0fnu_from_f32_up(rows[i].x), rows[i].up);
    }
    for (int code = 0; code < 255; code++) {
        float x = fp8_e8m0fnu_to_f32((uint8_t)code);
        assert_true(x == (float)ldexp(1, code - 127));
        assert_int_equal(fp8_e8m0fnu_from_f32(x), code);
        assert_int_equal(fp8_e8m0fnu_from_f32_up(x), code);
    }
    assert_true(isnan(fp8_e8m0fnu_to_f32(255)));
}

static void dtypes_have_names_and_widths(void **state)
{
    (void)state;
    int named = 0;
    for (int d = -1; d < 64; d++) {
        const char *name = fp8_dtype_name((fp8_dtype)d);
        if (!name) {
            assert_int_equal(fp8_dtype_bits((fp8_dtype)d), 0);
            continue;
        }
        named++;
        assert_int_equal(fp8_dtype_parse(name), d);
        assert_true(fp8_dtype_bits((fp8_dtype)d) >= 4);
    }
    assert_int_equal(named, 22);
    assert_int_equal(fp8_dtype_parse("F8_E4M3"), FP8_E4M3FN);
    assert_int_equal(fp8_dtype_parse("f32"), FP8_DTYPE_NONE);
    assert_int_equal(fp8_dtype_parse(""), FP8_DTYPE_NONE);
    assert_int_equal(fp8_dtype_parse(NULL), FP8_DTYPE_NONE);
    assert_int_equal(fp8_dtype_bits(FP8_F6_E3M2), 6);
}

static void facts_agree_with_the_formats(void **state)
{
    (void)state;
    format_case all[8];
    size_t n = all_formats(all);
    for (size_t k = 0; k < n; k++) {
        const fp8_dtype_facts *facts = fp8_dtype_facts_of(all[k].dtype);
        assert_true(facts->max == all[k].max);
        assert_int_equal(facts->bits, 1 + sign_bit_of(&all[k].format));
        assert_true(fp8_dtype_is_real(all[k].dtype));
        assert_int_equal(fp8_dtype_is_fp8(all[k].dtype), facts->bits == 8);
        unsigned char cell[3] = {0};
        facts->store(cell + 1, 0, -INFINITY, false); /* misaligned */
        assert_true(facts->has_inf ? facts->load(cell + 1, 0) == -INFINITY
                                   : isnan(facts->load(cell + 1, 0)));
        facts->store(cell + 1, 0, -INFINITY, true);
        assert_true(facts->load(cell + 1, 0) == -all[k].max);
    }
    float big;
    fp8_dtype_facts_of(FP8_F32)->store(&big, 0, INFINITY, true);
    assert_true(big == fp8_dtype_facts_of(FP8_F32)->max);
    assert_false(fp8_dtype_is_real(FP8_E8M0FNU) || fp8_dtype_is_real(FP8_F64));
    assert_true(fp8_dtype_is_nan(FP8_F32, 0xFFC00000) && !fp8_dtype_is_nan(FP8_F32, 0x7F800000));
    assert_false(fp8_dtype_is_nan(FP8_U8, 0xFF) || fp8_dtype_is_nan(FP8_DTYPE_NONE, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_decode_by_the_formula),
        cmocka_unit_test(codes_midpoints_and_their_neighbours_round_to_nearest),
        cmocka_unit_test(random_bits_round_to_nearest),
        cmocka_unit_test(specials_follow_the_format),
        cmocka_unit_test(powers_of_two_round_as_documented),
        cmocka_unit_test(dtypes_have_names_and_widths),
        cmocka_unit_test(facts_agree_with_the_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
