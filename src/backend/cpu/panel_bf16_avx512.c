/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_bf16_avx512.c - panels times x in bf16 by the dot product of pairs, VDPBF16PS. A tile of up
 * to 6 rows of x and 64 rows of W, or 8 and 32, stays in registers over the columns of a segment.
 * The first tile decodes the weight in registers as it streams by; for many rows it keeps it in
 * scratch for the others, for few each tile decodes it again.
 *
 * Each element is one chain of pairs in ascending order, which begins with c where c is added to
 * and nothing is scaled: both kernels and every tile give the same bits. The instruction takes
 * subnormal bf16 as zero and flushes subnormal results. */
#include "backend/cpu/panel_bf16.h"

enum {
    TILE_ROWS = 6,
    CODE_ROWS = 5, /* of a tile that decodes: the tables take registers too */
    FEW_ROWS = 4,  /* of a tile that streams four panels .. */
    LONG_ROWS = 8, /* .. and of one that streams two: what is decoded serves more rows */
    LONG_PANELS = 2,
    STREAM_AHEAD = 384, /* bytes of a panel that are asked for ahead, .. */
    LONG_AHEAD = 1536,  /* .. by tiles of more rows, */
    FAR_AHEAD = 2048,   /* .. and where memory answers late, as it does processors with AMX */
};

/* What a tile reads: codes; codes, which it keeps decoded in scratch; either with w_fold; or what
 * was kept. */
typedef enum tile_source { STREAMED, KEPT, STREAMED_FOLDED, KEPT_FOLDED, DECODED } tile_source;

PANEL_FN bool is_folded(tile_source source)
{
    return source == STREAMED_FOLDED || source == KEPT_FOLDED;
}

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

/* sum[rows][p] += x[rows, 2 columns] b^T. */
PANEL_FN void add_pair(__m512 sum[LONG_ROWS][FP8_PANEL_GROUP], int64_t p, const uint16_t *x,
                       int64_t x_stride, __m512i b, int64_t rows)
{
    PANEL_UNROLL
    for (int64_t i = 0; i < rows; i++)
        sum[i][p] = _mm512_dpbf16_ps(sum[i][p], pairs(broadcast_pair(x + i * x_stride)), pairs(b));
}

/* For every two columns two of the lines that the next columns' codes are likely to be in. */
PANEL_FN void fetch_next_codes(const fp8_panel_run *run, int64_t col)
{
    const int64_t half = FP8_PANEL_GROUP / 2, first = col % FP8_PANEL_COLS / 2 * half;
    for (int64_t p = first; p < first + half; p++)
        fetch(run->w + p * run->w_stride,
              (run->k + col / FP8_PANEL_COLS * FP8_PANEL_COLS) * FP8_PANEL_ROWS);
}

/* sum[rows][panels] += x[rows, columns] w[panels, columns]^T from the decoded scratch. */
PANEL_FN void add_decoded(__m512 sum[LONG_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                          const uint16_t *x, int64_t begin, int64_t end, int64_t rows,
                          int64_t panels)
{
    const uint8_t *w = run->scratch;
    for (int64_t col = begin; col < end; col += 2) {
        const uint8_t *b = w + col / 2 * PAIR_BYTES;
        fetch_next_codes(run, col);
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++)
            add_pair(sum, p, x + col, run->x_stride, _mm512_load_si512(b + p * FP8_PANEL_BYTES),
                     rows);
    }
}

/* The same from the codes, which are `kept` in scratch once decoded, or not. fold: of the panels,
 * where the source is folded. ahead: as STREAM_AHEAD. */
PANEL_FN void add_codes(__m512 sum[LONG_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                        const uint16_t *x, int64_t begin, int64_t end, const decoder *d,
                        const __m512i *fold, int64_t ahead, int64_t rows, int64_t panels,
                        tile_source source)
{
    for (int64_t col = begin; col < end; col += FP8_PANEL_COLS) {
        __m512i b[FP8_PANEL_GROUP][2];
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++) {
            const uint8_t *w = block_at(run, p, col);
            fetch(w, ahead);
            decode_block(b[p], d, w);
            if (is_folded(source))
                fold_block(b[p], fold[p]);
            if (source == KEPT || source == KEPT_FOLDED)
                store_block(run, p, col, b[p]);
            PANEL_UNROLL
            for (int64_t h = 0; h < 2; h++)
                add_pair(sum, p, x + col + 2 * h, run->x_stride, b[p][h], rows);
        }
    }
}

