/* SPDX-License-Identifier: Apache-2.0
 *
 * size.h - arithmetic on sizes that come from outside. false = the result does not fit; *out is
 * then undefined. */
#ifndef FP8_BASE_SIZE_H
#define FP8_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

static inline bool fp8_size_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool fp8_size_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* ceil(a / b) for a >= 0, b > 0. */
static inline int64_t fp8_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* The extent of a grid's block on a dimension of `size` elements: 0 stands for the whole, at
 * least 1. */
static inline int64_t fp8_grid_extent(int64_t block, int64_t size)
{
    if (block > 0)
        return block;
    return size > 0 ? size : 1;
}

static inline int64_t fp8_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
