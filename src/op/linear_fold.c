/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_fold.c - scales along K that are powers of two, multiplied into the elements: exact in
 * bf16, so that one sum goes through all columns.
 *
 *     x[i,k] = code[i,k] * 2^(e - u)      u = max(largest e of the row - 60, -126); 2^u is left
 *     w[j,k] = code[j,k] * 2^-f           f = 0..60
 *
 * An x that gets too small for bf16 is less than 2^-100 of what its row may hold: docs/numerics.md,
 * section 10, has the bound. For W it is known at create that nothing is lost. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/linear.h"

static uint32_t exponent_of(float scale)
{
    return fp8_bits_of_f32(scale) >> 23;
}

/* A power of two that is 2^-f for some fold f. */
static bool is_fold(float scale)
{
    const uint32_t e = exponent_of(scale);
    return !(fp8_bits_of_f32(scale) & 0x7FFFFF) && e <= 127 && e >= 127 - FP8_FOLD_MOST;
}

void fp8_folds_of_exponents(uint8_t *fold, const uint8_t *e, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t f = (uint8_t)(e[i] < 127 ? 127 - e[i] : 0);
        fold[i] = f < FP8_FOLD_MOST ? f : FP8_FOLD_MOST;
    }
}

void fp8_folds_of_scales(uint8_t *fold, const float *scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t e = (uint8_t)exponent_of(scale[i]);
        fp8_folds_of_exponents(fold + i, &e, 1);
    }
}

/* Whether all codes under scale (row, col) of W[n,k] are zero. */
static bool is_zero(const fp8_linear *l, int64_t row, int64_t col)
{
    const fp8_linear_plan *p = &l->plan;
    const int64_t n = row * p->unit_rows - p->desc.w_origin.rows;
    const int64_t end = n + fp8_min_i64(p->n - n, p->unit_rows);
    for (int64_t j = n > 0 ? n : 0; j < end; j++)
        for (int64_t c = l->w_cuts.place[col]; c < l->w_cuts.place[col + 1]; c++)
            if (l->codes[fp8_panel_offset(j, c, l->w_cuts.columns)] & 0x7F)
                return false;
    return true;
}

bool fp8_linear_w_folds(const fp8_linear *l)
{
    const fp8_linear_plan *p = &l->plan;
    const fp8_load_fn load = fp8_dtype_facts_of(p->scale)->load;
    if (!p->w_along_k || p->code == FP8_E5M2) /* whose infinity has no smaller number */
        return false;
    for (int64_t r = 0; r < p->scale_rows; r++)
        for (int64_t c = 0; c < p->scale_cols; c++)
            if (!is_fold(load(l->scales, fp8_linear_scale_index(p, r, c))) && !is_zero(l, r, c))
                return false;
    return true;
}

bool fp8_linear_folds(const fp8_linear *l, const fp8_tensor *x_scales)
{
    const fp8_linear_plan *p = &l->plan;
    const fp8_dtype x_scale = x_scales ? x_scales->dtype : p->desc.x_scale;
    return (p->x_along_k || p->w_along_k) && (!p->w_along_k || l->w_folds) &&
           (!p->x_along_k || x_scale == FP8_E8M0FNU);
}

/* x[n] = x times a power of two; what is too small for bf16 becomes less, at last zero. */
static void multiply(uint16_t *x, int64_t n, float factor)
{
    for (int64_t i = 0; i < n; i++) {
        const float product = fp8_f32_of_bits((uint32_t)x[i] << 16) * factor;
        x[i] = (uint16_t)(fp8_bits_of_f32(product) >> 16);
    }
}

float fp8_fold_row(uint16_t *x, int64_t k, const float *scale, int64_t unit)
{
    const float room = 0x1p-60F, normal = 0x1p-126F;
    float largest = 0; /* NaN is not */
    for (int64_t c = 0; c < fp8_ceil_div(k, unit); c++)
        largest = scale[c] > largest ? scale[c] : largest;
    const float left = largest * room > normal ? largest * room : normal;
    for (int64_t at = 0, c = 0; at < k; at += unit, c++) {
        const float factor = scale[c] / left;
        /* Not zero, of which infinity would make NaN. */
        multiply(x + at, fp8_min_i64(unit, k - at), factor < normal ? normal : factor);
    }
    return left;
}
