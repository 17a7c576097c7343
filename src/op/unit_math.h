/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_math.h - from the amax of a unit to its scale and to what its elements are divided or
 * multiplied by, in numbers that scale.c has read out of a rule's row. Exponents are found on bits:
 * no logarithm is computed, so that no library's rounding shows. C and CUDA, so that both give the
 * same bits; compile it without contraction. */
#ifndef FP8_OP_UNIT_MATH_H
#define FP8_OP_UNIT_MATH_H

#include "number/number.h"
#include "op/rules.h"

#include <math.h>

/* How an amax becomes a scale, in numbers: what scale.c reads out of a rule's row.
 *
 *     a = amax, at most `upper`; if it is not above 0 and zero_is_max: max; at least `floor`
 *     s = a / max, or a * (1 / max); rounded to `quotient`; at least `least`
 *     scale = s rounded to its dtype, or 2^e with e = k - top + (f > threshold) where a, or with
 *             of_scale s, is 2^k (1 + f / 2^23); with log2 the threshold depends on k */
typedef struct fp8_scale_formula {
    fp8_dtype quotient, scale;
    float upper, max, floor, least;
    bool zero_is_max, times, multiply; /* multiply: the operand is 1 / scale */
    bool pow2, of_scale, log2;
    int32_t top;
    uint32_t threshold;
    float low, high; /* a scale found between these is right without more ado */
} fp8_scale_formula;

/* What is the same for all units of a request. */
typedef struct fp8_unit_maker {
    double floor_value; /* fp8_rule_row's, as are the others of that name */
    fp8_scale_formula f;
    float divisor_of_min;
    int32_t exponent_min, exponent_max; /* of powers of two */
    fp8_dtype in;
    uint8_t form, exponent;
    bool safe, zero_scale_eps, scale_in_input;
} fp8_unit_maker;

enum { FP8_E8M0_MIN = -127, FP8_E8M0_MAX = 127 };

FP8_NUMBER_FN bool fp8_is_finite(float x)
{
    return (fp8_bits_of_f32(x) & 0x7FFFFFFF) < 0x7F800000;
}

/* Of n > 0. */
FP8_NUMBER_FN int fp8_leading_zeros(uint32_t n)
{
#if defined(__CUDA_ARCH__)
    return __clz((int)n);
#else
    return __builtin_clz(n);
#endif
}

/* a = 2^k * (1 + fraction / 2^23) for a finite a > 0, subnormals included; returns k. */
FP8_NUMBER_FN int fp8_split(float a, uint32_t *fraction)
{
    uint32_t bits = fp8_bits_of_f32(a);
    int exponent = (int)(bits >> 23);
    if (!exponent) {
        const int shift = fp8_leading_zeros(bits) - 8; /* to bring the leading one to bit 23 */
        bits <<= shift;
        exponent = 1 - shift;
    }
    *fraction = bits & 0x7FFFFF;
    return exponent - 127;
}

/* 2^e for e in [-127, 127]. */
FP8_NUMBER_FN float fp8_power_of_two(int e)
{
    return fp8_f32_of_bits(e > FP8_E8M0_MIN ? (uint32_t)(e + 127) << 23 : 0x400000);
}

FP8_NUMBER_FN float fp8_round_to(fp8_dtype dtype, float x)
{
    switch (dtype) {
    case FP8_F16:
        return fp8_f16_to_f32(fp8_f16_from_f32(x, false));
    case FP8_BF16:
        return fp8_bf16_to_f32(fp8_bf16_from_f32(x, false));
    case FP8_E8M0FNU:
        return fp8_e8m0fnu_to_f32(fp8_e8m0fnu_from_f32(x));
    default:
        return x;
    }
}

FP8_NUMBER_FN float fp8_min_normal(fp8_dtype dtype)
{
    return dtype == FP8_F16 ? 0x1p-14f : 0x1p-126f;
}

FP8_NUMBER_FN float fp8_epsilon(fp8_dtype dtype)
{
    return dtype == FP8_F16 ? 0x1p-10f : dtype == FP8_BF16 ? 0x1p-7f : 0x1p-23f;
}

/* How large a fraction of 2^k (1 + fraction / 2^23) a logarithm in fp32 loses: log2 is k + f / ln 2
 * for small f; it rounds to k as long as that is below half the distance 2^(j-23) to k's upper
 * neighbour, 2^j being the leading power of that neighbour: f * 2^23 < ln 2 * 2^(j-1), with
 * ln 2 = 45426 / 2^16. */
FP8_NUMBER_FN uint32_t fp8_absorbed_by_log2(int k)
{
    const int magnitude = k < 0 ? -k - 1 : k;
    const int j = magnitude > 0 ? 31 - fp8_leading_zeros((uint32_t)magnitude) : 0;
    return 45426u << j >> 17;
}

