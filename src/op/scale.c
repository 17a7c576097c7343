/* SPDX-License-Identifier: Apache-2.0
 *
 * scale.c - from the amax of a unit to its scale and to what its elements are divided or
 * multiplied by, as the rule's row says. Exponents are found on bits: no logarithm is computed, so
 * that no library's rounding shows. */
#include "base/size.h"
#include "number/dtype.h"
#include "number/number.h"
#include "op/backend.h"
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

/* How large a fraction of 2^k (1 + fraction / 2^23) a logarithm in fp32 loses: log2 is k + f / ln 2
 * for small f; it rounds to k as long as that is below half the distance 2^(j-23) to k's upper
 * neighbour, 2^j being the leading power of that neighbour: f * 2^23 < ln 2 * 2^(j-1), with
 * ln 2 = 45426 / 2^16. */
static uint32_t absorbed_by_log2(int k)
{
    const int magnitude = k < 0 ? -k - 1 : k;
    const int j = magnitude > 0 ? 31 - __builtin_clz((unsigned)magnitude) : 0;
    return 45426u << j >> 17;
}

/* What is the same for all units of a request. */
typedef struct maker {
    const fp8_quant *q;
    const fp8_rule_row *row;
    const fp8_dtype_facts *scale;
    fp8_scale_formula f;
    int exponent_min, exponent_max;
} maker;

static float floor_of(const fp8_quant *q)
{
    switch (q->row->floor) {
    case FP8_FLOOR_NONE:
        return 0;
    case FP8_FLOOR_MIN_NORMAL:
        return min_normal(q->in);
    case FP8_FLOOR_IN_INPUT:
        return round_to(q->in, (float)q->row->floor_value);
    default:
        return (float)q->row->floor_value; /* FP8_FLOOR_F32 */
    }
}

/* When the exponent is one more than that of the value. */
static uint32_t threshold_of(fp8_exponent kind, fp8_dtype code, uint32_t top_fraction)
{
    switch (kind) {
    case FP8_EXPONENT_EXACT:
        return top_fraction;
    case FP8_EXPONENT_EVEN_A: /* half of the code's last bit, in fp32's mantissa, carries */
        return 0x7FFFFF - (code == FP8_E5M2 ? 1u << 20 : 1u << 19);
    case FP8_EXPONENT_QUARTER_A: /* a carry of a mantissa rounded half up to one bit */
        return 0x5FFFFF;
    case FP8_EXPONENT_FLOOR_A:
        return 0x7FFFFF;
    default:
        return 0;
    }
}

/* Between these no exception of the functions below is met: the scale is a normal number, exact in
 * its dtype as far as `safe` asks, its exponent is in range, and a was a finite number. */
static void set_range(fp8_scale_formula *f, const maker *m)
{
    f->low = 0x1p-100f;
    f->high = 0x1p100f;
    if (m->q->scale == FP8_F16) {
        f->low = m->row->safe && !f->pow2 ? 0x1p-14f : 0x1p-24f;
        f->high = f->pow2 ? 0x1p15f : 65504;
    }
    if (m->row->exponent == FP8_EXPONENT_QUARTER_A && m->q->in == FP8_F16)
        f->low = 0x1p-21f; /* of an amax that is surely normal in fp16 */
}

static fp8_scale_formula formula_of(const maker *m)
{
    const fp8_rule_row *row = m->row;
    const fp8_exponent kind = row->exponent;
    const float max = fp8_rule_code_max(row, m->q->code);
    fp8_scale_formula f = {.quotient = row->scale_in_input ? m->q->in : FP8_F32,
                           .scale = m->q->scale,
                           .upper = m->q->desc.scale_ub > 0 ? m->q->desc.scale_ub : INFINITY,
                           .max = max,
                           .floor = floor_of(m->q),
                           .least = row->scale_floor < 0 ? 1.0f / (512.0f * max) : row->scale_floor,
                           .zero_is_max = row->zero_amax_max,
                           .times = row->form == FP8_SCALE_TIMES,
                           .multiply = m->q->multiply,
                           .pow2 = kind != FP8_EXPONENT_NONE,
                           .log2 = kind == FP8_EXPONENT_CEIL_LOG2};
    uint32_t top_fraction;
    f.top = split(max, &top_fraction);
    f.of_scale = f.log2 || kind == FP8_EXPONENT_CEIL;
    if (f.of_scale)
        f.top = 0;
    f.threshold = threshold_of(kind, m->q->code, top_fraction);
    set_range(&f, m);
    return f;
}

