/* SPDX-License-Identifier: Apache-2.0
 *
 * number.h - one number at a time: the 8-bit floats, bf16 and fp16 to and from fp32.
 *
 *     real = (-1)^sign * 2^(exponent - bias) * (1 + mantissa / 2^mantissa_bits)    exponent > 0
 *     real = (-1)^sign * 2^(1 - bias) * (mantissa / 2^mantissa_bits)               exponent = 0
 *
 * One encoder and one decoder serve all formats; a format is a constant, so that they fold to a few
 * instructions. Encoding rounds to nearest even, once. Integer arithmetic only: the rounding mode
 * and flush-to-zero of the thread change nothing, and host and CUDA device give the same bits.
 * Decoding is exact. A NaN keeps its sign (fnuz has only one) and comes out quiet; only bf16 to
 * fp32, a plain shift, leaves it as it is.
 * Plain C11 that is also C++; must include nothing but the C library. */
#ifndef FP8_NUMBER_NUMBER_H
#define FP8_NUMBER_NUMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define FP8_NUMBER_FN static inline __host__ __device__
#else
#define FP8_NUMBER_FN static inline
#endif

/* How a format is laid out. A magnitude is a code without its sign bit. */
typedef struct fp8_format {
    int exponent_bits, mantissa_bits, bias;
    uint32_t max_code;      /* magnitude of the largest finite value */
    uint32_t overflow_code; /* magnitude of infinity, or of NaN where there is no infinity */
    uint32_t nan_code;      /* magnitude written for NaN */
    bool fnuz;              /* no -0: its code, the sign bit alone, is the one NaN */
} fp8_format;

/* clang-format off */
/*                                                         e  m bias max     over    nan     fnuz */
FP8_NUMBER_FN fp8_format fp8_format_e4m3fn(void)
{ const fp8_format f = {4, 3,  7, 0x7E,   0x7F,   0x7F,   false}; return f; }
FP8_NUMBER_FN fp8_format fp8_format_e4m3fnuz(void)
{ const fp8_format f = {4, 3,  8, 0x7F,   0x80,   0x80,   true};  return f; }
FP8_NUMBER_FN fp8_format fp8_format_e5m2(void)
{ const fp8_format f = {5, 2, 15, 0x7B,   0x7C,   0x7F,   false}; return f; }
FP8_NUMBER_FN fp8_format fp8_format_e5m2fnuz(void)
{ const fp8_format f = {5, 2, 16, 0x7F,   0x80,   0x80,   true};  return f; }
FP8_NUMBER_FN fp8_format fp8_format_f16(void)
{ const fp8_format f = {5, 10, 15, 0x7BFF, 0x7C00, 0x7E00, false}; return f; }
FP8_NUMBER_FN fp8_format fp8_format_bf16(void)
{ const fp8_format f = {8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, false}; return f; }
/* clang-format on */

FP8_NUMBER_FN uint32_t fp8_bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

FP8_NUMBER_FN float fp8_f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* n / 2^shift to nearest even, 1 <= shift <= 31, n < 2^31. */
FP8_NUMBER_FN uint32_t fp8_round_shift(uint32_t n, int shift)
{
    return (n + (1u << (shift - 1)) - 1 + (n >> shift & 1)) >> shift;
}

/* The magnitude of `mag` (fp32 bits of a finite value >= 0) as if the exponent had no upper end. */
FP8_NUMBER_FN uint32_t fp8_encode_magnitude(uint32_t mag, fp8_format f)
{
    const int drop = 23 - f.mantissa_bits;
    const int rebias = 127 - f.bias; /* fp32 exponent field of the format's exponent 0 */
    const int exponent = (int)(mag >> 23);
    /* Normal in the format; a carry into the exponent is right. bf16's subnormals line up, too. */
    if (exponent > rebias || rebias == 0)
        return fp8_round_shift(mag, drop) - ((uint32_t)rebias << f.mantissa_bits);
    /* Subnormal: the significand, counted in units of 2^(1 - bias - mantissa_bits). */
    const int shift = drop + 1 + rebias - exponent;
    return shift > 25 ? 0 : fp8_round_shift((mag & 0x7FFFFF) | 0x800000, shift);
}

/* Code of fp32 bits. Finite overflow and infinity give the largest finite value if `saturate`, else
 * infinity, or NaN where there is none. NaN gives NaN: fp16 and bf16 keep the top of its payload,
 * quiet, as the processors' own instructions do; the 8-bit formats have one. */
