/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_kernels.h - what the quantizer's steps call for one row: the reference, which takes any
 * strides and does all that a rule's row can say. */
#ifndef FP8_OP_QUANT_KERNELS_H
#define FP8_OP_QUANT_KERNELS_H

#include "op/quantize.h"
#include "op/rules.h"

/* Which elements take part in an amax. */
typedef enum fp8_amax_keep {
    FP8_KEEP_ALL = 0,
    FP8_KEEP_NUMBERS, /* neither NaN nor infinity */
    FP8_KEEP_NO_NAN,
} fp8_amax_keep;

/* For the row x[n] cut into units of `unit` columns: amax[k] = the larger of amax[k] and max |x|
 * over unit k, compared as bits: infinity above all numbers, NaN above infinity. */
void fp8_ref_amax_row(fp8_dtype in, const void *x, int64_t stride, int64_t n, int64_t unit,
                      fp8_amax_keep keep, float *amax);

/* The column of the first NaN or infinity of the row x[n], -1 if there is none. */
int64_t fp8_ref_find_nonfinite(fp8_dtype in, const void *x, int64_t stride, int64_t n);

/* codes[q->cols] of the row x[q->cols] as q->row says, with q's NaN policy; operand is that of the
 * row's units. */
void fp8_ref_encode_row(const fp8_quant *q, const void *x, int64_t stride, const float *operand,
                        uint8_t *codes, int64_t code_stride);

#endif
