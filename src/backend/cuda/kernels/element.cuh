/* SPDX-License-Identifier: Apache-2.0
 *
 * element.cuh - one element of any dtype to and from fp32, at any address; what the kernels for
 * everything use. The arithmetic is number.h's, so that its bits are the CPU's. */
#ifndef FP8_KERNELS_ELEMENT_CUH
#define FP8_KERNELS_ELEMENT_CUH

#include "backend/cuda/kernel_args.h"
#include "fp8.h"
#include "number/number.h"

__device__ static inline int bytes_of(int dtype)
{
    return dtype == FP8_F32 ? 4 : dtype == FP8_F16 || dtype == FP8_BF16 ? 2 : 1;
}

/* The bits of element i of an array whose elements have `bytes` bytes. */
__device__ static inline uint32_t load_bits(const void *data, int64_t i, int bytes)
{
    const uint8_t *p = (const uint8_t *)data + i * bytes;
    if (bytes == 1)
        return *p;
    if ((uintptr_t)p % bytes == 0)
        return bytes == 2 ? *(const uint16_t *)p : *(const uint32_t *)p;
    uint32_t bits = 0;
    for (int b = 0; b < bytes; b++)
        bits |= (uint32_t)p[b] << 8 * b;
    return bits;
}

__device__ static inline void store_bits(void *data, int64_t i, int bytes, uint32_t bits)
{
    uint8_t *p = (uint8_t *)data + i * bytes;
    if (bytes == 1)
        *p = (uint8_t)bits;
    else if ((uintptr_t)p % bytes == 0 && bytes == 2)
        *(uint16_t *)p = (uint16_t)bits;
    else if ((uintptr_t)p % bytes == 0)
        *(uint32_t *)p = bits;
    else
        for (int b = 0; b < bytes; b++)
            p[b] = (uint8_t)(bits >> 8 * b);
}

__device__ static inline float value_of_bits(uint32_t bits, int dtype)
{
    switch (dtype) {
    case FP8_F32:
        return fp8_f32_of_bits(bits);
    case FP8_F16:
        return fp8_f16_to_f32((uint16_t)bits);
    case FP8_BF16:
        return fp8_bf16_to_f32((uint16_t)bits);
    case FP8_E4M3FN:
        return fp8_e4m3fn_to_f32((uint8_t)bits);
    case FP8_E4M3FNUZ:
        return fp8_e4m3fnuz_to_f32((uint8_t)bits);
    case FP8_E5M2:
        return fp8_e5m2_to_f32((uint8_t)bits);
    case FP8_E5M2FNUZ:
        return fp8_e5m2fnuz_to_f32((uint8_t)bits);
    default:
        return fp8_e8m0fnu_to_f32((uint8_t)bits);
    }
}

/* `saturate` as in fp8_cast. */
__device__ static inline uint32_t bits_of_value(float x, int dtype, bool saturate)
{
    switch (dtype) {
    case FP8_F32:
        return fp8_bits_of_f32(x) - (saturate && (fp8_bits_of_f32(x) & 0x7FFFFFFF) == 0x7F800000);
    case FP8_F16:
        return fp8_f16_from_f32(x, saturate);
    case FP8_BF16:
        return fp8_bf16_from_f32(x, saturate);
    case FP8_E4M3FN:
        return fp8_e4m3fn_from_f32(x, saturate);
    case FP8_E4M3FNUZ:
        return fp8_e4m3fnuz_from_f32(x, saturate);
    case FP8_E5M2:
        return fp8_e5m2_from_f32(x, saturate);
    case FP8_E5M2FNUZ:
        return fp8_e5m2fnuz_from_f32(x, saturate);
    default:
        return saturate ? fp8_e8m0fnu_from_f32_up(x) : fp8_e8m0fnu_from_f32(x);
    }
}

__device__ static inline float load_element(const fp8_cuda_matrix &m, int64_t i, int64_t j)
{
    return value_of_bits(load_bits(m.data, i * m.row + j * m.col, bytes_of(m.dtype)), m.dtype);
}

__device__ static inline void store_element(const fp8_cuda_matrix &m, int64_t i, int64_t j, float x,
                                            bool saturate)
{
    store_bits(m.data, i * m.row + j * m.col, bytes_of(m.dtype),
               bits_of_value(x, m.dtype, saturate));
}

/* The product of a code and its scale; which NaN it is depends on the processor, so: this one. */
__device__ static inline float real_of(float code, float scale)
{
    const float real = code * scale;
    return real == real ? real : fp8_f32_of_bits(0x7FC00000);
}

#endif