/* The exponent of a unit's scale; a is its amax and s the scale without rounding. */
FP8_NUMBER_FN int fp8_unit_exponent(const fp8_unit_maker *m, float a, float s)
{
    const float value = m->f.of_scale ? s : a;
    uint32_t fraction;
    if (value == 0)
        return FP8_E8M0_MIN;
    if (!fp8_is_finite(value))
        return FP8_E8M0_MAX;
    const int k = fp8_split(value, &fraction);
    if (m->exponent == FP8_EXPONENT_QUARTER_A) {
        const float least = fp8_min_normal(m->in); /* the carry is added in the bits of the input */
        if (a < least && a >= 0.75f * least)
            return fp8_split(least, &fraction) - m->f.top;
    }
    return k - m->f.top + (fraction > (m->f.log2 ? fp8_absorbed_by_log2(k) : m->f.threshold));
}

/* The amax that the rule reckons with. NaN stays NaN but where it counts as zero. */
FP8_NUMBER_FN float fp8_reckoned_amax(const fp8_unit_maker *m, float a)
{
    if (a > m->f.upper)
        a = m->f.upper;
    if (m->f.zero_is_max && !(a > 0))
        a = m->f.max;
    return a < m->f.floor ? m->f.floor : a;
}

/* What x is multiplied by in the inverse forms, 0 in the others. */
FP8_NUMBER_FN float fp8_inverse_scale(const fp8_unit_maker *m, float amax, float a)
{
    switch (m->form) {
    case FP8_SCALE_INVERSE:
        return m->f.max / a;
    case FP8_SCALE_RECIPROCAL:
        return 1.0f / a * m->f.max;
    case FP8_SCALE_RECIPROCAL_F64:
        return (float)(1.0 / (amax < m->floor_value ? m->floor_value : (double)amax) *
                       (double)m->f.max);
    default:
        return 0;
    }
}

/* s as the scale dtype holds it. Rounding a subnormal down could cost half of it, and what is then
 * above the maximum would saturate; so a safe row takes the next one. */
FP8_NUMBER_FN float fp8_stored_scale(const fp8_unit_maker *m, float a, float s)
{
    const fp8_dtype dtype = m->f.scale;
    const float rounded = dtype == FP8_F32 ? s : fp8_round_to(dtype, s);
    if (!m->safe || rounded >= fp8_min_normal(dtype) || (double)rounded * m->f.max >= (double)a)
        return rounded;
    return rounded + (dtype == FP8_F32 ? 0x1p-149f : dtype == FP8_BF16 ? 0x1p-133f : 0x1p-24f);
}

/* The power of two for s, within what the scale's dtype can hold. Infinity if it is too large. */
FP8_NUMBER_FN float fp8_pow2_scale(const fp8_unit_maker *m, float a, float s)
{
    if (a != a)
        return a;
    if (m->zero_scale_eps && a == 0)
        return fp8_round_to(m->in, fp8_power_of_two(FP8_E8M0_MIN));
    const int e = fp8_unit_exponent(m, a, s);
    if (e > m->exponent_max)
        return INFINITY;
    return fp8_power_of_two(e < m->exponent_min ? m->exponent_min : e);
}

/* A unit that the original would lose, having found scale 0 or infinity for a finite amax: a
 * scale that is positive and has a finite reciprocal. */
FP8_NUMBER_FN float fp8_rescued_scale(const fp8_unit_maker *m, float amax)
{
    const float s = amax / m->f.max;
    return amax == 0 ? 1.0f : s < 0x1p-126f ? 0x1p-126f : s;
}

/* The scale before any power of two; m * s = 1 in the inverse forms. */
FP8_NUMBER_FN float fp8_plain_scale(const fp8_unit_maker *m, float a, float inverse)
{
    float s = inverse > 0 ? 1.0f / inverse : m->f.times ? a * (1.0f / m->f.max) : a / m->f.max;
    if (m->scale_in_input)
        s = fp8_round_to(m->in, s);
    return s < m->f.least ? m->f.least : s;
}

/* `scale` as its dtype holds it, and what encoding works with. */
typedef struct fp8_unit_scale {
    float scale, operand;
} fp8_unit_scale;

FP8_NUMBER_FN fp8_unit_scale fp8_scale_of_unit(const fp8_unit_maker *m, float amax)
{
    const float a = fp8_reckoned_amax(m, amax);
    const float inverse = fp8_inverse_scale(m, amax, a);
    float s = fp8_plain_scale(m, a, inverse);
    s = m->exponent ? fp8_pow2_scale(m, a, s) : fp8_stored_scale(m, a, s);
    if (m->zero_scale_eps && s == 0)
        s = m->exponent ? 1.0f : fp8_epsilon(m->in);
    const bool lost = fp8_is_finite(amax) && !(s > 0 && fp8_is_finite(s)) && !m->safe;
    if (lost)
        s = fp8_rescued_scale(m, amax);
    fp8_unit_scale unit = {s, m->f.multiply ? 1.0f / s : s};
    if (m->form >= FP8_SCALE_INVERSE && !m->exponent && !lost)
        unit.operand = inverse;
    if (m->divisor_of_min > 0 && s == fp8_power_of_two(FP8_E8M0_MIN))
        unit.operand = m->f.multiply ? 1.0f / m->divisor_of_min : m->divisor_of_min;
    return unit;
}

#endif
