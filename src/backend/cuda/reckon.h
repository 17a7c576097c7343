/* SPDX-License-Identifier: Apache-2.0
 *
 * reckon.h - arithmetic of the models of time: tiles, of positive numbers below 2^30, and us. */
#ifndef FP8_BACKEND_CUDA_RECKON_H
#define FP8_BACKEND_CUDA_RECKON_H

#include <stdint.h>

/* ceil(n / by). */
static inline int32_t up(int32_t n, int32_t by)
{
    return (n + by - 1) / by;
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
