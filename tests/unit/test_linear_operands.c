/* SPDX-License-Identifier: Apache-2.0
 *
 * test_linear_operands.c - operands at the ends of what the rules of fp8_linear allow: strides that
 * are not used, blocks of 2^63 rows, memory that is shared, rules that follow X's dtype. */
#include "number/dtype.h"
#include "op/linear.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

enum { M = 5, N = 50, K = 100 };

static uint8_t w_codes[N * K];
static float w_scales[N], y_data[M * N], zeros[M * K];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N * K; i++)
        w_codes[i] = (uint8_t)(i * 37 % 0x7F);
    for (int i = 0; i < N; i++)
        w_scales[i] = 0.5F;
    return 0;
}

static fp8_context *context_new(void)
{
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    return ctx;
}

/* A weight with a scale a channel. */
static fp8_linear *linear_new(const fp8_context *ctx, fp8_activation activation)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = activation;
    desc.w.grid = (fp8_grid){1, 0};
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, N, 1);
    fp8_linear *linear;
    assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, NULL), FP8_OK);
    return linear;
}

static void *workspace_new(const fp8_linear *linear, uint64_t *bytes)
{
    assert_int_equal(fp8_linear_workspace(linear, 1, bytes, NULL), FP8_OK);
    return malloc(*bytes);
}

/* A weight without rows is made at once, however many scales its rows would have: here 2^50. Nor
 * does a run need X, of which each element is the same here. */
static void a_weight_without_rows_may_have_any_columns(void **state)
{
    (void)state;
    fp8_context *ctx = context_new();
    const int64_t k = INT64_C(1) << 50;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, 0, k);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, 0, k);
    static const fp8_activation kinds[] = {FP8_ACTIVATION_NONE, FP8_ACTIVATION_DYNAMIC};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
        fp8_linear *linear;
        desc.activation = kinds[i];
        desc.x.grid = (fp8_grid){1, 128};
        desc.w.grid = (fp8_grid){1, 1};
        fp8_error err = {.msg = ""};
        if (fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, &err) != FP8_OK)
            fail_msg("%s", err.msg);
        const fp8_tensor x = {zeros, FP8_F32, 2, {1, k, 0, 0}, {0, 0, 0, 0}};
        fp8_tensor y = fp8_matrix(y_data, FP8_F32, 1, 0);
        uint64_t bytes;
        void *space = workspace_new(linear, &bytes);
        assert_true(bytes < 1 << 24);
        if (fp8_linear_run(linear, &x, NULL, &y, space, bytes, NULL, &err) != FP8_OK)
            fail_msg("%s", err.msg);
        free(space);
        fp8_linear_free(linear);
    }
    fp8_context_free(ctx);
}

/* The stride of one row may be any number; a view must not reach below address 0. */
static void strides_that_are_not_used_may_be_any(void **state)
{
    (void)state;
    fp8_context *ctx = context_new();
    fp8_linear *linear = linear_new(ctx, FP8_ACTIVATION_DYNAMIC), *none = NULL;
    fp8_tensor x = fp8_matrix(zeros, FP8_F32, 1, K), y = fp8_matrix(y_data, FP8_F32, 1, N);
    const fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_error err;
    uint64_t bytes;
    void *space = workspace_new(linear, &bytes);
    x.stride[0] = y.stride[0] = INT64_MIN;
    assert_int_equal(fp8_linear_run(linear, &x, NULL, &y, space, bytes, NULL, NULL), FP8_OK);
    assert_int_equal(fp8_linear_run_dx(linear, &y, &x, space, bytes, NULL, NULL), FP8_OK);
    fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, 1, 2), s = fp8_matrix(w_scales, FP8_F32, 1, 1);
    w.stride[1] = -INT64_MAX;
    assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &none, &err), FP8_E_SHAPE);
    assert_non_null(strstr(err.msg, "does not fit in memory"));
    free(space);
    fp8_linear_free(linear);
    fp8_context_free(ctx);
}

