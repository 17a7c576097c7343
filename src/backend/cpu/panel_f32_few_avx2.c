/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_f32_few_avx2.c - c[m, 64] = x[m,k] w[64,k]^T in fp32 (panel.h) for few rows of x: up to
 * four of them and as many panels as the sixteen registers hold sums of, so that there are chains
 * enough to hide the latency of the multiplication. Each tile decodes the codes again. (AVX-512 has
 * no kernel of its own: on Zen 4 its conversion to fp32 takes three times that of half as many.)
 *
 * F16C turns 16 bits of memory into fp32 in one operation, so a block of codes first becomes 64
 * numbers of 16 bits, one block ahead of what is multiplied. The bits of an e4m3 code, moved into
 * fp16 (sign, and 7 bits that end where the upper 3 of the mantissa do), are 2^-8 times its value
 * there (e4m3fnuz: 2^-7); those of e5m2 are fp16's upper byte. Subnormal codes become subnormal
 * fp16, which F16C converts whatever MXCSR says. So
 *
 *     c[i,j] (+)= sum of parts:   (unit * w_scale[s,j]) * (sum of x[i,k] * number[j,k])
 *
 * where a part ends where w_scale changes, and at each multiple of CHUNK columns. A part is one
 * chain of fused multiply-adds, columns ascending; parts are added in order by one more. Without
 * scales these are the bits of panel_f32_kernels.h, but for sums below 2^-118.
 *
 * A weight that is rounded (FP8_WEIGHT_ROUNDED) is made of code and scale first and is a 16-bit
 * number by itself; there are no factors then. */
#include "backend/cpu/panel_kernels.h"
#include "number/number.h"

#include <immintrin.h>
#include <string.h>

#define FEW_FN static inline __attribute__((always_inline))

enum {
    CHUNK = 256,      /* columns of a part, at most */
    EIGHT = 8,        /* rows of W that are decoded together */
    PANEL_EIGHTS = 2, /* of those in a panel */
    FEW_ROWS = 4,
    MOST_EIGHTS = 8, /* in a tile */
    /* Bytes of a panel that are fetched before they are used, if it is alone, or one of several. */
    AHEAD_ALONE = 4096,
    AHEAD = 512,
};

/* Rows of x by panels: eight sums, or four or twelve. */
#define EACH_SHAPE(F) F(1, 4) F(1, 2) F(2, 2) F(3, 2) F(4, 1)
static int64_t panels_at_once(int64_t rows, int64_t panels)
{
    return rows == 4 ? 1 : rows == 1 && panels > 2 ? 4 : 2;
}

/* ---- 64 codes: 16 rows x 4 columns, as numbers of 16 bits ---- */

/* Rows 8u .. 8u + 7 of column c at [u][c % 2][c / 2]. */
typedef struct numbers {
    _Alignas(FP8_ALIGN) uint16_t at[PANEL_EIGHTS][2][2][EIGHT];
} numbers;

/* What the 16 bits are. */
typedef enum number_kind { NUMBER_CODE, NUMBER_F16, NUMBER_BF16, NUMBER_KINDS } number_kind;

static number_kind kind_of(const fp8_panel_run *run)
{
    return !run->w_scale || !run->rounded ? NUMBER_CODE
           : run->rounded == FP8_F16      ? NUMBER_F16
                                          : NUMBER_BF16;
}

/* What a number of NUMBER_CODE has to be multiplied by. */
static float unit_of(fp8_dtype code)
{
    return code == FP8_E4M3FN ? 0x1p8F : code == FP8_E4M3FNUZ ? 0x1p7F : 1;
}

FEW_FN __m256 load_number(const uint16_t *p, number_kind kind)
{
    const __m128i bits = _mm_load_si128((const __m128i *)(const void *)p);
    return kind == NUMBER_BF16
               ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))
               : _mm256_cvtph_ps(bits);
}

/* Memory is what it is for: a compiler that kept the bits in registers would need a shuffle, and
 * most processors another inside the conversion, for each 8 of them. */
FEW_FN void keep_in_memory(numbers *out)
{
    __asm__("" : "+m"(*out));
}

/* Bits of fp16 that e4m3 becomes: its sign, and its 7 others from 7 bits up. The sign's other copy
 * in an arithmetic shift, or product, goes. */
