/* SPDX-License-Identifier: Apache-2.0
 *
 * test_panel_kernels.c - every row of the list of panel kernels that this processor can run,
 * against a plain sum in double: shapes around the tiles, all codes, scales along K in even and
 * uneven segments, numbers from subnormal to huge, and no byte read or written outside. A row's
 * bits depend neither on the other rows nor on its place. The bound is tight enough to see a wrong
 * scale, a lost column and sums in bf16. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/backend.h"
#include "support/bound.h"
#include "support/guard.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MAX_CUTS = 64 };

/* How x is filled. */
typedef enum fill { FILL_PLAIN, FILL_TINY, FILL_HUGE, FILL_WHOLE, FILL_COUNT } fill;

/* One product c[m, 64] (+)= x[m,k] w[16 panels, k]^T with everything that a kernel is given. */
typedef struct product {
    fp8_panel_run run;
    fp8_dtype x_dtype;
    int64_t cut[MAX_CUTS + 1];
    guard x, w, c, x_scale, w_scale, w_fold, scratch;
    float *before; /* c before it is added to */
} product;

/* What is to be made. */
typedef struct spec {
    int64_t m, k, panels;
    fp8_dtype code, rounded;
    fill fill;
    int cuts;         /* 0: no scales; else a scale for about each of so many parts */
    int64_t multiple; /* of which every cut is one */
    bool uneven, accumulate;
    bool x_scales, w_scales, folds; /* folds: instead of both, where the kernel can */
    uint32_t seed;
} spec;

/* In [-1, 1). */
static float next_number(uint32_t *state)
{
    return (float)(int32_t)(next_random(state) << 8) * 0x1p-31f;
}

static float next_x(uint32_t *state, fill how)
{
    const float x = next_number(state);
    return how == FILL_TINY    ? x * 0x1p-126f
           : how == FILL_HUGE  ? x * 0x1p100f
           : how == FILL_WHOLE ? (float)((int)(next_random(state) >> 8) % 9 - 4)
                               : 3 * x;
}

static bool is_nan_code(fp8_dtype code, uint8_t byte)
{
    return fp8_dtype_is_nan(code, byte);
}

/* A code that is neither NaN nor infinite; with FILL_WHOLE a small whole number. */
static uint8_t next_code(uint32_t *state, fp8_dtype code, fill how)
{
    uint8_t byte;
    float value;
    do {
        byte = (uint8_t)(next_random(state) >> 9);
        value = fp8_dtype_facts_of(code)->load(&byte, 0);
        if (how == FILL_WHOLE)
            fp8_dtype_facts_of(code)->store(
                &byte, 0, value = (float)((int)(next_random(state) >> 8) % 9 - 4), true);
    } while (is_nan_code(code, byte) || isinf(value));
    return byte;
}

/* n floats at the end of a page: scales, or powers of two. */
static float *new_scales(guard *g, int64_t n, const spec *w, uint32_t *seed)
{
    *g = guard_new((size_t)n * 4);
    float *scale = guard_at_end(g, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++) {
        scale[i] = w->fill == FILL_WHOLE ? 0.5f * (float)(1 << next_random(seed) % 3)
                                         : 0.4f + fabsf(next_number(seed));
        if (w->rounded) {
            uint16_t half;
            fp8_dtype_facts_of(w->rounded)->store(&half, 0, scale[i], true);
            scale[i] = fp8_dtype_facts_of(w->rounded)->load(&half, 0);
        }
    }
    return scale;
}

