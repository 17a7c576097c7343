/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quantize.c - fp8_quantize by its contract: what `best` does with blocks that other rules
 * lose, NaN policies, strides, padding, bounds, and every refusal with its words. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/quantize.h"
#include "op/rules.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static fp8_context *ctx;

static int setup(void **state)
{
    (void)state;
    return fp8_context_create(NULL, &ctx, NULL) == FP8_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    return 0;
}

static fp8_quantize_desc desc_of(fp8_rule rule, int64_t rows, int64_t cols)
{
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.rule = rule;
    desc.grid = (fp8_grid){rows, cols};
    return desc;
}

/* A row of n fp32 numbers as one unit. */
static fp8_status quantize_row(fp8_quantize_desc desc, const float *x, int64_t n, uint8_t *codes,
                               float *scale, fp8_error *err)
{
    fp8_tensor tx = fp8_matrix((void *)(uintptr_t)x, FP8_F32, 1, n);
    fp8_tensor tc = fp8_matrix(codes, FP8_E4M3FN, 1, n);
    fp8_tensor ts = fp8_matrix(scale, FP8_F32, 1, 1);
    return fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, err);
}

static void best_divides_and_rounds_once(void **state)
{
    (void)state;
    const float x[4] = {448, -1.0625f, 0.0009765625f, -0.0f};
    uint8_t codes[4];
    float scale;
    assert_int_equal(quantize_row(desc_of(FP8_RULE_BEST, 1, 0), x, 4, codes, &scale, NULL), FP8_OK);
    assert_float_equal(scale, 1, 0);
    assert_int_equal(codes[0], 0x7E);
    assert_int_equal(codes[1], 0xB8); /* a tie between 1 and 1.125 goes to the even 1 */
    assert_int_equal(codes[2], 0x00); /* half of the least subnormal goes to zero */
    assert_int_equal(codes[3], 0x80);
}

/* A unit of `amax` in any scale dtype: a valid scale, nothing lost, nothing saturated. */
static void check_tiny_unit(float amax, fp8_dtype scale_dtype)
{
    float x[3] = {amax, -amax, 0};
    uint8_t codes[3];
    uint32_t stored = 0;
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 0);
    fp8_tensor tx = fp8_matrix(x, FP8_F32, 1, 3), tc = fp8_matrix(codes, FP8_E4M3FN, 1, 3);
    fp8_tensor ts = fp8_matrix(&stored, scale_dtype, 1, 1);
    assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, NULL), FP8_OK);
    const float scale = fp8_dtype_facts_of(scale_dtype)->load(&stored, 0);
    assert_true(scale > 0 && isfinite(scale));
    assert_int_equal(codes[2], 0);
    assert_int_equal(codes[1], codes[0] | 0x80);
    assert_true((codes[0] & 0x7F) < 0x7F);
    const float real = fp8_e4m3fn_to_f32(codes[0]) * scale;
    const bool reachable = amax >= 448 * 0x1p-127f || scale_dtype == FP8_F32;
    if (amax > 0 && reachable && scale_dtype != FP8_F16)
        assert_true(fabsf(real - amax) <= amax / 14); /* 2^-4, and the scale's own rounding */
}

static void best_loses_no_unit(void **state)
{
    (void)state;
    static const fp8_dtype dtypes[] = {FP8_F32, FP8_BF16, FP8_F16, FP8_E8M0FNU};
    for (size_t d = 0; d < 4; d++) {
        check_tiny_unit(0, dtypes[d]);
        for (int e = -149; e < 20; e++)
            for (float m = 1; m < 2; m += 0.125f)
                check_tiny_unit(ldexpf(m, e), dtypes[d]);
    }
}

/* A block larger than the matrix is the whole matrix, however large; the last grid makes products
 * with its columns wrap to small numbers. */
static void check_huge_grids(const void *x, fp8_dtype dtype, int64_t rows, int64_t cols)
{
    static const fp8_grid grids[] = {
        {0, 0}, {INT64_MAX, INT64_MAX}, {128, INT64_MAX}, {128, INT64_MAX / 64 + 1}};
    float scale = 0;
    uint8_t codes[4][2048];
    for (int g = 0; g < 4; g++) {
        fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, grids[g].rows, grids[g].cols);
        fp8_tensor tx = fp8_matrix((void *)(uintptr_t)x, dtype, rows, cols);
        fp8_tensor ts = fp8_matrix(&scale, FP8_F32, 1, 1);
        fp8_tensor tc = fp8_matrix(codes[g], FP8_E4M3FN, rows, cols);
        memset(codes[g], 0xAA, sizeof codes[g]);
        assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, NULL), FP8_OK);
        assert_float_equal(scale, 66.0f / 448, 0);
        assert_memory_equal(codes[g], codes[0], sizeof codes[g]);
    }
}

