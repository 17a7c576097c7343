/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_f32_kernels.h - c[m, 64] = x[m,k] w[64,k]^T in fp32 (panel.h) for many rows of x: the codes
 * are decoded to the scratch, once. An element is a chain of fused multiply-adds, columns
 * ascending, begun anew every CHUNK columns, and the chunks' sums are added in order; so both
 * levels, and any m, give the same bits.
 *
 * A weight's code becomes bf16, which holds it exactly, with E and m the bits of its magnitude:
 *
 *     upper byte = (sign << 7) + (magnitude >> s) + HIGH[min(magnitude, 15)]     s = mantissa bits
 * + 1 lower byte = (magnitude << (8 - s)) + LOW[min(magnitude, 15)]
 *
 * where the tables hold the bias, and for subnormals what the shifts do not give. Subnormal numbers
 * appear nowhere on the way, so denormals-are-zero changes no weight.
 *
 * A panel_f32_<level>.c includes the vec header of its level, defines LEVEL(name), what is used
 * below of bytes, and the shapes of the tiles, and includes this. */
#include "backend/cpu/panel_kernels.h"

enum {
    CHUNK = 256, /* columns */
    CODE_COUNT = 3,
    PANEL_VECS = FP8_PANEL_ROWS / VEC_LANES,
};

/* ---- decoding: VEC_LANES rows x 4 columns ---- */

static const uint8_t high_e4m3[16] = {0,    0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C,
                                      0x3C, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C, 0x3C};
static const uint8_t low_e4m3[16] = {0, 0xF0, 0x60, 0x90, 0xC0, 0xD0, 0xE0, 0xF0};
static const uint8_t high_e5m2[16] = {0,    0x37, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38,
                                      0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38};
static const uint8_t low_e5m2[16] = {0, 0x60, 0xC0, 0xE0};

/* pairs[h] = columns 2h and 2h + 1 of a block as bf16, in the lower and upper halves of 32 bits; of
 * e4m3fnuz twice their values. */
VEC_FN void decode_pairs(vec_bytes pairs[2], const uint8_t *block, fp8_dtype code)
{
    const bool is_e5m2 = code == FP8_E5M2;
    const vec_bytes codes = bytes_load(block);
    const vec_bytes magnitude = bytes_and(codes, bytes_set1(0x7F));
    const vec_bytes index = bytes_min(magnitude, bytes_set1(15));
    const vec_bytes up = is_e5m2 ? WORDS_LEFT(codes, 5) : WORDS_LEFT(codes, 4);
    const vec_bytes down = is_e5m2 ? WORDS_RIGHT(codes, 3) : WORDS_RIGHT(codes, 4);
    const vec_bytes low =
        bytes_add(bytes_and(up, bytes_set1(is_e5m2 ? 0xE0 : 0xF0)),
                  bytes_look_up(bytes_table(is_e5m2 ? low_e5m2 : low_e4m3), index));
    vec_bytes high = bytes_add(bytes_and(down, bytes_set1(is_e5m2 ? 0x0F : 0x07)),
                               bytes_look_up(bytes_table(is_e5m2 ? high_e5m2 : high_e4m3), index));
    if (is_e5m2) /* infinity */
        high =
            bytes_or(high, bytes_and(bytes_above(magnitude, bytes_set1(0x7B)), bytes_set1(0x7F)));
    high = bytes_or(high, bytes_and(codes, bytes_set1(0x80)));
    pairs[0] = bytes_zip_first(low, high);
    pairs[1] = bytes_zip_second(low, high);
}

VEC_FN vec_f32 round_weight(vec_f32 w, fp8_dtype rounded)
{
    return rounded == FP8_BF16 ? vec_round_bf16(w) : rounded == FP8_F16 ? vec_round_f16(w) : w;
}

/* What becomes of a decoded weight; so that the common cases pay for nothing else. */
typedef enum scaling { SCALING_NONE, SCALING_EXACT, SCALING_ROUNDED, SCALING_COUNT } scaling;

static scaling scaling_of(const fp8_panel_run *run)
{
    return !run->w_scale ? SCALING_NONE : run->rounded ? SCALING_ROUNDED : SCALING_EXACT;
}

