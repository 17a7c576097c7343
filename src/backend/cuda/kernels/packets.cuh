/* SPDX-License-Identifier: Apache-2.0
 *
 * packets.cuh - a packet of 8 elements, 16 or 32 bytes that a thread reads at once, on its way to
 * codes: its largest magnitude, and its quotients by a rounded reciprocal that give the bits of the
 * division. What is not a plain number goes through quantize.cuh, element by element. */
#ifndef FP8_KERNELS_PACKETS_CUH
#define FP8_KERNELS_PACKETS_CUH

#include "backend/cuda/kernels/quantize.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { WIDTH = 8 }; /* elements of a packet */

template <int IN> struct packet {
    enum { WORDS = IN == FP8_F32 ? 8 : 4 };
    uint32_t word[WORDS];
};

template <int IN> __device__ static inline packet<IN> load_packet(const void *row, int64_t c)
{
    packet<IN> p;
    const uint4 *at = (const uint4 *)row + c * (packet<IN>::WORDS / 4);
#pragma unroll
    for (int w = 0; w < packet<IN>::WORDS; w += 4) {
        const uint4 v = __ldg(at + w / 4);
        p.word[w] = v.x;
        p.word[w + 1] = v.y;
        p.word[w + 2] = v.z;
        p.word[w + 3] = v.w;
    }
    return p;
}

template <int IN> __device__ static inline packet<IN> zero_packet()
{
    packet<IN> p;
#pragma unroll
    for (int w = 0; w < packet<IN>::WORDS; w++)
        p.word[w] = 0;
    return p;
}

template <int IN> __device__ static inline float element(const packet<IN> &p, int e)
{
    if (IN == FP8_F32)
        return __uint_as_float(p.word[e]);
    const uint32_t pair = p.word[e / 2];
    if (IN == FP8_BF16)
        return __uint_as_float(e % 2 ? pair & 0xFFFF0000u : pair << 16);
    const uint16_t half = (uint16_t)(e % 2 ? pair >> 16 : pair);
    return __half2float(__ushort_as_half(half));
}

/* The largest magnitude so far, as x's own bits; two side by side where they have 16. */
template <int IN> __device__ static inline uint32_t raise(uint32_t most, const packet<IN> &p)
{
#pragma unroll
    for (int w = 0; w < packet<IN>::WORDS; w++)
        most = IN == FP8_F32 ? max(most, p.word[w] & 0x7FFFFFFFu)
                             : __vmaxu2(most, p.word[w] & 0x7FFF7FFFu);
    return most;
}

/* fp32 bits of it; NaN without its payload. */
template <int IN> __device__ static inline uint32_t settle(uint32_t most)
{
    if (IN != FP8_F32) {
        most = max(most >> 16, most & 0xFFFF);
        most = IN == FP8_BF16 ? most << 16
                              : __float_as_uint(__half2float(__ushort_as_half((uint16_t)most)));
    }
    return most > INFINITY_BITS ? NAN_BITS : most;
}

/* The same of elements that take part only. */
template <int IN>
__device__ static inline uint32_t kept_magnitude(const quantize_args &a, const packet<IN> &p)
{
    uint32_t most = 0;
#pragma unroll
    for (int e = 0; e < WIDTH; e++)
        most = max(most, magnitude(a, element(p, e)));
    return most;
}

/* How the elements of a unit become quotients: `inverse` is -1 where only code_of knows how, 0
 * where they are multiplied by the operand, else the rounded reciprocal of the operand that
 * divides. */
struct encoder {
    float operand, inverse;
};

/* Division by way of the rounded reciprocal and a step of correction gives the quotient that
 * division gives for operands far from the ends of fp32 whose significand is not all ones
 * (Markstein; for dividends of 16 bits all significands were tried, those of 32 take two steps).
 * Other operands, and formats that no instruction encodes, are left to code_of. */
__device__ static inline encoder encoder_of(const quantize_args &a, float operand)
{
    encoder e = {operand, -1};
    if (a.codes.dtype != FP8_E4M3FN && a.codes.dtype != FP8_E5M2)
        return e;
    if (a.multiply && operand > 0 && fp8_is_finite(operand))
        e.inverse = 0;
    if (!a.multiply && operand >= 0x1p-64f && operand <= 0x1p64f &&
        (__float_as_uint(operand) & 0x7FFFFF) != 0x7FFFFF)
        e.inverse = 1.0f / operand;
    return e;
}

