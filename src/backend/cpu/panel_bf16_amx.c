/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_bf16_amx.c - panels times x in bf16 by tiles, TDPBF16PS: 32 rows of x and 32 rows of W a
 * step, in four tiles of 16 x 16 sums, with 32 columns of each an instruction. The weight is
 * decoded into scratch as for AVX-512, whose rows of 64 bytes (16 rows of W x 2 columns) are the
 * rows of a tile; columns are padded with zeros to 32 there, as they are in x. What only one step
 * reads goes round in a small part of it, which stays in the first cache.
 *
 * Each element is one chain of pairs in ascending order, which begins with c where c is added to
 * and nothing is scaled. The instruction takes subnormal bf16 as zero and flushes subnormal
 * results. Tiles are configured at the start of a call and released at its end. */
#include "backend/cpu/panel_bf16.h"

enum {
    TILE = 16,                            /* rows of a tile, and fp32 sums in a row of it */
    TILE_X_COLS = 32,                     /* columns of x and W in a tile */
    PARTS = 8,                            /* of a step: four multiply, four load; .. */
    PART_COLS = TILE_X_COLS / 4,          /* .. and each decodes so much of one panel */
    STEP = 2 * TILE,                      /* rows of x, and of W, at once */
    AHEAD_COLS = 3 * TILE_X_COLS,         /* from what is multiplied to what is decoded */
    RING_COLS = AHEAD_COLS + TILE_X_COLS, /* decoded, that are kept for a single step */
    STREAM_AHEAD = 2048, /* bytes of a panel that are asked for ahead: memory answers late */
    C_BYTES = FP8_TILE_COLS * 4,
    DECODED_BYTES = 2 * FP8_PANEL_BYTES, /* of two columns of two panels: 32 rows of W x 2 bf16 */
};

/* Tiles: 0 1 2 3 = sums (row of tiles, column of tiles), 4 5 = x, 6 7 = W. */
enum { PALETTE_1 = 1, TILES = 8 };
typedef struct tile_config {
    _Alignas(64) uint8_t palette;
    uint8_t start_row, reserved[14];
    uint16_t row_bytes[TILE];
    uint8_t rows[TILE];
} tile_config;

/* gcc 12's tile intrinsics do not say what memory they read: without this, stores to it may be
 * moved behind them, or dropped. */
PANEL_FN void settle_memory(const void *written)
{
    __asm__ volatile("" ::"r"(written) : "memory");
}

/* Tiles for `upper` and `lower` rows of x. Sets all tiles to zero. */
static void configure(int64_t upper, int64_t lower)
{
    tile_config t = {.palette = PALETTE_1};
    for (int i = 0; i < TILES; i++)
        t.row_bytes[i] = 64;
    t.rows[0] = t.rows[1] = t.rows[4] = (uint8_t)upper;
    t.rows[2] = t.rows[3] = t.rows[5] = (uint8_t)lower;
    t.rows[6] = t.rows[7] = TILE;
    settle_memory(&t);
    _tile_loadconfig(&t);
}

/* What a step works on: both = there is a second row (column) of tiles. */
typedef struct step {
    const fp8_panel_run *run;
    const uint16_t *x;
    uint8_t *w; /* decoded, [columns / 2][two panels][16][2] */
    float *c;
    int64_t row, panel;
    bool both_rows, both_panels;
    bool first; /* of the panels' steps: decodes them */
} step;

PANEL_FN void zero_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* The sums from (to) a matrix with a row stride in bytes. */
PANEL_FN void load_sums(const step *s, const float *c, int64_t stride)
{
    const float *lower = c + TILE * stride / 4;
    settle_memory(c);
    _tile_loadd(0, c, stride);
    if (s->both_panels)
        _tile_loadd(1, c + TILE, stride);
    if (s->both_rows)
        _tile_loadd(2, lower, stride);
    if (s->both_rows && s->both_panels)
        _tile_loadd(3, lower + TILE, stride);
}

PANEL_FN void store_sums(const step *s, float *c, int64_t stride)
{
    float *lower = c + TILE * stride / 4;
    _tile_stored(0, c, stride);
    if (s->both_panels)
        _tile_stored(1, c + TILE, stride);
    if (s->both_rows)
        _tile_stored(2, lower, stride);
    if (s->both_rows && s->both_panels)
        _tile_stored(3, lower + TILE, stride);
}

