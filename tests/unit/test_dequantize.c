/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dequantize.c - fp8_dequantize and fp8_dequant_rows against the formula written out here,
 * byte for byte, at every level: grids of all kinds, partial edge blocks, all dtypes, odd strides,
 * page ends, slabs, threads; and what they refuse. */
#include "base/size.h"
#include "number/dtype.h"
#include "number/number.h"
#include "op/quantize.h"
#include "support/guard.h"
#include "support/levels.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const fp8_dtype code_dtypes[] = {FP8_E4M3FN, FP8_E4M3FNUZ, FP8_E5M2, FP8_E5M2FNUZ};
static const fp8_dtype scale_dtypes[] = {FP8_F32, FP8_BF16, FP8_F16, FP8_E8M0FNU};
static const fp8_dtype y_dtypes[] = {FP8_F32, FP8_F16, FP8_BF16};
enum { CODES = 4, SCALES = 4, YS = 3 };

/* Codes [rows, cols] and scales for `grid`, random, NaN and infinity among them. */
typedef struct problem {
    fp8_grid grid;
    fp8_tensor codes, scales;
    guard code_memory, scale_memory;
} problem;

static uint32_t random_word(void)
{
    static uint32_t x = 99;
    return next_random(&x);
}

static problem problem_new(int64_t rows, int64_t cols, fp8_grid grid, fp8_dtype code,
                           fp8_dtype scale)
{
    const int64_t grid_rows = fp8_ceil_div(rows, fp8_grid_extent(grid.rows, rows));
    const int64_t grid_cols = fp8_ceil_div(cols, fp8_grid_extent(grid.cols, cols));
    const size_t code_bytes = (size_t)(rows * cols);
    const size_t scale_bytes = (size_t)(grid_rows * grid_cols * fp8_dtype_bits(scale) / 8);
    problem p = {grid, {0}, {0}, guard_new(code_bytes), guard_new(scale_bytes)};
    uint8_t *codes = guard_at_end(&p.code_memory, code_bytes);
    void *scales = guard_at_end(&p.scale_memory, scale_bytes);
    for (size_t i = 0; i < code_bytes; i++)
        codes[i] = (uint8_t)(random_word() >> 8);
    for (int64_t i = 0; i < grid_rows * grid_cols; i++) {
        const uint32_t word = random_word();
        float value = ldexpf((float)(word >> 8), (int)(word & 31) - 40);
        if ((word & 0xE0) == 0) /* some are NaN, infinite, negative or huge */
            value = fp8_f32_of_bits(random_word());
        fp8_dtype_facts_of(scale)->store(scales, i, value, false);
    }
    p.codes = fp8_matrix(codes, code, rows, cols);
    p.scales = fp8_matrix(scales, scale, grid_rows, grid_cols);
    return p;
}

static void problem_free(problem *p)
{
    guard_free(&p->code_memory);
    guard_free(&p->scale_memory);
}

static float element(const fp8_tensor *t, int64_t i, int64_t j)
{
    return fp8_dtype_facts_of(t->dtype)->load(t->data, i * t->stride[0] + j * t->stride[1]);
}

/* y[rows, cols], contiguous, by the formula. */
static void expect(const problem *p, fp8_dtype dtype, void *y)
{
    const int64_t rows = p->codes.shape[0], cols = p->codes.shape[1];
    const int64_t gr = fp8_grid_extent(p->grid.rows, rows);
    const int64_t gc = fp8_grid_extent(p->grid.cols, cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float real = element(&p->codes, i, j) * element(&p->scales, i / gr, j / gc);
            if (isnan(real))
                real = fp8_f32_of_bits(0x7FC00000);
            fp8_dtype_facts_of(dtype)->store(y, i * cols + j, real, false);
        }
}