/* n folds at the end of a page, in both of whose ends there are some; few with FILL_WHOLE. */
static uint8_t *new_folds(guard *g, int64_t n, const spec *w, uint32_t *seed)
{
    *g = guard_new((size_t)n);
    uint8_t *fold = guard_at_end(g, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        fold[i] = (uint8_t)(next_random(seed) % (w->fill == FILL_WHOLE ? 3 : FP8_FOLD_MOST + 1));
    return fold;
}

static void make_cuts(product *p, const spec *w, uint32_t *seed)
{
    const int64_t units = fp8_ceil_div(w->k, w->multiple);
    int64_t parts = fp8_min_i64(fp8_min_i64(w->cuts, units), MAX_CUTS);
    p->cut[0] = 0;
    for (int64_t s = 1; s < parts; s++) {
        const int64_t even = s * units / parts, least = p->cut[s - 1] / w->multiple + 1;
        int64_t unit = even;
        if (w->uneven)
            unit = least + (int64_t)(next_random(seed) % 3);
        unit = unit < least ? least : fp8_min_i64(unit, units - (parts - s));
        p->cut[s] = unit * w->multiple;
    }
    p->cut[parts] = w->k;
    p->run.cuts = parts;
    p->run.cut = p->cut;
}

static void make_x(product *p, const spec *w, uint32_t *seed)
{
    const int64_t bytes = p->x_dtype == FP8_BF16 ? 2 : 4;
    const int64_t stride = fp8_ceil_div(w->k, FP8_X_PAD) * FP8_X_PAD;
    const size_t all = (size_t)(w->m * stride * bytes);
    p->x = guard_new(all);
    void *x = guard_at_end(&p->x, all);
    for (int64_t i = 0; i < w->m; i++)
        for (int64_t k = 0; k < w->k; k++)
            fp8_dtype_facts_of(p->x_dtype)->store(x, i * stride + k, next_x(seed, w->fill), true);
    p->run.x = x;
    p->run.x_stride = stride;
}

static void make_w(product *p, const spec *w, uint32_t *seed)
{
    const int64_t stride = fp8_panel_stride(w->k);
    p->w = guard_new((size_t)(w->panels * stride));
    uint8_t *codes = guard_at_end(&p->w, (size_t)(w->panels * stride));
    for (int64_t i = 0; i < w->panels * stride; i++)
        codes[i] = next_code(seed, w->code, w->fill);
    p->run.w = codes;
    p->run.w_stride = stride;
}

static void make_c(product *p, const spec *w, uint32_t *seed)
{
    const size_t n = (size_t)(w->m * FP8_TILE_COLS);
    p->c = guard_new(n * 4);
    p->run.c = guard_at_end(&p->c, n * 4);
    p->before = malloc(n * 4 + 4);
    for (size_t i = 0; i < n; i++)
        p->before[i] = w->fill == FILL_WHOLE ? (float)(next_random(seed) % 64) : next_number(seed);
    memcpy(p->run.c, p->before, n * 4);
}

static void make_product(product *p, const fp8_panel_kernel *kernel, const spec *w)
{
    uint32_t seed = w->seed;
    memset(p, 0, sizeof *p);
    p->x_dtype = kernel->x;
    p->run.m = w->m;
    p->run.k = w->k;
    p->run.panels = w->panels;
    p->run.accumulate = w->accumulate;
    p->run.code = w->code;
    p->run.rounded = w->rounded;
    make_x(p, w, &seed);
    make_w(p, w, &seed);
    make_c(p, w, &seed);
    if (w->cuts)
        make_cuts(p, w, &seed);
    const bool folds = w->cuts && w->folds && kernel->x == FP8_BF16 && w->code != FP8_E5M2;
    if (folds)
        p->run.w_fold = new_folds(&p->w_fold, p->run.cuts * FP8_TILE_COLS, w, &seed);
    if (w->cuts && w->w_scales && !folds)
        p->run.w_scale = new_scales(&p->w_scale, p->run.cuts * FP8_TILE_COLS, w, &seed);
    if (w->cuts && w->x_scales && !folds && kernel->x == FP8_BF16) {
        p->run.x_scale = new_scales(&p->x_scale, w->m * p->run.cuts, w, &seed);
        p->run.x_scale_stride = p->run.cuts;
    }
    p->scratch = guard_new((size_t)kernel->scratch_bytes);
    p->run.scratch = guard_at_end(&p->scratch, (size_t)kernel->scratch_bytes);
    memset(p->run.scratch, 0xFF, (size_t)kernel->scratch_bytes); /* NaN */
}

static void free_product(product *p)
{
    guard *all[] = {&p->x, &p->w, &p->c, &p->x_scale, &p->w_scale, &p->w_fold, &p->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->map)
            guard_free(all[i]);
    free(p->before);
}

/* The run's columns [begin, end), of which the kernel can hold all. */
static void run_columns(const fp8_panel_kernel *kernel, const fp8_panel_run *whole, int64_t begin,
                        int64_t end)
{
    fp8_panel_run run = *whole;
    int64_t cut[MAX_CUTS + 1] = {0}, s = 0;
    run.x = (const char *)whole->x + begin * (kernel->x == FP8_BF16 ? 2 : 4);
    run.w = whole->w + begin / FP8_PANEL_COLS * FP8_PANEL_BYTES;
    run.k = end - begin;
    run.accumulate = whole->accumulate || begin > 0;
    while (whole->cuts && whole->cut[s + 1] <= begin)
        s++;
    for (run.cuts = 0; whole->cuts && cut[run.cuts] < run.k; run.cuts++)
        cut[run.cuts + 1] = fp8_min_i64(whole->cut[s + run.cuts + 1] - begin, run.k);
    run.cut = cut;
    run.x_scale = whole->x_scale ? whole->x_scale + s : NULL;
    run.w_scale = whole->w_scale ? whole->w_scale + s * FP8_TILE_COLS : NULL;
    run.w_fold = whole->w_fold ? whole->w_fold + s * FP8_TILE_COLS : NULL;
    kernel->fn(&run);
}

static void run_kernel(const fp8_panel_kernel *kernel, const fp8_panel_run *run)
{
    for (int64_t k = 0; k < run->k; k += kernel->cols)
        run_columns(kernel, run, k, fp8_min_i64(run->k, k + kernel->cols));
}

static float weight_of(const fp8_panel_run *run, int64_t j, int64_t k)
{
    const int64_t panel = j / FP8_PANEL_ROWS, row = j % FP8_PANEL_ROWS;
    const uint8_t *codes = run->w + panel * run->w_stride;
    return fp8_dtype_facts_of(run->code)->load(codes, fp8_panel_offset(row, k, run->k));
}

/* What is wrong on purpose, so that the bound can be seen to notice. */
typedef enum mutation {
    MUTATION_NONE,
    MUTATION_LAST_SCALE,  /* the last segment takes the scale of the one before */
    MUTATION_LAST_COLUMN, /* the last block is lost */
    MUTATION_BF16_SUMS,
    MUTATION_SWAPPED_SCALES, /* of neighbouring rows of W */
    MUTATION_COUNT
} mutation;

/* The scale of (i,j) in segment s. */
static double scale_of(const fp8_panel_run *run, int64_t i, int64_t j, int64_t s, mutation wrong)
{
    if (wrong == MUTATION_LAST_SCALE && s == run->cuts - 1)
        s--;
    if (wrong == MUTATION_SWAPPED_SCALES)
        j ^= 1;
    if (run->w_fold)
        return ldexp(1, -run->w_fold[s * FP8_TILE_COLS + j]);
    const double xs = run->x_scale ? (double)run->x_scale[i * run->x_scale_stride + s] : 1;
    return run->w_scale ? xs * (double)run->w_scale[s * FP8_TILE_COLS + j] : xs;
}

static double weight_times(const fp8_panel_run *run, int64_t j, int64_t k, double scale)
{
    const double w = (double)weight_of(run, j, k) * scale;
    if (!run->rounded || !run->w_scale)
        return w;
    uint16_t half;
    fp8_dtype_facts_of(run->rounded)->store(&half, 0, (float)w, false);
    return (double)fp8_dtype_facts_of(run->rounded)->load(&half, 0);
}

static double round_sum(double sum, mutation wrong)
{
    return wrong == MUTATION_BF16_SUMS
               ? (double)fp8_bf16_to_f32(fp8_bf16_from_f32((float)sum, false))
               : sum;
}

/* Element (i,j) in double, and what its bound is made of. */
static double element_of(const product *p, int64_t i, int64_t j, mutation wrong, bound_sums *b)
{
    const fp8_panel_run *run = &p->run;
    const int64_t columns = wrong == MUTATION_LAST_COLUMN ? run->k - 4 : run->k;
    double sum = run->accumulate ? (double)p->before[i * FP8_TILE_COLS + j] : 0;
    *b = (bound_sums){p->x_dtype, run->k, fabs(sum), 0, 0, 0};
    for (int64_t k = 0, s = 0; k < columns; k++) {
        while (run->cuts && run->cut[s + 1] <= k)
            s++;
        const double scale = run->cuts ? scale_of(run, i, j, s, wrong) : 1;
        const double x =
            (double)fp8_dtype_facts_of(p->x_dtype)->load(run->x, i * run->x_stride + k);
        const double w = weight_times(run, j, k, scale);
        sum = round_sum(sum + x * w, wrong);
        b->products += fabs(x * w);
        b->weights += fabs(w);
        b->inputs += fabs(x);
        b->scales += run->w_fold ? 1 : scale; /* of what may be flushed */
    }
    return sum;
}

static void check_element(const fp8_panel_kernel *kernel, const product *p, int64_t i, int64_t j,
                          bool exact)
{
    bound_sums b;
    const double want = element_of(p, i, j, MUTATION_NONE, &b);
    const double got = (double)p->run.c[i * FP8_TILE_COLS + j];
    /* A weight that F16 cannot hold is infinite. */
    const bool same = want == got || (isnan(want) && isnan(got));
    if (!same && !(fabs(got - want) <= (exact ? 0 : bound_of(&b)) && isfinite(want)))
        fail_msg("%s: %s m %lld k %lld panels %lld cuts %lld: c[%lld,%lld] %a, want %a, bound %a",
                 kernel->name, fp8_dtype_name(p->run.code), (long long)p->run.m,
                 (long long)p->run.k, (long long)p->run.panels, (long long)p->run.cuts,
                 (long long)i, (long long)j, got, want, bound_of(&b));
}

static void check_result(const fp8_panel_kernel *kernel, const product *p, bool exact)
{
    const int64_t cols = p->run.panels * FP8_PANEL_ROWS;
    for (int64_t i = 0; i < p->run.m; i++) {
        const float *c = p->run.c + i * FP8_TILE_COLS, *before = p->before + i * FP8_TILE_COLS;
        for (int64_t j = 0; j < cols; j++)
            check_element(kernel, p, i, j, exact);
        if (memcmp(c + cols, before + cols, (size_t)(FP8_TILE_COLS - cols) * 4))
            fail_msg("%s: panels %lld: a column beyond was written", kernel->name,
                     (long long)p->run.panels);
    }
}

#define EACH_KERNEL(k)                                               \
    for (size_t i_ = 0; (k = fp8_panel_kernel_at(i_)) != NULL; i_++) \
        if (k->isa <= fp8_isa_detect())

static const fp8_dtype code_dtypes[] = {FP8_E4M3FN, FP8_E4M3FNUZ, FP8_E5M2};
static const int64_t rows_of_x[] = {0,  1,  2,  3,  4,  5,  6,  7,  8, 9,
                                    11, 12, 13, 15, 16, 17, 31, 32, 33};
static const int64_t columns[] = {4, 8, 28, 32, 36, 124, 128, 132, 256, 260, 516, 1000};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Variant `n` of a shape for a kernel: all that can vary does, not all combinations. */
static spec variant(const fp8_panel_kernel *kernel, int64_t m, int64_t k, int n)
{
    const fp8_dtype roundings[] = {FP8_DTYPE_NONE, FP8_BF16, FP8_F16};
    const int cuts[] = {0, 1, 3, 8, 40};
    const bool rounds = kernel->x == FP8_F32 && n % 5 >= 3;
    return (spec){.m = m,
                  .k = k,
                  .panels = 1 + n % 4,
                  .code = code_dtypes[n % 3],
                  .rounded = rounds ? roundings[1 + n % 2] : FP8_DTYPE_NONE,
                  .fill = (fill)(n / 3 % 3),
                  .cuts = cuts[n % 5],
                  .multiple = kernel->cut_multiple,
                  .uneven = n % 2,
                  .accumulate = n / 2 % 2,
                  .x_scales = n % 7 != 3,
                  .w_scales = n % 7 != 5,
                  .folds = n % 11 > 6,
                  .seed = (uint32_t)(n * 7919 + m * 31 + k)};
}

static int check_variants(const fp8_panel_kernel *kernel, int64_t m, int64_t k, int variants)
{
    for (int n = 0; n < variants; n++) {
        spec w = variant(kernel, m, k, n + (int)(m + k));
        product p;
        make_product(&p, kernel, &w);
        run_kernel(kernel, &p.run);
        check_result(kernel, &p, false);
        free_product(&p);
    }
    return variants;
}

static void products_are_within_the_bound(void **state)
{
    (void)state;
    const fp8_panel_kernel *kernel;
    EACH_KERNEL(kernel)
    {
        int products = 0;
        for (size_t i = 0; i < COUNT(rows_of_x); i++)
            for (size_t k = 0; k < COUNT(columns); k++)
                products +=
                    check_variants(kernel, rows_of_x[i], columns[k], columns[k] > 200 ? 5 : 15);
        printf("%s: %d products\n", kernel->name, products);
    }
}

/* Sums that fp32 holds come out exactly, whatever their order. */
static void whole_numbers_are_exact(void **state)
{
    (void)state;
    const fp8_panel_kernel *kernel;
    EACH_KERNEL(kernel)
    for (int n = 0; n < 60; n++) {
        spec w = variant(kernel, 1 + n % 18, columns[n % (int)COUNT(columns)], n);
        product p;
        w.fill = FILL_WHOLE;
        make_product(&p, kernel, &w);
        run_kernel(kernel, &p.run);
        check_result(kernel, &p, true);
        free_product(&p);
    }
}

/* Rows of the unit matrix bring out each weight by itself. */
static void check_every_code(void)
{
    const fp8_panel_kernel *kernel;
    EACH_KERNEL(kernel)
    for (size_t d = 0; d < COUNT(code_dtypes); d++) {
        const spec w = {.m = 32, .k = 32, .panels = 4, .code = code_dtypes[d], .multiple = 4};
        product p;
        make_product(&p, kernel, &w);
        memset((void *)(uintptr_t)p.run.x, 0, (size_t)(32 * p.run.x_stride) * 2);
        if (kernel->x == FP8_F32)
            memset((void *)(uintptr_t)p.run.x, 0, (size_t)(32 * p.run.x_stride) * 4);
        for (int64_t i = 0; i < 32; i++)
            fp8_dtype_facts_of(kernel->x)->store((void *)(uintptr_t)p.run.x, i * p.run.x_stride + i,
                                                 1, true);
        int seen = 0;
        for (int64_t i = 0; i < 4 * p.run.w_stride; i++) {
            uint8_t code = (uint8_t)i;
            const bool finite = isfinite(fp8_dtype_facts_of(w.code)->load(&code, 0));
            ((uint8_t *)(uintptr_t)p.run.w)[i] = finite ? code : 0;
            seen += i < 256 && finite;
        }
        run_kernel(kernel, &p.run);
        check_result(kernel, &p, true);
        assert_true(seen >= 248);
        free_product(&p);
    }
}

static void every_code_is_decoded(void **state)
{
    (void)state;
    check_every_code();
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* flush to zero, denormals are zero */
    check_every_code();
    _mm_setcsr(before);
#endif
}

/* A scale near fp32's limits is no reason to overflow where the product does not, nor to make NaN
 * of zero codes. */
static void large_scales_are_exact(void **state)
{
    (void)state;
    const fp8_panel_kernel *kernel;
    EACH_KERNEL(kernel)
    for (int n = 0; n < 24; n++) {
        const float scales[] = {0x1p118f, 0x1p119f, 0x1p120f, 0x1p125f};
        spec w = variant(kernel, 1 + n % 9, 132, n);
        w.fill = FILL_WHOLE;
        w.rounded = FP8_DTYPE_NONE;
        w.cuts = 3;
        w.w_scales = true;
        w.x_scales = w.folds = w.accumulate = false;
        product p;
        make_product(&p, kernel, &w);
        for (int64_t i = 0; i < p.run.cuts * FP8_TILE_COLS; i++)
            ((float *)(uintptr_t)p.run.w_scale)[i] = scales[i % 4];
        for (int64_t i = 0; i < w.m; i++)
            for (int64_t k = 0; k < w.k; k++) {
                const float tiny = n % 2 && k % 4 ? 0 : 0x1p-40f;
                fp8_dtype_facts_of(kernel->x)->store((void *)(uintptr_t)p.run.x,
                                                     i * p.run.x_stride + k, tiny, true);
            }
        if (n % 3 == 0)
            memset((uint8_t *)(uintptr_t)p.run.w, 0, (size_t)(w.panels * p.run.w_stride));
        run_kernel(kernel, &p.run);
        check_result(kernel, &p, true);
        free_product(&p);
    }
}

/* e5m2 has infinities: with x above zero they come out with their sign, with x = 0 as NaN. */
static void infinite_codes_are_infinite(void **state)
{
    (void)state;
    const fp8_panel_kernel *kernel;
    EACH_KERNEL(kernel)
    {
        const spec w = {.m = 7, .k = 36, .panels = 2, .code = FP8_E5M2, .multiple = 4, .seed = 5};
        product p;
        make_product(&p, kernel, &w);
        for (int64_t i = 0; i < 7; i++)
            fp8_dtype_facts_of(kernel->x)->store((void *)(uintptr_t)p.run.x,
                                                 i * p.run.x_stride + 33, i ? 1 : 0, true);
        uint8_t *codes = (uint8_t *)(uintptr_t)p.run.w;
        codes[fp8_panel_offset(3, 33, 36)] = 0x7C;
        codes[fp8_panel_offset(20, 33, 36)] = 0xFC;
        run_kernel(kernel, &p.run);
        for (int64_t i = 0; i < 7; i++) {
            const float *c = p.run.c + i * FP8_TILE_COLS;
            assert_true(i ? isinf(c[3]) && c[3] > 0 && isinf(c[20]) && c[20] < 0
                          : isnan(c[3]) && isnan(c[20]));
            assert_true(isfinite(c[2]) && isfinite(c[4]) && isfinite(c[19]) && isfinite(c[21]));
        }
        free_product(&p);
    }
}

/* Row i of the product alone has the bits that it has among the others. */
static void check_row_alone(const fp8_panel_kernel *kernel, const product *p, int64_t i)
{
    const int64_t cols = p->run.panels * FP8_PANEL_ROWS;
    _Alignas(64) float c[FP8_TILE_COLS];
    fp8_panel_run one = p->run;
    memcpy(c, p->before + i * FP8_TILE_COLS, sizeof c);
    one.m = 1;
    one.c = c;
    one.x = (const char *)p->run.x + i * p->run.x_stride * (p->x_dtype == FP8_BF16 ? 2 : 4);
    if (one.x_scale)
        one.x_scale += i * one.x_scale_stride;
    run_kernel(kernel, &one);
    if (memcmp(c, p->run.c + i * FP8_TILE_COLS, (size_t)cols * 4))
        fail_msg("%s: m %lld k %lld: row %lld alone has other bits", kernel->name,
                 (long long)p->run.m, (long long)p->run.k, (long long)i);
}

static void rows_do_not_depend_on_each_other(void **state)
{
    (void)state;
    const fp8_panel_kernel *kernel;
    EACH_KERNEL(kernel)
    for (size_t m = 1; m < COUNT(rows_of_x); m++)
        for (int n = 0; n < 4; n++) {
            spec w = variant(kernel, rows_of_x[m], n % 2 ? 532 : 132, n + (int)m);
            product p;
            make_product(&p, kernel, &w);
            run_kernel(kernel, &p.run);
            for (int64_t i = 0; i < p.run.m; i++)
                check_row_alone(kernel, &p, i);
            free_product(&p);
        }
}

/* The vector kernels for x in F32 promise one order of additions; the one for few rows only without
 * scales, and where nothing is subnormal. */
static void all_f32_kernels_give_the_same_bits(void **state)
{
    (void)state;
    int compared = 0;
    for (int n = 0; n < 40; n++) {
        const fp8_panel_kernel *kernel, *first = NULL;
        float kept[33 * FP8_TILE_COLS];
        EACH_KERNEL(kernel)
        {
            spec w = variant(kernel, rows_of_x[1 + n % ((int)COUNT(rows_of_x) - 1)], 1000, n);
            const bool few = kernel->min_m == 0;
            if (kernel->x != FP8_F32 || kernel->isa == FP8_ISA_SCALAR ||
                (few && (w.fill == FILL_TINY || (w.cuts && w.w_scales))))
                continue;
            product p;
            make_product(&p, kernel, &w);
            run_kernel(kernel, &p.run);
            compared += first && few != (first->min_m == 0);
            if (first && memcmp(kept, p.run.c, (size_t)(w.m * FP8_TILE_COLS) * 4))
                fail_msg("%s and %s differ", first->name, kernel->name);
            memcpy(kept, p.run.c, (size_t)(w.m * FP8_TILE_COLS) * 4);
            first = kernel;
            free_product(&p);
        }
    }
    assert_true(compared > 5 || fp8_isa_detect() < FP8_ISA_AVX2);
}

/* How many elements of a product a mutation puts outside the bound. */
static int elements_outside(const product *p, mutation wrong)
{
    int outside = 0;
    for (int64_t i = 0; i < p->run.m; i++)
        for (int64_t j = 0; j < p->run.panels * FP8_PANEL_ROWS; j++) {
            bound_sums b, ignored;
            const double right = element_of(p, i, j, MUTATION_NONE, &b);
            outside += fabs(element_of(p, i, j, wrong, &ignored) - right) > bound_of(&b);
        }
    return outside;
}

static void the_bound_sees_what_is_wrong(void **state)
{
    (void)state;
    const fp8_dtype kinds[] = {FP8_F32, FP8_BF16};
    for (size_t kind = 0; kind < COUNT(kinds); kind++)
        for (size_t k = 0; k < COUNT(columns); k++) {
            const fp8_panel_kernel kernel = {.x = kinds[kind], .cut_multiple = 4};
            spec w = {.m = 4,
                      .k = columns[k],
                      .panels = 4,
                      .code = FP8_E4M3FN,
                      .cuts = 8,
                      .multiple = 4,
                      .w_scales = true,
                      .x_scales = true,
                      .seed = 11};
            product p;
            make_product(&p, &kernel, &w);
            for (int wrong = MUTATION_NONE + 1; wrong < MUTATION_COUNT; wrong++)
                if (p.run.cuts > 1)
                    assert_true(elements_outside(&p, (mutation)wrong) > 200);
            assert_int_equal(elements_outside(&p, MUTATION_NONE), 0);
            free_product(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_within_the_bound),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(every_code_is_decoded),
        cmocka_unit_test(infinite_codes_are_infinite),
        cmocka_unit_test(large_scales_are_exact),
        cmocka_unit_test(rows_do_not_depend_on_each_other),
        cmocka_unit_test(all_f32_kernels_give_the_same_bits),
        cmocka_unit_test(the_bound_sees_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
