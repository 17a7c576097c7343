/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_bf16.h - a packed weight turned into bf16, 64 codes at a time.
 * Magnitudes are looked up: the upper and the lower byte of a bf16 each in a
 * table of 128 bytes (two registers); the sign is the code's. Every finite code
 * is exact, e5m2 keeps its infinity, a NaN code becomes some number or NaN, -0
 * becomes 0. Powers of two are folded in by taking them off the exponents, where
 * zero stays zero as it cannot become less. For files that are compiled with VBMI
 * and AVX512_BF16 only. */
#ifndef FP8_BACKEND_CPU_PANEL_BF16_H
#define FP8_BACKEND_CPU_PANEL_BF16_H

#include "backend/cpu/panel_kernels.h"

#include <immintrin.h>
#include <string.h>

#define PANEL_FN static inline __attribute__((always_inline))

enum {
    PAIR_BYTES = FP8_TILE_COLS * 4, /* of two columns decoded: 64 rows of W x 2 bf16 */
    CODE_DTYPES = 3,
};

/* The bf16 numbers with one exponent (biased) that have three or two bits of mantissa. */
#define EIGHTHS(BYTE, e)                                                                 \
    BYTE((e) << 7), BYTE((e) << 7 | 0x10), BYTE((e) << 7 | 0x20), BYTE((e) << 7 | 0x30), \
        BYTE((e) << 7 | 0x40), BYTE((e) << 7 | 0x50), BYTE((e) << 7 | 0x60), BYTE((e) << 7 | 0x70)
#define QUARTERS(BYTE, e) \
    BYTE((e) << 7), BYTE((e) << 7 | 0x20), BYTE((e) << 7 | 0x40), BYTE((e) << 7 | 0x60)
#define FIVE(ROW, BYTE, e) \
    ROW(BYTE, e), ROW(BYTE, (e) + 1), ROW(BYTE, (e) + 2), ROW(BYTE, (e) + 3), ROW(BYTE, (e) + 4)
/* Codes 0 .. 0x7F. The first row of each holds the subnormal numbers m * 2^-9, 2^-10, 2^-16. */
#define E4M3FN_MAGNITUDES(BYTE)                                                                  \
    BYTE(0), BYTE(0x3B00), BYTE(0x3B80), BYTE(0x3BC0), BYTE(0x3C00), BYTE(0x3C20), BYTE(0x3C40), \
        BYTE(0x3C60), FIVE(EIGHTHS, BYTE, 121), FIVE(EIGHTHS, BYTE, 126), FIVE(EIGHTHS, BYTE, 131)
#define E4M3FNUZ_MAGNITUDES(BYTE)                                                                \
    BYTE(0), BYTE(0x3A80), BYTE(0x3B00), BYTE(0x3B40), BYTE(0x3B80), BYTE(0x3BA0), BYTE(0x3BC0), \
        BYTE(0x3BE0), FIVE(EIGHTHS, BYTE, 120), FIVE(EIGHTHS, BYTE, 125), FIVE(EIGHTHS, BYTE, 130)
#define E5M2_MAGNITUDES(BYTE)                                                            \
    BYTE(0), BYTE(0x3780), BYTE(0x3800), BYTE(0x3840), FIVE(QUARTERS, BYTE, 113),        \
        FIVE(QUARTERS, BYTE, 118), FIVE(QUARTERS, BYTE, 123), FIVE(QUARTERS, BYTE, 128), \
        FIVE(QUARTERS, BYTE, 133), FIVE(QUARTERS, BYTE, 138), QUARTERS(BYTE, 255)
/* Bit 7 of the upper byte: the number has a sign. */
#define UPPER_BYTE(bits) ((bits) >> 8 | ((bits) != 0 ? 0x80 : 0))
#define LOWER_BYTE(bits) ((bits)&0xFF)

typedef struct code_table {
    _Alignas(64) uint8_t upper[128], lower[128];
} code_table;

static const code_table code_tables[CODE_DTYPES] = {
    {{E4M3FN_MAGNITUDES(UPPER_BYTE)}, {E4M3FN_MAGNITUDES(LOWER_BYTE)}},
    {{E4M3FNUZ_MAGNITUDES(UPPER_BYTE)}, {E4M3FNUZ_MAGNITUDES(LOWER_BYTE)}},
    {{E5M2_MAGNITUDES(UPPER_BYTE)}, {E5M2_MAGNITUDES(LOWER_BYTE)}},
};

typedef struct decoder {
    __m512i upper[2], lower[2], sign;
} decoder;

PANEL_FN decoder decoder_of(fp8_dtype code)
{
    const int which = code == FP8_E4M3FN ? 0 : code == FP8_E4M3FNUZ ? 1 : 2;
    const code_table *t = &code_tables[which];
    const decoder d = {{_mm512_load_si512(t->upper), _mm512_load_si512(t->upper + 64)},
                       {_mm512_load_si512(t->lower), _mm512_load_si512(t->lower + 64)},
                       _mm512_set1_epi8(INT8_MIN)};
    return d;
}

