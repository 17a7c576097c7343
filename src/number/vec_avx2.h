/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_avx2.h - the number formats, 8 fp32 lanes at a time, with AVX2, FMA and F16C. For files that
 * are compiled for that level only. vec_avx512.h defines the same names with 16 lanes, so that a
 * kernel is written once and compiled for each. The bits are those of number.h for every input, in
 * the default rounding mode; denormals-are-zero and flush-to-zero change nothing.
 *
 * Encoding an 8-bit float: with E = the exponent of |x|, or of the format's smallest normal if that
 * is larger, adding A = 2^(E + 23 - mantissa_bits) rounds |x| to nearest even at the format's last
 * bit, and the difference in bits counts units of that bit. With E0 = E of the smallest normal,
 *
 *     magnitude = bits(|x| + A) - bits(A) + (E - E0) * 2^mantissa_bits
 *
 * for normal and subnormal results alike. */
#ifndef FP8_NUMBER_VEC_AVX2_H
#define FP8_NUMBER_VEC_AVX2_H

#include "number/number.h"

#include <immintrin.h>

#define VEC_FN static inline __attribute__((always_inline))

enum { VEC_LANES = 8, VEC_GROUP = 4 * VEC_LANES };
typedef __m256 vec_f32;
typedef __m256i vec_codes; /* VEC_GROUP codes of 8 bits */

VEC_FN vec_f32 vec_set1(float x)
{
    return _mm256_set1_ps(x);
}

VEC_FN vec_f32 vec_mul(vec_f32 a, vec_f32 b)
{
    return _mm256_mul_ps(a, b);
}

VEC_FN vec_f32 vec_div(vec_f32 a, vec_f32 b)
{
    return _mm256_div_ps(a, b);
}

VEC_FN vec_f32 vec_add(vec_f32 a, vec_f32 b)
{
    return _mm256_add_ps(a, b);
}

/* a * b + c, rounded once. */
VEC_FN vec_f32 vec_fma(vec_f32 a, vec_f32 b, vec_f32 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

VEC_FN vec_f32 vec_abs(vec_f32 x)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)));
}

/* x limited to [-max, max]; NaN stays. In integers: a compiler may make a minimum of a comparison
 * of floats and a choice, and a minimum may flush a subnormal. */
VEC_FN vec_f32 vec_clamp(vec_f32 x, float max)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    const __m256i top = _mm256_set1_epi32((int)fp8_bits_of_f32(max));
    const __m256i mag = _mm256_andnot_si256(sign, bits);
    const __m256i number = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x7F800001), mag);
    const __m256i over = _mm256_and_si256(number, _mm256_cmpgt_epi32(mag, top));
    const __m256i limit = _mm256_or_si256(_mm256_and_si256(sign, bits), top);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, limit, over));
}