FP8_NUMBER_FN uint32_t fp8_encode(uint32_t bits, fp8_format f, bool saturate)
{
    const int sign_bit = f.exponent_bits + f.mantissa_bits;
    const uint32_t sign = bits >> 31 << sign_bit;
    const uint32_t mag = bits & 0x7FFFFFFF;
    if (mag > 0x7F800000) {
        const uint32_t payload = sign_bit > 7 ? (mag & 0x7FFFFF) >> (23 - f.mantissa_bits) : 0;
        return sign | f.nan_code | payload;
    }
    uint32_t code = mag < 0x7F800000 ? fp8_encode_magnitude(mag, f) : f.max_code + 1;
    if (code > f.max_code)
        code = saturate ? f.max_code : f.overflow_code;
    return f.fnuz && code == 0 ? 0 : sign | code;
}

/* fp32 bits of a code; every value of every format is one. */
FP8_NUMBER_FN uint32_t fp8_decode(uint32_t code, fp8_format f)
{
    const int sign_bit = f.exponent_bits + f.mantissa_bits;
    const uint32_t sign = code >> sign_bit << 31;
    uint32_t mag = code & ((1u << sign_bit) - 1);
    const uint32_t wide = mag << (23 - f.mantissa_bits);
    if (f.bias == 127) /* bf16 is the upper half of fp32 */
        return sign | wide;
    if (f.fnuz && code == f.nan_code)
        return 0xFFC00000;
    if (mag > f.max_code) {
        const bool is_inf = mag == f.overflow_code && f.overflow_code != f.nan_code;
        return sign | 0x7F800000 | wide | (is_inf ? 0 : 0x400000u);
    }
    uint32_t rebias = (uint32_t)(127 - f.bias);
    if (mag >= 1u << f.mantissa_bits)
        return sign | (wide + (rebias << 23));
    if (mag == 0)
        return sign;
    for (rebias++; mag < 1u << f.mantissa_bits; rebias--) /* subnormal: normalize, <= 10 steps */
        mag <<= 1;
    return sign | rebias << 23 | (mag << (23 - f.mantissa_bits) & 0x7FFFFF);
}

#define FP8_NUMBER_DEFINE(NAME, CODE)                                               \
    FP8_NUMBER_FN CODE fp8_##NAME##_from_f32(float x, bool saturate)                \
    {                                                                               \
        return (CODE)fp8_encode(fp8_bits_of_f32(x), fp8_format_##NAME(), saturate); \
    }                                                                               \
    FP8_NUMBER_FN float fp8_##NAME##_to_f32(CODE code)                              \
    {                                                                               \
        return fp8_f32_of_bits(fp8_decode(code, fp8_format_##NAME()));              \
    }
FP8_NUMBER_DEFINE(e4m3fn, uint8_t)
FP8_NUMBER_DEFINE(e4m3fnuz, uint8_t)
FP8_NUMBER_DEFINE(e5m2, uint8_t)
FP8_NUMBER_DEFINE(e5m2fnuz, uint8_t)
FP8_NUMBER_DEFINE(f16, uint16_t)
FP8_NUMBER_DEFINE(bf16, uint16_t)
#undef FP8_NUMBER_DEFINE

/* e8m0fnu: 2^(code - 127), NaN 0xFF; no sign, no zero. To the nearest power of two, a tie (1.5 *
 * 2^k) up; what lies between the two smallest, 2^-127 and 2^-126, goes up, as in ml_dtypes and
 * PyTorch. Above the midpoint over 2^127, infinity, zero, negative values and NaN give NaN. */
FP8_NUMBER_FN uint8_t fp8_e8m0fnu_from_f32(float x)
{
    const uint32_t bits = fp8_bits_of_f32(x);
    if (bits == 0 || bits > 0x7F800000) /* a set sign bit is above, too */
        return 0xFF;
    return (uint8_t)((bits + 0x3FFFFF + (bits >= 0x800000)) >> 23);
}

/* The least power of two that is not smaller than x: zero and negative values give 2^-127, what is
 * above 2^127 gives 2^127, NaN gives NaN. As cvt.rp.satfinite.ue8m0x2.f32 is described. */
FP8_NUMBER_FN uint8_t fp8_e8m0fnu_from_f32_up(float x)
{
    const uint32_t bits = fp8_bits_of_f32(x);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return 0xFF;
    if (bits >> 31)
        return 0;
    if (bits < 0x800000)
        return bits > 0x400000;
    const uint32_t code = (bits + 0x7FFFFF) >> 23;
    return (uint8_t)(code < 254 ? code : 254);
}

FP8_NUMBER_FN float fp8_e8m0fnu_to_f32(uint8_t code)
{
    if (code == 0xFF)
        return fp8_f32_of_bits(0x7FC00000);
    return fp8_f32_of_bits(code ? (uint32_t)code << 23 : 0x400000); /* 2^-127 is subnormal */
}

#endif
