/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_avx512.h - vec_avx2.h with 16 lanes: the same names, formulas and bits, with AVX-512 F, BW,
 * VL and DQ. For files that are compiled for that level only. Shift counts are vectors, because an
 * unoptimized build takes no other than literal immediates. */
#ifndef FP8_NUMBER_VEC_AVX512_H
#define FP8_NUMBER_VEC_AVX512_H

#include "number/number.h"

#include <immintrin.h>

#define VEC_FN static inline __attribute__((always_inline))

enum { VEC_LANES = 16, VEC_GROUP = 4 * VEC_LANES };
typedef __m512 vec_f32;
typedef __m512i vec_codes; /* VEC_GROUP codes of 8 bits */

VEC_FN vec_f32 vec_set1(float x)
{
    return _mm512_set1_ps(x);
}

VEC_FN vec_f32 vec_mul(vec_f32 a, vec_f32 b)
{
    return _mm512_mul_ps(a, b);
}

VEC_FN vec_f32 vec_div(vec_f32 a, vec_f32 b)
{
    return _mm512_div_ps(a, b);
}

VEC_FN vec_f32 vec_add(vec_f32 a, vec_f32 b)
{
    return _mm512_add_ps(a, b);
}

/* a * b + c, rounded once. */
VEC_FN vec_f32 vec_fma(vec_f32 a, vec_f32 b, vec_f32 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

VEC_FN vec_f32 vec_abs(vec_f32 x)
{
    return _mm512_and_ps(x, _mm512_castsi512_ps(_mm512_set1_epi32(0x7FFFFFFF)));
}

/* x limited to [-max, max]; NaN stays. In integers: a compiler may make a minimum of a comparison
 * of floats and a choice, and a minimum may flush a subnormal. */
VEC_FN vec_f32 vec_clamp(vec_f32 x, float max)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    const __m512i top = _mm512_set1_epi32((int)fp8_bits_of_f32(max));
    const __m512i mag = _mm512_andnot_si512(sign, bits);
    const __mmask16 number = _mm512_cmple_epi32_mask(mag, _mm512_set1_epi32(0x7F800000));
    const __mmask16 over = _mm512_mask_cmpgt_epi32_mask(number, mag, top);
    const __m512i limit = _mm512_or_si512(_mm512_and_si512(sign, bits), top);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, over, limit));
}

/* NaN lanes become the quiet NaN without sign. */
VEC_FN vec_f32 vec_plain_nan(vec_f32 x)
{
    const vec_f32 nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}

/* Whether the sign of each lane is set. */
VEC_FN bool vec_all(vec_f32 x)
{
    return _mm512_movepi32_mask(_mm512_castps_si512(x)) == 0xFFFF;
}

/* Negative numbers whose magnitude has bits of at most `zero` become +0. */
VEC_FN vec_f32 vec_plus_zero(vec_f32 x, uint32_t zero)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i top = _mm512_set1_epi32((int)(0x80000000 + zero)); /* the least is -0 */
    return _mm512_castsi512_ps(_mm512_maskz_mov_epi32(_mm512_cmpgt_epi32_mask(bits, top), bits));
}

VEC_FN vec_f32 vec_load_f32(const void *p)
{
    return _mm512_loadu_ps(p);
}

VEC_FN void vec_store_f32(void *p, vec_f32 x)
{
    _mm512_storeu_ps(p, x);
}

VEC_FN vec_f32 vec_load_bf16(const void *p)
{
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* What a caller knows about lanes that become bf16. */
typedef enum vec_known {
    VEC_NOTHING,
    VEC_PLAIN_NAN, /* NaN, if any, is that of vec_plain_nan, which rounding leaves alone */
    VEC_EXACT,     /* each lane is a bf16 number or a quiet NaN of bf16 */
} vec_known;

/* bf16 of each lane in the upper half of it, the lower half being anything. */
VEC_FN __m512i vec_bf16_bits(vec_f32 x, vec_known known)
{
    const __m512i bits = _mm512_castps_si512(x);
    if (known == VEC_EXACT)
        return bits;
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    if (known == VEC_PLAIN_NAN)
        return near;
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(near, is_nan, bits, _mm512_set1_epi32(0x400000));
}

/* 2 * VEC_LANES elements. */
VEC_FN void vec_store_bf16_pair(void *p, vec_f32 a, vec_f32 b, vec_known known)
{
    const __m512i both = _mm512_packus_epi32(_mm512_srli_epi32(vec_bf16_bits(a, known), 16),
                                             _mm512_srli_epi32(vec_bf16_bits(b, known), 16));
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(order, both));
}