/* NaN lanes become the quiet NaN without sign. */
VEC_FN vec_f32 vec_plain_nan(vec_f32 x)
{
    const vec_f32 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

/* Whether the sign of each lane is set. */
VEC_FN bool vec_all(vec_f32 x)
{
    return _mm256_movemask_ps(x) == 0xFF;
}

/* Negative numbers whose magnitude has bits of at most `zero` become +0. */
VEC_FN vec_f32 vec_plus_zero(vec_f32 x, uint32_t zero)
{
    const __m256i above = _mm256_set1_epi32((int)(0x80000001 + zero)); /* the least is -0 */
    const __m256i small = _mm256_cmpgt_epi32(above, _mm256_castps_si256(x));
    return _mm256_andnot_ps(_mm256_castsi256_ps(small), x);
}

VEC_FN vec_f32 vec_load_f32(const void *p)
{
    return _mm256_loadu_ps((const float *)p);
}

VEC_FN void vec_store_f32(void *p, vec_f32 x)
{
    _mm256_storeu_ps((float *)p, x);
}

VEC_FN vec_f32 vec_load_bf16(const void *p)
{
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* What a caller knows about lanes that become bf16. */
typedef enum vec_known {
    VEC_NOTHING,
    VEC_PLAIN_NAN, /* NaN, if any, is that of vec_plain_nan, which rounding leaves alone */
    VEC_EXACT,     /* each lane is a bf16 number or a quiet NaN of bf16 */
} vec_known;

/* bf16 of each lane in the upper half of it, the lower half being anything. */
VEC_FN __m256i vec_bf16_bits(vec_f32 x, vec_known known)
{
    const __m256i bits = _mm256_castps_si256(x);
    if (known == VEC_EXACT)
        return bits;
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    if (known == VEC_PLAIN_NAN)
        return near;
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(near, quiet, _mm256_castps_si256(is_nan));
}

/* 2 * VEC_LANES elements. */
VEC_FN void vec_store_bf16_pair(void *p, vec_f32 a, vec_f32 b, vec_known known)
{
    const __m256i both = _mm256_packus_epi32(_mm256_srli_epi32(vec_bf16_bits(a, known), 16),
                                             _mm256_srli_epi32(vec_bf16_bits(b, known), 16));
    _mm256_storeu_si256((__m256i *)p, _mm256_permute4x64_epi64(both, 0xD8));
}

VEC_FN vec_f32 vec_round_bf16(vec_f32 x)
{
    const __m256i kept = _mm256_set1_epi32((int)0xFFFF0000);
    return _mm256_castsi256_ps(_mm256_and_si256(vec_bf16_bits(x, VEC_NOTHING), kept));
}

VEC_FN vec_f32 vec_round_f16(vec_f32 x)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

VEC_FN vec_f32 vec_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

VEC_FN void vec_store_f16(void *p, vec_f32 x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* fp32 of VEC_GROUP codes of a format with infinities or of e4m3fn. e5m2 is the upper half of fp16;
 * e4m3fn moved into fp16 is 2^-8 of its value, and its NaN is where adding one carries. */
VEC_FN void vec_decode_fn(vec_f32 x[4], const void *p, fp8_format f)
{
    for (int64_t k = 0; k < 2; k++) {
        const __m128i codes = _mm_loadu_si128((const __m128i *)p + k);
        const __m256i wide = _mm256_cvtepi8_epi16(codes);
        __m256i half = _mm256_slli_epi16(wide, 8);
        if (f.exponent_bits == 4) {
            half = _mm256_slli_epi16(wide, 7);
            half = _mm256_and_si256(half, _mm256_set1_epi16((short)0xBFFF));
            const __m256i carry = _mm256_add_epi16(half, _mm256_set1_epi16(0x80));
            half = _mm256_or_si256(half, _mm256_and_si256(carry, _mm256_set1_epi16(0x4000)));
        }
        const vec_f32 low = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
        const vec_f32 high = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
        const vec_f32 unit = _mm256_set1_ps(256);
        x[2 * k] = f.exponent_bits == 4 ? _mm256_mul_ps(low, unit) : low;
        x[2 * k + 1] = f.exponent_bits == 4 ? _mm256_mul_ps(high, unit) : high;
    }
}

/* fp32 of VEC_LANES codes of a fnuz format: shift into fp32's fields; subnormals are a small
 * integer times a power of two. */
VEC_FN vec_f32 vec_decode_fnuz(const void *p, fp8_format f)
{
    const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i mag = _mm256_and_si256(code, _mm256_set1_epi32(0x7F));
    const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(mag, 23 - f.mantissa_bits),
                                            _mm256_set1_epi32((127 - f.bias) << 23));
    const float unit = fp8_f32_of_bits((uint32_t)(128 - f.bias - f.mantissa_bits) << 23);
    const __m256 tiny = _mm256_mul_ps(_mm256_cvtepi32_ps(mag), _mm256_set1_ps(unit));
    const __m256i is_tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(1 << f.mantissa_bits), mag);
    const __m256i is_nan = _mm256_cmpeq_epi32(code, _mm256_set1_epi32(0x80));
    __m256i bits = _mm256_blendv_epi8(normal, _mm256_castps_si256(tiny), is_tiny);
    bits = _mm256_or_si256(bits, _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7FC00000)));
    const __m256i sign =
        _mm256_and_si256(_mm256_slli_epi32(code, 24), _mm256_set1_epi32(INT32_MIN));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, sign));
}

/* fp32 of VEC_LANES codes of e8m0: the exponent's field; 2^-127 is subnormal, 0xFF is NaN. */
VEC_FN vec_f32 vec_decode_e8m0(const void *p)
{
    const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    const __m256i top = _mm256_set1_epi32(0x400000);
    const __m256i bits = _mm256_max_epu32(_mm256_slli_epi32(code, 23), top);
    const __m256i is_nan = _mm256_cmpeq_epi32(code, _mm256_set1_epi32(0xFF));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_and_si256(is_nan, top)));
}

