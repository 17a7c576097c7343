/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_quantize.c - quantizing, dequantizing and requantizing on GPU 0 against the CPU, bit for
 * bit: every rule and grid and dtype that go together, over shapes at the edges of the kernels,
 * layouts (gaps, steps, transposed, backwards, misaligned) and contents (wide exponents, zeros,
 * tiny and huge numbers, NaN and infinity). What lies between the elements must stay as it was.
 *
 * Of quantizing, which has very many, one case in five is tried, another for each rule and grid.
 *
 *     test_gpu_quantize [N]     one of N cases more, for slow tools
 *     test_gpu_quantize 0       all of them */
#include "base/size.h"
#include "number/dtype.h"
#include "support/device_copy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

enum { ARENA_BYTES = 1 << 29, SHOWN = 20 };
static fp8_context *cpu, *gpu;
static device_arena arena;
static int one_of = 1; /* cases; 0: all */
enum { QUANTIZED_OF = 5 };
static long long compared, refused, wrong;

static uint64_t seed = 1;
static uint32_t next(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static const fp8_dtype inputs[] = {FP8_BF16, FP8_F16, FP8_F32};
static const fp8_dtype codes_of[] = {FP8_E4M3FN, FP8_E4M3FNUZ, FP8_E5M2};
static const fp8_dtype scales_of[] = {FP8_F32, FP8_BF16, FP8_F16, FP8_E8M0FNU};
static const fp8_grid grids[] = {{0, 0}, {1, 0},   {0, 1},     {1, 32},  {1, 64}, {1, 128},
                                 {1, 7}, {1, 256}, {128, 128}, {64, 32}, {3, 5},  {0, 16},
                                 {2, 0}, {1, 48},  {16, 128},  {1, 16}};
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- matrices ---- */

/* How a matrix lies in its memory. */
typedef enum layout {
    DENSE,
    GAPS,
    ALIGNED_GAPS,
    STEPS,
    TURNED,
    BACKWARDS,
    SHIFTED,
    LAYOUTS
} layout;

typedef struct block {
    unsigned char *memory;
    size_t bytes;
    fp8_tensor t;
} block;

/* `backwards` is for inputs only: outputs of that layout are dense. */
static block make(fp8_dtype dtype, int64_t rows, int64_t cols, layout how)
{
    const int64_t bytes = fp8_dtype_bits(dtype) / 8;
    block b;
    int64_t row = cols, col = 1, first = 0;
    if (how == GAPS)
        row = cols + 3;
    if (how == ALIGNED_GAPS)
        row = cols + 32;
    if (how == STEPS) {
        col = 2;
        row = 2 * cols + 1;
    }
    if (how == TURNED) {
        row = 1;
        col = rows;
    }
    if (how == BACKWARDS) {
        row = -cols;
        first = (rows > 0 ? rows - 1 : 0) * cols;
    }
    const int64_t shift = how == SHIFTED ? 1 : 0; /* a byte: aligned to nothing */
    b.bytes = (size_t)((llabs(row) * (rows + 1) + llabs(col) * (cols + 1)) * bytes + 64);
    b.memory = aligned_alloc(64, (b.bytes + 63) / 64 * 64);
    memset(b.memory, 0x5A, b.bytes);
    b.t = fp8_matrix(b.memory + first * bytes + shift, dtype, rows, cols);
    b.t.stride[0] = row;
    b.t.stride[1] = col;
    return b;
}

static void *at(const fp8_tensor *t, int64_t i, int64_t j)
{
    return (char *)t->data + (i * t->stride[0] + j * t->stride[1]) * (fp8_dtype_bits(t->dtype) / 8);
}

typedef enum contents { PLAIN, WIDE, ZEROS, TINY, HUGE_ONES, NOT_FINITE, CONTENTS } contents;

static float number(contents what, int64_t i, int64_t j)
{
    const uint32_t r = next(), sign = r << 31;
    const uint32_t mantissa = next() & 0x7FFFFF;
    int exponent = 120 + (int)(r >> 1) % 9;
    if (what == WIDE)
        exponent = 1 + (int)(r >> 1) % 253;
    if (what == ZEROS && (i / 3 + j / 40) % 2 == 0)
        return r & 1 ? -0.0f : 0.0f;
    if (what == TINY)
        exponent = (int)(r >> 1) % 30;
    if (what == HUGE_ONES)
        exponent = 225 + (int)(r >> 1) % 30;
    if (what == NOT_FINITE && r % 61 < 3)
        exponent = 255;
    const uint32_t bits = sign | (uint32_t)exponent << 23 |
                          (exponent == 255 && r % 61 ? 0 : mantissa | (exponent == 255));
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void fill(const fp8_tensor *t, contents what)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(t->dtype);
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++)
            facts->store(at(t, i, j), 0, number(what, i, j), what != NOT_FINITE);
}

