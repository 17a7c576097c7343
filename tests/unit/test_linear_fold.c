/* SPDX-License-Identifier: Apache-2.0
 *
 * test_linear_fold.c - scales along K that are powers of two, which are multiplied into the
 * elements: over all of their range, within the bound of oracle.h with the scales of the row at
 * hand; which weights fold and which do not; zeros, infinities and NaN. */
#include "op/linear.h"
#include "support/levels.h"
#include "support/oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

enum { M = 11, N = 83, K = 356, UNIT = 32, UNITS = (K + UNIT - 1) / UNIT };

static uint32_t random_word(void)
{
    static uint32_t x = 3;
    x = x * 1664525 + 1013904223;
    return x >> 8;
}

/* X [M,K] and W [N,K] with scales of E8M0 for 32 columns. */
typedef struct product {
    uint8_t x[M * K], x_scale[M * UNITS], w[N * K], w_scale[N * UNITS];
    fp8_tensor tx, txs, tw, tws;
    fp8_grid w_grid;
} product;

static void fill_codes(uint8_t *codes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(random_word() % 0x7B | random_word() % 2 << 7); /* finite */
}

static void fill_scales(uint8_t *scale, int64_t n, uint32_t least, uint32_t most)
{
    for (int64_t i = 0; i < n; i++)
        scale[i] = (uint8_t)(least + random_word() % (most - least + 1));
}

static void make(product *p, fp8_dtype x, fp8_dtype w)
{
    fill_codes(p->x, M * K);
    fill_codes(p->w, N * K);
    p->tx = fp8_matrix(p->x, x, M, K);
    p->txs = fp8_matrix(p->x_scale, FP8_E8M0FNU, M, UNITS);
    p->tw = fp8_matrix(p->w, w, N, K);
    p->tws = fp8_matrix(p->w_scale, FP8_E8M0FNU, N, UNITS);
    p->w_grid = (fp8_grid){1, UNIT};
}

static fp8_linear *linear_of(const fp8_context *ctx, const product *p)
{
    fp8_linear *linear;
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = FP8_ACTIVATION_CODES;
    desc.x.grid = (fp8_grid){1, UNIT};
    desc.w.grid = p->w_grid;
    assert_int_equal(fp8_linear_create(ctx, &desc, &p->tw, &p->tws, NULL, &linear, NULL), FP8_OK);
    return linear;
}

static void run(const fp8_linear *linear, const product *p, float *y)
{
    uint64_t bytes;
    fp8_tensor ty = fp8_matrix(y, FP8_F32, M, N);
    assert_int_equal(fp8_linear_workspace(linear, M, &bytes, NULL), FP8_OK);
    void *space = malloc(bytes);
    assert_int_equal(fp8_linear_run(linear, &p->tx, &p->txs, &ty, space, bytes, NULL, NULL),
                     FP8_OK);
    free(space);
}

static double largest_scale(const fp8_tensor *scales, int64_t row)
{
    double most = 0;
    for (int64_t s = 0; s < scales->shape[1]; s++)
        most = fmax(most, element_of(scales, row, s));
    return most;
}

static void check(const product *p, const float *y, const char *what)
{
    const operand x = {&p->tx, &p->txs, {1, UNIT}, {0, 0}, NULL};
    const operand w = {&p->tw, &p->tws, p->w_grid, {0, 0}, NULL};
    double *xr = reals_of(&x), *wr = reals_of(&w);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double exact, size;
            dot_of(xr + i * K, wr + j * K, K, &exact, &size);
            const double scale = largest_scale(&p->txs, i) * largest_scale(&p->tws, j);
            const double bound = linear_bound(K, exact, size, 0, scale, FP8_F32, 1);
            const double got = (double)y[i * N + j];
            if (!(fabs(got - exact) <= bound))
                fail_msg("%s: y[%d,%d] is %.9g, exactly %.9g, bound %.3g", what, (int)i, (int)j,
                         got, exact, bound);
        }
    free(xr);
    free(wr);
}

/* Exponents, as E8M0 has them, of X and W, and whether such a W folds. */
static const struct range {
    const char *what;
    uint32_t x_least, x_most, w_least, w_most;
    bool folds;
} ranges[] = {
    {"usual", 110, 125, 110, 120, true},    {"one", 127, 127, 127, 127, true},
    {"all of W", 120, 127, 67, 127, true},  {"all of X", 0, 220, 67, 127, true},
    {"small X", 0, 40, 67, 127, true},      {"large X", 180, 220, 67, 127, true},
    {"large W", 100, 127, 120, 128, false}, {"small W", 120, 190, 66, 120, false},
    {"any", 0, 200, 0, 150, false},
};

static void all_scales_are_within_the_bound(void **state)
{
    (void)state;
    static product p;
    static float y[M * N];
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 2);
        for (size_t r = 0; ctx && r < sizeof ranges / sizeof *ranges; r++)
            for (int e5m2 = 0; e5m2 < 2; e5m2++) {
                make(&p, e5m2 ? FP8_E5M2 : FP8_E4M3FN, FP8_E4M3FN);
                fill_scales(p.x_scale, M * UNITS, ranges[r].x_least, ranges[r].x_most);
                fill_scales(p.w_scale, N * UNITS, ranges[r].w_least, ranges[r].w_most);
                fp8_linear *linear = linear_of(ctx, &p);
                assert_int_equal(linear->w_folds, ranges[r].folds);
                run(linear, &p, y);
                check(&p, y, ranges[r].what);
                fp8_linear_free(linear);
            }
        fp8_context_free(ctx);
    }
}

/* X's scales are folded beside those of W's channels, which then meet sums in units of 2^-126
 * to 2^3. */
