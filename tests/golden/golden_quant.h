/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_quant.h - a weight or an input of the vectors quantized by fp8_quantize and, a weight, by
 * fp8_linear_create and exported, at every instruction set: codes and scales byte for byte. */
#ifndef GOLDEN_QUANT_H
#define GOLDEN_QUANT_H

#include "golden/golden_linear.h"

typedef struct golden_quant {
    const char *family, *name;
    fp8_quantize_desc desc;
    fp8_tensor x;
    const golden_tensor *codes; /* NULL: only scales are compared */
    const golden_tensor *scales;
    bool is_weight; /* by fp8_linear_create too */
    bool by_column; /* scales are stored [columns, rows] */
} golden_quant;

/* A description with rule and grid. */
fp8_quantize_desc golden_quantize_desc(fp8_rule rule, int64_t rows, int64_t cols);
/* Passes once if all are right; fails if scales are missing. */
void golden_quant_check(const golden_quant *q, const char *mode);

#endif
