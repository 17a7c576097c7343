/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_linear.c - linears on a GPU against the definition in double, within the bound: every
 * kind of X with every kind of W, every dtype of Y, edge shapes, weights from the host and from the
 * device; exports, clones, gradients. Outputs and workspaces are full of NaN before. */
#include "support/gpu.h"
#include "support/linear_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "support/gpu_main.h"

static fp8_context *gpu, *cpu;

static const fp8_dtype y_dtypes[] = {FP8_F32, FP8_BF16, FP8_F16};

/* A linear of a problem; of a weight on the device every second time. */
static fp8_linear *create(const problem *p, bool with_bias)
{
    static int turn;
    problem q = *p;
    gpu_tensor w, scales, bias;
    if (turn++ % 2 == 0)
        return linear_of(gpu, p, with_bias);
    w = gpu_tensor_new(gpu, &p->w, 0);
    scales = gpu_tensor_new(gpu, p->has_w_scales ? &p->w_scales : &p->w, 0);
    bias = gpu_tensor_new(gpu, &p->bias, 0);
    q.w = w.t;
    q.w_scales = scales.t;
    q.bias = bias.t;
    fp8_linear *linear = linear_of(gpu, &q, with_bias);
    gpu_tensor_free(&w);
    gpu_tensor_free(&scales);
    gpu_tensor_free(&bias);
    return linear;
}

/* y on the host = the linear of x on the device. */
static void run(const fp8_linear *linear, const problem *p, const fp8_tensor *y)
{
    const bool codes = p->desc.activation == FP8_ACTIVATION_CODES;
    gpu_tensor x = gpu_tensor_new(gpu, &p->x, 0), yd = gpu_tensor_new(gpu, y, 1);
    gpu_tensor x_scales = gpu_tensor_new(gpu, codes ? &p->x_scales : &p->x, 0);
    uint64_t bytes;
    fp8_error err;
    gpu_need(fp8_linear_workspace(linear, p->m, &bytes, &err), &err);
    const fp8_tensor room = fp8_matrix(NULL, FP8_U8, 1, (int64_t)bytes);
    gpu_tensor space = gpu_tensor_new(gpu, &room, 1);
    if (fp8_linear_run(linear, &x.t, codes ? &x_scales.t : NULL, &yd.t, space.t.data, bytes, NULL,
                       &err) != FP8_OK)
        fail_msg("%s", err.msg);
    gpu_tensor_read(&yd, y);
    gpu_tensor_free(&x);
    gpu_tensor_free(&yd);
    gpu_tensor_free(&x_scales);
    gpu_tensor_free(&space);
}

static void words_of(const problem *p, const kind *xk, const kind *wk, char *words, size_t bytes)
{
    snprintf(words, bytes, "x %s, w %s, [%lld,%lld,%lld]", xk->name, wk->name, (long long)p->m,
             (long long)p->n, (long long)p->k);
}

/* What tensor cores may lose that add 32 products in 13 bits, where fp8_explain says that they are
 * taken; they give Y in 16 bits and add the bias before they round. */
static double coarseness(const problem *p, bool with_bias, fp8_dtype y)
{
    fp8_linear_desc desc = p->desc;
    fp8_candidate c;
    bool fast = false, mma = false; /* mma: or those that make 16 bits of w, as exact */
    int chosen = 0;
    desc.widths = desc.width_count ? p->widths : NULL;
    for (int64_t i = 0;
         fp8_explain(gpu, &desc, p->m, p->n, p->k, p->x.dtype, p->w.dtype, i, &c, NULL) == FP8_OK;
         i++) {
        const bool wide = !strncmp(c.kernel, "gemm_wide", 9);
        fast |= c.chosen && !wide && !strcmp(c.isa, "sm_90a");
        mma |= wide || !strncmp(c.kernel, "gemm_mma", 8);
        chosen += c.chosen;
    }
    assert_int_equal(chosen, 1);
    const bool late = with_bias && p->desc.epilogue == FP8_EPILOGUE_BIAS_LAST;
    if (fast && y != FP8_F32 && !late)
        return 1e-3;
    return mma ? ((double)p->k / 16 + 2) * 0x1p-21 : 0;
}

static long fast_cases, mma_cases;