FEW_FN void decode_codes(numbers *out, const uint8_t *block, bool is_e5m2)
{
    const __m256i upper = _mm256_set1_epi16((short)0xFF00), kept = _mm256_set1_epi16((short)0xBF80);
    PANEL_UNROLL
    for (int u = 0; u < PANEL_EIGHTS; u++) {
        /* 8 rows of columns 0 and 1 in turn, then of 2 and 3. */
        const __m256i codes = _mm256_permute4x64_epi64(
            _mm256_load_si256((const __m256i *)(const void *)block + u), 0xD8);
        const __m256i even =
            is_e5m2 ? _mm256_slli_epi16(codes, 8)
                    : _mm256_and_si256(_mm256_maddubs_epi16(_mm256_set1_epi16(0x80), codes), kept);
        const __m256i odd = is_e5m2 ? _mm256_and_si256(codes, upper)
                                    : _mm256_and_si256(_mm256_srai_epi16(codes, 1), kept);
        _mm256_store_si256((__m256i *)(void *)out->at[u][0], even);
        _mm256_store_si256((__m256i *)(void *)out->at[u][1], odd);
    }
    keep_in_memory(out);
}

/* bf16 of w, nearest even, as 16 bits of each 32; NaN becomes any number. */
FEW_FN __m256i bf16_bits(__m256 w)
{
    const __m256i bits = _mm256_castps_si256(w);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(_mm256_set1_epi32(0x7FFF), odd);
    return _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
}

/* The numbers times unit and the 16 scales of their rows, rounded: the products are exact. */
FEW_FN void round_weights(numbers *out, float unit, const float *scale, number_kind kind)
{
    PANEL_UNROLL
    for (int u = 0; u < PANEL_EIGHTS; u++) {
        const __m256 scales = _mm256_load_ps(scale + (int64_t)u * EIGHT);
        PANEL_UNROLL
        for (int c = 0; c < FP8_PANEL_COLS; c++) {
            uint16_t *p = out->at[u][c % 2][c / 2];
            const __m256 code = _mm256_mul_ps(load_number(p, NUMBER_CODE), _mm256_set1_ps(unit));
            const __m256 w = _mm256_mul_ps(code, scales);
            const __m256i bits = bf16_bits(w);
            const __m128i bf16 =
                _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
            const __m128i f16 = _mm256_cvtps_ph(w, _MM_FROUND_TO_NEAREST_INT);
            _mm_store_si128((__m128i *)(void *)p, kind == NUMBER_F16 ? f16 : bf16);
        }
    }
    keep_in_memory(out);
}

/* ---- the parts of a run ---- */

/* How sums of a run become parts of c. */
typedef struct factors {
    const float *w_scale; /* of the run; NULL: there are none, or weights have them already */
    float unit;
    bool apart; /* unit * w_scale might overflow where c does not: one after the other */
} factors;

static factors factors_of(const fp8_panel_run *run)
{
    const bool rounded = kind_of(run) != NUMBER_CODE;
    factors f = {rounded ? NULL : run->w_scale, rounded ? 1 : unit_of(run->code), false};
    uint32_t most = 0;
    for (int64_t s = 0; f.w_scale && s < run->cuts; s++)
        for (int64_t j = 0; j < FP8_TILE_COLS; j++) {
            const uint32_t bits = fp8_bits_of_f32(f.w_scale[s * FP8_TILE_COLS + j]);
            most = bits > most ? bits : most;
        }
    f.apart = most >= fp8_bits_of_f32(0x1p119F);
    return f;
}

/* The end of the part that begins in segment s, before column `end`. */
static inline int64_t part_end(const fp8_panel_run *run, int64_t s, int64_t end)
{
    return run->w_scale ? fp8_min_i64(run->cut[s + 1], end) : end;
}

/* For segment s and 8 rows of the group from row n. */
FEW_FN __m256 load_factor(const factors *f, int64_t s, int64_t n)
{
    const __m256 unit = _mm256_set1_ps(f->apart ? 1 : f->unit);
    return f->w_scale ? _mm256_mul_ps(_mm256_load_ps(f->w_scale + s * FP8_TILE_COLS + n), unit)
                      : unit;
}

/* c[8] += a sum times its factor. */
FEW_FN void add_part(float *c, __m256 sum, const factors *f, __m256 factor)
{
    if (f->apart)
        sum = _mm256_mul_ps(sum, _mm256_set1_ps(f->unit));
    _mm256_store_ps(c, _mm256_fmadd_ps(sum, factor, _mm256_load_ps(c)));
}

/* c = 0 where a run is not added to it. */
static void begin_sums(const fp8_panel_run *run)
{
    const size_t bytes = (size_t)(run->panels * FP8_PANEL_ROWS) * sizeof *run->c;
    for (int64_t i = 0; i < run->m && !run->accumulate; i++)
        memset(run->c + i * FP8_TILE_COLS, 0, bytes);
}