static void check(const fp8_context *ctx, const problem *p, fp8_dtype dtype)
{
    const int64_t rows = p->codes.shape[0], cols = p->codes.shape[1];
    const size_t bytes = (size_t)(rows * cols * fp8_dtype_bits(dtype) / 8);
    guard memory = guard_new(bytes);
    void *want = malloc(bytes + 1), *got = guard_at_end(&memory, bytes);
    assert_non_null(want);
    expect(p, dtype, want);
    fp8_tensor y = fp8_matrix(got, dtype, rows, cols);
    fp8_error err;
    if (fp8_dequantize(ctx, p->grid, &p->codes, &p->scales, &y, NULL, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    if (memcmp(got, want, bytes))
        fail_msg("[%lld,%lld] grid {%lld,%lld} %s * %s -> %s at level %s differs", (long long)rows,
                 (long long)cols, (long long)p->grid.rows, (long long)p->grid.cols,
                 fp8_dtype_name(p->codes.dtype), fp8_dtype_name(p->scales.dtype),
                 fp8_dtype_name(dtype), fp8_isa_name(ctx->isa));
    free(want);
    guard_free(&memory);
}

typedef void (*level_test)(const fp8_context *ctx);

static void at_every_level(level_test test, int threads)
{
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, threads);
        if (ctx)
            test(ctx);
        fp8_context_free(ctx);
    }
}

static void check_dtypes(const fp8_context *ctx)
{
    for (int k = 0; k < CODES * SCALES * YS; k++) {
        problem p = problem_new(7, 300, (fp8_grid){2, 128}, code_dtypes[k % CODES],
                                scale_dtypes[k / CODES % SCALES]);
        check(ctx, &p, y_dtypes[k / CODES / SCALES]);
        problem_free(&p);
    }
}

static void every_combination_of_dtypes_is_exact(void **state)
{
    (void)state;
    at_every_level(check_dtypes, 1);
}

static void check_shapes(const fp8_context *ctx)
{
    static const fp8_grid grids[] = {{0, 0},   {1, 0},  {0, 1},     {1, 1},  {1, 32},
                                     {1, 128}, {3, 64}, {128, 128}, {2, 63}, {5, 65}};
    static const int64_t sizes[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 257};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (size_t r = 0; r < SIZES; r += 1 + r % 3)
            for (size_t c = 0; c < SIZES; c++) {
                problem p = problem_new(sizes[r], sizes[c], grids[g], FP8_E4M3FN, FP8_F32);
                check(ctx, &p, FP8_BF16);
                problem_free(&p);
            }
}

static void every_grid_and_edge_is_exact(void **state)
{
    (void)state;
    at_every_level(check_shapes, 1);
}

static void check_wide(const fp8_context *ctx)
{
    static const fp8_grid grids[] = {{0, 0}, {1, 1}, {1, 32}, {1, 5000}, {2, 4097}, {1, 128}};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        problem p = problem_new(3, 70001, grids[g], FP8_E5M2, FP8_BF16);
        check(ctx, &p, FP8_F16);
        problem_free(&p);
        problem q = problem_new(301, 513, grids[g], FP8_E4M3FN, FP8_E8M0FNU);
        check(ctx, &q, FP8_BF16);
        problem_free(&q);
    }
}

static void pieces_and_threads_meet_without_a_seam(void **state)
{
    (void)state;
    at_every_level(check_wide, 1);
    at_every_level(check_wide, 3);
}

/* The transposed codes and scales, and a y with a gap after each element and rows upside down. */
static void check_strides(const fp8_context *ctx)
{
    enum { ROWS = 37, COLS = 70 };
    static uint16_t want[ROWS * COLS], memory[ROWS * COLS * 2 + 1];
    problem p = problem_new(COLS, ROWS, (fp8_grid){32, 8}, FP8_E4M3FN, FP8_F32);
    fp8_tensor *const views[] = {&p.codes, &p.scales};
    for (int k = 0; k < 2; k++) {
        fp8_tensor *t = views[k];
        *t = (fp8_tensor){t->data, t->dtype, 2, {t->shape[1], t->shape[0]}, {1, t->shape[1]}};
    }
    p.grid = (fp8_grid){8, 32};
    expect(&p, FP8_BF16, want);
    memset(memory, 0x5A, sizeof memory);
    fp8_tensor y = {memory + 2 * COLS * (ROWS - 1), FP8_BF16, 2, {ROWS, COLS}, {-2 * COLS, 2}};
    assert_int_equal(fp8_dequantize(ctx, p.grid, &p.codes, &p.scales, &y, NULL, NULL), FP8_OK);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            const int at = 2 * COLS * (ROWS - 1 - i) + 2 * j;
            assert_int_equal(memory[at], want[i * COLS + j]);
            assert_int_equal(memory[at + 1], 0x5A5A);
        }
    problem_free(&p);
}

static void strides_may_be_anything(void **state)
{
    (void)state;
    at_every_level(check_strides, 1);
}

