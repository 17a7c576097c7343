/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_bf16_avx512.c - panels times x in bf16 by the dot product of pairs,
 * VDPBF16PS. A tile of up to 6 rows of x and 64 rows of W stays in registers
 * over the columns of a segment. For many rows the weight is decoded once into
 * scratch; for few it is decoded in registers as it streams by.
 *
 * Each element is one chain of pairs in ascending order, which begins with c
 * where c is added to and nothing is scaled: both kernels and every tile give
 * the same bits. The instruction takes subnormal bf16 as zero and flushes
 * subnormal results. */
#include "backend/cpu/panel_bf16.h"

enum {
    TILE_ROWS = 6,
    FEW_ROWS = 5,       /* of a tile that decodes: the tables take registers too */
    STREAM_AHEAD = 384, /* bytes of a panel */
};

PANEL_FN __m512bh pairs(__m512i bits)
{
    return (__m512bh)bits;
}

/* x[i, col] and its right neighbour in every lane. */
PANEL_FN __m512i broadcast_pair(const uint16_t *x)
{
    int32_t both;
    memcpy(&both, x, sizeof both);
    return _mm512_set1_epi32(both);
}

/* sum[rows][panels] += x[rows, 2 columns] b[panels]^T. */
PANEL_FN void add_pair(__m512 sum[TILE_ROWS][FP8_PANEL_GROUP], const uint16_t *x, int64_t x_stride,
                       const __m512i *b, int64_t rows, int64_t panels)
{
    PANEL_UNROLL
    for (int64_t i = 0; i < rows; i++) {
        const __m512i a = broadcast_pair(x + i * x_stride);
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++)
            sum[i][p] = _mm512_dpbf16_ps(sum[i][p], pairs(a), pairs(b[p]));
    }
}

/* Asks for the codes `ahead` bytes behind w. They need not exist. */
PANEL_FN void fetch(const uint8_t *w, int64_t ahead)
{
    _mm_prefetch((const char *)((uintptr_t)w + (uintptr_t)ahead), _MM_HINT_T0);
}

/* For every two columns two of the lines that the next columns' codes are
 * likely to be in. */
PANEL_FN void fetch_next_codes(const fp8_panel_run *run, int64_t col)
{
    const int64_t half = FP8_PANEL_GROUP / 2, first = col % FP8_PANEL_COLS / 2 * half;
    for (int64_t p = first; p < first + half; p++)
        fetch(run->w + p * run->w_stride,
              (run->k + col / FP8_PANEL_COLS * FP8_PANEL_COLS) * FP8_PANEL_ROWS);
}

/* sum[rows][panels] += x[rows, columns] w[panels, columns]^T from the decoded
 * scratch. */
PANEL_FN void add_decoded(__m512 sum[TILE_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                          const uint16_t *x, int64_t begin, int64_t end, int64_t rows,
                          int64_t panels)
{
    const uint8_t *w = run->scratch;
    for (int64_t col = begin; col < end; col += 2) {
        __m512i b[FP8_PANEL_GROUP];
        if (x == run->x)
            fetch_next_codes(run, col);
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++)
            b[p] = _mm512_load_si512(w + col / 2 * PAIR_BYTES + p * 64);
        add_pair(sum, x + col, run->x_stride, b, rows, panels);
    }
}

/* The same from the codes. */
PANEL_FN void add_codes(__m512 sum[TILE_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                        const uint16_t *x, int64_t begin, int64_t end, int64_t rows, int64_t panels)
{
    const decoder d = decoder_of(run->code);
    for (int64_t col = begin; col < end; col += FP8_PANEL_COLS) {
        __m512i b[FP8_PANEL_GROUP][2];
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++) {
            const uint8_t *w = run->w + p * run->w_stride + col * FP8_PANEL_ROWS;
            fetch(w, STREAM_AHEAD);
            decode_block(b[p], &d, w);
            PANEL_UNROLL
            for (int64_t h = 0; h < 2; h++)
                PANEL_UNROLL
            for (int64_t i = 0; i < rows; i++)
                sum[i][p] = _mm512_dpbf16_ps(
                    sum[i][p], pairs(broadcast_pair(x + i * run->x_stride + col + 2 * h)),
                    pairs(b[p][h]));
        }
    }
}