/* Where a column and the next are decoded to. */
PANEL_FN uint8_t *decoded_at(const step *s, int64_t col)
{
    return s->w + (s->run->m > STEP ? col : col % RING_COLS) / 2 * DECODED_BYTES;
}

/* What is taken off the exponents of panel p in columns [col, col + 32), which are of one segment;
 * *segment is one before them, or theirs. */
PANEL_FN __m512i fold_at(const fp8_panel_run *run, int64_t p, int64_t col, int64_t *segment)
{
    while (run->cut[*segment + 1] <= col)
        ++*segment;
    return load_fold(run->w_fold + *segment * FP8_TILE_COLS + p * FP8_PANEL_ROWS);
}

/* An eighth of the step's panels in columns [col, col + 32): a quarter of the columns of one of
 * them, zeros behind the last column. folded: a literal. */
PANEL_FN void decode_part(const step *s, const decoder *d, int64_t col, int64_t *segment, int part,
                          bool folded)
{
    const int64_t p = part / 4, quarter = part % 4, begin = col + quarter * PART_COLS;
    if (p > s->both_panels)
        return;
    const __m512i fold =
        folded ? fold_at(s->run, s->panel + p, col, segment) : _mm512_setzero_si512();
    uint8_t *out = decoded_at(s, begin) + p * FP8_PANEL_BYTES;
    for (int64_t at = begin; at < begin + PART_COLS; at += FP8_PANEL_COLS) {
        __m512i pair[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        if (at < s->run->k) {
            const uint8_t *w = block_at(s->run, s->panel + p, at);
            fetch(w, STREAM_AHEAD);
            decode_block(pair, d, w);
            if (folded)
                fold_block(pair, fold);
        }
        _mm512_store_si512(out, pair[0]);
        _mm512_store_si512(out + DECODED_BYTES, pair[1]);
        out += (ptrdiff_t)2 * DECODED_BYTES;
    }
}

/* Tile 4 .. 7 of columns [col, col + 32), if the step has it. */
PANEL_FN void load_tile(const step *s, int64_t col, int tile)
{
    const int64_t x_bytes = s->run->x_stride * 2;
    const uint16_t *x = s->x + col;
    const uint8_t *w = decoded_at(s, col);
    settle_memory(w);
    if (tile == 4)
        _tile_loadd(4, x, x_bytes);
    if (tile == 5 && s->both_rows)
        _tile_loadd(5, x + TILE * s->run->x_stride, x_bytes);
    if (tile == 6)
        _tile_loadd(6, w, DECODED_BYTES);
    if (tile == 7 && s->both_panels)
        _tile_loadd(7, w + FP8_PANEL_BYTES, DECODED_BYTES);
}

/* An eighth of sums += x w^T for columns [col, col + 32), which are loaded, and of loading the next
 * instead: each tile once nobody needs it. */
PANEL_FN void multiply_part(const step *s, int64_t col, int part)
{
    static const int loaded[PARTS] = {0, 0, 4, 0, 6, 0, 5, 7};
    if (part == 0)
        _tile_dpbf16ps(0, 4, 6);
    if (part == 1 && s->both_panels)
        _tile_dpbf16ps(1, 4, 7);
    if (part == 3 && s->both_rows)
        _tile_dpbf16ps(2, 5, 6);
    if (part == 5 && s->both_rows && s->both_panels)
        _tile_dpbf16ps(3, 5, 7);
    if (loaded[part] && col + TILE_X_COLS < s->run->k)
        load_tile(s, col + TILE_X_COLS, loaded[part]);
}

/* Before the first columns: they are loaded, and decoded as far ahead as `decodes` (a literal) will
 * go on from. */
PANEL_FN void begin_columns(const step *s, const decoder *d, int64_t *segment, bool decodes,
                            bool folded)
{
    for (int64_t col = 0; decodes && col < fp8_min_i64(AHEAD_COLS, s->run->k); col += TILE_X_COLS)
        for (int part = 0; part < PARTS; part++)
            decode_part(s, d, col, segment, part, folded);
    for (int tile = 4; tile < TILES; tile++)
        load_tile(s, 0, tile);
}

/* sums += x[rows, columns] w[panels, columns]^T for columns [begin, end), whose first are loaded
 * unless they are the first of all; afterwards those behind the last are. The tile unit leaves the
 * vector units free, but the processor looks only so far ahead: so the first step decodes W in
 * parts between the instructions for tiles, some columns ahead of those that read it. */
PANEL_FN void walk_columns(const step *s, int64_t begin, int64_t end, bool decodes, bool folded)
{
    const decoder d = decoder_of(s->run->code);
    int64_t segment = 0; /* of w_fold */
    if (begin == 0)
        begin_columns(s, &d, &segment, decodes, folded);
    for (int64_t col = begin; col < end; col += TILE_X_COLS) {
        const bool ahead = decodes && col + AHEAD_COLS < s->run->k;
        PANEL_UNROLL
        for (int part = 0; part < PARTS; part++) {
            multiply_part(s, col, part);
            if (ahead)
                decode_part(s, &d, col + AHEAD_COLS, &segment, part, folded);
        }
    }
}

static void add_columns(const step *s, int64_t begin, int64_t end)
{
    if (!s->first)
        walk_columns(s, begin, end, false, false);
    else if (!s->run->w_fold)
        walk_columns(s, begin, end, true, false);
    else
        walk_columns(s, begin, end, true, true);
}

/* c[rows, 16 * panels] += a segment's sums, scaled. */
PANEL_FN void add_segment(const step *s, int64_t segment, __m512 (*sum)[2], int64_t rows,
                          int64_t panels)
{
    __m512 scale[2];
    load_scales(scale, s->run, segment, s->panel, panels);
    for (int64_t i = 0; i < rows; i++)
        promote(s->run, segment, s->row + i, s->panel, sum[i], scale, panels);
}

/* The same for all segments, each while the tile unit is busy with the next. panels (1 or 2) is
 * a literal. */
PANEL_FN void add_segments(const step *s, int64_t rows, int64_t panels)
{
    __m512 sum[2][STEP][2]; /* of even and odd segments */
    const int64_t cuts = s->run->cuts, *cut = s->run->cut;
    for (int64_t segment = 0; segment < cuts; segment++) {
        zero_sums();
        add_columns(s, cut[segment], cut[segment + 1]);
        if (segment > 0)
            add_segment(s, segment - 1, sum[(segment - 1) % 2], rows, panels);
        store_sums(s, (float *)sum[segment % 2], sizeof sum[0][0]);
    }
    add_segment(s, cuts - 1, sum[(cuts - 1) % 2], rows, panels);
}

/* c[rows, 16 or 32] over all columns; rows <= 32. */
static void do_step(const fp8_panel_run *run, int64_t row, int64_t rows, int64_t panel)
{
    const step s = {.run = run,
                    .x = (const uint16_t *)run->x + row * run->x_stride,
                    .w = run->scratch,
                    .c = run->c + row * FP8_TILE_COLS + panel * FP8_PANEL_ROWS,
                    .row = row,
                    .panel = panel,
                    .both_rows = rows > TILE,
                    .both_panels = panel + 1 < run->panels,
                    .first = row == 0};
    if (is_segmented(run) && s.both_panels) {
        add_segments(&s, rows, 2);
    } else if (is_segmented(run)) {
        add_segments(&s, rows, 1);
    } else {
        if (run->accumulate)
            load_sums(&s, s.c, C_BYTES);
        else
            zero_sums();
        add_columns(&s, 0, run->k);
        store_sums(&s, s.c, C_BYTES);
    }
}

/* Two panels after two, whose decoded columns stay in the first cache for all rows of x. */
void fp8_panel_bf16_amx(const fp8_panel_run *run)
{
    int64_t configured = 0;
    for (int64_t panel = 0; panel < run->panels; panel += 2)
        for (int64_t row = 0; row < run->m; row += STEP) {
            const int64_t rows = fp8_min_i64(run->m - row, STEP);
            if (rows != configured)
                configure(fp8_min_i64(rows, TILE), rows > TILE ? rows - TILE : rows);
            configured = rows;
            do_step(run, row, rows, panel);
        }
    if (configured)
        _tile_release();
}