/* The same of all segments with w_fold. */
PANEL_FN void add_folded(__m512 sum[LONG_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                         const uint16_t *x, const decoder *d, int64_t ahead, int64_t rows,
                         int64_t panels, tile_source source)
{
    const uint8_t *w_fold = run->w_fold;
    for (int64_t s = 0; s < run->cuts; s++, w_fold += FP8_TILE_COLS) {
        __m512i fold[FP8_PANEL_GROUP];
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++)
            fold[p] = load_fold(w_fold + p * FP8_PANEL_ROWS);
        add_codes(sum, run, x, run->cut[s], run->cut[s + 1], d, fold, ahead, rows, panels, source);
    }
}

/* sum = zeros, or c where sums go on from there: added to and not scaled. */
PANEL_FN void begin_sums(__m512 sum[LONG_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                         int64_t row, int64_t rows, int64_t panels)
{
    const float *c = run->c + row * FP8_TILE_COLS;
    const __mmask16 added = run->accumulate && !is_segmented(run) ? 0xFFFF : 0;
    PANEL_UNROLL
    for (int64_t i = 0; i < rows; i++, c += FP8_TILE_COLS) {
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++)
            sum[i][p] = _mm512_maskz_load_ps(added, c + p * FP8_PANEL_ROWS);
    }
}

/* c = sum, or what a segment adds. */
PANEL_FN void end_sums(__m512 sum[LONG_ROWS][FP8_PANEL_GROUP], const fp8_panel_run *run,
                       int64_t segment, int64_t row, int64_t rows, int64_t panels)
{
    if (is_segmented(run)) {
        __m512 scale[FP8_PANEL_GROUP];
        load_scales(scale, run, segment, 0, panels);
        PANEL_UNROLL
        for (int64_t i = 0; i < rows; i++)
            promote(run, segment, row + i, 0, sum[i], scale, panels);
        return;
    }
    float *c = run->c + row * FP8_TILE_COLS;
    PANEL_UNROLL
    for (int64_t i = 0; i < rows; i++, c += FP8_TILE_COLS) {
        PANEL_UNROLL
        for (int64_t p = 0; p < panels; p++)
            _mm512_store_ps(c + p * FP8_PANEL_ROWS, sum[i][p]);
    }
}

/* c[rows, 16 * panels] of rows row.. of x, over all columns. source, rows, panels are literals. */
PANEL_FN void tile(const fp8_panel_run *run, int64_t row, int64_t ahead, tile_source source,
                   int64_t rows, int64_t panels)
{
    const uint16_t *x = (const uint16_t *)run->x + row * run->x_stride;
    const decoder d = decoder_of(run->code);
    int64_t begin = 0;
    for (int64_t s = 0; s < segment_count(run); s++) {
        const int64_t end = segment_end(run, s);
        __m512 sum[LONG_ROWS][FP8_PANEL_GROUP];
        begin_sums(sum, run, row, rows, panels);
        if (is_folded(source))
            add_folded(sum, run, x, &d, ahead, rows, panels, source);
        else if (source == DECODED)
            add_decoded(sum, run, x, begin, end, rows, panels);
        else
            add_codes(sum, run, x, begin, end, &d, NULL, ahead, rows, panels, source);
        end_sums(sum, run, s, row, rows, panels);
        begin = end;
    }
}

typedef void tile_fn(const fp8_panel_run *run, int64_t row, int64_t ahead);
#define TILE(source, rows, panels)                                                       \
    static void tile_##source##_##rows##_##panels(const fp8_panel_run *run, int64_t row, \
                                                  int64_t ahead)                         \
    {                                                                                    \
        tile(run, row, ahead, source, rows, panels);                                     \
    }
#define TILES_OF(source, rows) \
    TILE(source, rows, 1)      \
    TILE(source, rows, 2)      \
    TILE(source, rows, 3)      \
    TILE(source, rows, 4)
#define TILES(source)   \
    TILES_OF(source, 1) \
    TILES_OF(source, 2) \
    TILES_OF(source, 3) \
    TILES_OF(source, 4)
#define LONG_TILES_OF(source, rows) \
    TILE(source, rows, 1)           \
    TILE(source, rows, 2)
#define LONG_TILES(source)   \
    LONG_TILES_OF(source, 5) \
    LONG_TILES_OF(source, 6) \
    LONG_TILES_OF(source, 7) \
    LONG_TILES_OF(source, 8)
