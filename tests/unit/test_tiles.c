/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tiles.c - the AMX kernel on emulated tiles against the AVX-512 one, whose own test is
 * test_panel_kernels: which rows, columns and segments it multiplies, what it writes, and that it
 * leaves no tiles behind. All numbers are small multiples of a power of two, so that every order of
 * additions gives the same sums and the results must have the same bits. Then every code alone. */
#include "number/dtype.h"
#include "support/emulated_amx.h"
#include "support/guard.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

fp8_kernel_panel fp8_panel_bf16_avx512;

enum { PAIR_BYTES = 4 * FP8_TILE_COLS, TILE = 16 };
enum { MOST_ROWS = 70, MOST_COLS = 512, MOST_CUTS = MOST_COLS / 32 };

typedef struct operands {
    guard x, w, scratch;
    _Alignas(64) float c[MOST_ROWS * FP8_TILE_COLS], want[MOST_ROWS * FP8_TILE_COLS];
    _Alignas(64) float w_scale[MOST_CUTS * FP8_TILE_COLS];
    _Alignas(64) uint8_t w_fold[MOST_CUTS * FP8_TILE_COLS];
    float x_scale[MOST_ROWS * MOST_CUTS];
    int64_t cut[MOST_CUTS + 1];
} operands;

static uint32_t state = 1;

static uint32_t next_random(uint32_t below)
{
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
}