static void huge_grids_are_the_whole_matrix(void **state)
{
    (void)state;
    enum { R = 3, C = 600 };
    float x[R * C];
    uint16_t bf16[R * C];
    for (int i = 0; i < R * C; i++)
        x[i] = (float)(i % 97) - 30;
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, bf16, FP8_BF16, R * C, 0, NULL, NULL), FP8_OK);
    check_huge_grids(x, FP8_F32, R, C);
    check_huge_grids(bf16, FP8_BF16, R, C);
    check_huge_grids(bf16, FP8_BF16, 1, R * C);
}

static void zero_units_have_scale_one(void **state)
{
    (void)state;
    const float x[3] = {0, -0.0f, 0};
    uint8_t codes[3];
    float scale = 0;
    assert_int_equal(quantize_row(desc_of(FP8_RULE_BEST, 1, 0), x, 3, codes, &scale, NULL), FP8_OK);
    assert_float_equal(scale, 1, 0);
    assert_int_equal(codes[0] | codes[2], 0);
    assert_int_equal(codes[1], 0x80);
}

static void mx_exponents_are_exact(void **state)
{
    (void)state;
    for (int e = -100; e <= 100; e++) {
        const float top[3] = {ldexpf(448, e), nextafterf(ldexpf(448, e), INFINITY),
                              nextafterf(ldexpf(448, e), 0)};
        for (int k = 0; k < 3; k++) {
            float x[32] = {top[k]};
            uint8_t codes[32], scale;
            fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 32);
            fp8_tensor tx = fp8_matrix(x, FP8_F32, 1, 32);
            fp8_tensor tc = fp8_matrix(codes, FP8_E4M3FN, 1, 32);
            fp8_tensor ts = fp8_matrix(&scale, FP8_E8M0FNU, 1, 1);
            assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, NULL), FP8_OK);
            assert_int_equal(scale, e + 127 + (k == 1));
        }
    }
}

/* ceil_log2_in_f32 against a correctly rounded logarithm, near every power of two. */
static void logarithm_rounds_as_fp32(void **state)
{
    (void)state;
    for (int k = -112; k < 104; k++)
        for (uint32_t m = 0; m < 40; m++) {
            const float s = fp8_f32_of_bits((uint32_t)(k + 127) << 23 | m);
            float x[32] = {s * 448};
            uint8_t codes[32], scale;
            fp8_quantize_desc desc = desc_of(FP8_RULE_MODELOPT, 1, 32);
            fp8_tensor tx = fp8_matrix(x, FP8_F32, 1, 32);
            fp8_tensor tc = fp8_matrix(codes, FP8_E4M3FN, 1, 32);
            fp8_tensor ts = fp8_matrix(&scale, FP8_E8M0FNU, 1, 1);
            assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, NULL), FP8_OK);
            const float rounded = (float)log2((double)(x[0] / 448));
            assert_int_equal(scale, (int)ceilf(rounded) + 127);
        }
}

static void nan_is_refused_with_its_position(void **state)
{
    (void)state;
    enum { ROWS = 300, COLS = 1000 };
    float *x = calloc(ROWS * COLS, sizeof *x);
    uint8_t *codes = malloc(ROWS * COLS);
    float scales[ROWS * 8];
    static const fp8_grid grids[] = {{0, 0}, {1, 0}, {128, 128}, {0, 128}};
    x[299 * COLS + 999] = NAN;
    x[200 * COLS + 7] = -INFINITY;
    x[200 * COLS + 8] = NAN;
    for (size_t g = 0; g < 4; g++) {
        fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, grids[g].rows, grids[g].cols);
        fp8_tensor tx = fp8_matrix(x, FP8_F32, ROWS, COLS);
        fp8_tensor tc = fp8_matrix(codes, FP8_E4M3FN, ROWS, COLS);
        const int64_t gr = grids[g].rows ? (ROWS + grids[g].rows - 1) / grids[g].rows : 1;
        const int64_t gc = grids[g].cols ? (COLS + grids[g].cols - 1) / grids[g].cols : 1;
        fp8_tensor ts = fp8_matrix(scales, FP8_F32, gr, gc);
        fp8_error err;
        assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, &err), FP8_E_NAN);
        assert_int_equal(err.pos, 200 * COLS + 7);
        assert_string_equal(err.msg, "element [200,7] is -infinity");
    }
    free(x);
    free(codes);
}

