/* SPDX-License-Identifier: Apache-2.0
 *
 * reckon.h - arithmetic of the models of time: tiles, of positive numbers below 2^30, and us. */
#ifndef FP8_BACKEND_CUDA_RECKON_H
#define FP8_BACKEND_CUDA_RECKON_H

#include <stdbool.h>
#include <stdint.h>

/* ceil(n / by). */
static inline int32_t up(int32_t n, int32_t by)
{
    return (n + by - 1) / by;
}

/* Whether Y[m,n] has more tiles, none less than 64 x 64, than are counted in 32 bits. */
static inline bool has_too_many_tiles(int32_t m, int32_t n)
{
    return (int64_t)up(m, 64) * up(n, 64) > 1 << 30;
}

static inline int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline float most(float a, float b)
{
    return a > b ? a : b;
}

#endif
