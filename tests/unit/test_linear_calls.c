/* SPDX-License-Identifier: Apache-2.0
 *
 * test_linear_calls.c - what a prepared linear promises beside its numbers: the same bits for any
 * threads, pool and place of a row; strides of all kinds; NaN; exports and clones; no allocation in
 * run, every allocation of create failing; and each misuse refused by its own status and words. */
#include "op/linear.h"
#include "support/counted_alloc.h"
#include "support/levels.h"
#include "support/oracle.h"
#include "support/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

enum { M = 37, N = 150, K = 300 };

static uint16_t x_bits[M * K * 4];
static uint8_t w_codes[N * K * 4];
static float w_scales[N];
static float bias_values[N];

static uint32_t random_word(void)
{
    static uint32_t x = 3;
    return next_random(&x);
}

static int set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof x_bits / sizeof *x_bits; i++)
        fp8_dtype_facts_of(FP8_BF16)->store(x_bits, (int64_t)i,
                                            (float)(int32_t)random_word() * 0x1p-31F, false);
    for (size_t i = 0; i < sizeof w_codes; i++)
        w_codes[i] = (uint8_t)((random_word() >> 9) % 0x7F | (random_word() >> 24 & 0x80));
    for (int i = 0; i < N; i++) {
        w_scales[i] = 0.01F + (float)(i % 7) / 64;
        bias_values[i] = (float)(i % 5) - 2;
    }
    return 0;
}

static fp8_linear_desc channel_desc(fp8_activation activation)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = activation;
    desc.w.grid = (fp8_grid){1, 0};
    return desc;
}

static fp8_linear *linear_of(const fp8_context *ctx, const fp8_linear_desc *desc)
{
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, N, 1);
    const fp8_tensor b = fp8_vector(bias_values, FP8_F32, N);
    fp8_linear *linear = NULL;
    fp8_error err;
    if (fp8_linear_create(ctx, desc, &w, &s, &b, &linear, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    return linear;
}

static fp8_linear *linear_new(const fp8_context *ctx, fp8_activation activation)
{
    const fp8_linear_desc desc = channel_desc(activation);
    return linear_of(ctx, &desc);
}

static fp8_status run_with(const fp8_linear *linear, const fp8_tensor *x, fp8_tensor *y,
                           fp8_error *err)
{
    uint64_t bytes = 0;
    assert_int_equal(fp8_linear_workspace(linear, x->shape[0], &bytes, NULL), FP8_OK);
    void *workspace = malloc(bytes);
    const fp8_status status = fp8_linear_run(linear, x, NULL, y, workspace, bytes, NULL, err);
    free(workspace);
    return status;
}

static void run_ok(const fp8_linear *linear, const fp8_tensor *x, fp8_tensor *y)
{
    fp8_error err;
    if (run_with(linear, x, y, &err) != FP8_OK)
        fail_msg("%s", err.msg);
}

/* A pool that does the tasks in an order of its own, on the caller's thread. */
static void backwards(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    ++*(int *)user;
    for (int64_t i = n - 1; i >= 0; i--)
        body(arg, i);
}

typedef struct share {
    void (*body)(void *arg, int64_t i);
    void *arg;
    int64_t i;
} share;

static void *do_share(void *arg)
{
    const share *s = arg;
    s->body(s->arg, s->i);
    return NULL;
}

/* A pool of threads that are made for each loop, some tasks at a time. */
static void crowd(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    enum { MOST = 8 };
    (void)user;
    for (int64_t first = 0; first < n; first += MOST) {
        const int64_t count = n - first < MOST ? n - first : MOST;
        pthread_t thread[MOST];
        share shares[MOST];
        for (int64_t i = 0; i < count; i++) {
            shares[i] = (share){body, arg, first + i};
            assert_int_equal(pthread_create(&thread[i], NULL, do_share, &shares[i]), 0);
        }
        for (int64_t i = 0; i < count; i++)
            pthread_join(thread[i], NULL);
    }
}

/* y[M,N] and then dx[M,K] of that y, for x in bf16 (even kinds) or fp32, which is not quantized,
 * has one scale, or a scale a row. */
static void run_both_ways(const fp8_context *ctx, int kind, float *y)
{
    static const fp8_dtype dtypes[] = {FP8_BF16, FP8_F32}; /* pairs of x_bits are F32 as well */
    const fp8_dtype dtype = dtypes[kind % 2];
    fp8_linear_desc desc = channel_desc(kind < 2 ? FP8_ACTIVATION_NONE : FP8_ACTIVATION_DYNAMIC);
    desc.x.grid.rows = kind / 4;
    desc.x.nan = FP8_NAN_REFUSE;
    fp8_linear *linear = linear_of(ctx, &desc);
    const fp8_tensor x = fp8_matrix(x_bits, dtype, M, K);
    fp8_tensor ty = fp8_matrix(y, FP8_F32, M, N), dx = fp8_matrix(y + M * N, FP8_F32, M, K);
    uint64_t bytes;
    memset(y, 0xFF, (M * N + M * K) * sizeof *y);
    run_ok(linear, &x, &ty);
    assert_int_equal(fp8_linear_workspace(linear, M, &bytes, NULL), FP8_OK);
    void *space = malloc(bytes);
    assert_int_equal(fp8_linear_run_dx(linear, &ty, &dx, space, bytes, NULL, NULL), FP8_OK);
    free(space);
    fp8_linear_free(linear);
}

/* At every level, since kernels differ in what else would give the same bits by chance. */
static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    static float expected[M * N + M * K], got[M * N + M * K];
    int calls = 0;
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        static const int threads[] = {1, 3, 5, 4};
        fp8_context *contexts[4];
        for (int i = 0; i < 4; i++)
            contexts[i] = context_at_level((fp8_isa)isa, threads[i]);
        if (!contexts[0])
            continue;
        contexts[2]->parallel_for = backwards;
        contexts[2]->parallel_user = &calls;
        contexts[3]->parallel_for = crowd;
        for (int kind = 0; kind < 6; kind++) {
            run_both_ways(contexts[0], kind, expected);
            for (int i = 1; i < 4; i++) {
                run_both_ways(contexts[i], kind, got);
                assert_memory_equal(got, expected, sizeof got);
            }
        }
        for (int i = 0; i < 4; i++)
            fp8_context_free(contexts[i]);
    }
    assert_true(calls > 0);
}