template <int IN> __device__ static inline float refined(const encoder &e, float x)
{
    float q = x * e.inverse;
    q = __fmaf_rn(__fmaf_rn(-q, e.operand, x), e.inverse, q);
    if (IN == FP8_F32)
        q = __fmaf_rn(__fmaf_rn(-q, e.operand, x), e.inverse, q);
    return q; /* but for the sign of a zero */
}

template <int IN> __device__ static inline float rounded(float y)
{
    if (IN == FP8_BF16)
        return __bfloat162float(__float2bfloat16_rn(y));
    return IN == FP8_F16 ? __half2float(__float2half_rn(y)) : y;
}

/* Codes of two numbers, saturated. */
template <int CODE> __device__ static inline uint32_t pair_of(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    if (CODE == FP8_E4M3FN)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return bits_of_value(low, CODE, true) | bits_of_value(high, CODE, true) << 8;
#endif
}

template <int CODE> __device__ static inline uint2 four_pairs(const float (&y)[WIDTH])
{
    return make_uint2(pair_of<CODE>(y[0], y[1]) | pair_of<CODE>(y[2], y[3]) << 16,
                      pair_of<CODE>(y[4], y[5]) | pair_of<CODE>(y[6], y[7]) << 16);
}

template <int IN>
__device__ static inline uint2 codes_of(const quantize_args &a, const packet<IN> &p,
                                        const encoder &e)
{
    float y[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        y[k] = element(p, k);
    if (a.multiply) {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] *= e.operand;
    } else {
        /* Where the amax does not bound x: to what saturates anyway, so that nothing overflows. */
        const float most = e.operand * 0x1p20f;
        if (a.is_static || a.maker.f.upper < __int_as_float(INFINITY_BITS))
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                y[k] = fminf(fmaxf(y[k], -most), most);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] = copysignf(refined<IN>(e, y[k]), y[k]);
    }
    if (a.round_quotient)
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] = rounded<IN>(y[k]);
    if (a.plus_zero)
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] += 0.0f; /* -0 becomes +0, and nothing else changes */
    return a.codes.dtype == FP8_E4M3FN ? four_pairs<FP8_E4M3FN>(y) : four_pairs<FP8_E5M2>(y);
}

/* Whether it is one of the usual requests: nothing but E4M3 of a quotient. */
__device__ static inline bool is_usual(const quantize_args &a)
{
    return !a.round_quotient && !a.plus_zero && a.codes.dtype == FP8_E4M3FN;
}

/* Below which bits of a magnitude usual_codes_of may take a packet: for a division what cannot
 * overflow, for a product all plain numbers. Operands that divide are 2^64 at most. */
__device__ static inline uint32_t usual_limit(const encoder &e)
{
    return e.inverse > 0 ? __float_as_uint(e.operand * 0x1p20f) : (uint32_t)INFINITY_BITS;
}

/* codes_of for those that divide, of magnitudes below operand * 2^20: nothing overflows. The sign
 * of a zero, all that the correction loses, comes from x. */
template <int IN>
__device__ static inline uint2 divided_codes_of(const packet<IN> &p, const encoder &e)
{
    float y[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        y[k] = refined<IN>(e, element(p, k));
    if (IN == FP8_F32) {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] = copysignf(y[k], element(p, k));
        return four_pairs<FP8_E4M3FN>(y);
    }
    const uint2 codes = four_pairs<FP8_E4M3FN>(y);
    const uint32_t low = __byte_perm(p.word[0], p.word[1], 0x7531);
    const uint32_t high = __byte_perm(p.word[2], p.word[3], 0x7531);
    return make_uint2(codes.x | (low & 0x80808080u), codes.y | (high & 0x80808080u));
}

template <int IN>
__device__ static inline uint2 any_codes_of(const quantize_args &a, packet<IN> p, float operand)
{
    uint32_t low = 0, high = 0;
#pragma unroll 1
    for (int e = 0; e < WIDTH; e++) {
        low = low >> 8 | high << 24;
        const int bits = IN == FP8_F32 ? 32 : 16;
        const float x = value_of_bits(bits == 32 ? p.word[0] : p.word[0] & 0xFFFF, IN);
        high = high >> 8 | code_of(a, x, operand) << 24;
#pragma unroll /* the next element comes first */
        for (int w = 0; w < packet<IN>::WORDS; w++) {
            const uint32_t next = w + 1 < packet<IN>::WORDS ? p.word[w + 1] : 0;
            p.word[w] = bits == 32 ? next : p.word[w] >> 16 | next << 16;
        }
    }
    return make_uint2(low, high);
}