/* Column c of a block in fp32, times scale and rounded as the run says. */
VEC_FN vec_f32 decoded_column(const vec_bytes pairs[2], int c, fp8_dtype code, scaling how,
                              vec_f32 scale, fp8_dtype rounded)
{
    vec_f32 w = c % 2 ? vec_of_upper(pairs[c / 2]) : vec_of_lower(pairs[c / 2]);
    if (code == FP8_E4M3FNUZ)
        w = vec_mul(w, vec_set1(0.5f));
    if (how == SCALING_NONE)
        return w;
    w = vec_mul(w, scale);
    return how == SCALING_EXACT ? w : round_weight(w, rounded);
}

/* ---- the run ---- */

/* The end of the columns from `col` that have one scale, at most `end`; *s becomes their segment.
 */
static int64_t segment_end(const fp8_panel_run *run, int64_t col, int64_t end, int64_t *s)
{
    if (!run->w_scale)
        return end;
    while (run->cut[*s + 1] <= col)
        ++*s;
    return fp8_min_i64(end, run->cut[*s + 1]);
}

/* The scales of vector v of the rows of W in segment s. */
VEC_FN vec_f32 load_scale(const fp8_panel_run *run, int64_t s, int64_t v)
{
    return run->w_scale ? vec_load_f32(run->w_scale + s * FP8_TILE_COLS + v * VEC_LANES)
                        : vec_set1(1);
}

/* The codes of vector v of the rows of W. */
static const uint8_t *codes_of(const fp8_panel_run *run, int64_t v)
{
    return run->w + v / PANEL_VECS * run->w_stride +
           v % PANEL_VECS * (FP8_PANEL_BYTES / PANEL_VECS);
}

VEC_FN void store_sum(float *c, vec_f32 sum, bool accumulate)
{
    vec_store_f32(c, accumulate ? vec_add(vec_load_f32(c), sum) : sum);
}

/* The first index of the tables. */
static int code_index(fp8_dtype code)
{
    return code == FP8_E4M3FN ? 0 : code == FP8_E4M3FNUZ ? 1 : 2;
}

/* scratch = the decoded weights in strips of up to TILE_VECS vectors, k columns each. */
VEC_FN void decode_vector(const fp8_panel_run *run, int64_t v, float *out, int64_t width,
                          fp8_dtype code, scaling how)
{
    const uint8_t *codes = codes_of(run, v);
    int64_t s = 0;
    for (int64_t col = 0, next; col < run->k; col = next) {
        next = segment_end(run, col, run->k, &s);
        const vec_f32 scale = load_scale(run, s, v);
        for (int64_t k = col; k < next; k += FP8_PANEL_COLS) {
            const uint8_t *block = codes + k * FP8_PANEL_ROWS;
            vec_bytes pairs[2];
            _mm_prefetch((const char *)block + (int64_t)CHUNK * FP8_PANEL_ROWS, _MM_HINT_T1);
            decode_pairs(pairs, block, code);
            PANEL_UNROLL
            for (int c = 0; c < FP8_PANEL_COLS; c++)
                vec_store_f32(out + (k + c) * width,
                              decoded_column(pairs, c, code, how, scale, run->rounded));
        }
    }
}