/* Scales that change where kernels for few and for many rows begin their sums anew differently. */
static void check_few_rows(const fp8_context *ctx)
{
    static float scales[N * 3], many[M * N], one[N];
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *linear;
    desc.w.grid = (fp8_grid){1, 100};
    for (int i = 0; i < N * 3; i++)
        scales[i] = 0.01F + (float)(i % 11) / 32;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, N, K);
    const fp8_tensor s = fp8_matrix(scales, FP8_F32, N, 3);
    assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, NULL), FP8_OK);
    const fp8_tensor x = fp8_matrix(x_bits, FP8_F32, M, K), x1 = fp8_matrix(x_bits, FP8_F32, 1, K);
    fp8_tensor y = fp8_matrix(many, FP8_F32, M, N), y1 = fp8_matrix(one, FP8_F32, 1, N);
    run_ok(linear, &x, &y);
    run_ok(linear, &x1, &y1);
    assert_memory_equal(one, many, sizeof one);
    fp8_linear_free(linear);
}

/* Each row alone, and all rows from the last to the first, give the bits of the whole. */
static void batch_invariance_holds_at_every_level(void **state)
{
    (void)state;
    static float whole[M * N], part[M * N];
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 2);
        if (!ctx)
            continue;
        ctx->flags = FP8_BATCH_INVARIANT;
        fp8_linear *linear = linear_new(ctx, FP8_ACTIVATION_DYNAMIC);
        fp8_tensor x = fp8_matrix(x_bits, FP8_BF16, M, K), y = fp8_matrix(whole, FP8_F32, M, N);
        run_ok(linear, &x, &y);
        for (int64_t m = 1; m <= M; m += 6)
            for (int64_t row = 0; row + m <= M; row += m) {
                x = fp8_matrix(x_bits + row * K, FP8_BF16, m, K);
                y = fp8_matrix(part, FP8_F32, m, N);
                run_ok(linear, &x, &y);
                assert_memory_equal(part, whole + row * N, (size_t)(m * N) * sizeof(float));
            }
        fp8_linear_free(linear);
        check_few_rows(ctx);
        fp8_context_free(ctx);
    }
}