static void static_scales_refuse_nan_too(void **state)
{
    (void)state;
    const float x[2] = {1, NAN};
    uint8_t codes[2];
    float scale = 1;
    fp8_error err;
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 0, 0);
    desc.static_scales = 1;
    assert_int_equal(quantize_row(desc, x, 2, codes, &scale, &err), FP8_E_NAN);
    assert_int_equal(err.pos, 1);
    static const float bad[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        scale = bad[i];
        assert_int_equal(quantize_row(desc, x, 1, codes, &scale, &err), FP8_E_SCALE);
    }
    scale = 0.5f;
    assert_int_equal(quantize_row(desc, x, 1, codes, &scale, &err), FP8_OK);
    assert_int_equal(codes[0], 0x40);
}

static void nan_propagates_alone(void **state)
{
    (void)state;
    const float x[5] = {NAN, INFINITY, -INFINITY, 2, -1};
    uint8_t codes[5];
    float scale;
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 0);
    desc.nan = FP8_NAN_PROPAGATE;
    assert_int_equal(quantize_row(desc, x, 5, codes, &scale, NULL), FP8_OK);
    assert_float_equal(scale, 2.0f / 448, 0);
    assert_int_equal(codes[0] & 0x7F, 0x7F);
    assert_int_equal(codes[1], 0x7E);
    assert_int_equal(codes[2], 0xFE);
    assert_int_equal(codes[3], 0x7E);
    assert_int_equal(codes[4], 0xF6);
    desc.nan = FP8_NAN_ORIGINAL;
    assert_int_equal(quantize_row(desc, x, 5, codes, &scale, NULL), FP8_E_UNSUPPORTED);
}

static void nan_as_the_original(void **state)
{
    (void)state;
    const float x[3] = {NAN, 2, -1};
    uint8_t codes[3];
    float scale;
    fp8_quantize_desc desc = desc_of(FP8_RULE_VLLM, 1, 0);
    desc.nan = FP8_NAN_ORIGINAL; /* dropped from the amax, stored as the maximum */
    assert_int_equal(quantize_row(desc, x, 3, codes, &scale, NULL), FP8_OK);
    assert_float_equal(scale, 2.0f / 448, 0);
    assert_memory_equal(codes, ((const uint8_t[]){0x7E, 0x7E, 0xF6}), 3);
    desc.rule = FP8_RULE_VLLM_NATIVE; /* the whole row becomes NaN */
    assert_int_equal(quantize_row(desc, x, 3, codes, &scale, NULL), FP8_OK);
    assert_true(isnan(scale));
    for (int i = 0; i < 3; i++)
        assert_int_equal(codes[i] & 0x7F, 0x7F);
    desc.rule = FP8_RULE_MODELOPT;
    assert_int_equal(quantize_row(desc, x, 3, codes, &scale, NULL), FP8_E_NAN);
}

static void scale_ub_bounds_the_amax(void **state)
{
    (void)state;
    const float x[2] = {10, 1};
    uint8_t codes[2];
    float scale;
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 0);
    desc.scale_ub = 2;
    assert_int_equal(quantize_row(desc, x, 2, codes, &scale, NULL), FP8_OK);
    assert_float_equal(scale, 2.0f / 448, 0);
    assert_memory_equal(codes, ((const uint8_t[]){0x7E, 0x76}), 2);
    desc.rule = FP8_RULE_SLIME;
    assert_int_equal(quantize_row(desc, x, 2, codes, &scale, NULL), FP8_E_UNSUPPORTED);
    desc.rule = FP8_RULE_BEST;
    desc.scale_ub = NAN;
    assert_int_equal(quantize_row(desc, x, 2, codes, &scale, NULL), FP8_E_ARGUMENT);
}