TILES(STREAMED)
LONG_TILES(STREAMED)
TILES(STREAMED_FOLDED)
LONG_TILES(STREAMED_FOLDED)
TILES(KEPT)
TILES_OF(KEPT, 5)
TILES(KEPT_FOLDED)
TILES_OF(KEPT_FOLDED, 5)
TILES(DECODED)
TILES_OF(DECODED, 5)
TILES_OF(DECODED, 6)

#define NAMES_OF(source, rows)                                                              \
    {                                                                                       \
        tile_##source##_##rows##_1, tile_##source##_##rows##_2, tile_##source##_##rows##_3, \
            tile_##source##_##rows##_4                                                      \
    }
#define NAMES(source) \
    NAMES_OF(source, 1), NAMES_OF(source, 2), NAMES_OF(source, 3), NAMES_OF(source, 4)
#define LONG_NAMES_OF(source, rows)                            \
    {                                                          \
        tile_##source##_##rows##_1, tile_##source##_##rows##_2 \
    }
#define LONG_NAMES(source)                                                        \
    LONG_NAMES_OF(source, 5), LONG_NAMES_OF(source, 6), LONG_NAMES_OF(source, 7), \
        LONG_NAMES_OF(source, 8)
/* First index: with w_fold. */
static tile_fn *const streamed_tiles[2][LONG_ROWS][FP8_PANEL_GROUP] = {
    {NAMES(STREAMED), LONG_NAMES(STREAMED)},
    {NAMES(STREAMED_FOLDED), LONG_NAMES(STREAMED_FOLDED)},
};
static tile_fn *const kept_tiles[2][CODE_ROWS][FP8_PANEL_GROUP] = {
    {NAMES(KEPT), NAMES_OF(KEPT, 5)},
    {NAMES(KEPT_FOLDED), NAMES_OF(KEPT_FOLDED, 5)},
};
static tile_fn *const decoded_tiles[TILE_ROWS][FP8_PANEL_GROUP] = {
    NAMES(DECODED), NAMES_OF(DECODED, 5), NAMES_OF(DECODED, 6)};

/* All rows in as few tiles as there can be, of nearly equal size. */
void fp8_panel_bf16_avx512(const fp8_panel_run *run)
{
    const int folded = run->w_fold != NULL;
    int64_t left =
        run->m > CODE_ROWS ? 1 + fp8_ceil_div(run->m - CODE_ROWS, TILE_ROWS) : run->m > 0;
    for (int64_t row = 0, last; left > 0; row += last + 1, left--) {
        last = fp8_min_i64((run->m - row - 1) / left, (row ? TILE_ROWS : CODE_ROWS) - 1);
        (row ? decoded_tiles : kept_tiles[folded])[last][run->panels - 1](
            run, row, last < FEW_ROWS ? STREAM_AHEAD : LONG_AHEAD);
    }
}

/* The run for panels from `panel` on, at most `panels`. */
static fp8_panel_run part_of(const fp8_panel_run *run, int64_t panel, int64_t panels)
{
    const int64_t rows = panel * FP8_PANEL_ROWS;
    fp8_panel_run part = *run;
    part.w += panel * run->w_stride;
    part.c += rows;
    part.panels = fp8_min_i64(panels, run->panels - panel);
    if (run->w_scale)
        part.w_scale += rows;
    if (run->w_fold)
        part.w_fold += rows;
    return part;
}

/* The same, and each tile decodes. */
static void few(const fp8_panel_run *run, int64_t ahead)
{
    const bool is_long = run->m > FEW_ROWS;
    const int64_t panels = is_long ? LONG_PANELS : FP8_PANEL_GROUP;
    const int64_t tiles = fp8_ceil_div(run->m, is_long ? LONG_ROWS : FEW_ROWS);
    for (int64_t panel = 0; panel < run->panels; panel += panels) {
        const fp8_panel_run part = part_of(run, panel, panels);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t row = i * run->m / tiles, rows = (i + 1) * run->m / tiles - row;
            streamed_tiles[run->w_fold != NULL][rows - 1][part.panels - 1](&part, row, ahead);
        }
    }
}

void fp8_panel_bf16_few_avx512(const fp8_panel_run *run)
{
    few(run, run->m > FEW_ROWS ? LONG_AHEAD : STREAM_AHEAD);
}

void fp8_panel_bf16_few_amx(const fp8_panel_run *run)
{
    few(run, FAR_AHEAD);
}