/* x, w and y through views that are transposed, reversed, broadcast or padded. */
static void views_of_any_stride_are_honoured(void **state)
{
    (void)state;
    static float expected[M * N], got[4 * M * N];
    static uint16_t x_turned[K * M];
    static uint8_t w_turned[K * N];
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    for (int64_t i = 0; i < M; i++)
        for (int64_t k = 0; k < K; k++)
            x_turned[k * M + i] = x_bits[i * K + k];
    for (int64_t j = 0; j < N; j++)
        for (int64_t k = 0; k < K; k++)
            w_turned[(K - 1 - k) * N + j] = w_codes[j * K + k];
    fp8_linear *plain = linear_new(ctx, FP8_ACTIVATION_DYNAMIC), *turned;
    const fp8_tensor x = fp8_matrix(x_bits, FP8_BF16, M, K);
    fp8_tensor y = fp8_matrix(expected, FP8_F32, M, N);
    run_ok(plain, &x, &y);

    const fp8_linear_desc desc = channel_desc(FP8_ACTIVATION_DYNAMIC);
    const fp8_tensor xt = {x_turned, FP8_BF16, 2, {M, K, 0, 0}, {1, M, 0, 0}};
    const fp8_tensor wt = {w_turned + (K - 1) * N, FP8_E4M3FN, 2, {N, K, 0, 0}, {1, -N, 0, 0}};
    const fp8_tensor s = {w_scales, FP8_F32, 2, {N, 1, 0, 0}, {1, 0, 0, 0}};
    const fp8_tensor b = fp8_vector(bias_values, FP8_F32, N);
    assert_int_equal(fp8_linear_create(ctx, &desc, &wt, &s, &b, &turned, NULL), FP8_OK);
    const int64_t strides[][2] = {{N, 1}, {N + 5, 1}, {1, M}, {2, 2 * M}, {-N, 1}};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        const int64_t row = strides[i][0], col = strides[i][1];
        memset(got, 0xFF, sizeof got);
        y = (fp8_tensor){got, FP8_F32, 2, {M, N, 0, 0}, {row, col, 0, 0}};
        y.data = got + (row < 0 ? (M - 1) * N : 0);
        run_ok(turned, &xt, &y);
        int64_t written = 0;
        for (int64_t m = 0; m < M; m++)
            for (int64_t n = 0; n < N; n++)
                assert_memory_equal((float *)y.data + m * row + n * col, &expected[m * N + n],
                                    sizeof(float));
        for (size_t k = 0; k < sizeof got / sizeof *got; k++)
            written += memcmp(&got[k], "\xFF\xFF\xFF\xFF", 4) != 0;
        assert_int_equal(written, M * N);
    }
    const fp8_tensor same = {x_bits, FP8_BF16, 2, {M, K, 0, 0}, {0, 1, 0, 0}};
    y = fp8_matrix(got, FP8_F32, M, N);
    run_ok(plain, &same, &y);
    for (int64_t m = 0; m < M; m++)
        assert_memory_equal(got + m * N, got, N * sizeof(float));
    fp8_linear_free(plain);
    fp8_linear_free(turned);
    fp8_context_free(ctx);
}

