/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.h - quantization in three steps that can be fed slab by slab, so that a matrix need
 * never be whole:
 *
 *     amax[g]  = max |x| over the elements of unit g      (a unit is one block of the grid)
 *     scale[g], operand[g] = f(amax[g])                   (the rule's row of the table in rules.c)
 *     code     = encode(x divided or multiplied by operand[g])
 *
 * fp8_quantize is these three over a whole matrix; the checkpoint pipeline calls them itself. The
 * steps trust their arguments: shapes, dtypes and strides were checked by who made them. */
#ifndef FP8_OP_QUANTIZE_H
#define FP8_OP_QUANTIZE_H

#include "base/context.h"
#include "op/unit_math.h"

#include <stdbool.h>

/* A validated request: what to do to a matrix X[rows, cols]. Filled by fp8_quant_prepare; plain
 * data. */
typedef struct fp8_quant {
    fp8_quantize_desc desc;
    const struct fp8_rule_row *row; /* the rule's formula for this grid, code and scale dtype */
    bool multiply;                  /* operands are multiplied by; else x is divided by them */
    fp8_dtype in, code, scale;
    int64_t rows, cols;           /* of the whole matrix */
    int64_t unit_rows, unit_cols; /* extent of a unit, >= 1 */
    int64_t grid_rows, grid_cols; /* units: ceil(rows / unit_rows), ceil(cols / unit_cols) */
} fp8_quant;

/* Checks that rule, grid and dtypes go together and fills *q. Errors: SHAPE, DTYPE, UNSUPPORTED,
 * ARGUMENT. */
fp8_status fp8_quant_prepare(fp8_quant *q, const fp8_quantize_desc *desc, fp8_dtype in,
                             fp8_dtype code, fp8_dtype scale, int64_t rows, int64_t cols,
                             fp8_error *err);

/* amax[grid_rows, grid_cols] = max(amax, |x|) for the slab x[n, cols] of rows [row0, row0 + n).
 * The caller zeroes amax first. row0 need not be on a unit border. The rule's NaN semantics apply;
 * under REFUSE a NaN or infinity ends with FP8_E_NAN and err->pos = its index in the whole matrix.
 */
fp8_status fp8_quant_amax(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x,
                          int64_t row0, float *amax, fp8_error *err);

/* For n units: stored scales (dtype q->scale, contiguous, no alignment) and operand[n], what encode
 * works with; operand may be amax itself. Error: SCALE, a scale too large for its dtype, with
 * err->pos = the unit. */
fp8_status fp8_quant_scales(const fp8_context *ctx, const fp8_quant *q, const float *amax,
                            int64_t n, void *scales, float *operand, fp8_error *err);

/* How q's units get their scales, one by one. */
fp8_unit_maker fp8_unit_maker_of(const fp8_quant *q);
/* What q's policy leaves out of the amax. */
fp8_amax_keep fp8_quant_keep(const fp8_quant *q);

/* operand[grid_rows, grid_cols] of the static scales of the whole matrix, any strides. Error:
 * SCALE, one that is not finite and positive, with err->pos = the unit. */
fp8_status fp8_quant_static(const fp8_quant *q, const fp8_tensor *scales, float *operand,
                            fp8_error *err);

/* codes[n, cols] of the slab x[n, cols] of rows [row0, row0 + n); operand is [grid_rows,
 * grid_cols]. Under REFUSE, x has been through fp8_quant_amax; no NaN is looked for here. */
fp8_status fp8_quant_encode(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x,
                            int64_t row0, const float *operand, fp8_tensor *codes, fp8_error *err);

/* y[n, cols] = codes[n, cols] * scales, for rows [row0, row0 + n) of a matrix with `cols` columns
 * whose scales view is the whole [ceil(rows / gr), ceil(cols / gc)]. fp32 product, one rounding to
 * y's dtype. */
fp8_status fp8_dequant_rows(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                            const fp8_tensor *scales, int64_t row0, fp8_tensor *y, fp8_error *err);

#endif