static uint16_t bf16_of(int32_t small)
{
    const float x = (float)small;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float small_scale(void)
{
    return (float)(1 << next_random(3)) / 2;
}

/* The contents of a run's operands, which end where memory ends. */
static void fill_run(operands *o, fp8_panel_run *run)
{
    const int64_t stride = run->x_stride, w_bytes = run->panels * run->w_stride;
    uint16_t *x = guard_at_end(&o->x, (size_t)(run->m * stride) * sizeof *x);
    for (int64_t i = 0; i < run->m * stride; i++)
        x[i] = i % stride < run->k ? bf16_of((int32_t)next_random(17) - 8) : 0;
    uint8_t *w = guard_at_end(&o->w, (size_t)w_bytes);
    for (int64_t i = 0; i < w_bytes; i++)
        w[i] = (uint8_t)(0x28 + next_random(0x20) + 0x80 * next_random(2));
    for (int64_t i = 0; i < run->m * FP8_TILE_COLS; i++)
        o->c[i] = o->want[i] = (float)next_random(100);
    for (int64_t i = 0; i < run->m * MOST_CUTS; i++)
        o->x_scale[i] = small_scale();
    for (int64_t i = 0; i < run->cuts * FP8_TILE_COLS; i++)
        o->w_scale[i] = small_scale();
    for (int64_t i = 0; i < run->cuts * FP8_TILE_COLS; i++)
        o->w_fold[i] = (uint8_t)next_random(4);
    const size_t scratch_bytes = (size_t)(stride / 2 * PAIR_BYTES);
    run->x = x;
    run->w = w;
    run->scratch = guard_at_end(&o->scratch, scratch_bytes);
    memset(run->scratch, 0xFF, scratch_bytes);
}

/* One run of random shape, segments of 32 .. 128 columns or none. */
static fp8_panel_run make_run(operands *o, int64_t m)
{
    const int64_t k = FP8_PANEL_COLS * (1 + next_random(MOST_COLS / FP8_PANEL_COLS));
    const int64_t segment = FP8_X_PAD * (1 + next_random(4));
    fp8_panel_run run = {.x_stride = fp8_ceil_div(k, FP8_X_PAD) * FP8_X_PAD,
                         .w_stride = fp8_panel_stride(k),
                         .c = o->c,
                         .m = m,
                         .k = k,
                         .panels = 1 + next_random(FP8_PANEL_GROUP),
                         .accumulate = next_random(2),
                         .cuts = next_random(2) ? fp8_ceil_div(k, segment) : 0,
                         .cut = o->cut,
                         .x_scale_stride = MOST_CUTS,
                         .code = FP8_E4M3FN};
    for (int64_t s = 0; s <= run.cuts; s++)
        o->cut[s] = fp8_min_i64(s * segment, k);
    fill_run(o, &run);
    if (run.cuts && next_random(3))
        run.x_scale = o->x_scale;
    if (run.cuts && next_random(3))
        run.w_scale = o->w_scale;
    if (run.cuts && !next_random(3)) {
        run.w_fold = o->w_fold;
        run.x_scale = run.w_scale = NULL;
    }
    return run;
}

static void test_same_bits_as_avx512(void **unused)
{
    (void)unused;
    if (fp8_isa_detect() < FP8_ISA_AVX512_BF16)
        skip();
    static operands o;
    o.x = guard_new(MOST_ROWS * MOST_COLS * sizeof(uint16_t));
    o.w = guard_new(FP8_TILE_COLS * MOST_COLS);
    o.scratch = guard_new(MOST_COLS / 2 * PAIR_BYTES);
    for (int64_t turn = 0; turn < 5; turn++)
        for (int64_t m = 0; m <= MOST_ROWS; m++) {
            fp8_panel_run run = make_run(&o, m);
            emulated_panel_bf16_amx(&run);
            assert_true(emulated_idle());
            run.c = o.want;
            fp8_panel_bf16_avx512(&run);
            assert_memory_equal(o.c, o.want, (size_t)(m * FP8_TILE_COLS) * sizeof *o.c);
        }
    guard_free(&o.x);
    guard_free(&o.w);
    guard_free(&o.scratch);
}

/* A panel of codes 16 k + row, of which each second block has no subnormal number; those that are
 * not finite are zero. */
static void fill_codes(uint8_t *w, fp8_dtype dtype)
{
    for (int code = 0; code < 256; code++) {
        const uint8_t byte = (uint8_t)code;
        const float value = fp8_dtype_facts_of(dtype)->load(&byte, 0);
        w[fp8_panel_offset(code % TILE, code / TILE, TILE)] = isfinite(value) ? byte : 0;
    }
}

/* Row i of x is 1 in column i alone, so that c[i, j] is what W[j, i] was decoded to. */
static void check_codes(fp8_dtype dtype, uint8_t fold)
{
    static _Alignas(64) uint16_t x[TILE * FP8_X_PAD];
    static _Alignas(64) uint8_t w[TILE * TILE], w_fold[FP8_TILE_COLS];
    static _Alignas(64) uint8_t scratch[FP8_X_PAD / 2 * PAIR_BYTES];
    static _Alignas(64) float c[TILE * FP8_TILE_COLS];
    const int64_t cut[] = {0, TILE};
    for (int64_t i = 0; i < TILE; i++)
        x[i * FP8_X_PAD + i] = bf16_of(1);
    fill_codes(w, dtype);
    memset(w_fold, fold, sizeof w_fold);
    emulated_panel_bf16_amx(&(fp8_panel_run){.x = x,
                                             .x_stride = FP8_X_PAD,
                                             .w = w,
                                             .w_stride = fp8_panel_stride(TILE),
                                             .c = c,
                                             .m = TILE,
                                             .k = TILE,
                                             .panels = 1,
                                             .cuts = fold > 0,
                                             .cut = cut,
                                             .w_fold = fold > 0 ? w_fold : NULL,
                                             .code = dtype,
                                             .scratch = scratch});
    for (int64_t i = 0; i < TILE; i++)
        for (int64_t j = 0; j < TILE; j++) {
            const uint8_t *code = w + fp8_panel_offset(j, i, TILE);
            const float want = ldexpf(fp8_dtype_facts_of(dtype)->load(code, 0), -fold);
            assert_memory_equal(&c[i * FP8_TILE_COLS + j], &(float){want + 0.0F}, sizeof want);
        }
}

static void test_every_code(void **unused)
{
    static const fp8_dtype dtypes[] = {FP8_E4M3FN, FP8_E4M3FNUZ, FP8_E5M2};
    (void)unused;
    if (fp8_isa_detect() < FP8_ISA_AVX512_BF16)
        skip();
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        check_codes(dtypes[i], 0);
        if (dtypes[i] != FP8_E5M2)
            check_codes(dtypes[i], 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits_as_avx512),
                                       cmocka_unit_test(test_every_code)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