/* SLOW in the environment leaves out Y in 16 bits, and so the fast kernels, for a sanitizer. */
static void check_y(const fp8_linear *linear, problem *p, bool with_bias, const char *where)
{
    for (size_t d = 0; d < COUNT(y_dtypes); d++) {
        if (getenv("SLOW") && y_dtypes[d] != FP8_F32)
            continue;
        char words[160];
        fp8_tensor y = fp8_matrix(malloc((size_t)(p->m * p->n * 4 + 1)), y_dtypes[d], p->m, p->n);
        p->coarse = coarseness(p, with_bias, y_dtypes[d]);
        fast_cases += p->coarse >= 1e-3;
        mma_cases += p->coarse > 0 && p->coarse < 1e-3;
        run(linear, p, &y);
        if (find_wrong(p, &y, with_bias, words, sizeof words))
            fail_msg("%s, %s, bias %d: %s", where, fp8_dtype_name(y_dtypes[d]), with_bias, words);
        free(y.data);
    }
}

/* What comes back is what was given. */
static void check_export(const fp8_linear *linear, const problem *p)
{
    fp8_tensor codes = fp8_matrix(malloc((size_t)(p->n * p->k) + 1), p->w.dtype, p->n, p->k);
    fp8_error err;
    if (!p->has_w_scales) {
        free(codes.data);
        return;
    }
    fp8_tensor scales = p->w_scales;
    const int64_t count = scales.shape[0] * scales.shape[1];
    const size_t scale_bytes = (size_t)(count * fp8_dtype_bits(scales.dtype) / 8);
    scales.data = malloc(scale_bytes + 1);
    gpu_need(fp8_linear_export(linear, &codes, &scales, &err), &err);
    assert_memory_equal(codes.data, p->w.data, (size_t)(p->n * p->k));
    assert_memory_equal(scales.data, p->w_scales.data, scale_bytes);
    free(codes.data);
    free(scales.data);
}

static void every_pair_of_kinds_is_within_the_bound(void **state)
{
    (void)state;
    const int few = getenv("FEW") ? atoi(getenv("FEW")) : 1; /* one in so many, for a sanitizer */
    int turn = 0;
    long checked = 0;
    for (size_t a = 0; a < X_KINDS; a++)
        for (size_t b = 0; b < W_KINDS; b++)
            for (size_t s = 0; s < LINEAR_SHAPES; s++) {
                if (turn++ % few != 0)
                    continue;
                problem p = problem_new(cpu, &x_kinds[a], &w_kinds[b], linear_shapes[s]);
                char where[160];
                words_of(&p, &x_kinds[a], &w_kinds[b], where, sizeof where);
                for (int with_bias = 0; with_bias < 2; with_bias++) {
                    p.desc.epilogue = (fp8_epilogue)(random_word() >> 8) % 3;
                    fp8_linear *linear = create(&p, with_bias), *clone;
                    check_y(linear, &p, with_bias, where);
                    check_export(linear, &p);
                    assert_int_equal(fp8_linear_clone(linear, &clone, NULL), FP8_OK);
                    fp8_linear_free(linear);
                    check_y(clone, &p, with_bias, where);
                    fp8_linear_free(clone);
                    checked += 2 * (long)COUNT(y_dtypes);
                }
                problem_free(&p);
            }
    printf("linear on the GPU: %ld cases, %ld of them by fast kernels, %ld may be by mma\n",
           checked, fast_cases, mma_cases);
}

/* What tensor cores may lose, which take dY in 16 columns each. */
static double dx_coarseness(const problem *p)
{
    return p->n % 16 == 0 ? ((double)p->n / 16 + 2) * 0x1p-21 : 0;
}

