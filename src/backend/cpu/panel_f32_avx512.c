/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_f32_avx512.c - the kernels of panel_f32_kernels.h at level AVX512, without VBMI: 6 rows of
 * X times up to 64 rows of W, 24 of the 32 registers. */
#include "number/vec_avx512.h"

#define LEVEL(name) name##_avx512

enum { TILE_ROWS = 6, TILE_VECS = 4 };
#define EACH_TILE_OF(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V) T(6, V)
#define EACH_TILE(T)       EACH_TILE_OF(T, 1) EACH_TILE_OF(T, 2) EACH_TILE_OF(T, 3) EACH_TILE_OF(T, 4)

typedef __m512i vec_bytes;

VEC_FN vec_bytes bytes_load(const uint8_t *p)
{
    return _mm512_load_si512(p);
}

VEC_FN vec_bytes bytes_set1(int x)
{
    return _mm512_set1_epi8((char)x);
}

/* A table of 16 bytes, for bytes_look_up. */
VEC_FN vec_bytes bytes_table(const uint8_t table[16])
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table));
}

/* table[index] for indices below 16. */
VEC_FN vec_bytes bytes_look_up(vec_bytes table, vec_bytes index)
{
    return _mm512_shuffle_epi8(table, index);
}

VEC_FN vec_bytes bytes_and(vec_bytes a, vec_bytes b)
{
    return _mm512_and_si512(a, b);
}

VEC_FN vec_bytes bytes_or(vec_bytes a, vec_bytes b)
{
    return _mm512_or_si512(a, b);
}

VEC_FN vec_bytes bytes_add(vec_bytes a, vec_bytes b)
{
    return _mm512_add_epi8(a, b);
}

VEC_FN vec_bytes bytes_min(vec_bytes a, vec_bytes b)
{
    return _mm512_min_epu8(a, b);
}

/* 0xFF where a > b, both below 0x80. */
VEC_FN vec_bytes bytes_above(vec_bytes a, vec_bytes b)
{
    return _mm512_movm_epi8(_mm512_cmpgt_epi8_mask(a, b));
}

/* Bytes of `low` and `high` in turn: from the first and from the second half of each 16. */
VEC_FN vec_bytes bytes_zip_first(vec_bytes low, vec_bytes high)
{
    return _mm512_unpacklo_epi8(low, high);
}

VEC_FN vec_bytes bytes_zip_second(vec_bytes low, vec_bytes high)
{
    return _mm512_unpackhi_epi8(low, high);
}

/* Each 16 bits shifted by a literal. */
#define WORDS_LEFT(x, n)  _mm512_slli_epi16(x, n)
#define WORDS_RIGHT(x, n) _mm512_srli_epi16(x, n)

/* fp32 of the bf16 in the lower half of each 32 bits. */
VEC_FN vec_f32 vec_of_lower(vec_bytes pairs)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}

VEC_FN vec_f32 vec_of_upper(vec_bytes pairs)
{
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xFFFF0000)));
}

#include "backend/cpu/panel_f32_kernels.h"