static void nan_makes_nan_of_what_it_takes_part_in(void **state)
{
    (void)state;
    static float y_data[M * N];
    static uint8_t codes[N * K];
    static uint16_t xs[M * K];
    memcpy(codes, w_codes, sizeof codes);
    memcpy(xs, x_bits, sizeof xs);
    codes[20 * K + 299] = 0x7F;
    xs[5 * K + 7] = 0x7FC0;
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 2);
        if (!ctx)
            continue;
        for (int activation = 0; activation <= FP8_ACTIVATION_DYNAMIC; activation++) {
            fp8_linear *linear;
            const fp8_linear_desc desc = channel_desc((fp8_activation)activation);
            const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, N, K);
            const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, N, 1);
            const fp8_tensor x = fp8_matrix(xs, FP8_BF16, M, K);
            fp8_tensor y = fp8_matrix(y_data, FP8_F32, M, N);
            assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, NULL), FP8_OK);
            run_ok(linear, &x, &y);
            for (int64_t i = 0; i < M; i++)
                for (int64_t j = 0; j < N; j++)
                    assert_int_equal(isnan(y_data[i * N + j]) != 0, i == 5 || j == 20);
            fp8_linear_free(linear);
        }
        fp8_context_free(ctx);
    }
}

static void what_went_in_comes_out(void **state)
{
    (void)state;
    static uint8_t codes[N * K];
    static float scales[N], y1[M * N], y2[M * N];
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    fp8_linear *linear = linear_new(ctx, FP8_ACTIVATION_NONE), *clone;
    fp8_linear_info info;
    assert_int_equal(fp8_linear_get_info(linear, &info), FP8_OK);
    assert_int_equal(info.n, N);
    assert_int_equal(info.k, K);
    assert_int_equal(info.scale_rows, N);
    assert_int_equal(info.scale_cols, 1);
    assert_int_equal(info.code_bytes, (N + 15) / 16 * 16 * K);
    fp8_tensor c = fp8_matrix(codes, FP8_E4M3FN, N, K), s = fp8_matrix(scales, FP8_F32, N, 1);
    assert_int_equal(fp8_linear_export(linear, &c, &s, NULL), FP8_OK);
    assert_memory_equal(codes, w_codes, sizeof codes);
    assert_memory_equal(scales, w_scales, sizeof scales);
    assert_int_equal(fp8_linear_clone(linear, &clone, NULL), FP8_OK);
    const fp8_tensor x = fp8_matrix(x_bits, FP8_BF16, M, K);
    fp8_tensor y = fp8_matrix(y1, FP8_F32, M, N);
    run_ok(linear, &x, &y);
    fp8_linear_free(linear);
    y.data = y2;
    run_ok(clone, &x, &y);
    assert_memory_equal(y1, y2, sizeof y1);
    fp8_linear_free(clone);
    fp8_context_free(ctx);
}

/* Weights that matter by size: 1.02 bytes an element and the scales. */
static void a_weight_is_held_once(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{4096, 4096}, {1152, 1152}, {3420, 1280}, {576, 7168}};
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n = shapes[i][0], k = shapes[i][1];
        uint8_t *codes = calloc(1, (size_t)(n * k));
        float *scales = malloc((size_t)n * sizeof *scales);
        for (int64_t j = 0; j < n; j++)
            scales[j] = 1;
        const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, n, k);
        const fp8_tensor s = fp8_matrix(scales, FP8_F32, n, 1);
        const fp8_linear_desc desc = channel_desc(FP8_ACTIVATION_DYNAMIC);
        fp8_linear *linear;
        fp8_linear_info info;
        assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, NULL), FP8_OK);
        fp8_linear_get_info(linear, &info);
        assert_true((double)(info.code_bytes + info.other_bytes) <= 1.02 * (double)(n * k));
        fp8_linear_free(linear);
        free(codes);
        free(scales);
    }
    fp8_context_free(ctx);
}

static void create_survives_every_failing_allocation(void **state)
{
    (void)state;
    static uint16_t high[N * K];
    for (int kind = 0; kind < 2; kind++)
        for (int64_t n = 1;; n++) {
            counted_alloc a = {.fail_at = n};
            fp8_context *ctx = counted_context(&a);
            fp8_linear *linear = NULL, *clone = NULL;
            fp8_error err;
            const fp8_linear_desc desc = channel_desc(FP8_ACTIVATION_DYNAMIC);
            const fp8_tensor w =
                kind ? fp8_matrix(high, FP8_BF16, N, K) : fp8_matrix(w_codes, FP8_E4M3FN, N, K);
            const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, N, 1);
            fp8_status status =
                fp8_linear_create(ctx, &desc, &w, kind ? NULL : &s, NULL, &linear, &err);
            if (status == FP8_OK)
                status = fp8_linear_clone(linear, &clone, &err);
            fp8_linear_free(linear);
            fp8_linear_free(clone);
            fp8_context_free(ctx);
            assert_int_equal(a.live, 0);
            if (a.calls < n)
                break;
            assert_int_equal(status, FP8_E_NO_MEMORY);
        }
}

