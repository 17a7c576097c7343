/* SPDX-License-Identifier: Apache-2.0
 *
 * real_packets.cuh - 8 codes of one scale back to real numbers, in fp32, bf16 or fp16. */
#ifndef FP8_KERNELS_REAL_PACKETS_CUH
#define FP8_KERNELS_REAL_PACKETS_CUH

#include "backend/cuda/kernels/columns.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Numbers of two codes. */
__device__ static inline float2 numbers_of(uint32_t pair, int dtype)
{
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    if (dtype == FP8_E4M3FN || dtype == FP8_E5M2) {
        if (dtype == FP8_E4M3FN)
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)pair));
        else
            asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)pair));
        return make_float2(__half2float(__ushort_as_half((uint16_t)halves)),
                           __half2float(__ushort_as_half((uint16_t)(halves >> 16))));
    }
#endif
    return make_float2(value_of_bits(pair & 0xFF, dtype), value_of_bits(pair >> 8 & 0xFF, dtype));
}

/* Bits of two numbers side by side. NaN is always the same. */
template <int OUT> __device__ static inline uint32_t real_pair_of(float low, float high)
{
    if (OUT == FP8_BF16) {
        const uint32_t l = low == low ? __bfloat16_as_ushort(__float2bfloat16_rn(low)) : 0x7FC0;
        const uint32_t h = high == high ? __bfloat16_as_ushort(__float2bfloat16_rn(high)) : 0x7FC0;
        return l | h << 16;
    }
    const uint32_t l = low == low ? __half_as_ushort(__float2half_rn(low)) : 0x7E00;
    const uint32_t h = high == high ? __half_as_ushort(__float2half_rn(high)) : 0x7E00;
    return l | h << 16;
}

/* To an address that is aligned to 16 bytes: codes * scale, in fp32, rounded. */
template <int OUT>
__device__ static inline void write_reals(uint8_t *to, uint2 codes, int dtype, float scale)
{
    float y[COLUMN_WIDTH];
#pragma unroll
    for (int k = 0; k < COLUMN_WIDTH; k += 2) {
        const uint32_t pair = (k < 4 ? codes.x : codes.y) >> k % 4 * 8 & 0xFFFF;
        const float2 two = numbers_of(pair, dtype);
        y[k] = two.x * scale;
        y[k + 1] = two.y * scale;
    }
    if (OUT == FP8_F32) {
#pragma unroll
        for (int k = 0; k < COLUMN_WIDTH; k++)
            y[k] = y[k] == y[k] ? y[k] : fp8_f32_of_bits(0x7FC00000);
        ((float4 *)to)[0] = make_float4(y[0], y[1], y[2], y[3]);
        ((float4 *)to)[1] = make_float4(y[4], y[5], y[6], y[7]);
    } else {
        *(uint4 *)to = make_uint4(real_pair_of<OUT>(y[0], y[1]), real_pair_of<OUT>(y[2], y[3]),
                                  real_pair_of<OUT>(y[4], y[5]), real_pair_of<OUT>(y[6], y[7]));
    }
}

#endif