static maker maker_of(const fp8_quant *q)
{
    maker m = {.q = q, .row = q->row, .scale = fp8_dtype_facts_of(q->scale)};
    m.f = formula_of(&m);
    m.exponent_min = q->scale == FP8_F16 ? -24 : q->row->normal_scale ? E8M0_MIN + 1 : E8M0_MIN;
    m.exponent_max = q->scale == FP8_F16 ? 15 : E8M0_MAX;
    return m;
}

/* The exponent of a unit's scale; a is its amax and s the scale without rounding. */
static int unit_exponent(const maker *m, float a, float s)
{
    const float value = m->f.of_scale ? s : a;
    uint32_t fraction;
    if (value == 0)
        return E8M0_MIN;
    if (isinf(value))
        return E8M0_MAX;
    const int k = split(value, &fraction);
    if (m->row->exponent == FP8_EXPONENT_QUARTER_A) {
        const float least = min_normal(m->q->in); /* the carry is added in the bits of the input */
        if (a < least && a >= 0.75f * least)
            return split(least, &fraction) - m->f.top;
    }
    return k - m->f.top + (fraction > (m->f.log2 ? absorbed_by_log2(k) : m->f.threshold));
}

/* The amax that the rule reckons with. NaN stays NaN but where it counts as zero. */
static float reckoned_amax(const maker *m, float a)
{
    if (a > m->f.upper)
        a = m->f.upper;
    if (m->f.zero_is_max && !(a > 0))
        a = m->f.max;
    return a < m->f.floor ? m->f.floor : a;
}

/* What x is multiplied by in the inverse forms, 0 in the others. */
static float inverse_scale(const maker *m, float amax, float a)
{
    switch (m->row->form) {
    case FP8_SCALE_INVERSE:
        return m->f.max / a;
    case FP8_SCALE_RECIPROCAL:
        return 1.0f / a * m->f.max;
    case FP8_SCALE_RECIPROCAL_F64:
        return (float)(1.0 / (amax < m->row->floor_value ? m->row->floor_value : (double)amax) *
                       (double)m->f.max);
    default:
        return 0;
    }
}

/* s as the scale dtype holds it. Rounding a subnormal down could cost half of it, and what is then
 * above the maximum would saturate; so a safe row takes the next one. */
static float stored_scale(const maker *m, float a, float s)
{
    const fp8_dtype dtype = m->q->scale;
    const float rounded = dtype == FP8_F32 ? s : round_to(dtype, s);
    if (!m->row->safe || rounded >= min_normal(dtype) || (double)rounded * m->f.max >= (double)a)
        return rounded;
    return rounded + (dtype == FP8_F32 ? 0x1p-149f : dtype == FP8_BF16 ? 0x1p-133f : 0x1p-24f);
}

/* The power of two for s, within what the scale's dtype can hold. Infinity if it is too large. */
static float pow2_scale(const maker *m, float a, float s)
{
    if (isnan(a))
        return a;
    if (m->row->zero_scale_eps && a == 0)
        return round_to(m->q->in, power_of_two(E8M0_MIN));
    const int e = unit_exponent(m, a, s);
    if (e > m->exponent_max)
        return INFINITY;
    return power_of_two(e < m->exponent_min ? m->exponent_min : e);
}

/* A unit that the original would lose, having found scale 0 or infinity for a finite amax: a
 * scale that is positive and has a finite reciprocal. */