/* What X may not be read as, if it was quantized: high precision in scales and codes of its own. */
static void dx_case(const kind *wk, const int64_t *shape, fp8_dtype dtype)
{
    problem p = problem_new(cpu, &x_kinds[0], wk, shape);
    guard memory;
    const fp8_tensor dy = elements_new(dtype, p.m, p.n, &memory);
    fp8_tensor dx = fp8_matrix(malloc((size_t)(p.m * p.k * 4 + 1)), dtype, p.m, p.k);
    fp8_linear *linear = create(&p, true);
    gpu_tensor in = gpu_tensor_new(gpu, &dy, 0), out = gpu_tensor_new(gpu, &dx, 1);
    uint64_t bytes;
    fp8_error err;
    gpu_need(fp8_linear_workspace(linear, p.m, &bytes, &err), &err);
    const fp8_tensor room = fp8_matrix(NULL, FP8_U8, 1, (int64_t)bytes);
    gpu_tensor space = gpu_tensor_new(gpu, &room, 1);
    if (fp8_linear_run_dx(linear, &in.t, &out.t, space.t.data, bytes, NULL, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    gpu_tensor_read(&out, &dx);
    const operand g = {&dy, NULL, {0, 0}, {0, 0}, NULL};
    const operand w = {&p.w, &p.w_scales, p.desc.w.grid, p.desc.w_origin,
                       p.desc.width_count ? p.widths : NULL};
    double *gr = reals_of(&g), *wr = reals_of(&w);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t k = 0; k < p.k; k++) {
            double exact = 0, size = 0;
            for (int64_t n = 0; n < p.n; n++) {
                exact += gr[i * p.n + n] * wr[n * p.k + k];
                size += fabs(gr[i * p.n + n] * wr[n * p.k + k]);
            }
            const double got = element_of(&dx, i, k);
            const double bound = linear_bound(p.n, exact, size, 0, p.largest_scale, dtype, 1) +
                                 dx_coarseness(&p) * size;
            if (!(fabs(got - exact) <= bound))
                fail_msg("w %s, [%lld,%lld,%lld]: dx[%lld,%lld] is %.9g, exactly %.9g, bound %.3g",
                         wk->name, (long long)p.m, (long long)p.n, (long long)p.k, (long long)i,
                         (long long)k, got, exact, bound);
        }
    free(gr);
    free(wr);
    free(dx.data);
    fp8_linear_free(linear);
    gpu_tensor_free(&in);
    gpu_tensor_free(&out);
    gpu_tensor_free(&space);
    guard_free(&memory);
    problem_free(&p);
}

/* A weight with an infinity is refused by its place, from the host and from the device. */
static void a_weight_that_is_not_finite_is_refused(void **state)
{
    (void)state;
    enum { N = 70, K = 300, BAD_ROW = 37, BAD_COL = 211 };
    static float values[N * K];
    const fp8_tensor w = fp8_matrix(values, FP8_F32, N, K);
    const fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    values[BAD_ROW * K + BAD_COL] = INFINITY;
    values[N * K - 1] = NAN;
    gpu_tensor there = gpu_tensor_new(gpu, &w, 0);
    for (int i = 0; i < 2; i++) {
        fp8_linear *linear;
        fp8_error err;
        assert_int_equal(
            fp8_linear_create(gpu, &desc, i ? &there.t : &w, NULL, NULL, &linear, &err), FP8_E_NAN);
        assert_int_equal(err.pos, BAD_ROW * K + BAD_COL);
        assert_null(linear);
    }
    gpu_tensor_free(&there);
}

/* More rows than a tile of the tensor cores, and more than one of their steps along N. */
static const int64_t dx_shapes[][3] = {
    {130, 144, 200}, {17, 384, 270}, {129, 528, 17}, {64, 32, 128}};

static void dx_of_every_weight_is_within_the_bound(void **state)
{
    (void)state;
    const int few = getenv("FEW") ? atoi(getenv("FEW")) : 1;
    long checked = 0;
    int turn = 0;
    for (size_t b = 0; b < W_KINDS; b++)
        for (size_t s = 0; s < LINEAR_SHAPES + 3 * COUNT(dx_shapes); s++) {
            const size_t more = s - LINEAR_SHAPES;
            if (!fp8_dtype_is_fp8(w_kinds[b].dtype) || turn++ % few != 0)
                continue;
            dx_case(&w_kinds[b], s < LINEAR_SHAPES ? linear_shapes[s] : dx_shapes[more / 3],
                    y_dtypes[s < LINEAR_SHAPES ? s % 3 : more % 3]);
            checked++;
        }
    printf("dx on the GPU: %ld cases\n", checked);
}

/* ---- layouts ---- */

enum { SIDE = 256, BLOCKS = SIDE / 128, MOST_ROWS = 200, APART = SIDE + 16 };

/* Codes [rows, SIDE], elements that the row decides as well where the stride is not 0. */
static fp8_tensor codes_of(uint8_t *memory, int64_t rows, int64_t stride)
{
    fp8_tensor t = fp8_matrix(memory, FP8_E4M3FN, rows, SIDE);
    t.stride[0] = stride;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < SIDE; j++)
            memory[i * stride + j] = (uint8_t)((stride ? i * 37 : 0) + j * 11) % 120;
    return t;
}

/* Scales [rows, BLOCKS] with NaN between. */
static fp8_tensor scales_of(float *memory, int64_t rows, int64_t row, int64_t col)
{
    fp8_tensor t = fp8_matrix(memory, FP8_F32, rows, BLOCKS);
    t.stride[0] = row;
    t.stride[1] = col;
    memset(memory, 0xFF, sizeof(float) * (size_t)((rows - 1) * row + (BLOCKS - 1) * col + 1));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < BLOCKS; j++)
            memory[i * row + j * col] = (float)(1 + (i * 3 + j) % 7) / 16;
    return t;
}

static void run_rows(const fp8_linear *linear, const fp8_tensor *x, const fp8_tensor *x_scales,
                     uint16_t y[MOST_ROWS * SIDE])
{
    const problem p = {
        .m = x->shape[0], .desc.activation = FP8_ACTIVATION_CODES, .x = *x, .x_scales = *x_scales};
    const fp8_tensor to = fp8_matrix(y, FP8_BF16, p.m, SIDE);
    run(linear, &p, &to);
}