typedef void decode_fn(const fp8_panel_run *run, int64_t v, float *out, int64_t width);
#define DEFINE_DECODE_HOW(NAME, CODE, HOW)                                             \
    static void decode_##NAME##_##HOW(const fp8_panel_run *run, int64_t v, float *out, \
                                      int64_t width)                                   \
    {                                                                                  \
        decode_vector(run, v, out, width, CODE, SCALING_##HOW);                        \
    }
#define DEFINE_DECODE(NAME, CODE)        \
    DEFINE_DECODE_HOW(NAME, CODE, NONE)  \
    DEFINE_DECODE_HOW(NAME, CODE, EXACT) \
    DEFINE_DECODE_HOW(NAME, CODE, ROUNDED)
DEFINE_DECODE(e4m3fn, FP8_E4M3FN)
DEFINE_DECODE(e4m3fnuz, FP8_E4M3FNUZ)
DEFINE_DECODE(e5m2, FP8_E5M2)

#define DECODE_NAMES(NAME)                                                   \
    {                                                                        \
        decode_##NAME##_NONE, decode_##NAME##_EXACT, decode_##NAME##_ROUNDED \
    }
static decode_fn *const decode_fns[CODE_COUNT][SCALING_COUNT] = {
    DECODE_NAMES(e4m3fn), DECODE_NAMES(e4m3fnuz), DECODE_NAMES(e5m2)};

/* c[rows, vecs * VEC_LANES] (+)= x[rows,k] strip[k, vecs * VEC_LANES]. */
typedef struct tile {
    const float *x, *strip;
    float *c;
    int64_t x_stride, k;
    bool accumulate;
} tile;

VEC_FN void tile_column(vec_f32 acc[TILE_ROWS][TILE_VECS], const float *x, int64_t x_stride,
                        const float *strip, int rows, int vecs)
{
    vec_f32 w[TILE_VECS];
    PANEL_UNROLL
    for (int u = 0; u < vecs; u++)
        w[u] = vec_load_f32(strip + (int64_t)u * VEC_LANES);
    PANEL_UNROLL
    for (int i = 0; i < rows; i++) {
        const vec_f32 one = vec_set1(x[i * x_stride]);
        PANEL_UNROLL
        for (int u = 0; u < vecs; u++)
            acc[i][u] = vec_fma(one, w[u], acc[i][u]);
    }
}

VEC_FN void tile_multiply(const tile *t, int rows, int vecs)
{
    vec_f32 acc[TILE_ROWS][TILE_VECS];
    const float *strip = t->strip;
    PANEL_UNROLL
    for (int i = 0; i < rows; i++)
        PANEL_UNROLL
    for (int u = 0; u < vecs; u++)
        acc[i][u] = vec_set1(0);
    for (int64_t k = 0; k < t->k; k += 4)
        PANEL_UNROLL
    for (int c = 0; c < 4; c++, strip += (int64_t)vecs * VEC_LANES)
        tile_column(acc, t->x + k + c, t->x_stride, strip, rows, vecs);
    PANEL_UNROLL
    for (int i = 0; i < rows; i++)
        PANEL_UNROLL
    for (int u = 0; u < vecs; u++)
        store_sum(t->c + (int64_t)i * FP8_TILE_COLS + (int64_t)u * VEC_LANES, acc[i][u],
                  t->accumulate);
}

typedef void tile_fn(const tile *t);
#define DEFINE_TILE(ROWS, VECS)                     \
    static void tile_##ROWS##x##VECS(const tile *t) \
    {                                               \
        tile_multiply(t, ROWS, VECS);               \
    }
EACH_TILE(DEFINE_TILE)

#define TILE_ENTRY(ROWS, VECS) [VECS][ROWS] = tile_##ROWS##x##VECS,
static tile_fn *const tile_fns[TILE_VECS + 1][TILE_ROWS + 1] = {EACH_TILE(TILE_ENTRY)};

/* All rows of X with one strip of `vecs` vectors from vector v on, in tiles of nearly equal rows:
 * a tile of few rows has too few chains of sums. */
static void strip_multiply(const fp8_panel_run *run, const float *strip, int64_t v, int64_t vecs)
{
    const int64_t tiles = fp8_ceil_div(run->m, TILE_ROWS);
    for (int64_t i = 0; i < tiles; i++) {
        const int64_t row = i * run->m / tiles, rows = (i + 1) * run->m / tiles - row;
        const tile t = {(const float *)run->x + row * run->x_stride,
                        strip,
                        run->c + row * FP8_TILE_COLS + v * VEC_LANES,
                        run->x_stride,
                        run->k,
                        run->accumulate};
        tile_fns[vecs][rows](&t);
    }
}

void LEVEL(fp8_panel_f32)(const fp8_panel_run *run)
{
    decode_fn *const decode = decode_fns[code_index(run->code)][scaling_of(run)];
    const int64_t all = run->panels * PANEL_VECS;
    for (int64_t v = 0; v < all; v += TILE_VECS) {
        const int64_t vecs = fp8_min_i64(TILE_VECS, all - v);
        for (int64_t u = 0; u < vecs; u++)
            decode(run, v + u, (float *)run->scratch + u * VEC_LANES, vecs * VEC_LANES);
        strip_multiply(run, run->scratch, v, vecs);
    }
}