/* ---- tiles ---- */

/* c[rows, panels] (+)= x[rows, begin..end) times those panels, from row `row` and panel `panel` of
 * a run on. */
typedef struct few_tile {
    const fp8_panel_run *run;
    factors f;
    int64_t row, panel, begin, end;
    int64_t s; /* segment of column begin */
} few_tile;

/* acc += x[rows, 4] times the numbers of the same columns, which are held for so many eights at
 * once as twelve sums, or eight, leave registers for: x is read again for the next, which compilers
 * have to be kept from avoiding. */
FEW_FN void multiply_block(__m256 acc[FEW_ROWS][MOST_EIGHTS], const float *x, int64_t x_stride,
                           const numbers *w, int rows, int panels, number_kind kind)
{
    const int eights = panels * PANEL_EIGHTS, most = rows == 3 ? 2 : 4;
    const int step = eights < most ? eights : most;
    PANEL_UNROLL
    for (int first = 0; first < eights; first += step) {
        __asm__("" : "+r"(x));
        PANEL_UNROLL
        for (int c = 0; c < FP8_PANEL_COLS; c++) {
            __m256 column[MOST_EIGHTS];
            PANEL_UNROLL
            for (int u = first; u < first + step; u++)
                column[u] =
                    load_number(w[u / PANEL_EIGHTS].at[u % PANEL_EIGHTS][c % 2][c / 2], kind);
            PANEL_UNROLL
            for (int i = 0; i < rows; i++) {
                const __m256 one = _mm256_broadcast_ss(x + i * x_stride + c);
                PANEL_UNROLL
                for (int u = first; u < first + step; u++)
                    acc[i][u] = _mm256_fmadd_ps(one, column[u], acc[i][u]);
            }
        }
    }
}

/* The codes of the panels of a tile, from its first column on; those beyond the run's panels are
 * the last one's. */
FEW_FN void few_codes(const uint8_t *codes[FP8_PANEL_GROUP], const few_tile *t, int panels)
{
    PANEL_UNROLL
    for (int p = 0; p < panels; p++)
        codes[p] = t->run->w + fp8_min_i64(t->panel + p, t->run->panels - 1) * t->run->w_stride +
                   t->begin * FP8_PANEL_ROWS;
}

/* The numbers of a block of each panel, and what follows is fetched. */
FEW_FN void few_decode(numbers *out, const uint8_t *const codes[FP8_PANEL_GROUP], int64_t at,
                       const few_tile *t, int panels, bool is_e5m2, number_kind kind)
{
    PANEL_UNROLL
    for (int p = 0; p < panels; p++) {
        _mm_prefetch((const char *)codes[p] + at + (panels == 1 ? AHEAD_ALONE : AHEAD),
                     _MM_HINT_T0);
        decode_codes(&out[p], codes[p] + at, is_e5m2);
        if (kind != NUMBER_CODE) {
            const int64_t panel = fp8_min_i64(t->panel + p, t->run->panels - 1);
            const float *scale = t->run->w_scale + t->s * FP8_TILE_COLS + panel * FP8_PANEL_ROWS;
            round_weights(&out[p], unit_of(t->run->code), scale, kind);
        }
    }
}

FEW_FN void few_add(__m256 acc[FEW_ROWS][MOST_EIGHTS], const few_tile *t, int64_t s, int rows,
                    int panels)
{
    const int64_t first = t->panel * FP8_PANEL_ROWS;
    const int64_t eights = (t->run->panels - t->panel) * PANEL_EIGHTS;
    float *c = t->run->c + t->row * FP8_TILE_COLS + first;
    PANEL_UNROLL
    for (int u = 0; u < panels * PANEL_EIGHTS; u++) {
        if (u >= eights)
            continue;
        const __m256 factor = load_factor(&t->f, s, first + (int64_t)u * EIGHT);
        PANEL_UNROLL
        for (int i = 0; i < rows; i++)
            add_part(c + (int64_t)i * FP8_TILE_COLS + (int64_t)u * EIGHT, acc[i][u], &t->f, factor);
    }
}

