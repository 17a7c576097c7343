/* SPDX-License-Identifier: Apache-2.0
 *
 * scale.c - from the amax of a unit to its scale and to what its elements are divided or
 * multiplied by, as the rule's row says. Exponents are found on bits: no logarithm is computed, so
 * that no library's rounding shows. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/quantize.h"
#include "op/rules.h"

#include <math.h>

enum { E8M0_MIN = -127, E8M0_MAX = 127 };

/* a = 2^k * (1 + fraction / 2^23) for a finite a > 0, subnormals included; returns k. */
static int split(float a, uint32_t *fraction)
{
    uint32_t bits = fp8_bits_of_f32(a);
    int exponent = (int)(bits >> 23);
    if (!exponent) {
        const int shift = __builtin_clz(bits) - 8; /* to bring the leading one to bit 23 */
        bits <<= shift;
        exponent = 1 - shift;
    }
    *fraction = bits & 0x7FFFFF;
    return exponent - 127;
}

/* 2^e for e in [-127, 127]. */
static float power_of_two(int e)
{
    return fp8_f32_of_bits(e > E8M0_MIN ? (uint32_t)(e + 127) << 23 : 0x400000);
}

static float round_to(fp8_dtype dtype, float x)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    uint32_t element;
    facts->store(&element, 0, x, false);
    return facts->load(&element, 0);
}

static float min_normal(fp8_dtype dtype)
{
    return dtype == FP8_F16 ? 0x1p-14f : 0x1p-126f;
}

static float epsilon(fp8_dtype dtype)
{
    return dtype == FP8_F16 ? 0x1p-10f : dtype == FP8_BF16 ? 0x1p-7f : 0x1p-23f;
}

/* ceil of log2(a) as fp32 holds it. log2(2^k (1 + f)) is k + f / ln 2 for small f; it rounds to k
 * as long as that is below half the distance 2^(j-23) to k's upper neighbour, 2^j being the leading
 * power of that neighbour: f * 2^23 < ln 2 * 2^(j-1), with ln 2 = 45426 / 2^16. */
static int ceil_log2_in_f32(int k, uint32_t fraction)
{
    const int magnitude = k < 0 ? -k - 1 : k;
    const int j = magnitude > 0 ? 31 - __builtin_clz((unsigned)magnitude) : 0;
    const uint32_t absorbed = j ? 45426u << j >> 17 : 0;
    return k + (fraction > absorbed);
}

/* The carry of a mantissa rounded half up to one bit, added in the bits of the input's dtype. */
static int quarter_exponent(const fp8_quant *q, float a, int k, uint32_t fraction)
{
    const float least = min_normal(q->in);
    if (a < least && a >= 0.75f * least)
        return split(least, &fraction);
    return k + (fraction >= 0x600000);
}

/* The exponent of a unit's scale; a is its amax and s the scale without rounding. */
static int unit_exponent(const fp8_quant *q, float a, float s)
{
    uint32_t fraction, top_fraction;
    const int top = split(fp8_rule_code_max(q->row, q->code), &top_fraction);
    const uint32_t half = q->code == FP8_E5M2 ? 1u << 20 : 1u << 19; /* of the code's last bit */
    const bool from_scale =
        q->row->exponent == FP8_EXPONENT_CEIL || q->row->exponent == FP8_EXPONENT_CEIL_LOG2;
    const float value = from_scale ? s : a;
    if (value == 0)
        return E8M0_MIN;
    if (isinf(value))
        return E8M0_MAX;
    const int k = split(value, &fraction);
    switch (q->row->exponent) {
    case FP8_EXPONENT_EXACT:
        return k - top + (fraction > top_fraction);
    case FP8_EXPONENT_CEIL:
        return k + (fraction != 0);
    case FP8_EXPONENT_CEIL_LOG2:
        return ceil_log2_in_f32(k, fraction);
    case FP8_EXPONENT_CEIL_A:
        return k - top + (fraction != 0);
    case FP8_EXPONENT_EVEN_A:
        return k - top + (fraction + half > 0x7FFFFF);
    case FP8_EXPONENT_QUARTER_A:
        return quarter_exponent(q, a, k, fraction) - top;
    default:
        return k - top; /* FP8_EXPONENT_FLOOR_A */
    }
}

/* The amax that the rule reckons with. NaN stays NaN but where it counts as zero. */
static float reckoned_amax(const fp8_quant *q, float a, float max)
{
    const fp8_rule_row *row = q->row;
    if (q->desc.scale_ub > 0 && a > q->desc.scale_ub)
        a = q->desc.scale_ub;
    if (row->zero_amax_max && !(a > 0))
        a = max;
    float floor_value = 0;
    if (row->floor == FP8_FLOOR_MIN_NORMAL)
        floor_value = min_normal(q->in);
    else if (row->floor != FP8_FLOOR_NONE)
        floor_value =
            round_to(row->floor == FP8_FLOOR_IN_INPUT ? q->in : FP8_F32, (float)row->floor_value);
    return a < floor_value ? floor_value : a;
}