/* Positive scales that can be divided by. */
static void fill_scales(const fp8_tensor *t)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(t->dtype);
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++) {
            const uint32_t bits = (uint32_t)(118 + next() % 14) << 23 | (next() & 0x7FFFFF);
            float x;
            memcpy(&x, &bits, sizeof x);
            facts->store(at(t, i, j), 0, x, false);
        }
}

static void fill_codes(const fp8_tensor *t)
{
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++)
            *(uint8_t *)at(t, i, j) = (uint8_t)next();
}

/* ---- comparing ---- */

static bool is_nan_at(const block *b, size_t offset)
{
    const size_t bytes = (size_t)fp8_dtype_bits(b->t.dtype) / 8;
    uint32_t code = 0;
    memcpy(&code, b->memory + offset / bytes * bytes, bytes);
    return fp8_dtype_is_nan(b->t.dtype, code);
}

/* The first byte that differs, -1 if none does. */
static int64_t first_difference(const block *a, const block *b)
{
    for (size_t i = 0; i < a->bytes; i++)
        if (a->memory[i] != b->memory[i])
            return (int64_t)i;
    return -1;
}

static void report(const char *what, const block *ours, const block *wanted, const char *words)
{
    const int64_t i = first_difference(ours, wanted);
    compared++;
    if (i < 0)
        return;
    if (wrong++ < SHOWN)
        printf("%s of %s differ at byte %lld: %02X, want %02X%s\n", what, words, (long long)i,
               ours->memory[i], wanted->memory[i], is_nan_at(wanted, (size_t)i) ? " (NaN)" : "");
}

/* ---- quantizing ---- */

typedef struct request {
    fp8_quantize_desc desc;
    fp8_dtype in, code, scale;
    int64_t rows, cols;
    layout x, codes, scales;
    contents what;
    int64_t padding;
} request;

static const char *words_of(const request *r)
{
    static char text[256];
    snprintf(text, sizeof text,
             "%s grid %lldx%lld nan %d static %d pow2 %d ub %g, %s %s %s, %lldx%lld, layouts %d %d "
             "%d, contents %d",
             fp8_rule_name(r->desc.rule), (long long)r->desc.grid.rows,
             (long long)r->desc.grid.cols, (int)r->desc.nan, r->desc.static_scales,
             r->desc.pow2_scales, (double)r->desc.scale_ub, fp8_dtype_name(r->in),
             fp8_dtype_name(r->code), fp8_dtype_name(r->scale), (long long)r->rows,
             (long long)r->cols, (int)r->x, (int)r->codes, (int)r->scales, (int)r->what);
    return text;
}

static layout output(layout how)
{
    return how == BACKWARDS ? DENSE : how;
}

static int64_t blocks_of(int64_t n, int64_t extent)
{
    return fp8_ceil_div(n, fp8_grid_extent(extent, n));
}

static block copy_of(const block *b)
{
    block c = *b;
    c.memory = aligned_alloc(64, (b->bytes + 63) / 64 * 64);
    memcpy(c.memory, b->memory, b->bytes);
    c.t.data = c.memory + ((unsigned char *)b->t.data - b->memory);
    return c;
}

/* The device refuses what the CPU refuses, by the same element. */
static void check_refusal(const request *r, const fp8_tensor *x, fp8_tensor *codes,
                          fp8_tensor *scales, int64_t pos)
{
    fp8_error err = {0};
    const fp8_status ours = device_quantize(&arena, &r->desc, x, codes, scales, &err);
    compared++;
    if ((ours != FP8_E_NAN || err.pos != pos) && wrong++ < SHOWN)
        printf("%s: %s at %lld, want FP8_E_NAN at %lld\n", words_of(r), fp8_status_name(ours),
               (long long)err.pos, (long long)pos);
}

