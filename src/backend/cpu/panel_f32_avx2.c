/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_f32_avx2.c - the kernels of panel_f32_kernels.h at level AVX2: 6 rows of X times 16 rows of
 * W, twelve of the sixteen registers. */
#include "number/vec_avx2.h"

#define LEVEL(name) name##_avx2

enum { TILE_ROWS = 6, TILE_VECS = 2 };
#define EACH_TILE(T) T(1, 2) T(2, 2) T(3, 2) T(4, 2) T(5, 2) T(6, 2)

typedef __m256i vec_bytes;

VEC_FN vec_bytes bytes_load(const uint8_t *p)
{
    return _mm256_load_si256((const __m256i *)(const void *)p);
}

VEC_FN vec_bytes bytes_set1(int x)
{
    return _mm256_set1_epi8((char)x);
}

/* A table of 16 bytes, for bytes_look_up. */
VEC_FN vec_bytes bytes_table(const uint8_t table[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table));
}

/* table[index] for indices below 16. */
VEC_FN vec_bytes bytes_look_up(vec_bytes table, vec_bytes index)
{
    return _mm256_shuffle_epi8(table, index);
}

VEC_FN vec_bytes bytes_and(vec_bytes a, vec_bytes b)
{
    return _mm256_and_si256(a, b);
}

VEC_FN vec_bytes bytes_or(vec_bytes a, vec_bytes b)
{
    return _mm256_or_si256(a, b);
}

VEC_FN vec_bytes bytes_add(vec_bytes a, vec_bytes b)
{
    return _mm256_add_epi8(a, b);
}

VEC_FN vec_bytes bytes_min(vec_bytes a, vec_bytes b)
{
    return _mm256_min_epu8(a, b);
}

/* 0xFF where a > b, both below 0x80. */
VEC_FN vec_bytes bytes_above(vec_bytes a, vec_bytes b)
{
    return _mm256_cmpgt_epi8(a, b);
}

/* Bytes of `low` and `high` in turn: from the first and from the second half of each 16. */
VEC_FN vec_bytes bytes_zip_first(vec_bytes low, vec_bytes high)
{
    return _mm256_unpacklo_epi8(low, high);
}

VEC_FN vec_bytes bytes_zip_second(vec_bytes low, vec_bytes high)
{
    return _mm256_unpackhi_epi8(low, high);
}

/* Each 16 bits shifted by a literal. */
#define WORDS_LEFT(x, n)  _mm256_slli_epi16(x, n)
#define WORDS_RIGHT(x, n) _mm256_srli_epi16(x, n)

/* fp32 of the bf16 in the lower half of each 32 bits. */
VEC_FN vec_f32 vec_of_lower(vec_bytes pairs)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}

VEC_FN vec_f32 vec_of_upper(vec_bytes pairs)
{
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xFFFF0000)));
}

#include "backend/cpu/panel_f32_kernels.h"
