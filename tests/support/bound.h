/* SPDX-License-Identifier: Apache-2.0
 *
 * bound.h - how far a sum of products in fp32 may be from the exact one, for every test of kernels
 * and linears; derived in docs/numerics.md. */
#ifndef FP8_TESTS_BOUND_H
#define FP8_TESTS_BOUND_H

#include "fp8.h"

/* Roundings that a product of k passes through at most, scales and an addition of two more numbers
 * included. */
static inline double roundings_of(int64_t k)
{
    return (double)k + 8;
}

/* For k products of the absolute values' sum `size`; `lost` is the most that numbers below the
 * least normal one can be, in all. */
static inline double sum_bound(int64_t k, double size, double lost)
{
    const double n = roundings_of(k), u = 0x1p-24; /* half a unit, relative */
    const double gamma = n * u / (1 - n * u);
    return gamma * size + (1 + gamma) * lost;
}

/* What the bound of one element of a panel kernel's result is made of; all sums over its columns.
 */
typedef struct bound_sums {
    fp8_dtype x;     /* of the kernel: F32 or BF16 */
    int64_t k;       /* columns */
    double products; /* |x w scale|, and |c| before, if it was added to */
    double weights;  /* |w scale| */
    double inputs;   /* |x| */
    double scales;   /* |scale| of each column */
} bound_sums;

static inline double bound_of(const bound_sums *b)
{
    const double n = roundings_of(b->k);
    /* Half a subnormal unit, of sums that still have to be multiplied by up to 2^8 and a scale, or
     * with BF16 all of it. */
    const double lost = b->x == FP8_BF16 ? 0x1p-126 * (b->weights + 3 * b->scales + n)
                                         : 0x1p-150 * (b->inputs + n) + 0x1p-142 * b->scales;
    return sum_bound(b->k, b->products, lost);
}

#endif
