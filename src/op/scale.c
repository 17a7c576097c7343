/* SPDX-License-Identifier: Apache-2.0
 *
 * scale.c - from the amaxes of units to their scales and to what elements are divided or
 * multiplied by: what a rule's row says, as numbers for unit_math.h and for the kernels. */
#include "base/size.h"
#include "number/dtype.h"
#include "number/number.h"
#include "op/backend.h"
#include "op/quantize.h"
#include "op/rules.h"
#include "op/unit_math.h"

#include <math.h>

static float floor_of(const fp8_quant *q)
{
    switch (q->row->floor) {
    case FP8_FLOOR_NONE:
        return 0;
    case FP8_FLOOR_MIN_NORMAL:
        return fp8_min_normal(q->in);
    case FP8_FLOOR_IN_INPUT:
        return fp8_round_to(q->in, (float)q->row->floor_value);
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

/* Between these no exception of unit_math.h is met: the scale is a normal number, exact in its
 * dtype as far as `safe` asks, its exponent is in range, and a was a finite number. */
static void set_range(fp8_scale_formula *f, const fp8_quant *q)
{
    f->low = 0x1p-100f;
    f->high = 0x1p100f;
    if (q->scale == FP8_F16) {
        f->low = q->row->safe && !f->pow2 ? 0x1p-14f : 0x1p-24f;
        f->high = f->pow2 ? 0x1p15f : 65504;
    }
    if (q->row->exponent == FP8_EXPONENT_QUARTER_A && q->in == FP8_F16)
        f->low = 0x1p-21f; /* of an amax that is surely normal in fp16 */
}

static fp8_scale_formula formula_of(const fp8_quant *q)
{
    const fp8_rule_row *row = q->row;
    const fp8_exponent kind = row->exponent;
    const float max = fp8_rule_code_max(row, q->code);
    fp8_scale_formula f = {.quotient = row->scale_in_input ? q->in : FP8_F32,
                           .scale = q->scale,
                           .upper = q->desc.scale_ub > 0 ? q->desc.scale_ub : INFINITY,
                           .max = max,
                           .floor = floor_of(q),
                           .least = row->scale_floor < 0 ? 1.0f / (512.0f * max) : row->scale_floor,
                           .zero_is_max = row->zero_amax_max,
                           .times = row->form == FP8_SCALE_TIMES,
                           .multiply = q->multiply,
                           .pow2 = kind != FP8_EXPONENT_NONE,
                           .log2 = kind == FP8_EXPONENT_CEIL_LOG2};
    uint32_t top_fraction;
    f.top = fp8_split(max, &top_fraction);
    f.of_scale = f.log2 || kind == FP8_EXPONENT_CEIL;
    if (f.of_scale)
        f.top = 0;
    f.threshold = threshold_of(kind, q->code, top_fraction);
    set_range(&f, q);
    return f;
}

fp8_unit_maker fp8_unit_maker_of(const fp8_quant *q)
{
    const fp8_rule_row *row = q->row;
    const int least = row->normal_scale ? FP8_E8M0_MIN + 1 : FP8_E8M0_MIN;
    return (fp8_unit_maker){.f = formula_of(q),
                            .in = q->in,
                            .exponent_min = q->scale == FP8_F16 ? -24 : least,
                            .exponent_max = q->scale == FP8_F16 ? 15 : FP8_E8M0_MAX,
                            .form = row->form,
                            .exponent = row->exponent,
                            .safe = row->safe,
                            .zero_scale_eps = row->zero_scale_eps,
                            .scale_in_input = row->scale_in_input,
                            .divisor_of_min = row->divisor_of_min,
                            .floor_value = row->floor_value};
}

/* Units [begin, end) one by one; operand may be amax itself. */
static fp8_status scale_units(const fp8_unit_maker *m, const fp8_dtype_facts *facts,
                              const float *amax, int64_t begin, int64_t end, void *scales,
                              float *operand, fp8_error *err)
{
    for (int64_t i = begin; i < end; i++) {
        const float a = amax[i];
        const fp8_unit_scale unit = fp8_scale_of_unit(m, a);
        if (isfinite(a) && !isfinite(unit.scale))
            return fp8_fail_at(err, FP8_E_SCALE, i,
                               "the scale of unit %lld, amax %g over %g, is above the largest %s",
                               (long long)i, (double)a, (double)m->f.max, facts->name);
        facts->store(scales, i, unit.scale, false);
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
    const fp8_unit_maker m = fp8_unit_maker_of(q);
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(q->scale);
    const fp8_kernel *kernel = n >= AT_ONCE ? scales_kernel(ctx, q) : NULL;
    const int64_t bytes = facts->bits / 8;
    for (int64_t i = 0; i < n;) {
        const fp8_scales_run run = {&m.f, amax + i, (char *)scales + i * bytes, operand + i, n - i};
        if (kernel)
            i += kernel->fn.scales(&run);
        const int64_t end = kernel ? fp8_min_i64(i + AT_ONCE, n) : n;
        FP8_TRY(scale_units(&m, facts, amax, i, end, scales, operand, err));
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