/* A scale that its dtype cannot hold is an error, not infinity. */
static void scales_beyond_the_dtype_are_refused(void **state)
{
    (void)state;
    float x[2] = {3e8f, 1};
    uint8_t codes[2];
    uint16_t scale;
    fp8_error err;
    for (int pow2 = 0; pow2 < 2; pow2++) {
        fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 0);
        desc.pow2_scales = pow2;
        fp8_tensor tx = fp8_matrix(x, FP8_F32, 1, 2), tc = fp8_matrix(codes, FP8_E4M3FN, 1, 2);
        fp8_tensor ts = fp8_matrix(&scale, FP8_F16, 1, 1);
        assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, &err), FP8_E_SCALE);
        assert_non_null(strstr(err.msg, "F16"));
    }
}

static uint16_t pattern(int64_t i, int64_t j)
{
    const uint32_t hash = (uint32_t)(i * 1315423911 + j * 2654435761);
    return fp8_bf16_from_f32((float)(int32_t)hash * 0x1p-30f, false);
}

/* The same matrix as rows, transposed, reversed and spread out gives the same codes and scales. */
static void strides_do_not_matter(void **state)
{
    (void)state;
    enum { R = 150, C = 200, GR = 2, GC = 2 };
    static uint16_t plain[R * C], turned[C * R], spread[R * C * 3];
    static uint8_t want[R * C], got[R * C * 2];
    float want_scales[GR * GC], got_scales[GR * GC * 2];
    for (int i = 0; i < R; i++)
        for (int j = 0; j < C; j++) {
            plain[i * C + j] = turned[j * R + i] = pattern(i, j);
            spread[(R * C - 1 - (i * C + j)) * 3] = pattern(i, j);
        }
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 128, 128);
    fp8_tensor x = fp8_matrix(plain, FP8_BF16, R, C), c = fp8_matrix(want, FP8_E4M3FN, R, C);
    fp8_tensor s = fp8_matrix(want_scales, FP8_F32, GR, GC);
    assert_int_equal(fp8_quantize(ctx, &desc, &x, &c, &s, NULL, NULL), FP8_OK);
    const fp8_tensor views[] = {
        {turned, FP8_BF16, 2, {R, C}, {1, R}},
        {&spread[(R * C - 1) * 3], FP8_BF16, 2, {R, C}, {-3 * C, -3}},
    };
    for (int v = 0; v < 2; v++) {
        fp8_tensor gc = {got, FP8_E4M3FN, 2, {R, C}, {2, 2 * R}};
        fp8_tensor gs = {got_scales, FP8_F32, 2, {GR, GC}, {2, 4}};
        assert_int_equal(fp8_quantize(ctx, &desc, &views[v], &gc, &gs, NULL, NULL), FP8_OK);
        for (int i = 0; i < R; i++)
            for (int j = 0; j < C; j++)
                assert_int_equal(got[i * 2 + j * 2 * R], want[i * C + j]);
        for (int i = 0; i < GR; i++)
            for (int j = 0; j < GC; j++)
                assert_memory_equal(&got_scales[i * 2 + j * 4], &want_scales[i * GC + j], 4);
    }
}

/* ---- a caller's threads ---- */

typedef struct crew {
    void (*body)(void *arg, int64_t i);
    void *arg;
    int64_t next, n;
} crew;

static void *work(void *arg)
{
    crew *c = arg;
    for (int64_t i; (i = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED)) < c->n;)
        c->body(c->arg, i);
    return NULL;
}

static void four_threads(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    (void)user;
    crew c = {body, arg, 0, n};
    pthread_t threads[4];
    for (int t = 0; t < 4; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, work, &c), 0);
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
}