/* sum = zeros, or c where sums go on from there: added to and not scaled. */
PANEL_FN void begin_sums(__m512 sum[TILE_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                         int64_t row, int64_t rows, int64_t panels)
{
    const float *c = run->c + row * FP8_TILE_COLS;
    const __mmask16 added = run->accumulate && !run->cuts ? 0xFFFF : 0;
    PANEL_UNROLL
    for (int64_t i = 0; i < rows; i++)
        PANEL_UNROLL
    for (int64_t p = 0; p < panels; p++)
        sum[i][p] = _mm512_maskz_load_ps(added, c + i * FP8_TILE_COLS + p * FP8_PANEL_ROWS);
}

/* c = sum, or what a segment adds. */
PANEL_FN void end_sums(__m512 sum[TILE_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                       int64_t segment, int64_t row, int64_t rows, int64_t panels)
{
    if (run->cuts) {
        __m512 scale[FP8_PANEL_GROUP];
        load_scales(scale, run, segment, 0, panels);
        PANEL_UNROLL
        for (int64_t i = 0; i < rows; i++)
            promote(run, segment, row + i, 0, sum[i], scale, panels);
        return;
    }
    float *c = run->c + row * FP8_TILE_COLS;
    PANEL_UNROLL
    for (int64_t i = 0; i < rows; i++)
        PANEL_UNROLL
    for (int64_t p = 0; p < panels; p++)
        _mm512_store_ps(c + i * FP8_TILE_COLS + p * FP8_PANEL_ROWS, sum[i][p]);
}

/* c[rows, 16 * panels] of rows row.. of x, over all columns. rows and panels
 * are literals. */
PANEL_FN void tile(const fp8_panel_run *run, int64_t row, bool decoded, int64_t rows,
                   int64_t panels)
{
    const uint16_t *x = (const uint16_t *)run->x + row * run->x_stride;
    int64_t begin = 0;
    for (int64_t s = 0; s < segment_count(run); s++) {
        const int64_t end = segment_end(run, s);
        __m512 sum[TILE_ROWS][FP8_PANEL_GROUP];
        begin_sums(sum, run, row, rows, panels);
        if (decoded)
            add_decoded(sum, run, x, begin, end, rows, panels);
        else
            add_codes(sum, run, x, begin, end, rows, panels);
        end_sums(sum, run, s, row, rows, panels);
        begin = end;
    }
}

typedef void tile_fn(const fp8_panel_run *run, int64_t row);
#define TILE(name, decoded, rows, panels)                                       \
    static void name##_##rows##_##panels(const fp8_panel_run *run, int64_t row) \
    {                                                                           \
        tile(run, row, decoded, rows, panels);                                  \
    }
#define TILES_OF(name, decoded, rows) \
    TILE(name, decoded, rows, 1)      \
    TILE(name, decoded, rows, 2)      \
    TILE(name, decoded, rows, 3)      \
    TILE(name, decoded, rows, 4)
#define NAMES_OF(name, rows)                                                       \
    {                                                                              \
        name##_##rows##_1, name##_##rows##_2, name##_##rows##_3, name##_##rows##_4 \
    }

TILES_OF(decoded, true, 1)
TILES_OF(decoded, true, 2)
TILES_OF(decoded, true, 3)
TILES_OF(decoded, true, 4)
TILES_OF(decoded, true, 5)
TILES_OF(decoded, true, 6)
static tile_fn *const decoded_tiles[TILE_ROWS][FP8_PANEL_GROUP] = {
    NAMES_OF(decoded, 1), NAMES_OF(decoded, 2), NAMES_OF(decoded, 3),
    NAMES_OF(decoded, 4), NAMES_OF(decoded, 5), NAMES_OF(decoded, 6),
};

TILES_OF(streamed, false, 1)
TILES_OF(streamed, false, 2)
TILES_OF(streamed, false, 3)
TILES_OF(streamed, false, 4)
TILES_OF(streamed, false, 5)
static tile_fn *const streamed_tiles[FEW_ROWS][FP8_PANEL_GROUP] = {
    NAMES_OF(streamed, 1), NAMES_OF(streamed, 2), NAMES_OF(streamed, 3),
    NAMES_OF(streamed, 4), NAMES_OF(streamed, 5),
};

/* All rows in as few tiles of at most `most` rows as there can be, of nearly
 * equal size. */
static void walk_rows(const fp8_panel_run *run, tile_fn *const (*tiles)[FP8_PANEL_GROUP],
                      int64_t most)
{
    int64_t left = fp8_ceil_div(run->m, most);
    for (int64_t row = 0; left > 0; left--) {
        const int64_t rows = fp8_ceil_div(run->m - row, left);
        tiles[rows - 1][run->panels - 1](run, row);
        row += rows;
    }
}

void fp8_panel_bf16_avx512(const fp8_panel_run *run)
{
    decode_panels(run);
    walk_rows(run, decoded_tiles, TILE_ROWS);
}

void fp8_panel_bf16_few_avx512(const fp8_panel_run *run)
{
    walk_rows(run, streamed_tiles, FEW_ROWS);
}