/* A block larger than any weight, which begins near its end: no sum of rows passes 2^63. */
static void blocks_of_any_size_hold_a_weight(void **state)
{
    (void)state;
    static const int64_t ends[] = {1, 10, 100}, n0 = 45, k0 = 95;
    fp8_context *ctx = context_new();
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    fp8_tensor ones = fp8_matrix(zeros, FP8_F32, 1, K), y = fp8_matrix(y_data, FP8_F32, 1, N);
    uint16_t bf16_ones[K];
    float scales[4] = {0.5F, 0.25F, 2, 1};
    const fp8_tensor s = fp8_matrix(scales, FP8_F32, 2, 2);
    for (int k = 0; k < K; k++)
        bf16_ones[k] = 0x3F80;
    ones.data = bf16_ones;
    ones.dtype = FP8_BF16;
    for (int e = 0; e < 3; e++) {
        const int64_t block = INT64_MAX - ends[e];
        desc.w.grid = (fp8_grid){block, block};
        desc.w_origin = (fp8_grid){block - n0, block - k0}; /* n0 and k0 of the weight are in it */
        const bool fits = e > 0;
        fp8_error err;
        const fp8_status status = fp8_matmul(ctx, &desc, &ones, NULL, &w, &s, NULL, &y, NULL, &err);
        assert_int_equal(status, fits ? FP8_OK : FP8_E_SHAPE);
        if (!fits)
            assert_non_null(strstr(err.msg, "ends above INT64_MAX"));
        for (int64_t n = 0; n < N && fits; n++) {
            double exact = 0;
            for (int64_t k = 0; k < K; k++)
                exact += (double)fp8_dtype_facts_of(FP8_E4M3FN)->load(w_codes, n * K + k) *
                         (double)scales[(n >= n0) * 2 + (k >= k0)];
            assert_true(fabs(exact - (double)y_data[n]) <= 1e-5 * exact);
        }
    }
    fp8_context_free(ctx);
}

/* What a run or an export writes to must not hold what it reads, nor each other. */
static void shared_memory_is_refused(void **state)
{
    (void)state;
    static uint8_t codes[N * K + 4 * N];
    fp8_context *ctx = context_new();
    fp8_linear *linear = linear_new(ctx, FP8_ACTIVATION_CODES);
    fp8_error err;
    uint64_t bytes;
    float *space = workspace_new(linear, &bytes);
    const fp8_tensor x = fp8_matrix(w_codes, FP8_E4M3FN, 1, K);
    const fp8_tensor xs = fp8_matrix(space + bytes / 8, FP8_F32, 1, 1);
    fp8_tensor y = fp8_matrix(y_data, FP8_F32, 1, N);
    space[bytes / 8] = 1;
    assert_int_equal(fp8_linear_run(linear, &x, &xs, &y, space, bytes, NULL, &err), FP8_E_STRIDE);
    assert_non_null(strstr(err.msg, "x_scales and the workspace overlap"));
    fp8_tensor c = fp8_matrix(codes, FP8_E4M3FN, N, K);
    fp8_tensor s = fp8_matrix(codes + N * K - 1, FP8_F32, N, 1);
    assert_int_equal(fp8_linear_export(linear, &c, &s, &err), FP8_E_STRIDE);
    assert_non_null(strstr(err.msg, "codes and scales overlap"));
    s.data = codes + N * K;
    assert_int_equal(fp8_linear_export(linear, &c, &s, &err), FP8_OK);
    assert_memory_equal(codes, w_codes, N * K);
    free(space);
    fp8_linear_free(linear);
    fp8_context_free(ctx);
}

/* Scales of X and W in 2-D grids, column by column, with a bias that runs backwards in steps of 2;
 * and then with bad ones, whose places are named. */
