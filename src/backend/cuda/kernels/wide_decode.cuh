/* SPDX-License-Identifier: Apache-2.0
 *
 * wide_decode.cuh - of gemm_wide.cuh: codes of W in shared memory become the registers from which
 * the tensor cores take them, times scales where these are multiplied into W. */
#ifndef FP8_KERNELS_WIDE_DECODE_CUH
#define FP8_KERNELS_WIDE_DECODE_CUH

#include "backend/cuda/kernels/sm90.cuh"

#include <cuda_fp16.h>

/* Two codes, the first in the lower byte, as two numbers of 16 bits. */
template <bool BF16> DEV uint32_t wide_two(uint16_t codes)
{
    uint32_t h;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(codes));
    if (!BF16)
        return h;
    const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&h));
    return bf16x2(f.x, f.y);
}
/* 2^(e - 127) in bf16; 255 is NaN. */
DEV uint32_t wide_power(uint32_t e)
{
    return max(e << 7, 0x0040u) | ((e + 1) >> 8) * 0x7F;
}
/* Of bytes i and i + 1 of `exponents`, the first in the lower half. */
DEV uint32_t wide_powers(uint32_t exponents, int i)
{
    return wide_power(exponents >> 8 * i & 255) | wide_power(exponents >> (8 * i + 8) & 255) << 16;
}
/* Its half i twice. */
DEV uint32_t wide_twice(uint32_t powers, int i)
{
    return __byte_perm(powers, 0, i ? 0x3232 : 0x1010);
}
/* Four exponents of a row, of which `count` are there, 0 for the rest; `words`: all, at once. */
DEV uint32_t wide_exponents(const uint8_t *from, int count, bool words)
{
    uint32_t some = 0;
    if (words)
        return __ldg((const uint32_t *)from);
#pragma unroll
    for (int i = 0; i < 4; i++)
        some |= i < count ? (uint32_t)__ldg(from + i) << 8 * i : 0;
    return some;
}
DEV uint32_t wide_times(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
DEV uint16_t wide_codes(uint32_t address)
{
    uint16_t two;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(two) : "r"(address));
    return two;
}

/* A's four registers of 16 columns: from two rows, `below` bytes apart. */
template <bool BF16> DEV void wide_straight(uint32_t (&f)[4], uint32_t at, uint32_t below)
{
#pragma unroll
    for (int e = 0; e < 4; e++)
        f[e] = wide_two<BF16>(wide_codes(at + e % 2 * below + e / 2 * 8));
}
/* The same from 16 rows of W as it lies, two of which are side by side for a thread. */
template <bool BF16> DEV void wide_turned(uint32_t (&f)[4], uint32_t at, const uint32_t (&rows)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t even = wide_codes(at + rows[0] + half * (8 * 128)),
                       odd = wide_codes(at + rows[1] + half * (8 * 128));
        f[2 * half] = wide_two<BF16>((uint16_t)__byte_perm(even, odd, 0x0040));
        f[2 * half + 1] = wide_two<BF16>((uint16_t)__byte_perm(even, odd, 0x0051));
    }
}

/* Takes from *rest, not a NaN's or infinity's, the bits of bf16 that it begins with. */
DEV uint32_t wide_take(float *rest)
{
    const uint32_t bits = __float_as_uint(*rest);
    *rest = (bits & 0x7F800000) == 0x7F800000 ? 0 : *rest - __uint_as_float(bits & 0xFFFF0000);
    return bits;
}
/* Register e of each term of two codes, the first in the lower byte, times two scales. */
DEV void wide_two_terms(uint32_t (&f)[3][4], int e, uint16_t codes, float2 by)
{
    uint32_t h;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(codes));
    const float2 w = __half22float2(*reinterpret_cast<const __half2 *>(&h));
    float first = w.x * by.x, second = w.y * by.y;
#pragma unroll
    for (int term = 0; term < 3; term++) {
        const uint32_t low = wide_take(&first);
        f[term][e] = __byte_perm(low, wide_take(&second), 0x7632);
    }
}
/* As wide_turned, with the scales of the thread's four columns of K. */
DEV void wide_turned_terms(uint32_t (&f)[3][4], uint32_t at, const uint32_t (&rows)[2],
                           const float2 (&by)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t even = wide_codes(at + rows[0] + half * (8 * 128)),
                       odd = wide_codes(at + rows[1] + half * (8 * 128));
        wide_two_terms(f, 2 * half, (uint16_t)__byte_perm(even, odd, 0x0040), by[half]);
        wide_two_terms(f, 2 * half + 1, (uint16_t)__byte_perm(even, odd, 0x0051), by[half]);
    }
}

#endif