/* Several threads on one unit, and each on its own, give what one thread gives. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    enum { R = 900, C = 1000 };
    static const fp8_grid grids[] = {{0, 0}, {0, 1}, {1, 0}, {700, 0}, {128, 128}, {1, 32}};
    static uint16_t x[R * C];
    static uint8_t want[R * C], got[R * C];
    static float want_scales[R * 32], got_scales[R * 32];
    fp8_context_desc crowd = FP8_CONTEXT_DESC_INIT, alone = FP8_CONTEXT_DESC_INIT;
    fp8_context *many, *one;
    crowd.parallel_for = four_threads;
    alone.threads = 1;
    assert_int_equal(fp8_context_create(&crowd, &many, NULL), FP8_OK);
    assert_int_equal(fp8_context_create(&alone, &one, NULL), FP8_OK);
    for (int i = 0; i < R * C; i++)
        x[i] = pattern(i / C, i % C);
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        const fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, grids[g].rows, grids[g].cols);
        const int64_t gr = grids[g].rows ? (R + grids[g].rows - 1) / grids[g].rows : 1;
        const int64_t gc = grids[g].cols ? (C + grids[g].cols - 1) / grids[g].cols : 1;
        fp8_tensor tx = fp8_matrix(x, FP8_BF16, R, C);
        fp8_tensor a = fp8_matrix(want, FP8_E4M3FN, R, C), b = fp8_matrix(got, FP8_E4M3FN, R, C);
        fp8_tensor as = fp8_matrix(want_scales, FP8_F32, gr, gc);
        fp8_tensor bs = fp8_matrix(got_scales, FP8_F32, gr, gc);
        assert_int_equal(fp8_quantize(one, &desc, &tx, &a, &as, NULL, NULL), FP8_OK);
        assert_int_equal(fp8_quantize(many, &desc, &tx, &b, &bs, NULL, NULL), FP8_OK);
        assert_memory_equal(want, got, sizeof got);
        assert_memory_equal(want_scales, got_scales, (size_t)(gr * gc) * sizeof(float));
    }
    x[5 * C + 3] = x[899 * C + 9] = 0x7FC0;
    const fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 0);
    fp8_tensor tx = fp8_matrix(x, FP8_BF16, R, C), b = fp8_matrix(got, FP8_E4M3FN, R, C);
    fp8_tensor bs = fp8_matrix(got_scales, FP8_F32, R, 1);
    fp8_error err;
    assert_int_equal(fp8_quantize(many, &desc, &tx, &b, &bs, NULL, &err), FP8_E_NAN);
    assert_int_equal(err.pos, 5 * C + 3);
    fp8_context_free(many);
    fp8_context_free(one);
}

static void padding_rows_are_zero(void **state)
{
    (void)state;
    float x[4] = {1, 2, 3, 4};
    uint8_t codes[8];
    float scales[2];
    memset(codes, 0xAA, sizeof codes);
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 0);
    fp8_tensor tx = fp8_matrix(x, FP8_F32, 2, 2), tc = fp8_matrix(codes, FP8_E4M3FN, 4, 2);
    fp8_tensor ts = fp8_matrix(scales, FP8_F32, 2, 1);
    assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, NULL), FP8_OK);
    assert_memory_equal(codes + 4, ((const uint8_t[4]){0}), 4);
    assert_int_equal(codes[1], 0x7E);
}

static void empty_matrices_are_no_work(void **state)
{
    (void)state;
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 128, 128);
    fp8_tensor tx = fp8_matrix(NULL, FP8_F32, 0, 5), tc = fp8_matrix(NULL, FP8_E4M3FN, 0, 5);
    fp8_tensor ts = fp8_matrix(NULL, FP8_F32, 0, 1);
    assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, NULL), FP8_OK);
    tx = fp8_matrix(NULL, FP8_F32, 3, 0);
    tc = fp8_matrix(NULL, FP8_E4M3FN, 3, 0);
    ts = fp8_matrix(NULL, FP8_F32, 1, 0);
    assert_int_equal(fp8_quantize(ctx, &desc, &tx, &tc, &ts, NULL, NULL), FP8_OK);
}

/* A loop over these would take days. */
static void rows_without_columns_take_no_time(void **state)
{
    (void)state;
    const int64_t rows = INT64_MAX;
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 1, 0);
    fp8_tensor x = fp8_matrix(NULL, FP8_F32, rows, 0),
               codes = fp8_matrix(NULL, FP8_E4M3FN, rows, 0);
    fp8_tensor scales = fp8_matrix(NULL, FP8_F32, rows, 0), more = codes, others = scales;
    assert_int_equal(fp8_quantize(ctx, &desc, &x, &codes, &scales, NULL, NULL), FP8_OK);
    assert_int_equal(fp8_dequantize(ctx, desc.grid, &codes, &scales, &x, NULL, NULL), FP8_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            fp8_requantize(ctx, desc.grid, &codes, &scales, &desc, &more, &others, NULL, NULL),
            FP8_OK);
        desc.rule = FP8_RULE_VLLM; /* from here on it is no copy */
    }
}