/* The magnitude plus (128 - bias) << mantissa_bits in each lane; NaN a large negative number. With
 * `first` < 23, x is rounded to so many bits of mantissa before: adding 2^(E + 23 - first) and
 * taking it off again does that, and a carry to 2^(E + 1) counts as the code above. */
VEC_FN __m256i vec_encode_lanes(vec_f32 x, fp8_format f, vec_f32 bound, int first)
{
    const int drop = 23 - f.mantissa_bits;
    __m256 a = _mm256_min_ps(bound, vec_abs(x)); /* NaN stays */
    const __m256i smallest = _mm256_set1_epi32((128 - f.bias) << 23);
    const __m256i own = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7F800000));
    if (first < 23) {
        const __m256 shifter =
            _mm256_castsi256_ps(_mm256_add_epi32(own, _mm256_set1_epi32((23 - first) << 23)));
        a = _mm256_sub_ps(_mm256_add_ps(a, shifter), shifter);
    }
    const __m256i exponent = _mm256_max_epu32(own, smallest);
    const __m256i addend = _mm256_add_epi32(exponent, _mm256_set1_epi32(drop << 23));
    const __m256i sum = _mm256_castps_si256(_mm256_add_ps(a, _mm256_castsi256_ps(addend)));
    return _mm256_add_epi32(_mm256_sub_epi32(sum, addend), _mm256_srli_epi32(exponent, drop));
}

/* Codes of x[0..3], in order: fp8_encode of each, rounded to `first` bits of mantissa before. */
VEC_FN vec_codes vec_encode_twice(const vec_f32 x[4], fp8_format f, bool saturate, int first)
{
    const uint32_t top = f.max_code + (saturate ? 0 : 1); /* clamped to this code's value */
    const vec_f32 bound = _mm256_set1_ps(
        fp8_f32_of_bits((top << (23 - f.mantissa_bits)) + ((uint32_t)(127 - f.bias) << 23)));
    const __m256i offset = _mm256_set1_epi16((short)((128 - f.bias) << f.mantissa_bits));
    __m256i low = _mm256_packs_epi32(vec_encode_lanes(x[0], f, bound, first),
                                     vec_encode_lanes(x[1], f, bound, first));
    __m256i high = _mm256_packs_epi32(vec_encode_lanes(x[2], f, bound, first),
                                      vec_encode_lanes(x[3], f, bound, first));
    low = _mm256_subs_epi16(low, offset);
    high = _mm256_subs_epi16(high, offset);
    if (f.fnuz && !saturate) { /* overflow becomes what NaN is: a large negative number */
        const __m256i most = _mm256_set1_epi16(0x7F);
        low = _mm256_or_si256(low, _mm256_slli_epi16(_mm256_cmpgt_epi16(low, most), 15));
        high = _mm256_or_si256(high, _mm256_slli_epi16(_mm256_cmpgt_epi16(high, most), 15));
    }
    __m256i codes = _mm256_packs_epi16(low, high); /* NaN is 0x80 now */
    if (!f.fnuz)
        codes = _mm256_min_epu8(codes, _mm256_set1_epi8(0x7F));

    const __m256i signs = _mm256_packs_epi16(
        _mm256_packs_epi32(_mm256_castps_si256(x[0]), _mm256_castps_si256(x[1])),
        _mm256_packs_epi32(_mm256_castps_si256(x[2]), _mm256_castps_si256(x[3])));
    __m256i sign = _mm256_and_si256(signs, _mm256_set1_epi8((char)0x80));
    if (f.fnuz) /* no -0 */
        sign = _mm256_andnot_si256(_mm256_cmpeq_epi8(codes, _mm256_setzero_si256()), sign);
    codes = _mm256_or_si256(codes, sign);
    return _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Codes of x[0..3], in order: fp8_encode of each. */
VEC_FN vec_codes vec_encode(const vec_f32 x[4], fp8_format f, bool saturate)
{
    return vec_encode_twice(x, f, saturate, 23);
}

VEC_FN void vec_store_codes(void *p, vec_codes codes)
{
    _mm256_storeu_si256((__m256i *)p, codes);
}

#include "number/vec_group.h"

#endif