FEW_FN void few_multiply(const few_tile *t, int rows, int panels, bool is_e5m2, number_kind kind)
{
    const fp8_panel_run *run = t->run;
    const int64_t x_stride = run->x_stride;
    const int64_t last = (t->end - t->begin - FP8_PANEL_COLS) * FP8_PANEL_ROWS;
    const float *x = (const float *)run->x + t->row * x_stride + t->begin;
    const uint8_t *codes[FP8_PANEL_GROUP];
    numbers buffer[2][FP8_PANEL_GROUP], *now = buffer[0], *next = buffer[1];
    few_codes(codes, t, panels);
    few_decode(now, codes, 0, t, panels, is_e5m2, kind);
    for (int64_t col = t->begin, end, s = t->s, at = 0; col < t->end; col = end, s++) {
        __m256 acc[FEW_ROWS][MOST_EIGHTS];
        PANEL_UNROLL
        for (int u = 0; u < panels * PANEL_EIGHTS; u++) {
            PANEL_UNROLL
            for (int i = 0; i < rows; i++)
                acc[i][u] = _mm256_setzero_ps();
        }
        end = part_end(run, s, t->end);
        for (int64_t k = col; k < end; k += FP8_PANEL_COLS, x += FP8_PANEL_COLS) {
            numbers *const done = now;
            at = fp8_min_i64(at + FP8_PANEL_BYTES, last);
            few_decode(next, codes, at, t, panels, is_e5m2, kind);
            multiply_block(acc, x, x_stride, now, rows, panels, kind);
            now = next;
            next = done;
        }
        few_add(acc, t, s, rows, panels);
    }
}

typedef void few_fn(const few_tile *t);
#define SHAPE_NAME(ROWS, PANELS, NAME, KIND) few_##ROWS##x##PANELS##_##NAME##_##KIND
#define DEFINE_KIND(ROWS, PANELS, NAME, IS_E5M2, KIND)                  \
    static void SHAPE_NAME(ROWS, PANELS, NAME, KIND)(const few_tile *t) \
    {                                                                   \
        few_multiply(t, ROWS, PANELS, IS_E5M2, NUMBER_##KIND);          \
    }
#define DEFINE_CODES(ROWS, PANELS, NAME, IS_E5M2)  \
    DEFINE_KIND(ROWS, PANELS, NAME, IS_E5M2, CODE) \
    DEFINE_KIND(ROWS, PANELS, NAME, IS_E5M2, F16)  \
    DEFINE_KIND(ROWS, PANELS, NAME, IS_E5M2, BF16)
#define DEFINE_SHAPE(ROWS, PANELS)          \
    DEFINE_CODES(ROWS, PANELS, e4m3, false) \
    DEFINE_CODES(ROWS, PANELS, e5m2, true)
EACH_SHAPE(DEFINE_SHAPE)

#define CODE_ENTRIES(ROWS, PANELS, NAME)                                           \
    {                                                                              \
        SHAPE_NAME(ROWS, PANELS, NAME, CODE), SHAPE_NAME(ROWS, PANELS, NAME, F16), \
            SHAPE_NAME(ROWS, PANELS, NAME, BF16)                                   \
    }
#define SHAPE_ENTRY(ROWS, PANELS) \
    [ROWS][PANELS] = {CODE_ENTRIES(ROWS, PANELS, e4m3), CODE_ENTRIES(ROWS, PANELS, e5m2)},
static few_fn *const few_fns[FEW_ROWS + 1][FP8_PANEL_GROUP + 1][2][NUMBER_KINDS] = {
    EACH_SHAPE(SHAPE_ENTRY)};

/* The end of the columns from `begin` that all tiles go through before the next: what is read of x
 * stays in the cache. Scales that are rounded with the weights are one for all of them. */
static int64_t piece_end(const fp8_panel_run *run, int64_t begin, int64_t s)
{
    const int64_t end = fp8_min_i64(run->k, (begin / CHUNK + 1) * CHUNK);
    return kind_of(run) == NUMBER_CODE ? end : part_end(run, s, end);
}

void fp8_panel_f32_few_avx2(const fp8_panel_run *run)
{
    few_tile t = {.run = run, .f = factors_of(run)};
    const int64_t tiles = fp8_ceil_div(run->m, FEW_ROWS);
    const int is_e5m2 = run->code == FP8_E5M2;
    const number_kind kind = kind_of(run);
    begin_sums(run);
    for (; t.begin < run->k; t.begin = t.end) {
        while (run->w_scale && run->cut[t.s + 1] <= t.begin)
            t.s++;
        t.end = piece_end(run, t.begin, t.s);
        for (int64_t i = 0; i < tiles; i++) {
            t.row = i * run->m / tiles;
            const int64_t rows = (i + 1) * run->m / tiles - t.row;
            const int64_t panels = panels_at_once(rows, run->panels);
            for (t.panel = 0; t.panel < run->panels; t.panel += panels)
                few_fns[rows][panels][is_e5m2][kind](&t);
        }
    }
}