/* One call that is right but for one thing, and what it is refused with. */
typedef struct refusal {
    fp8_status status;
    const char *words;
    fp8_tensor x, codes, scales;
    fp8_quantize_desc desc;
} refusal;

static float x_data[64];
static unsigned char out_data[512];

static refusal right_call(fp8_status status, const char *words)
{
    refusal r = {status,
                 words,
                 fp8_matrix(x_data, FP8_F32, 4, 4),
                 fp8_matrix(out_data, FP8_E4M3FN, 4, 4),
                 fp8_matrix(out_data + 64, FP8_F32, 4, 1),
                 desc_of(FP8_RULE_BEST, 1, 0)};
    return r;
}

static void check_refusal(refusal r)
{
    fp8_error err = {0};
    fp8_status status = fp8_quantize(ctx, &r.desc, &r.x, &r.codes, &r.scales, NULL, &err);
    if (status != r.status || (r.words && !strstr(err.msg, r.words)))
        fail_msg("got %s '%s', want %s '%s'", fp8_status_name(status), err.msg,
                 fp8_status_name(r.status), r.words);
}

static void shapes_and_strides_are_checked(void **state)
{
    (void)state;
    check_refusal(right_call(FP8_OK, NULL));
    refusal r = right_call(FP8_E_SHAPE, "x has 3 dimensions");
    r.x.ndim = 3;
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "codes is [4,5]");
    r.codes = fp8_matrix(out_data, FP8_E4M3FN, 4, 5);
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "codes has 3 rows, x has 4");
    r.codes.shape[0] = 3;
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "scales is [1,4], must be [4,1]");
    r.scales = fp8_matrix(out_data + 64, FP8_F32, 1, 4);
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "sizes must be >= 0");
    r.x.shape[0] = -1;
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "does not fit in memory");
    r.x.shape[0] = INT64_MAX;
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "does not fit in memory");
    r.x.stride[0] = INT64_MAX / 2;
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "does not fit in memory"); /* ends past the last address */
    r.x.data = (void *)(UINTPTR_MAX - 3);
    check_refusal(r);
    r = right_call(FP8_E_ARGUMENT, "data is NULL");
    r.x.data = NULL;
    check_refusal(r);
    r = right_call(FP8_E_STRIDE, "codes [4,4] with strides (2,1) overlaps itself");
    r.codes.stride[0] = 2;
    check_refusal(r);
    r = right_call(FP8_E_STRIDE, "codes [4,4] with strides (0,1) overlaps itself");
    r.codes.stride[0] = 0;
    check_refusal(r);
    r = right_call(FP8_E_STRIDE, "codes and scales overlap");
    r.scales.data = out_data + 12;
    check_refusal(r);
    r = right_call(FP8_E_STRIDE, "x and codes overlap");
    r.codes.data = (char *)x_data + 63;
    check_refusal(r);
    r = right_call(FP8_E_STRIDE, "x and scales overlap");
    r.scales.data = x_data;
    check_refusal(r);
    r = right_call(FP8_E_STRIDE, "x and scales overlap"); /* ends that add up to 2^63 and more */
    r.desc.grid = (fp8_grid){0, 1};
    r.x = (fp8_tensor){NULL, FP8_F32, 2, {2, 4}, {(int64_t)1 << 60, 1}};
    r.x.data = (void *)((uintptr_t)out_data + ((uintptr_t)1 << 60));
    r.codes.shape[0] = 2;
    r.scales = fp8_matrix(out_data + 64, FP8_F32, 1, 4);
    r.scales.stride[1] = (int64_t)1 << 59;
    check_refusal(r);
    r = right_call(FP8_OK, NULL); /* codes and their scale side by side, row by row */
    r.codes.stride[0] = 8;
    r.scales = (fp8_tensor){out_data + 4, FP8_F32, 2, {4, 1}, {2, 1}};
    check_refusal(r);
    r.scales.data = out_data + 3;
    r.status = FP8_E_STRIDE;
    check_refusal(r);
}