static void run_allocates_nothing(void **state)
{
    (void)state;
    static float y_data[M * N];
    counted_alloc a = {0};
    fp8_context *ctx = counted_context(&a);
    for (int activation = 0; activation <= FP8_ACTIVATION_DYNAMIC; activation++) {
        fp8_linear *linear = linear_new(ctx, (fp8_activation)activation);
        const fp8_tensor x = fp8_matrix(x_bits, FP8_BF16, M, K);
        fp8_tensor y = fp8_matrix(y_data, FP8_F32, M, N);
        const int64_t before = a.calls;
        run_ok(linear, &x, &y);
        assert_int_equal(a.calls, before);
        fp8_linear_free(linear);
    }
    fp8_context_free(ctx);
    assert_int_equal(a.live, 0);
}

/* ---- misuse ---- */

typedef struct call {
    fp8_linear_desc desc;
    fp8_tensor x, w, s, s2, b, y;
    fp8_tensor *xp, *xs, *wp, *sp, *bp, *yp;
} call;

static float misuse_y[M * N];

static void make_call(call *c)
{
    *c = (call){.desc = channel_desc(FP8_ACTIVATION_DYNAMIC),
                .x = fp8_matrix(x_bits, FP8_BF16, M, K),
                .w = fp8_matrix(w_codes, FP8_E4M3FN, N, K),
                .s = fp8_matrix(w_scales, FP8_F32, N, 1),
                .b = fp8_vector(bias_values, FP8_F32, N),
                .y = fp8_matrix(misuse_y, FP8_F32, M, N)};
    c->xp = &c->x, c->wp = &c->w, c->sp = &c->s, c->bp = &c->b, c->yp = &c->y;
}

#define EXPECT(status, words, ...)                                                    \
    do {                                                                              \
        call c;                                                                       \
        fp8_error err = {0};                                                          \
        make_call(&c);                                                                \
        __VA_ARGS__;                                                                  \
        memset(misuse_y, 0x5A, sizeof misuse_y);                                      \
        const fp8_status got =                                                        \
            fp8_matmul(ctx, &c.desc, c.xp, c.xs, c.wp, c.sp, c.bp, c.yp, NULL, &err); \
        if (got != (status) || !strstr(err.msg, words))                               \
            fail_msg("line %d: %s: %s", __LINE__, fp8_status_name(got), err.msg);     \
        for (size_t i = 0; i < sizeof misuse_y; i++)                                  \
            assert_int_equal(((unsigned char *)misuse_y)[i], 0x5A);                   \
    } while (0)