VEC_FN vec_f32 vec_round_bf16(vec_f32 x)
{
    const __m512i kept = _mm512_set1_epi32((int)0xFFFF0000);
    return _mm512_castsi512_ps(_mm512_and_si512(vec_bf16_bits(x, VEC_NOTHING), kept));
}

VEC_FN vec_f32 vec_round_f16(vec_f32 x)
{
    return _mm512_cvtph_ps(_mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT));
}

VEC_FN vec_f32 vec_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

VEC_FN void vec_store_f16(void *p, vec_f32 x)
{
    const __m256i half = _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((__m256i *)p, half);
}

/* fp32 of VEC_GROUP codes of a format with infinities or of e4m3fn. e5m2 is the upper half of fp16;
 * e4m3fn moved into fp16 is 2^-8 of its value, and its NaN is where adding one carries. */
VEC_FN void vec_decode_fn(vec_f32 x[4], const void *p, fp8_format f)
{
    for (int64_t k = 0; k < 2; k++) {
        const __m256i codes = _mm256_loadu_si256((const __m256i *)p + k);
        const __m512i wide = _mm512_cvtepi8_epi16(codes);
        __m512i half = _mm512_slli_epi16(wide, 8);
        if (f.exponent_bits == 4) {
            half = _mm512_slli_epi16(wide, 7);
            half = _mm512_and_si512(half, _mm512_set1_epi16((short)0xBFFF));
            const __m512i carry = _mm512_add_epi16(half, _mm512_set1_epi16(0x80));
            half = _mm512_or_si512(half, _mm512_and_si512(carry, _mm512_set1_epi16(0x4000)));
        }
        const vec_f32 low = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
        const vec_f32 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
        const vec_f32 unit = _mm512_set1_ps(256);
        x[2 * k] = f.exponent_bits == 4 ? _mm512_mul_ps(low, unit) : low;
        x[2 * k + 1] = f.exponent_bits == 4 ? _mm512_mul_ps(high, unit) : high;
    }
}

/* fp32 of VEC_LANES codes of a fnuz format: shift into fp32's fields; subnormals are a small
 * integer times a power of two. */
VEC_FN vec_f32 vec_decode_fnuz(const void *p, fp8_format f)
{
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const __m512i mag = _mm512_and_si512(code, _mm512_set1_epi32(0x7F));
    const __m512i normal =
        _mm512_add_epi32(_mm512_sllv_epi32(mag, _mm512_set1_epi32(23 - f.mantissa_bits)),
                         _mm512_set1_epi32((127 - f.bias) << 23));
    const float unit = fp8_f32_of_bits((uint32_t)(128 - f.bias - f.mantissa_bits) << 23);
    const __mmask16 is_tiny = _mm512_cmplt_epi32_mask(mag, _mm512_set1_epi32(1 << f.mantissa_bits));
    const __m512 value = _mm512_mask_mul_ps(_mm512_castsi512_ps(normal), is_tiny,
                                            _mm512_cvtepi32_ps(mag), _mm512_set1_ps(unit));
    const __m512i sign =
        _mm512_and_si512(_mm512_slli_epi32(code, 24), _mm512_set1_epi32(INT32_MIN));
    const __m512i bits = _mm512_or_si512(_mm512_castps_si512(value), sign);
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(0x80));
    return _mm512_castsi512_ps(
        _mm512_mask_or_epi32(bits, is_nan, bits, _mm512_set1_epi32(0x7FC00000)));
}

/* fp32 of VEC_LANES codes of e8m0: the exponent's field; 2^-127 is subnormal, 0xFF is NaN. */
VEC_FN vec_f32 vec_decode_e8m0(const void *p)
{
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    const __m512i top = _mm512_set1_epi32(0x400000);
    const __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(code, 23), top);
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(0xFF));
    return _mm512_castsi512_ps(_mm512_mask_or_epi32(bits, is_nan, bits, top));
}