static void dtypes_and_options_are_checked(void **state)
{
    (void)state;
    refusal r = right_call(FP8_E_DTYPE, "x is F8_E4M3");
    r.x = fp8_matrix(x_data, FP8_E4M3FN, 4, 4);
    check_refusal(r);
    r = right_call(FP8_E_DTYPE, "codes are F8_E5M2FNUZ");
    r.codes.dtype = FP8_E5M2FNUZ;
    check_refusal(r);
    r = right_call(FP8_E_DTYPE, "scales are F64");
    r.scales.dtype = FP8_F64;
    check_refusal(r);
    r = right_call(FP8_E_DTYPE, "dtype 77");
    r.x.dtype = (fp8_dtype)77;
    check_refusal(r);
    r = right_call(FP8_E_ARGUMENT, "struct_bytes is 3");
    r.desc.struct_bytes = 3;
    check_refusal(r);
    r = right_call(FP8_E_ARGUMENT, "grid -1 x 0");
    r.desc.grid.rows = -1;
    check_refusal(r);
    r = right_call(FP8_E_ARGUMENT, "rounding rule 99");
    r.desc.rule = (fp8_rule)99;
    check_refusal(r);
    r = right_call(FP8_E_ARGUMENT, "NaN policy 9");
    r.desc.nan = (fp8_nan_policy)9;
    check_refusal(r);
    r = right_call(FP8_E_ARGUMENT, "for dynamic scales");
    r.desc.static_scales = 1;
    r.desc.scale_ub = 1;
    check_refusal(r);
    r = right_call(FP8_E_UNSUPPORTED,
                   "rule 'vllm-triton' is not defined for this grid: grid 1 x 0");
    r.desc.rule = FP8_RULE_VLLM_TRITON;
    check_refusal(r);
    r = right_call(FP8_E_UNSUPPORTED, "with these scales");
    r.desc.rule = FP8_RULE_COMPRESSED_TENSORS;
    r.scales = fp8_matrix(out_data + 64, FP8_BF16, 4, 1);
    check_refusal(r);
    r = right_call(FP8_E_SHAPE, "[4,4] is no multiple of 1 x 3");
    r.desc = desc_of(FP8_RULE_TORCHAO, 1, 3);
    r.scales = fp8_matrix(out_data + 64, FP8_F32, 4, 2);
    check_refusal(r);
    fp8_tensor *none = NULL;
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, 0, 0);
    assert_int_equal(fp8_quantize(NULL, &desc, none, none, none, NULL, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_quantize(ctx, NULL, none, none, none, NULL, NULL), FP8_E_ARGUMENT);
}

static void rules_have_names(void **state)
{
    (void)state;
    fp8_rule rule;
    fp8_error err;
    int64_t n = 0;
    for (; fp8_rule_name(n); n++) {
        assert_int_equal(fp8_rule_parse(fp8_rule_name(n), &rule, &err), FP8_OK);
        assert_int_equal(rule, n);
    }
    assert_int_equal(n, FP8_RULE_MX_OCP + 1);
    assert_int_equal(fp8_rule_parse("vllm ", &rule, &err), FP8_E_NOT_FOUND);
    assert_non_null(strstr(err.msg, "mx-rceil"));
    assert_int_equal(fp8_rule_parse(NULL, &rule, &err), FP8_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_divides_and_rounds_once),
        cmocka_unit_test(best_loses_no_unit),
        cmocka_unit_test(zero_units_have_scale_one),
        cmocka_unit_test(mx_exponents_are_exact),
        cmocka_unit_test(logarithm_rounds_as_fp32),
        cmocka_unit_test(nan_is_refused_with_its_position),
        cmocka_unit_test(static_scales_refuse_nan_too),
        cmocka_unit_test(nan_propagates_alone),
        cmocka_unit_test(nan_as_the_original),
        cmocka_unit_test(scale_ub_bounds_the_amax),
        cmocka_unit_test(scales_beyond_the_dtype_are_refused),
        cmocka_unit_test(strides_do_not_matter),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(padding_rows_are_zero),
        cmocka_unit_test(empty_matrices_are_no_work),
        cmocka_unit_test(rows_without_columns_take_no_time),
        cmocka_unit_test(huge_grids_are_the_whole_matrix),
        cmocka_unit_test(shapes_and_strides_are_checked),
        cmocka_unit_test(dtypes_and_options_are_checked),
        cmocka_unit_test(rules_have_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