template <int IN>
__device__ static inline uint2 usual_codes_of(const quantize_args &a, const packet<IN> &p,
                                              const encoder &e)
{
    if (!a.multiply)
        return divided_codes_of(p, e);
    float y[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        y[k] = element(p, k) * e.operand;
    return four_pairs<FP8_E4M3FN>(y);
}

/* ---- usual units ---- */

/* 1 / x, rounded, for 2^-64 <= x <= 2^64: what the compiler makes of the division, but for the ends
 * of fp32. */
__device__ static inline float short_reciprocal(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return __fmaf_rn(r, -__fmaf_rn(r, x, -1.0f), r);
}

/* The power of two for a value whose bits are those of a normal number: what fp8_unit_exponent
 * finds, where that lies between f.low and f.high. */
__device__ static inline float short_power_of(const fp8_scale_formula &f, uint32_t value)
{
    const int k = (int)(value >> 23) - 127;
    const uint32_t threshold = f.log2 ? fp8_absorbed_by_log2(k) : f.threshold;
    return __uint_as_float((uint32_t)(k - f.top + ((value & 0x7FFFFF) > threshold) + 127) << 23);
}

/* Scale and encoder of a unit in few instructions, as the vectors of the CPU have the formula, and
 * nothing that is called. False where there is more to it: for rare requests, outside of the
 * formula's range or of encoder_of's, or for magnitudes that usual_codes_of may not take. */
__device__ static inline bool short_unit_of(const quantize_args &a, uint32_t amax, float *scale,
                                            encoder *e)
{
    const fp8_scale_formula &f = a.maker.f;
    const float most = fp8_reckoned_amax(&a.maker, __uint_as_float(amax));
    const encoder of_max = {f.max, short_reciprocal(f.max)};
    float s = most;
    if (!f.pow2 || f.of_scale)
        s = fmaxf(refined<FP8_F32>(of_max, most), f.least);
    if (f.pow2)
        s = short_power_of(f, __float_as_uint(s));
    const float inverse = short_reciprocal(s);
    const bool in_range = s >= fmaxf(f.low, 0x1p-64f) && s <= fminf(f.high, 0x1p64f) &&
                          (__float_as_uint(s) & 0x7FFFFF) != 0x7FFFFF && most == most;
    *scale = s;
    e->operand = f.multiply ? inverse : s;
    e->inverse = f.multiply ? 0 : inverse;
    return a.short_units && in_range && amax < usual_limit(*e);
}

/* What short_unit_of has found: in fp32, or a power of two in E8M0. */
__device__ static inline void store_short_scale(const fp8_cuda_matrix &m, int64_t i, int64_t j,
                                                float scale)
{
    const uint32_t bits = __float_as_uint(scale);
    const int64_t at = i * m.row + j * m.col;
    if (m.dtype == FP8_F32)
        ((uint32_t *)m.data)[at] = bits;
    else
        ((uint8_t *)m.data)[at] = (uint8_t)(bits >> 23);
}

/* The packet's codes. most: bits of a magnitude that it does not exceed, those of infinity or more
 * if it is not all plain numbers. */
template <int IN>
__device__ static inline uint2 encoded(const quantize_args &a, const packet<IN> &p,
                                       const encoder &e, uint32_t most)
{
    if (e.inverse >= 0 && is_usual(a) && most < usual_limit(e))
        return usual_codes_of(a, p, e);
    if (most < INFINITY_BITS && e.inverse >= 0)
        return codes_of(a, p, e);
    return any_codes_of(a, p, e.operand);
}

/* The same to `to`, which is aligned to 8 bytes. */
template <int IN>
__device__ static inline void encode_packet(const quantize_args &a, const packet<IN> &p,
                                            const encoder &e, uint32_t most, uint8_t *to)
{
    *(uint2 *)to = encoded(a, p, e, most);
}

template <int IN> __device__ static inline const uint8_t *row_of(const quantize_args &a, int64_t i)
{
    return (const uint8_t *)a.x.data + i * a.x.row * (IN == FP8_F32 ? 4 : 2);
}

#endif