static void check_slabs(const fp8_context *ctx)
{
    enum { ROWS = 301, COLS = 200 };
    static float whole[ROWS * COLS], slabs[ROWS * COLS];
    static const fp8_grid grids[] = {{0, 0}, {128, 128}, {1, 0}, {7, 50}};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        problem p = problem_new(ROWS, COLS, grids[g], FP8_E4M3FN, FP8_F32);
        expect(&p, FP8_F32, whole);
        memset(slabs, 0, sizeof slabs);
        for (int64_t row = 0, n = 1; row < ROWS; row += n, n = fp8_min_i64(n * 2, ROWS - row)) {
            fp8_tensor codes =
                fp8_matrix((uint8_t *)p.codes.data + row * COLS, FP8_E4M3FN, n, COLS);
            fp8_tensor y = fp8_matrix(slabs + row * COLS, FP8_F32, n, COLS);
            assert_int_equal(fp8_dequant_rows(ctx, p.grid, &codes, &p.scales, row, &y, NULL),
                             FP8_OK);
        }
        assert_memory_equal(slabs, whole, sizeof whole);
        problem_free(&p);
    }
}

static void slabs_make_the_whole(void **state)
{
    (void)state;
    at_every_level(check_slabs, 1);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    fp8_context *ctx = context_at_level(FP8_ISA_SCALAR, 1);
    problem p = problem_new(4, 64, (fp8_grid){1, 32}, FP8_E4M3FN, FP8_F32);
    static float memory[4 * 64];
    fp8_tensor y = fp8_matrix(memory, FP8_F32, 4, 64), bad;
    fp8_error err;
    const fp8_grid grid = p.grid;
    const fp8_tensor *codes = &p.codes, *scales = &p.scales;
    assert_int_equal(fp8_dequantize(NULL, grid, codes, scales, &y, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_dequantize(ctx, grid, NULL, scales, &y, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_dequantize(ctx, grid, codes, NULL, &y, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_dequantize(ctx, grid, codes, scales, NULL, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_dequantize(ctx, (fp8_grid){-1, 32}, codes, scales, &y, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(fp8_dequantize(ctx, (fp8_grid){1, 31}, codes, scales, &y, NULL, &err),
                     FP8_E_SHAPE);
    assert_int_equal(fp8_dequantize(ctx, (fp8_grid){2, 32}, codes, scales, &y, NULL, &err),
                     FP8_E_SHAPE);
    assert_non_null(strstr(err.msg, "scales have 4 rows, must have 2"));
    assert_int_equal(fp8_dequant_rows(ctx, grid, codes, scales, 1, &y, &err), FP8_E_SHAPE);
    assert_int_equal(fp8_dequant_rows(ctx, grid, codes, scales, -1, &y, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_dequant_rows(ctx, grid, codes, scales, INT64_MAX, &y, &err),
                     FP8_E_ARGUMENT);
    bad = y;
    bad.shape[1] = 63;
    assert_int_equal(fp8_dequantize(ctx, grid, codes, scales, &bad, NULL, &err), FP8_E_SHAPE);
    bad = y;
    bad.stride[0] = 63;
    assert_int_equal(fp8_dequantize(ctx, grid, codes, scales, &bad, NULL, &err), FP8_E_STRIDE);
    bad = y;
    bad.dtype = FP8_E4M3FN;
    assert_int_equal(fp8_dequantize(ctx, grid, codes, scales, &bad, NULL, &err), FP8_E_DTYPE);
    bad = p.codes;
    bad.dtype = FP8_U8;
    assert_int_equal(fp8_dequantize(ctx, grid, &bad, scales, &y, NULL, &err), FP8_E_DTYPE);
    bad = p.scales;
    bad.dtype = FP8_I32;
    assert_int_equal(fp8_dequantize(ctx, grid, codes, &bad, &y, NULL, &err), FP8_E_DTYPE);
    bad = fp8_matrix(memory, FP8_E4M3FN, 4, 64);
    assert_int_equal(fp8_dequantize(ctx, grid, &bad, scales, &y, NULL, &err), FP8_E_STRIDE);
    problem_free(&p);
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_dtypes_is_exact),
        cmocka_unit_test(every_grid_and_edge_is_exact),
        cmocka_unit_test(pieces_and_threads_meet_without_a_seam),
        cmocka_unit_test(strides_may_be_anything),
        cmocka_unit_test(slabs_make_the_whole),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