static void try_quantize(const request *r)
{
    fp8_error err = {0};
    block x = make(r->in, r->rows, r->cols, r->x);
    block codes = make(r->code, r->rows + r->padding, r->cols, output(r->codes));
    block scales = make(r->scale, blocks_of(r->rows, r->desc.grid.rows),
                        blocks_of(r->cols, r->desc.grid.cols), output(r->scales));
    fill(&x.t, r->what);
    if (r->desc.static_scales)
        fill_scales(&scales.t);
    block codes2 = copy_of(&codes), scales2 = copy_of(&scales);
    fp8_quantize_desc desc = r->desc;
    const fp8_status status = fp8_quantize(cpu, &desc, &x.t, &codes.t, &scales.t, NULL, &err);
    if (status == FP8_OK) {
        const fp8_status ours = device_quantize(&arena, &desc, &x.t, &codes2.t, &scales2.t, &err);
        if (ours == FP8_OK) {
            report("codes", &codes2, &codes, words_of(r));
            report("scales", &scales2, &scales, words_of(r));
        } else if (wrong++ < SHOWN) {
            printf("%s: %s\n", words_of(r), err.msg);
        }
    } else if (status == FP8_E_NAN) {
        check_refusal(r, &x.t, &codes2.t, &scales2.t, err.pos);
    } else {
        refused++;
    }
    free(x.memory);
    free(codes.memory);
    free(scales.memory);
    free(codes2.memory);
    free(scales2.memory);
}

static const int64_t shapes[][2] = {{1, 1},     {1, 7},     {3, 8},     {5, 128},  {33, 256},
                                    {130, 264}, {128, 128}, {16, 1000}, {7, 4096}, {0, 16},
                                    {257, 384}, {2, 9000},  {640, 96},  {9, 0}};

/* All shapes, and for each some layouts and contents: which, changes from one key to the next. */
static void try_shapes(request r)
{
    static int turn;
    for (int s = 0; s < COUNT(shapes); s++) {
        r.rows = shapes[s][0];
        r.cols = shapes[s][1];
        for (int k = 0; k < 3; k++, turn++) {
            if (one_of && turn % (QUANTIZED_OF * one_of))
                continue;
            r.x = k == 0 ? DENSE : (layout)(turn % LAYOUTS);
            r.codes = k == 0 ? DENSE : (layout)(turn / 3 % LAYOUTS);
            r.scales = k == 0 ? DENSE : (layout)(turn / 5 % LAYOUTS);
            r.what = (contents)(turn % CONTENTS);
            r.padding = turn % 4 == 3 ? 2 : 0;
            r.desc.nan = turn % 7 == 3                              ? FP8_NAN_REFUSE
                         : turn % 2 || r.desc.rule == FP8_RULE_BEST ? FP8_NAN_PROPAGATE
                                                                    : FP8_NAN_ORIGINAL;
            try_quantize(&r);
        }
    }
}

/* Whether the rule has a row for it. */
static bool is_defined(request r)
{
    float x[4] = {1, 1, 1, 1}, s[4] = {1, 1, 1, 1};
    uint8_t c[4];
    fp8_error err;
    int64_t none = 0;
    fp8_tensor xt = fp8_matrix(x, r.in, none, none), ct = fp8_matrix(c, r.code, none, none);
    fp8_tensor st = fp8_matrix(s, r.scale, 0, 0);
    return fp8_quantize(cpu, &r.desc, &xt, &ct, &st, NULL, &err) == FP8_OK;
}

/* f(request) for every rule, grid and kind of scales, dtypes left open. */
static void each_key(void (*f)(request r))
{
    for (int rule = 0; fp8_rule_name(rule); rule++)
        for (int g = 0; g < COUNT(grids); g++)
            for (int kind = 0; kind < 4; kind++) {
                request r = {.desc = FP8_QUANTIZE_DESC_INIT};
                r.desc.rule = (fp8_rule)rule;
                r.desc.grid = grids[g];
                r.desc.nan = FP8_NAN_PROPAGATE;
                r.desc.static_scales = kind == 1;
                r.desc.pow2_scales = kind == 2;
                r.desc.scale_ub = kind == 3 ? 0.75f : 0;
                f(r);
            }
}

static void all_dtypes(request r)
{
    for (int i = 0; i < COUNT(inputs); i++)
        for (int c = 0; c < COUNT(codes_of); c++)
            for (int s = 0; s < COUNT(scales_of); s++) {
                r.in = inputs[i];
                r.code = codes_of[c];
                r.scale = scales_of[s];
                if (is_defined(r))
                    try_shapes(r);
            }
}

static void settle(const char *what)
{
    printf("%s: %lld outputs equal the CPU's, %lld differ, %lld requests refused\n", what,
           compared - wrong, wrong, refused);
    assert_int_equal(wrong, 0);
    assert_true(compared > 0);
    compared = refused = 0;
}

static void quantizers_agree_with_the_cpu(void **state)
{
    (void)state;
    each_key(all_dtypes);
    settle("quantize");
}

