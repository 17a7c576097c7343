/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_avx2.c - the kernels of quantize_kernels.h at level AVX2. */
#include "number/vec_avx2.h"

#define LEVEL(name) name##_avx2

enum { BITS_BYTES = 32 };
typedef __m256i vec_bits; /* unsigned lanes of 2 or 4 bytes */

VEC_FN vec_bits bits_magnitude(const char *x, int64_t bytes)
{
    const __m256i mask = bytes == 2 ? _mm256_set1_epi16(0x7FFF) : _mm256_set1_epi32(0x7FFFFFFF);
    return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)x), mask);
}

VEC_FN vec_bits bits_max(vec_bits a, vec_bits b, int64_t bytes)
{
    return bytes == 2 ? _mm256_max_epu16(a, b) : _mm256_max_epu32(a, b);
}

/* The largest lane; 16 bits wide by the one instruction that finds a smallest. */
VEC_FN uint32_t bits_reduce(vec_bits m, int64_t bytes)
{
    const __m128i low = _mm256_castsi256_si128(m), high = _mm256_extracti128_si256(m, 1);
    if (bytes == 2) {
        const __m128i inverted = _mm_xor_si128(_mm_max_epu16(low, high), _mm_set1_epi16(-1));
        return 0xFFFF ^ (uint32_t)_mm_extract_epi16(_mm_minpos_epu16(inverted), 0);
    }
    __m128i top = _mm_max_epu32(low, high);
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4E));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(top);
}

#include "backend/cpu/quantize_kernels.h"
