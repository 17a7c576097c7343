/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_avx512.c - the kernels of quantize_kernels.h at level AVX-512. */
#include "number/vec_avx512.h"

#define LEVEL(name) name##_avx512

enum { BITS_BYTES = 64 };
typedef __m512i vec_bits; /* unsigned lanes of 2 or 4 bytes */

VEC_FN vec_bits bits_magnitude(const char *x, int64_t bytes)
{
    const __m512i mask = bytes == 2 ? _mm512_set1_epi16(0x7FFF) : _mm512_set1_epi32(0x7FFFFFFF);
    return _mm512_and_si512(_mm512_loadu_si512(x), mask);
}

VEC_FN vec_bits bits_max(vec_bits a, vec_bits b, int64_t bytes)
{
    return bytes == 2 ? _mm512_max_epu16(a, b) : _mm512_max_epu32(a, b);
}

/* The largest lane; 16 bits wide by the one instruction that finds a smallest. */
VEC_FN uint32_t bits_reduce(vec_bits m, int64_t bytes)
{
    if (bytes == 4)
        return _mm512_reduce_max_epu32(m);
    const __m256i half =
        _mm256_max_epu16(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    const __m128i quarter =
        _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const __m128i inverted = _mm_xor_si128(quarter, _mm_set1_epi16(-1));
    return 0xFFFF ^ (uint32_t)_mm_extract_epi16(_mm_minpos_epu16(inverted), 0);
}

#include "backend/cpu/quantize_kernels.h"