/* What w_fold of a panel's rows takes off both bf16 of each lane. */
PANEL_FN __m512i load_fold(const uint8_t *w_fold)
{
    const __m512i fold =
        _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)w_fold));
    return _mm512_or_si512(_mm512_slli_epi32(fold, 7), _mm512_slli_epi32(fold, 16 + 7));
}

/* pair times the powers of two of load_fold. */
PANEL_FN void fold_block(__m512i pair[2], __m512i fold)
{
    pair[0] = _mm512_subs_epu16(pair[0], fold);
    pair[1] = _mm512_subs_epu16(pair[1], fold);
}

/* pair[h], lane r = bf16 of W[r, 2h], W[r, 2h + 1] of the block at w. */
PANEL_FN void decode_block(__m512i pair[2], const decoder *d, const uint8_t *w)
{
    const __m512i codes = _mm512_load_si512(w);
    const __m512i lower = _mm512_permutex2var_epi8(d->lower[0], codes, d->lower[1]);
    const __m512i magnitude = _mm512_permutex2var_epi8(d->upper[0], codes, d->upper[1]);
    const __m512i upper =
        _mm512_ternarylogic_epi64(magnitude, codes, d->sign, 0xD0); /* m & (c | ~s) */
    pair[0] = _mm512_unpacklo_epi8(lower, upper);
    pair[1] = _mm512_unpackhi_epi8(lower, upper);
}

/* Asks for the codes `ahead` bytes behind w. They need not exist. */
PANEL_FN void fetch(const uint8_t *w, int64_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)w + (uintptr_t)ahead), _MM_HINT_T0);
}

/* The scratch [cols / 2][64][2] for the block of panel p at column col. */
PANEL_FN void store_block(const fp8_panel_run *run, int64_t p, int64_t col, const __m512i pair[2])
{
    uint8_t *out = (uint8_t *)run->scratch + col / 2 * PAIR_BYTES + p * FP8_PANEL_BYTES;
    _mm512_store_si512(out, pair[0]);
    _mm512_store_si512(out + PAIR_BYTES, pair[1]);
}

PANEL_FN const uint8_t *block_at(const fp8_panel_run *run, int64_t p, int64_t col)
{
    return run->w + p * run->w_stride + col * FP8_PANEL_ROWS;
}

/* Whether segments have sums of their own, which are scaled when they are added to c. */
PANEL_FN bool is_segmented(const fp8_panel_run *run)
{
    return run->cuts && !run->w_fold;
}

/* The run's sums as the kernels walk them: a segment each, or one, which is c's own. */
PANEL_FN int64_t segment_count(const fp8_panel_run *run)
{
    return is_segmented(run) ? run->cuts : 1;
}

PANEL_FN int64_t segment_end(const fp8_panel_run *run, int64_t s)
{
    return is_segmented(run) ? run->cut[s + 1] : run->k;
}

/* scale[panels] = w_scale of a segment for the panels from `panel`. */
PANEL_FN void load_scales(__m512 *scale, const fp8_panel_run *run, int64_t segment, int64_t panel,
                          int64_t panels)
{
    const int64_t at = segment * FP8_TILE_COLS + panel * FP8_PANEL_ROWS;
    PANEL_UNROLL
    for (int64_t p = 0; p < panels; p++)
        scale[p] = run->w_scale ? _mm512_load_ps(run->w_scale + at + p * FP8_PANEL_ROWS)
                                : _mm512_set1_ps(1);
}

/* c[i, panels from `panel`] (0 for the first segment of a run that does not accumulate) +=
 * sum[panels] * (x_scale * scale[panels]). */
PANEL_FN void promote(const fp8_panel_run *run, int64_t segment, int64_t i, int64_t panel,
                      const __m512 *sum, const __m512 *scale, int64_t panels)
{
    static const float one = 1;
    const float *x_scale = run->x_scale ? run->x_scale + i * run->x_scale_stride + segment : &one;
    const __m512 x = _mm512_set1_ps(*x_scale);
    const __mmask16 added = run->accumulate || segment > 0 ? 0xFFFF : 0;
    float *c = run->c + i * FP8_TILE_COLS + panel * FP8_PANEL_ROWS;
    PANEL_UNROLL
    for (int64_t p = 0; p < panels; p++) {
        const __m512 before = _mm512_maskz_load_ps(added, c + p * FP8_PANEL_ROWS);
        const __m512 after = _mm512_fmadd_ps(sum[p], _mm512_mul_ps(x, scale[p]), before);
        _mm512_store_ps(c + p * FP8_PANEL_ROWS, after);
    }
}

#endif