static void scales_and_bias_have_strides_and_places(void **state)
{
    (void)state;
    enum { ROWS = 4, COLS = 4, UNIT = 32 };
    static float x_plain[M * COLS], x_turned[M * COLS], w_plain[ROWS * COLS], w_turned[ROWS * COLS];
    static float expected[M * N], b_plain[N], b_back[2 * N];
    fp8_context *ctx = context_new();
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = FP8_ACTIVATION_CODES;
    desc.x.grid = (fp8_grid){1, UNIT};
    desc.w.grid = (fp8_grid){16, UNIT};
    for (int c = 0; c < COLS; c++) {
        for (int r = 0; r < M; r++)
            x_plain[r * COLS + c] = x_turned[c * M + r] = 0.25F * (float)(1 + r + 3 * c);
        for (int r = 0; r < ROWS; r++)
            w_plain[r * COLS + c] = w_turned[c * ROWS + r] = 0.5F * (float)(1 + c + 2 * r);
    }
    for (int j = 0; j < N; j++)
        b_plain[j] = b_back[2 * (N - 1 - j)] = (float)(1000 * j);
    fp8_tensor b = fp8_vector(b_plain, FP8_F32, N);
    const fp8_tensor x = fp8_matrix(w_codes, FP8_E4M3FN, M, K);
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    fp8_tensor xs = fp8_matrix(x_plain, FP8_F32, M, COLS);
    fp8_tensor s = fp8_matrix(w_plain, FP8_F32, ROWS, COLS);
    fp8_tensor y = fp8_matrix(expected, FP8_F32, M, N);
    fp8_error err;
    assert_int_equal(fp8_matmul(ctx, &desc, &x, &xs, &w, &s, &b, &y, NULL, NULL), FP8_OK);
    xs = (fp8_tensor){x_turned, FP8_F32, 2, {M, COLS, 0, 0}, {1, M, 0, 0}};
    s = (fp8_tensor){w_turned, FP8_F32, 2, {ROWS, COLS, 0, 0}, {1, ROWS, 0, 0}};
    b = fp8_vector(b_back + 2 * (N - 1), FP8_F32, N);
    b.stride[0] = -2;
    y.data = y_data;
    assert_int_equal(fp8_matmul(ctx, &desc, &x, &xs, &w, &s, &b, &y, NULL, NULL), FP8_OK);
    assert_memory_equal(y_data, expected, sizeof expected);
    x_turned[3 * M + 2] = -1;
    assert_int_equal(fp8_matmul(ctx, &desc, &x, &xs, &w, &s, NULL, &y, NULL, &err), FP8_E_SCALE);
    assert_int_equal(err.pos, 2 * COLS + 3);
    assert_non_null(strstr(err.msg, "x's scale [2,3]"));
    w_turned[1 * ROWS + 2] = 0;
    assert_int_equal(fp8_matmul(ctx, &desc, &x, &xs, &w, &s, NULL, &y, NULL, &err), FP8_E_SCALE);
    assert_int_equal(err.pos, 2 * COLS + 1);
    assert_non_null(strstr(err.msg, "w_scales[2,1]"));
    fp8_context_free(ctx);
}

/* Segments of 7 columns get places of 8: infinity times the zero behind them would be NaN. */
static void infinity_does_not_meet_padding(void **state)
{
    (void)state;
    enum { UNIT = 7, UNITS = (K + UNIT - 1) / UNIT };
    static uint8_t ones[N * K];
    static float halves[N * UNITS], x[M * K];
    fp8_context *ctx = context_new();
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.w.grid = (fp8_grid){1, UNIT};
    memset(ones, 0x38, sizeof ones);
    for (int i = 0; i < N * UNITS; i++)
        halves[i] = 0.5F;
    for (int i = 0; i < M * K; i++)
        x[i] = i % K == UNIT ? INFINITY : 1;
    const fp8_tensor w = fp8_matrix(ones, FP8_E4M3FN, N, K);
    const fp8_tensor s = fp8_matrix(halves, FP8_F32, N, UNITS), tx = fp8_matrix(x, FP8_F32, M, K);
    fp8_tensor y = fp8_matrix(y_data, FP8_F32, M, N);
    assert_int_equal(fp8_matmul(ctx, &desc, &tx, NULL, &w, &s, NULL, &y, NULL, NULL), FP8_OK);
    for (int i = 0; i < M * N; i++)
        assert_true(isinf(y_data[i]));
    fp8_context_free(ctx);
}

/* y[M,N] = x W^T for x quantized inside, or for codes with x_scales. */
static void run_x(const fp8_context *ctx, const fp8_linear_desc *desc, const fp8_tensor *x,
                  const fp8_tensor *x_scales, float *y_out)
{
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, 1, 1);
    fp8_tensor y = fp8_matrix(y_out, FP8_F32, M, N);
    assert_int_equal(fp8_matmul(ctx, desc, x, x_scales, &w, &s, NULL, &y, NULL, NULL), FP8_OK);
}

/* X quantized inside is what fp8_quantize makes of it, for every grid and dtype of scales. */
static void dynamic_x_is_what_quantize_makes(void **state)
{
    (void)state;
    static const fp8_grid grids[] = {{0, 0}, {1, 0}, {1, 32}, {1, 7}};
    static const fp8_dtype scales[] = {FP8_F32, FP8_BF16, FP8_F16, FP8_E8M0FNU};
    static float x[M * K], stored[M * K], inside[M * N];
    static uint8_t codes[M * K];
    fp8_context *ctx = context_new();
    for (int i = 0; i < M * K; i++)
        x[i] = (float)(i * 7919 % 2003 - 1000) / 37;
    for (int g = 0; g < 4; g++)
        for (int d = 0; d < 4; d++) {
            const int64_t rows = grids[g].rows ? M : 1;
            const int64_t cols = grids[g].cols ? (K + grids[g].cols - 1) / grids[g].cols : 1;
            const fp8_tensor tx = fp8_matrix(x, FP8_F32, M, K);
            fp8_tensor c = fp8_matrix(codes, FP8_E4M3FN, M, K);
            fp8_tensor xs = fp8_matrix(stored, scales[d], rows, cols);
            fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
            desc.x.grid = grids[g];
            desc.x_scale = scales[d];
            assert_int_equal(fp8_quantize(ctx, &desc.x, &tx, &c, &xs, NULL, NULL), FP8_OK);
            desc.activation = FP8_ACTIVATION_DYNAMIC;
            run_x(ctx, &desc, &tx, NULL, inside);
            desc.activation = FP8_ACTIVATION_CODES;
            run_x(ctx, &desc, &c, &xs, y_data);
            assert_memory_equal(inside, y_data, sizeof inside);
        }
    fp8_context_free(ctx);
}

