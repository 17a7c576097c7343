/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_kernels.h - what the quantizer's steps call for one row: the reference, which takes any
 * strides and does all that a rule's row can say. */
#ifndef FP8_OP_QUANT_KERNELS_H
#define FP8_OP_QUANT_KERNELS_H

#include "op/backend.h"
#include "op/quantize.h"
#include "op/rules.h"

/* fp8_kernel_amax over the elements that `keep` lets take part; any stride. */
void fp8_ref_amax_keep(const fp8_amax_run *run, fp8_amax_keep keep);
fp8_kernel_amax fp8_ref_amax;

/* The column of the first NaN or infinity of the row x[n], -1 if there is none. */
int64_t fp8_ref_find_nonfinite(fp8_dtype in, const void *x, int64_t stride, int64_t n);

/* codes[q->cols] of the row x[q->cols] as q->row says, with q's NaN policy; operand is that of the
 * row's units. */
void fp8_ref_encode_row(const fp8_quant *q, const void *x, int64_t stride, const float *operand,
                        uint8_t *codes, int64_t code_stride);

#endif