static void misuse_is_refused_in_words(void **state)
{
    (void)state;
    static float nan_scale[N], zero_scale[N], large_scale[N];
    static uint16_t nan_x[M * K];
    const int64_t widths[] = {100, 49}, negative[] = {200, -50}, right[] = {100, 50};
    const int64_t large[] = {INT64_MAX, 1};
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    for (int i = 0; i < N; i++)
        nan_scale[i] = zero_scale[i] = large_scale[i] = 1;
    nan_scale[N - 1] = NAN;
    zero_scale[3] = 0;
    large_scale[7] = INFINITY;
    memcpy(nan_x, x_bits, sizeof nan_x);
    nan_x[2 * K + 1] = 0x7F80;
    EXPECT(FP8_E_ARGUMENT, "x is NULL", c.xp = NULL);
    EXPECT(FP8_E_ARGUMENT, "w is NULL", c.wp = NULL);
    EXPECT(FP8_E_ARGUMENT, "y is NULL", c.yp = NULL);
    EXPECT(FP8_E_ARGUMENT, "w_scales must not be NULL", c.sp = NULL);
    EXPECT(FP8_E_ARGUMENT, "data is NULL", c.x.data = NULL);
    EXPECT(FP8_E_ARGUMENT, "data is NULL", c.b.data = NULL);
    EXPECT(FP8_E_ARGUMENT, "struct_bytes", c.desc.struct_bytes = 4);
    EXPECT(FP8_E_ARGUMENT, "activation 9", c.desc.activation = (fp8_activation)9);
    EXPECT(FP8_E_ARGUMENT, "epilogue 3", c.desc.epilogue = (fp8_epilogue)3);
    EXPECT(FP8_E_ARGUMENT, "x_scales must be NULL", c.xs = &c.s);
    EXPECT(FP8_E_ARGUMENT, "x_scales must not be NULL", c.desc.activation = FP8_ACTIVATION_CODES;
           c.x.dtype = FP8_E4M3FN);
    EXPECT(FP8_E_SHAPE, "[37,299]", c.x.shape[1] = 299);
    EXPECT(FP8_E_SHAPE, "[36,150]", c.y.shape[0] = 36);
    EXPECT(FP8_E_SHAPE, "[149,1]", c.s.shape[0] = 149);
    EXPECT(FP8_E_SHAPE, "149 elements", c.b.shape[0] = 149);
    EXPECT(FP8_E_SHAPE, "1 dimensions", c.w.ndim = 1);
    EXPECT(FP8_E_SHAPE, "must be >= 0", c.w.shape[0] = -1);
    EXPECT(FP8_E_SHAPE, "does not fit", c.w.shape[0] = INT64_MAX; c.w.shape[1] = 2);
    EXPECT(FP8_E_SHAPE, "sum to 149", c.desc.widths = widths; c.desc.width_count = 2;
           c.desc.w.grid = (fp8_grid){0, 0});
    EXPECT(FP8_E_SHAPE, "width 1 is -50", c.desc.widths = negative; c.desc.width_count = 2;
           c.desc.w.grid = (fp8_grid){0, 0});
    EXPECT(FP8_E_SHAPE, "the sum an int64_t", c.desc.widths = large; c.desc.width_count = 2;
           c.desc.w.grid = (fp8_grid){0, 0});
    EXPECT(FP8_E_UNSUPPORTED, "with widths", c.desc.widths = right; c.desc.width_count = 2);
    EXPECT(FP8_E_ARGUMENT, "not inside a block", c.desc.w_origin.rows = 1);
    EXPECT(FP8_E_SHAPE, "ends above INT64_MAX", c.desc.w.grid = (fp8_grid){INT64_MAX, 0};
           c.desc.w_origin.rows = INT64_MAX - N + 1);
    EXPECT(FP8_E_SHAPE, "ends above INT64_MAX", c.desc.w.grid = (fp8_grid){0, INT64_MAX};
           c.desc.w_origin.cols = INT64_MAX - 1);
    EXPECT(FP8_E_ARGUMENT, "must be >= 0", c.desc.w.grid.cols = -1);
    EXPECT(FP8_E_UNSUPPORTED, "must be 0 x 0 or have 1 row", c.desc.x.grid = (fp8_grid){2, 0});
    EXPECT(FP8_E_UNSUPPORTED, "rounded weights", c.desc.weight_math = FP8_WEIGHT_ROUNDED);
    EXPECT(FP8_E_DTYPE, "x is F8_E4M3", c.x.dtype = FP8_E4M3FN);
    EXPECT(FP8_E_DTYPE, "w is I8", c.w.dtype = FP8_I8);
    EXPECT(FP8_E_DTYPE, "w_scales are F64", c.s.dtype = FP8_F64);
    EXPECT(FP8_E_DTYPE, "bias is F8", c.b.dtype = FP8_E4M3FN);
    EXPECT(FP8_E_DTYPE, "bias is no dtype (77)", c.b.dtype = (fp8_dtype)77);
    EXPECT(FP8_E_DTYPE, "y is F8", c.y.dtype = FP8_E4M3FN);
    EXPECT(FP8_E_SCALE, "w_scales[149,0] is nan", c.s.data = nan_scale);
    EXPECT(FP8_E_SCALE, "w_scales[3,0] is 0", c.s.data = zero_scale);
    EXPECT(FP8_E_SCALE, "w_scales[7,0] is inf", c.s.data = large_scale);
    EXPECT(FP8_E_SCALE, "x_static is 0", c.desc.activation = FP8_ACTIVATION_STATIC;
           c.desc.x.grid = (fp8_grid){0, 0});
    EXPECT(FP8_E_NAN, "[2,1] is infinity", c.x.data = nan_x; c.desc.x.nan = FP8_NAN_REFUSE);
    EXPECT(FP8_E_NAN, "[2,1] is infinity", c.x.data = nan_x; c.desc.x.nan = FP8_NAN_REFUSE;
           c.desc.activation = FP8_ACTIVATION_STATIC; c.desc.x.grid = (fp8_grid){0, 0};
           c.desc.x_static = 1);
    EXPECT(FP8_E_STRIDE, "overlaps itself", c.y.stride[0] = N - 1);
    EXPECT(FP8_E_STRIDE, "overlap in memory", c.y.data = x_bits);
    EXPECT(FP8_E_STRIDE, "w and y overlap in memory", c.y.data = w_codes);
    EXPECT(FP8_E_STRIDE, "w_scales and y overlap in memory", c.s.data = misuse_y);
    EXPECT(FP8_E_STRIDE, "bias and y overlap in memory", c.b.data = misuse_y + (M - 1) * N);
    EXPECT(FP8_E_SHAPE, "x_scales is [", c.desc.activation = FP8_ACTIVATION_CODES;
           c.x.dtype = FP8_E4M3FN; c.s2 = c.s; c.s2.shape[0] = c.s2.shape[1] = INT64_MIN;
           c.xs = &c.s2);
    fp8_context_free(ctx);
}