/* The usual requests at sizes that fill the device. */
static void large_matrices_agree(void **state)
{
    (void)state;
    static const struct {
        fp8_grid grid;
        fp8_dtype scale;
        int is_static;
    } usual[] = {{{0, 0}, FP8_F32, 0},   {{0, 0}, FP8_F32, 1},     {{1, 0}, FP8_F32, 0},
                 {{1, 128}, FP8_F32, 0}, {{128, 128}, FP8_F32, 0}, {{1, 32}, FP8_E8M0FNU, 0},
                 {{0, 0}, FP8_BF16, 0},  {{128, 0}, FP8_F32, 0},   {{1, 0}, FP8_F32, 1},
                 {{1, 128}, FP8_F32, 1}, {{128, 128}, FP8_F32, 1}, {{48, 8}, FP8_E8M0FNU, 1}};
    for (int u = 0; u < COUNT(usual) && one_of <= 1; u++)
        for (int i = 0; i < COUNT(inputs); i++) {
            request r = {.desc = FP8_QUANTIZE_DESC_INIT,
                         .in = inputs[i],
                         .code = i == 1 ? FP8_E5M2 : FP8_E4M3FN,
                         .scale = usual[u].scale,
                         .rows = 2048,
                         .cols = 4096,
                         .x = u % 2 ? ALIGNED_GAPS : DENSE};
            r.desc.grid = usual[u].grid;
            r.desc.static_scales = usual[u].is_static;
            r.desc.nan = FP8_NAN_PROPAGATE;
            r.what = u % 3 ? PLAIN : WIDE;
            try_quantize(&r);
        }
    if (one_of <= 1)
        settle("large");
}

/* ---- back ---- */

static void dequantizing_agrees(void **state)
{
    (void)state;
    static const fp8_dtype all_codes[] = {FP8_E4M3FN, FP8_E4M3FNUZ, FP8_E5M2, FP8_E5M2FNUZ};
    int turn = 0;
    for (int g = 0; g < COUNT(grids); g++)
        for (int c = 0; c < COUNT(all_codes); c++)
            for (int s = 0; s < COUNT(scales_of); s++)
                for (int y = 0; y < COUNT(inputs); y++)
                    for (int k = 0; k < COUNT(shapes); k++, turn++) {
                        if (turn % (4 * (one_of ? one_of : 1)))
                            continue;
                        const int64_t rows = shapes[k][0], cols = shapes[k][1];
                        block codes = make(all_codes[c], rows, cols, (layout)(turn / 4 % LAYOUTS));
                        block scales =
                            make(scales_of[s], blocks_of(rows, grids[g].rows),
                                 blocks_of(cols, grids[g].cols), (layout)(turn / 28 % LAYOUTS));
                        block out =
                            make(inputs[y], rows, cols, output((layout)(turn / 12 % LAYOUTS)));
                        fill_codes(&codes.t);
                        fill_scales(&scales.t);
                        block ours = copy_of(&out);
                        fp8_error err;
                        assert_int_equal(
                            fp8_dequantize(cpu, grids[g], &codes.t, &scales.t, &out.t, NULL, &err),
                            FP8_OK);
                        assert_int_equal(
                            device_dequantize(&arena, grids[g], &codes.t, &scales.t, &ours.t, &err),
                            FP8_OK);
                        report("y", &ours, &out, fp8_dtype_name(inputs[y]));
                        free(codes.memory);
                        free(scales.memory);
                        free(out.memory);
                        free(ours.memory);
                    }
    settle("dequantize");
}

static void try_requantize(request r)
{
    static int turn;
    turn++;
    if (turn % (6 * (one_of ? one_of : 1)))
        return;
    const fp8_grid from = grids[turn / 6 % COUNT(grids)];
    const int64_t *shape = shapes[turn / 6 % COUNT(shapes)];
    const fp8_dtype code = codes_of[turn / 7 % 3];
    fp8_error err;
    block codes = make(code, shape[0], shape[1], (layout)(turn / 5 % LAYOUTS));
    block scales = make(scales_of[turn / 11 % 4], blocks_of(shape[0], from.rows),
                        blocks_of(shape[1], from.cols), DENSE);
    block codes_out = make(r.code, shape[0], shape[1], output((layout)(turn / 3 % LAYOUTS)));
    block scales_out = make(r.scale, blocks_of(shape[0], r.desc.grid.rows),
                            blocks_of(shape[1], r.desc.grid.cols), DENSE);
    fill_codes(&codes.t);
    fill_scales(&scales.t);
    if (r.desc.static_scales)
        fill_scales(&scales_out.t);
    block codes2 = copy_of(&codes_out), scales2 = copy_of(&scales_out);
    if (fp8_requantize(cpu, from, &codes.t, &scales.t, &r.desc, &codes_out.t, &scales_out.t, NULL,
                       &err) == FP8_OK) {
        r.rows = shape[0];
        r.cols = shape[1];
        assert_int_equal(device_requantize(&arena, from, &codes.t, &scales.t, &r.desc, &codes2.t,
                                           &scales2.t, &err),
                         FP8_OK);
        report("requantized codes", &codes2, &codes_out, words_of(&r));
        report("requantized scales", &scales2, &scales_out, words_of(&r));
    } else {
        refused++;
    }
    free(codes.memory);
    free(scales.memory);
    free(codes_out.memory);
    free(scales_out.memory);
    free(codes2.memory);
    free(scales2.memory);
}