/* Of a NaN far down in X, which is prepared in pieces, the place is named, and no row of Y is
 * written, not even one that is far from it. */
static void a_refused_element_is_named(void **state)
{
    (void)state;
    enum { ROWS = 900 };
    static float x[ROWS * K], y[ROWS * N];
    fp8_context *ctx = context_new();
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, 1, 1);
    const fp8_tensor tx = fp8_matrix(x, FP8_F32, ROWS, K);
    fp8_tensor ty = fp8_matrix(y, FP8_F32, ROWS, N);
    desc.activation = FP8_ACTIVATION_DYNAMIC;
    desc.x.nan = FP8_NAN_REFUSE;
    x[850 * K + 3] = x[870 * K] = NAN;
    for (int whole = 0; whole < 2; whole++) {
        fp8_error err;
        desc.x.grid.rows = !whole;
        memset(y, 0x5A, sizeof y);
        assert_int_equal(fp8_matmul(ctx, &desc, &tx, NULL, &w, &s, NULL, &ty, NULL, &err),
                         FP8_E_NAN);
        assert_int_equal(err.pos, 850 * K + 3);
        assert_non_null(strstr(err.msg, "[850,3]"));
        for (size_t i = 0; i < sizeof y; i++)
            assert_int_equal(((const uint8_t *)y)[i], 0x5A);
    }
    fp8_context_free(ctx);
}

/* Rules whose scales are of X's dtype take each dtype of X with its own. */
static void a_rule_may_follow_the_dtype_of_x(void **state)
{
    (void)state;
    static const fp8_dtype dtypes[] = {FP8_BF16, FP8_F16, FP8_F32};
    fp8_context *ctx = context_new();
    fp8_error err;
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = FP8_ACTIVATION_DYNAMIC;
    desc.w.grid = (fp8_grid){1, 0};
    desc.x.rule = FP8_RULE_COMPRESSED_TENSORS_ACTIVATION;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, N, 1);
    fp8_tensor y = fp8_matrix(y_data, FP8_F32, M, N);
    for (int scale = 0; scale < 3; scale++)
        for (int in = 0; in < 3; in++) {
            const fp8_tensor x = fp8_matrix(zeros, dtypes[in], M, K);
            desc.x_scale = dtypes[scale];
            const fp8_status status =
                fp8_matmul(ctx, &desc, &x, NULL, &w, &s, NULL, &y, NULL, &err);
            assert_int_equal(status, in == scale ? FP8_OK : FP8_E_UNSUPPORTED);
        }
    desc.x_scale = FP8_F16;
    desc.x.grid = (fp8_grid){1, 64}; /* the rule's, but K is no multiple of it */
    assert_int_equal(fp8_linear_check(ctx, &desc, &w, &s, NULL, &err), FP8_E_SHAPE);
    assert_non_null(strstr(err.msg, "whole blocks only"));
    desc.x.grid = (fp8_grid){1, 0};
    desc.x_scale = FP8_E8M0FNU;
    assert_int_equal(fp8_linear_check(ctx, &desc, &w, &s, NULL, &err), FP8_E_UNSUPPORTED);
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_without_rows_may_have_any_columns),
        cmocka_unit_test(strides_that_are_not_used_may_be_any),
        cmocka_unit_test(blocks_of_any_size_hold_a_weight),
        cmocka_unit_test(shared_memory_is_refused),
        cmocka_unit_test(scales_and_bias_have_strides_and_places),
        cmocka_unit_test(infinity_does_not_meet_padding),
        cmocka_unit_test(dynamic_x_is_what_quantize_makes),
        cmocka_unit_test(a_refused_element_is_named),
        cmocka_unit_test(a_rule_may_follow_the_dtype_of_x),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
