/* SPDX-License-Identifier: Apache-2.0
 *
 * bound.h - how far a sum of products by a panel kernel may be from the exact one; derived in
 * docs/numerics.md. */
#ifndef FP8_TESTS_BOUND_H
#define FP8_TESTS_BOUND_H

#include "fp8.h"

/* What the bound of one element of the result is made of; all sums over its columns. */
typedef struct bound_sums {
    fp8_dtype x;      /* of the kernel: F32 or BF16 */
    int64_t k;        /* columns */
    int64_t segments; /* of columns, with a scale each; at least 1 */
    double products;  /* |x w scale|, and |c| before, if it was added to */
    double weights;   /* |w scale| */
    double inputs;    /* |x| */
    double scales;    /* |scale| of each column */
} bound_sums;

static inline double bound_of(const bound_sums *b)
{
    const double u = 0x1p-24; /* half a unit, relative */
    const double n = (double)b->k + 3 * (double)b->segments + (double)b->k / 64 + 8; /* roundings */
    const double gamma = n * u / (1 - n * u);
    /* What is lost below the least normal number: half a subnormal unit, or with BF16 all of it. */
    const double lost =
        b->x == FP8_BF16 ? 0x1p-126 * (b->weights + 3 * b->scales + n) : 0x1p-150 * (b->inputs + n);
    return gamma * b->products + (1 + gamma) * lost;
}

#endif