static void requantize_dtypes(request r)
{
    for (int c = 0; c < COUNT(codes_of); c++)
        for (int s = 0; s < COUNT(scales_of); s++) {
            r.in = FP8_F32;
            r.code = codes_of[c];
            r.scale = scales_of[s];
            if (is_defined(r))
                try_requantize(r);
        }
}

static void requantizing_agrees(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++)
        each_key(requantize_dtypes);
    settle("requantize");
}

/* A NaN at each place of x[3,40], all else finite; requantized, by way of its scale. */
static void a_nan_is_found_wherever_it_is(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 40 };
    static float x[ROWS * COLS], scale[ROWS * COLS], out_scale[ROWS];
    static uint8_t codes[ROWS * COLS], out[ROWS * COLS];
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    const fp8_tensor xt = fp8_matrix(x, FP8_F32, ROWS, COLS);
    const fp8_tensor from = fp8_matrix(codes, FP8_E4M3FN, ROWS, COLS);
    const fp8_tensor scales = fp8_matrix(scale, FP8_F32, ROWS, COLS);
    fp8_tensor to = fp8_matrix(out, FP8_E4M3FN, ROWS, COLS);
    fp8_tensor to_scales = fp8_matrix(out_scale, FP8_F32, ROWS, 1);
    desc.grid.rows = 1;
    for (int i = 0; i < ROWS * COLS; i++)
        scale[i] = x[i] = 1 + (float)i;
    for (int i = 0; i < ROWS * COLS; i++) {
        fp8_error err = {0};
        x[i] = i % 2 ? NAN : -INFINITY;
        scale[i] = x[i];
        codes[i] = 0x38;
        assert_int_equal(device_quantize(&arena, &desc, &xt, &to, &to_scales, &err), FP8_E_NAN);
        assert_int_equal(err.pos, i);
        assert_int_equal(device_requantize(&arena, (fp8_grid){1, 1}, &from, &scales, &desc, &to,
                                           &to_scales, &err),
                         FP8_E_NAN);
        assert_int_equal(err.pos, i);
        scale[i] = x[i] = 1;
    }
}

static void memory_of_the_host_is_refused(void **state)
{
    (void)state;
    fp8_error err;
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    fp8_tensor codes = fp8_matrix(arena.memory + 256, FP8_E4M3FN, 4, 4);
    fp8_tensor scales = fp8_matrix(arena.memory + 512, FP8_F32, 1, 1);
    desc.nan = FP8_NAN_PROPAGATE;
    char host[64];
    fp8_tensor on_host = fp8_matrix(host, FP8_BF16, 4, 4);
    assert_int_equal(fp8_quantize(gpu, &desc, &on_host, &codes, &scales, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "x is no memory that cuda:0 can read"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_the_host_is_refused),
        cmocka_unit_test(a_nan_is_found_wherever_it_is),
        cmocka_unit_test(dequantizing_agrees),
        cmocka_unit_test(quantizers_agree_with_the_cpu),
        cmocka_unit_test(requantizing_agrees),
        cmocka_unit_test(large_matrices_agree),
    };
    one_of = argc > 1 ? atoi(argv[1]) : 1;
    gpu = device_context_or_skip();
    if (!gpu)
        return DEVICE_SKIPPED;
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = 1; /* most matrices are small */
    if (one_of < 0 || !device_arena_open(&arena, gpu, ARENA_BYTES) ||
        fp8_context_create(&desc, &cpu, NULL) != FP8_OK)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_arena_close(&arena);
    fp8_context_free(cpu);
    fp8_context_free(gpu);
    return failed;
}
