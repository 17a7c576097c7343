/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_quantize.c - the quantizer's reference: one element at a time, any strides, every rule.
 *
 *     y = x / operand or x * operand, in fp32 (for some rules then rounded to x's dtype)
 *     code = encode(min(max(y, -max), max)), to nearest even
 *
 * What is fast is tested against this; this is tested against the originals' own output. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/quant_kernels.h"

#include <math.h>

/* Bits of |x|, NaN without its payload. */
static uint32_t magnitude_bits(float x)
{
    const uint32_t bits = fp8_bits_of_f32(x) & 0x7FFFFFFF;
    return bits > 0x7F800000 ? 0x7FC00000 : bits;
}

static bool takes_part(uint32_t magnitude, fp8_amax_keep keep)
{
    return keep == FP8_KEEP_ALL || magnitude < 0x7F800000 ||
           (keep == FP8_KEEP_NO_NAN && magnitude == 0x7F800000);
}

void fp8_ref_amax_keep(const fp8_amax_run *run, fp8_amax_keep keep)
{
    const fp8_load_fn load = fp8_dtype_facts_of(run->dtype)->load;
    for (int64_t j = 0; j < run->n; j++) {
        const uint32_t magnitude = magnitude_bits(load(run->x, j * run->stride));
        float *amax = &run->amax[j / run->unit];
        if (takes_part(magnitude, keep) && magnitude > magnitude_bits(*amax))
            *amax = fp8_f32_of_bits(magnitude);
    }
}

void fp8_ref_amax(const fp8_amax_run *run)
{
    fp8_ref_amax_keep(run, FP8_KEEP_ALL);
}

int64_t fp8_ref_find_nonfinite(fp8_dtype in, const void *x, int64_t stride, int64_t n)
{
    const fp8_load_fn load = fp8_dtype_facts_of(in)->load;
    for (int64_t j = 0; j < n; j++)
        if (!isfinite(load(x, j * stride)))
            return j;
    return -1;
}

/* What a NaN quotient of x stands for. 0 * infinity, of a scale too small to have a reciprocal, is
 * nothing that the rules that keep NaN mean: there zero is right. */
static float settle_nan(const fp8_quant *q, float x, float operand, float max)
{
    const bool keeps = q->row->nan_code == FP8_NAN_STAYS;
    if (isnan(x) && (keeps || q->desc.nan != FP8_NAN_ORIGINAL))
        return x;
    if (keeps)
        return isfinite(x) && !isnan(operand) ? copysignf(0.0f, x) : fp8_f32_of_bits(0x7FC00000);
    return q->row->nan_code == FP8_NAN_TO_MAX ? max : -max;
}

static float quotient(const fp8_quant *q, const fp8_dtype_facts *in, float x, float operand)
{
    float y = q->multiply ? x * operand : x / operand;
    if (q->row->quotient_in_input) {
        uint32_t element;
        in->store(&element, 0, y, false);
        y = in->load(&element, 0);
    }
    return q->row->plus_zero && y == 0 ? 0.0f : y;
}

void fp8_ref_encode_row(const fp8_quant *q, const void *x, int64_t stride, const float *operand,
                        uint8_t *codes, int64_t code_stride)
{
    const fp8_dtype_facts *in = fp8_dtype_facts_of(q->in);
    const fp8_dtype_facts *code = fp8_dtype_facts_of(q->code);
    const float max = fp8_rule_code_max(q->row, q->code);
    for (int64_t j = 0; j < q->cols; j++) {
        const float value = in->load(x, j * stride);
        const float unit_operand = operand[j / q->unit_cols];
        float y = quotient(q, in, value, unit_operand);
        if (isnan(y))
            y = settle_nan(q, value, unit_operand, max);
        y = y > max ? max : y < -max ? -max : y;
        code->store(codes, j * code_stride, y, true);
    }
}