/* X in bf16, whose rows are one, and copies of it. */
static void a_row_many_times_is_as_many_rows(void **state)
{
    (void)state;
    static uint8_t w_codes[SIDE * SIDE];
    static uint16_t row[SIDE], rows[MOST_ROWS * SIDE], y[MOST_ROWS * SIDE], want[MOST_ROWS * SIDE];
    float one = 1;
    const fp8_tensor w = codes_of(w_codes, SIDE, SIDE);
    problem p = {.w = w, .w_scales = fp8_matrix(&one, FP8_F32, 1, 1), .has_w_scales = true};
    p.desc = (fp8_linear_desc)FP8_LINEAR_DESC_INIT;
    fp8_linear *linear = linear_of(gpu, &p, false);
    for (int j = 0; j < SIDE; j++)
        row[j] = (uint16_t)(0x3F80 + j); /* from 1 on */
    for (int i = 0; i < MOST_ROWS; i++)
        memcpy(rows + i * SIDE, row, sizeof row);
    for (p.m = 2; p.m <= MOST_ROWS; p.m += 33) {
        fp8_tensor to = fp8_matrix(want, FP8_BF16, p.m, SIDE);
        p.x = fp8_matrix(rows, FP8_BF16, p.m, SIDE);
        run(linear, &p, &to);
        to.data = y;
        p.x.data = row;
        p.x.stride[0] = 0;
        run(linear, &p, &to);
        assert_memory_equal(y, want, (size_t)(p.m * SIDE) * sizeof *y);
    }
    fp8_linear_free(linear);
}

/* Blocks: scales wherever they lie, rows of X that are one, and copies of both side by side. */
static void how_x_lies_changes_no_bit(void **state)
{
    (void)state;
    static const struct {
        int64_t m, at, row, col, x_stride;
    } cases[] = {{1, 0, BLOCKS, 1, SIDE}, {1, 1, BLOCKS, 1, SIDE},  {8, 1, 1, 9, SIDE},
                 {16, 3, 1, 17, 0},       {16, 0, BLOCKS, 1, SIDE}, {30, 0, 1, 32, 0},
                 {30, 1, 1, 33, SIDE},    {200, 0, 1, 200, 0},      {200, 2, BLOCKS, 1, 0}};
    static uint8_t w_codes[SIDE * SIDE], x_memory[MOST_ROWS * APART];
    static float x_scale_memory[MOST_ROWS * BLOCKS + 16];
    static uint16_t y[MOST_ROWS * SIDE], want[MOST_ROWS * SIDE];
    float w_scale_memory[] = {1, 0.5F, 2, 1};
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *linear;
    fp8_error err;
    const fp8_tensor w = codes_of(w_codes, SIDE, SIDE);
    const fp8_tensor w_scales = fp8_matrix(w_scale_memory, FP8_F32, BLOCKS, BLOCKS);
    desc.activation = FP8_ACTIVATION_CODES;
    desc.x.grid = (fp8_grid){1, 128};
    desc.w.grid = (fp8_grid){128, 128};
    gpu_need(fp8_linear_create(gpu, &desc, &w, &w_scales, NULL, &linear, &err), &err);
    for (size_t i = 0; i < COUNT(cases); i++) {
        const int64_t m = cases[i].m;
        fp8_tensor x = codes_of(x_memory, m, cases[i].x_stride);
        fp8_tensor s = scales_of(x_scale_memory + cases[i].at, m, cases[i].row, cases[i].col);
        run_rows(linear, &x, &s, y);
        x = codes_of(x_memory, m, APART);
        for (int64_t r = 1; r < m && !cases[i].x_stride; r++)
            memcpy(x_memory + r * x.stride[0], x_memory, SIDE);
        s = scales_of(x_scale_memory, m, 1, (m + 3) / 4 * 4);
        run_rows(linear, &x, &s, want);
        assert_memory_equal(y, want, (size_t)(m * SIDE) * sizeof *y);
    }
    fp8_linear_free(linear);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_kinds_is_within_the_bound),
        cmocka_unit_test(a_weight_that_is_not_finite_is_refused),
        cmocka_unit_test(dx_of_every_weight_is_within_the_bound),
        cmocka_unit_test(a_row_many_times_is_as_many_rows),
        cmocka_unit_test(how_x_lies_changes_no_bit),
    };
    fp8_error err;
    gpu_need(fp8_context_create(NULL, &cpu, &err), &err);
    const int failed = gpu_main(tests, COUNT(tests), &gpu);
    fp8_context_free(cpu);
    return failed;
}
