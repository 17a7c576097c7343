/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.cuh - what all quantizing kernels are made of: the magnitude of an element, the scale of
 * a unit, the code of an element, as ref_quantize.c and scale.c have them. */
#ifndef FP8_KERNELS_QUANTIZE_CUH
#define FP8_KERNELS_QUANTIZE_CUH

#include "backend/cuda/kernels/dependent.cuh"
#include "backend/cuda/kernels/element.cuh"

typedef fp8_cuda_quantize_args quantize_args;

enum { INFINITY_BITS = 0x7F800000, NAN_BITS = 0x7FC00000 };

/* Element (i,j) of what is quantized. */
__device__ static inline float x_at(const quantize_args &a, int64_t i, int64_t j)
{
    const float x = load_element(a.x, i, j);
    return a.from.data ? real_of(x, load_element(a.from, i / a.from_rows, j / a.from_cols)) : x;
}

/* Bits of |x|, NaN without its payload; 0 for what takes no part in the amax. */
__device__ static inline uint32_t magnitude(const quantize_args &a, float x)
{
    const uint32_t bits = fp8_bits_of_f32(x) & 0x7FFFFFFF;
    if (bits < INFINITY_BITS)
        return bits;
    if (a.keep == FP8_KEEP_NUMBERS || (a.keep == FP8_KEEP_NO_NAN && bits > INFINITY_BITS))
        return 0;
    return bits > INFINITY_BITS ? NAN_BITS : bits;
}

/* Of a unit with the amax of these bits. NaN is the same NaN as on the CPU. */
__device__ static inline fp8_unit_scale scale_of(const quantize_args &a, uint32_t amax)
{
    fp8_unit_scale unit = fp8_scale_of_unit(&a.maker, fp8_f32_of_bits(amax));
    if (unit.scale != unit.scale)
        unit.scale = fp8_f32_of_bits(NAN_BITS);
    return unit;
}

/* What elements of unit (i,j) are encoded with, if its scale is an input. */
__device__ static inline float static_operand(const quantize_args &a, int64_t i, int64_t j)
{
    const float scale = load_element(a.scales, i, j);
    return a.multiply ? 1.0f / scale : scale;
}

/* What a NaN quotient of x stands for. */
__device__ static inline float settle_nan(const quantize_args &a, float x, float operand)
{
    const bool keeps = a.nan_code == FP8_NAN_STAYS;
    if (x != x && (keeps || !a.original))
        return x;
    if (keeps)
        return fp8_is_finite(x) && operand == operand ? copysignf(0.0f, x)
                                                      : fp8_f32_of_bits(NAN_BITS);
    return a.nan_code == FP8_NAN_TO_MAX ? a.max : -a.max;
}

/* The code of x; anything goes. */
__device__ static inline uint32_t code_of(const quantize_args &a, float x, float operand)
{
    if (a.refuse && !fp8_is_finite(x))
        x = fp8_f32_of_bits(NAN_BITS);
    float y = a.multiply ? x * operand : x / operand;
    if (a.round_quotient)
        y = fp8_round_to(a.maker.in, y);
    if (a.plus_zero && y == 0)
        y = 0.0f;
    if (y != y)
        y = settle_nan(a, x, operand);
    y = y > a.max ? a.max : y < -a.max ? -a.max : y;
    return bits_of_value(y, a.codes.dtype, true);
}

__device__ static inline uint8_t *code_at(const quantize_args &a, int64_t i, int64_t j)
{
    return (uint8_t *)a.codes.data + i * a.codes.row + j * a.codes.col;
}

/* The largest of all threads of a block, to each of them; `most` is shared and 0, and 0 again. */
__device__ static inline uint32_t largest_of_block(uint32_t value, uint32_t *most)
{
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % 32 == 0)
        atomicMax(most, value);
    __syncthreads();
    value = *most;
    __syncthreads();
    if (threadIdx.x == 0)
        *most = 0;
    return value;
}

#endif