static void a_small_workspace_is_refused(void **state)
{
    (void)state;
    fp8_context *ctx;
    fp8_error err;
    uint64_t bytes, fewer;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    fp8_linear *linear = linear_new(ctx, FP8_ACTIVATION_DYNAMIC);
    const fp8_tensor x = fp8_matrix(x_bits, FP8_BF16, M, K);
    fp8_tensor y = fp8_matrix(misuse_y, FP8_F32, M, N);
    assert_int_equal(fp8_linear_workspace(linear, M, &bytes, &err), FP8_OK);
    char *space = malloc(bytes);
    assert_int_equal(fp8_linear_run(linear, &x, NULL, &y, space, bytes - 1, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "workspace"));
    assert_int_equal(fp8_linear_run(linear, &x, NULL, &y, NULL, bytes, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_linear_run(linear, &x, NULL, &y, space, bytes, space, &err),
                     FP8_E_ARGUMENT);
    y.data = space;
    assert_int_equal(fp8_linear_run(linear, &x, NULL, &y, space, bytes, NULL, &err), FP8_E_STRIDE);
    for (int64_t m = 0; m <= 300; m++, bytes = fewer) {
        assert_int_equal(fp8_linear_workspace(linear, m, &fewer, NULL), FP8_OK);
        assert_true(m == 0 || fewer >= bytes);
    }
    assert_int_equal(fp8_linear_workspace(linear, -1, &bytes, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_linear_workspace(linear, INT64_MAX / 64, &bytes, NULL), FP8_E_SHAPE);
    free(space);
    fp8_linear_free(linear);
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(batch_invariance_holds_at_every_level),
        cmocka_unit_test(views_of_any_stride_are_honoured),
        cmocka_unit_test(nan_makes_nan_of_what_it_takes_part_in),
        cmocka_unit_test(what_went_in_comes_out),
        cmocka_unit_test(a_weight_is_held_once),
        cmocka_unit_test(create_survives_every_failing_allocation),
        cmocka_unit_test(run_allocates_nothing),
        cmocka_unit_test(misuse_is_refused_in_words),
        cmocka_unit_test(a_small_workspace_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