/* What x is multiplied by in the inverse forms, 0 in the others. */
static float inverse_scale(const fp8_rule_row *row, float amax, float a, float max)
{
    if (row->form == FP8_SCALE_INVERSE)
        return max / a;
    if (row->form == FP8_SCALE_RECIPROCAL)
        return 1.0f / a * max;
    if (row->form != FP8_SCALE_RECIPROCAL_F64)
        return 0;
    const double wide = amax < row->floor_value ? row->floor_value : (double)amax;
    return (float)(1.0 / wide * (double)max);
}

/* s as the scale dtype holds it. Rounding a subnormal down could cost half of it, and what is then
 * above the maximum would saturate; so a safe row takes the next one. */
static float stored_scale(const fp8_quant *q, float a, float max, float s)
{
    float rounded = round_to(q->scale, s);
    if (!q->row->safe || rounded >= min_normal(q->scale) || (double)rounded * max >= (double)a)
        return rounded;
    const float step = q->scale == FP8_F32    ? 0x1p-149f
                       : q->scale == FP8_BF16 ? 0x1p-133f
                                              : 0x1p-24f;
    return rounded + step;
}

/* The power of two for s, within what the scale's dtype can hold. Infinity if it is too large. */
static float pow2_scale(const fp8_quant *q, float a, float s)
{
    const int dtype_max = q->scale == FP8_F16 ? 15 : E8M0_MAX;
    const int least = q->scale == FP8_F16 ? -24 : q->row->normal_scale ? E8M0_MIN + 1 : E8M0_MIN;
    if (isnan(a))
        return a;
    if (q->row->zero_scale_eps && a == 0)
        return round_to(q->in, power_of_two(E8M0_MIN));
    const int e = unit_exponent(q, a, s);
    return e > dtype_max ? INFINITY : power_of_two(e < least ? least : e);
}

/* A unit that the original would lose, having found scale 0 or infinity for a finite amax: a
 * scale that is positive and has a finite reciprocal. */
static float rescued_scale(float amax, float max)
{
    const float s = amax / max;
    return amax == 0 ? 1.0f : s < 0x1p-126f ? 0x1p-126f : s;
}

typedef struct unit_scale {
    float scale, operand;
} unit_scale;

static unit_scale scale_of_unit(const fp8_quant *q, float amax)
{
    const fp8_rule_row *row = q->row;
    const float max = fp8_rule_code_max(row, q->code);
    const float a = reckoned_amax(q, amax, max);
    const bool inverse = row->form >= FP8_SCALE_INVERSE;
    const float m = inverse_scale(row, amax, a, max);
    float s = inverse ? 1.0f / m : row->form == FP8_SCALE_TIMES ? a * (1.0f / max) : a / max;
    if (row->scale_in_input)
        s = round_to(q->in, s);
    const float least = row->scale_floor < 0 ? 1.0f / (512.0f * max) : row->scale_floor;
    s = s < least ? least : s;
    s = row->exponent ? pow2_scale(q, a, s) : stored_scale(q, a, max, s);
    if (row->zero_scale_eps && s == 0)
        s = row->exponent ? 1.0f : epsilon(q->in);
    const bool lost = isfinite(amax) && !(s > 0 && isfinite(s)) && !row->safe;
    if (lost)
        s = rescued_scale(amax, max);
    unit_scale unit = {s, row->multiply ? 1.0f / s : s};
    if (inverse && !row->exponent && !lost)
        unit.operand = m;
    if (row->divisor_of_min > 0 && s == power_of_two(E8M0_MIN))
        unit.operand = row->divisor_of_min;
    return unit;
}

fp8_status fp8_quant_scales(const fp8_quant *q, const float *amax, int64_t n, void *scales,
                            float *operand, fp8_error *err)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(q->scale);
    for (int64_t i = 0; i < n; i++) {
        const float a = amax[i]; /* operand may be amax itself */
        const unit_scale unit = scale_of_unit(q, a);
        if (isfinite(a) && !isfinite(unit.scale))
            return fp8_fail_at(err, FP8_E_SCALE, i,
                               "the scale of unit %lld, amax %g over %g, is above the largest %s",
                               (long long)i, (double)a, (double)fp8_rule_code_max(q->row, q->code),
                               facts->name);
        facts->store(scales, i, unit.scale, false);
        operand[i] = unit.operand;
    }
    return FP8_OK;
}

fp8_status fp8_quant_static(const fp8_quant *q, const fp8_tensor *scales, float *operand,
                            fp8_error *err)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(q->scale);
    for (int64_t i = 0; i < q->grid_rows; i++)
        for (int64_t j = 0; j < q->grid_cols; j++) {
            const int64_t at = i * q->grid_cols + j;
            const float s =
                facts->load(scales->data, i * scales->stride[0] + j * scales->stride[1]);
            if (!(s > 0 && isfinite(s)))
                return fp8_fail_at(err, FP8_E_SCALE, at,
                                   "scale [%lld,%lld] is %g; a static scale must be finite and "
                                   "positive",
                                   (long long)i, (long long)j, (double)s);
            operand[at] = q->row->multiply ? 1.0f / s : s;
        }
    return FP8_OK;
}