static void x_folds_beside_channels(void **state)
{
    (void)state;
    static product p;
    static float y[M * N], channels[N];
    for (int j = 0; j < N; j++)
        channels[j] = ldexpf(1 + (float)j / N, j % 41 - 20);
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 2);
        for (size_t r = 0; ctx && r < sizeof ranges / sizeof *ranges; r++) {
            make(&p, r % 2 ? FP8_E5M2 : FP8_E4M3FN, r % 3 ? FP8_E5M2 : FP8_E4M3FN);
            fill_scales(p.x_scale, M * UNITS, ranges[r].x_least,
                        ranges[r].x_most < 190 ? ranges[r].x_most : 190);
            p.tws = fp8_matrix(channels, FP8_F32, N, 1);
            p.w_grid = (fp8_grid){1, 0};
            fp8_linear *linear = linear_of(ctx, &p);
            run(linear, &p, y);
            check(&p, y, ranges[r].what);
            fp8_linear_free(linear);
        }
        fp8_context_free(ctx);
    }
}

/* A block of zeros may have any scale; one code in it, and nothing folds. e5m2 never does. */
static void blocks_of_zeros_fold(void **state)
{
    (void)state;
    static product p;
    static float y[M * N];
    fp8_context *ctx = context_at_level(fp8_isa_detect(), 1);
    make(&p, FP8_E4M3FN, FP8_E4M3FN);
    fill_scales(p.x_scale, M * UNITS, 110, 125);
    fill_scales(p.w_scale, N * UNITS, 110, 125);
    p.w_scale[5 * UNITS + 3] = 0;
    p.w_scale[7 * UNITS + UNITS - 1] = 130;
    for (int64_t k = 0; k < UNIT; k++)
        p.w[5 * K + 3 * UNIT + k] = (uint8_t)(k % 2 << 7);
    memset(p.w + 7 * K + (UNITS - 1) * UNIT, 0, K - (UNITS - 1) * UNIT);
    for (int turn = 0; turn < 3; turn++) {
        p.w[8 * K - 1] = turn == 1;
        p.tw.dtype = turn == 2 ? FP8_E5M2 : FP8_E4M3FN;
        fp8_linear *linear = linear_of(ctx, &p);
        assert_int_equal(linear->w_folds, turn == 0);
        run(linear, &p, y);
        check(&p, y, "zeros");
        fp8_linear_free(linear);
    }
    fp8_context_free(ctx);
}

/* A clone folds as its original does, and knows of its NaN, which Y and dX show. */
static void clones_fold_and_know_nan(void **state)
{
    (void)state;
    static product p;
    static float y[2][M * N], dx[2][M * K];
    fp8_context *ctx = context_at_level(fp8_isa_detect(), 1);
    make(&p, FP8_E4M3FN, FP8_E4M3FN);
    fill_scales(p.x_scale, M * UNITS, 110, 125);
    fill_scales(p.w_scale, N * UNITS, 110, 125);
    p.w[3 * K + 5] = 0x7F;
    fp8_linear *linears[2] = {linear_of(ctx, &p), NULL};
    assert_int_equal(fp8_linear_clone(linears[0], &linears[1], NULL), FP8_OK);
    for (int i = 0; i < 2; i++) {
        uint64_t bytes;
        fp8_tensor tdx = fp8_matrix(dx[i], FP8_F32, M, K);
        static float ones[M * N];
        for (int64_t j = 0; j < M * N; j++)
            ones[j] = 1;
        const fp8_tensor dy = fp8_matrix(ones, FP8_F32, M, N);
        assert_true(linears[i]->w_folds);
        run(linears[i], &p, y[i]);
        assert_int_equal(fp8_linear_workspace(linears[i], M, &bytes, NULL), FP8_OK);
        void *space = malloc(bytes);
        assert_int_equal(fp8_linear_run_dx(linears[i], &dy, &tdx, space, bytes, NULL, NULL),
                         FP8_OK);
        assert_true(isnan(y[i][3]) && isfinite(y[i][4]) && isnan(dx[i][5]) && isfinite(dx[i][6]));
        free(space);
        fp8_linear_free(linears[i]);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    fp8_context_free(ctx);
}

/* An infinity of X stays one in the smallest block of its row; NaN makes NaN of its row alone. */
static void infinity_and_nan_stay(void **state)
{
    (void)state;
    static product p;
    static float y[M * N];
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 1);
        if (!ctx)
            continue;
        make(&p, FP8_E5M2, FP8_E4M3FN);
        fill_scales(p.x_scale, M * UNITS, 110, 125);
        fill_scales(p.w_scale, N * UNITS, 110, 125);
        p.x_scale[2 * UNITS] = 0;
        p.x_scale[2 * UNITS + 1] = 220;
        p.x[2 * K] = 0x7C;
        p.x[4 * K + 40] = 0x7F;
        fp8_linear *linear = linear_of(ctx, &p);
        run(linear, &p, y);
        for (int64_t j = 0; j < N; j++) {
            const bool zero = !(p.w[j * K] & 0x7F);
            assert_true(zero ? isnan(y[2 * N + j]) : isinf(y[2 * N + j]));
            assert_true(isnan(y[4 * N + j]));
            assert_true(isfinite(y[3 * N + j]));
        }
        fp8_linear_free(linear);
        fp8_context_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_scales_are_within_the_bound),
        cmocka_unit_test(x_folds_beside_channels),
        cmocka_unit_test(blocks_of_zeros_fold),
        cmocka_unit_test(clones_fold_and_know_nan),
        cmocka_unit_test(infinity_and_nan_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