/* The magnitude plus (128 - bias) << mantissa_bits in each lane; NaN a large negative number. With
 * `first` < 23, x is rounded to so many bits of mantissa before: adding 2^(E + 23 - first) and
 * taking it off again does that, and a carry to 2^(E + 1) counts as the code above. */
VEC_FN __m512i vec_encode_lanes(vec_f32 x, fp8_format f, vec_f32 bound, int first)
{
    const int drop = 23 - f.mantissa_bits;
    __m512 a = _mm512_min_ps(bound, vec_abs(x)); /* NaN stays */
    const __m512i smallest = _mm512_set1_epi32((128 - f.bias) << 23);
    const __m512i own = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7F800000));
    if (first < 23) {
        const __m512 shifter =
            _mm512_castsi512_ps(_mm512_add_epi32(own, _mm512_set1_epi32((23 - first) << 23)));
        a = _mm512_sub_ps(_mm512_add_ps(a, shifter), shifter);
    }
    const __m512i exponent = _mm512_max_epu32(own, smallest);
    const __m512i addend = _mm512_add_epi32(exponent, _mm512_set1_epi32(drop << 23));
    const __m512i sum = _mm512_castps_si512(_mm512_add_ps(a, _mm512_castsi512_ps(addend)));
    return _mm512_add_epi32(_mm512_sub_epi32(sum, addend),
                            _mm512_srlv_epi32(exponent, _mm512_set1_epi32(drop)));
}

/* Codes of x[0..3], in order: fp8_encode of each, rounded to `first` bits of mantissa before. */
VEC_FN vec_codes vec_encode_twice(const vec_f32 x[4], fp8_format f, bool saturate, int first)
{
    const uint32_t top = f.max_code + (saturate ? 0 : 1); /* clamped to this code's value */
    const vec_f32 bound = _mm512_set1_ps(
        fp8_f32_of_bits((top << (23 - f.mantissa_bits)) + ((uint32_t)(127 - f.bias) << 23)));
    const __m512i offset = _mm512_set1_epi16((short)((128 - f.bias) << f.mantissa_bits));
    __m512i low = _mm512_packs_epi32(vec_encode_lanes(x[0], f, bound, first),
                                     vec_encode_lanes(x[1], f, bound, first));
    __m512i high = _mm512_packs_epi32(vec_encode_lanes(x[2], f, bound, first),
                                      vec_encode_lanes(x[3], f, bound, first));
    low = _mm512_subs_epi16(low, offset);
    high = _mm512_subs_epi16(high, offset);
    if (f.fnuz && !saturate) { /* overflow becomes what NaN is: a large negative number */
        const __m512i most = _mm512_set1_epi16(0x7F), nan = _mm512_set1_epi16(INT16_MIN);
        low = _mm512_mask_mov_epi16(low, _mm512_cmpgt_epi16_mask(low, most), nan);
        high = _mm512_mask_mov_epi16(high, _mm512_cmpgt_epi16_mask(high, most), nan);
    }
    __m512i codes = _mm512_packs_epi16(low, high); /* NaN is 0x80 now */
    if (!f.fnuz)
        codes = _mm512_min_epu8(codes, _mm512_set1_epi8(0x7F));

    const __m512i signs = _mm512_packs_epi16(
        _mm512_packs_epi32(_mm512_castps_si512(x[0]), _mm512_castps_si512(x[1])),
        _mm512_packs_epi32(_mm512_castps_si512(x[2]), _mm512_castps_si512(x[3])));
    __m512i sign = _mm512_and_si512(signs, _mm512_set1_epi8((char)0x80));
    if (f.fnuz) /* no -0 */
        sign = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(codes, codes), sign);
    codes = _mm512_or_si512(codes, sign);
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), codes);
}

/* Codes of x[0..3], in order: fp8_encode of each. */
VEC_FN vec_codes vec_encode(const vec_f32 x[4], fp8_format f, bool saturate)
{
    return vec_encode_twice(x, f, saturate, 23);
}

VEC_FN void vec_store_codes(void *p, vec_codes codes)
{
    _mm512_storeu_si512(p, codes);
}

#include "number/vec_group.h"

#endif