static float rescued_scale(const maker *m, float amax)
{
    const float s = amax / m->f.max;
    return amax == 0 ? 1.0f : s < 0x1p-126f ? 0x1p-126f : s;
}

/* The scale before any power of two; m * s = 1 in the inverse forms. */
static float plain_scale(const maker *m, float a, float inverse)
{
    float s = inverse > 0 ? 1.0f / inverse : m->f.times ? a * (1.0f / m->f.max) : a / m->f.max;
    if (m->row->scale_in_input)
        s = round_to(m->q->in, s);
    return s < m->f.least ? m->f.least : s;
}

typedef struct unit_scale {
    float scale, operand;
} unit_scale;

static unit_scale scale_of_unit(const maker *m, float amax)
{
    const fp8_rule_row *row = m->row;
    const float a = reckoned_amax(m, amax);
    const float inverse = inverse_scale(m, amax, a);
    float s = plain_scale(m, a, inverse);
    s = row->exponent ? pow2_scale(m, a, s) : stored_scale(m, a, s);
    if (row->zero_scale_eps && s == 0)
        s = row->exponent ? 1.0f : epsilon(m->q->in);
    const bool lost = isfinite(amax) && !(s > 0 && isfinite(s)) && !row->safe;
    if (lost)
        s = rescued_scale(m, amax);
    unit_scale unit = {s, m->f.multiply ? 1.0f / s : s};
    if (row->form >= FP8_SCALE_INVERSE && !row->exponent && !lost)
        unit.operand = inverse;
    if (row->divisor_of_min > 0 && s == power_of_two(E8M0_MIN))
        unit.operand = m->f.multiply ? 1.0f / row->divisor_of_min : row->divisor_of_min;
    return unit;
}

/* Units [begin, end) one by one; operand may be amax itself. */
static fp8_status scale_units(const maker *m, const float *amax, int64_t begin, int64_t end,
                              void *scales, float *operand, fp8_error *err)
{
    for (int64_t i = begin; i < end; i++) {
        const float a = amax[i];
        const unit_scale unit = scale_of_unit(m, a);
        if (isfinite(a) && !isfinite(unit.scale))
            return fp8_fail_at(err, FP8_E_SCALE, i,
                               "the scale of unit %lld, amax %g over %g, is above the largest %s",
                               (long long)i, (double)a, (double)m->f.max, m->scale->name);
        m->scale->store(scales, i, unit.scale, false);
        operand[i] = unit.operand;
    }
    return FP8_OK;
}

/* The kernel of the context's level for a request that is none of the inverse forms. */
static const fp8_kernel *scales_kernel(const fp8_context *ctx, const fp8_quant *q)
{
    if (q->row->form >= FP8_SCALE_INVERSE)
        return NULL;
    return fp8_kernel_pick(ctx->isa, FP8_OP_SCALES, FP8_F32, q->scale);
}

fp8_status fp8_quant_scales(const fp8_context *ctx, const fp8_quant *q, const float *amax,
                            int64_t n, void *scales, float *operand, fp8_error *err)
{
    enum { AT_ONCE = 16 }; /* units from the first on that the kernel leaves */
    const maker m = maker_of(q);
    const fp8_kernel *kernel = n >= AT_ONCE ? scales_kernel(ctx, q) : NULL;
    const int64_t bytes = m.scale->bits / 8;
    for (int64_t i = 0; i < n;) {
        const fp8_scales_run run = {&m.f, amax + i, (char *)scales + i * bytes, operand + i, n - i};
        if (kernel)
            i += kernel->fn.scales(&run);
        const int64_t end = kernel ? fp8_min_i64(i + AT_ONCE, n) : n;
        FP8_TRY(scale_units(&m, amax, i, end, scales, operand, err));
        i = end;
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
            operand[at] = q->multiply ? 1.0f / s : s;
        }
    return FP8_OK;
}
