/* SPDX-License-Identifier: Apache-2.0
 *
 * oracle.h - Y[M,N] = X[M,K] W[N,K]^T + bias[N] from its definition, in double, and how far from it
 * a result with fp32 sums may be. Knows nothing of panels and kernels. */
#ifndef FP8_TESTS_ORACLE_H
#define FP8_TESTS_ORACLE_H

#include "base/size.h"
#include "number/dtype.h"
#include "support/bound.h"

#include <math.h>
#include <stdlib.h>

/* An operand: elements, and scales of a grid (NULL = none) whose first block lacks `origin`, or,
 * with widths, one scale for each so many rows. */
typedef struct operand {
    const fp8_tensor *elements, *scales;
    fp8_grid grid, origin;
    const int64_t *widths;
} operand;

static inline double element_of(const fp8_tensor *t, int64_t i, int64_t j)
{
    return fp8_dtype_facts_of(t->dtype)->load(t->data, i * t->stride[0] + j * t->stride[1]);
}

static inline double real_of(const operand *o, int64_t i, int64_t j)
{
    const double element = element_of(o->elements, i, j);
    if (!o->scales)
        return element;
    int64_t row = o->grid.rows ? (i + o->origin.rows) / o->grid.rows : 0;
    const int64_t col = o->grid.cols ? (j + o->origin.cols) / o->grid.cols : 0;
    for (int64_t end = 0; o->widths && i >= (end += o->widths[row]);)
        row++;
    return element * element_of(o->scales, row, col);
}

/* real[rows, cols] of an operand; malloc'ed. */
static inline double *reals_of(const operand *o)
{
    const int64_t rows = o->elements->shape[0], cols = o->elements->shape[1];
    double *real = malloc((size_t)(rows * cols + 1) * sizeof *real);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            real[i * cols + j] = real_of(o, i, j);
    return real;
}

/* sum = x . w and size = |x| . |w|, over k. */
static inline void dot_of(const double *x, const double *w, int64_t k, double *sum, double *size)
{
    *sum = *size = 0;
    for (int64_t i = 0; i < k; i++) {
        *sum += x[i] * w[i];
        *size += fabs(x[i] * w[i]);
    }
}

/* Half a unit in the last place of `dtype` relative to a number, and its smallest step. */
static inline double unit_roundoff(fp8_dtype dtype)
{
    return dtype == FP8_F32 ? 0x1p-24 : dtype == FP8_F16 ? 0x1p-11 : 0x1p-8;
}

static inline double smallest_step(fp8_dtype dtype)
{
    return dtype == FP8_F32 ? 0x1p-149 : dtype == FP8_F16 ? 0x1p-24 : 0x1p-133;
}

/* What |y - exact| may be for a sum of k products of the size given: that of the sum, with the bias
 * (bf16 products below the normal numbers of fp32 may be lost, 2^-126 each times the scales), and
 * Y's dtype once, `roundings` times, of at most the exact value and the error so far. */
static inline double linear_bound(int64_t k, double exact, double size, double bias, double scale,
                                  fp8_dtype y, int roundings)
{
    const double lost = (double)k * 0x1p-126 * (scale > 1 ? scale : 1);
    const double sums = sum_bound(k, size + fabs(bias), lost);
    const double last = unit_roundoff(y) * (fabs(exact) + fabs(bias) + sums) + smallest_step(y);
    return sums + roundings * last;
}

#endif
