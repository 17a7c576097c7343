/* SPDX-License-Identifier: Apache-2.0
 *
 * test_linear.c - fp8_matmul and fp8_linear_run against the definition in double, within the bound
 * of oracle.h: every kind of X with every kind of W, every dtype of Y, edge shapes, odd strides,
 * page ends, levels, threads and pools; that the bound would catch what it must; and exports,
 * clones and workspaces. */
#include "op/linear.h"
#include "support/guard.h"
#include "support/levels.h"
#include "support/oracle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

static uint32_t random_word(void)
{
    static uint32_t x = 7;
    x = x * 1664525 + 1013904223;
    return x ^ x >> 15;
}

static float random_normal(void)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(random_word() >> 8) * 0x1p-24F - 0.5F;
    return sum;
}

/* One side of a problem. */
typedef struct kind {
    const char *name;
    fp8_dtype dtype;
    fp8_activation activation; /* of X */
    fp8_dtype scale;
    fp8_grid grid, origin;
    int parts; /* of W */
} kind;

static const kind x_kinds[] = {
    {"bf16", FP8_BF16, FP8_ACTIVATION_NONE, FP8_F32, {0, 0}, {0, 0}, 0},
    {"f16", FP8_F16, FP8_ACTIVATION_NONE, FP8_F32, {0, 0}, {0, 0}, 0},
    {"f32", FP8_F32, FP8_ACTIVATION_NONE, FP8_F32, {0, 0}, {0, 0}, 0},
    {"codes tensor", FP8_E4M3FN, FP8_ACTIVATION_CODES, FP8_F32, {0, 0}, {0, 0}, 0},
    {"codes row", FP8_E4M3FN, FP8_ACTIVATION_CODES, FP8_BF16, {1, 0}, {0, 0}, 0},
    {"codes 1x128", FP8_E4M3FNUZ, FP8_ACTIVATION_CODES, FP8_F32, {1, 128}, {0, 0}, 0},
    {"codes 1x32", FP8_E5M2, FP8_ACTIVATION_CODES, FP8_E8M0FNU, {1, 32}, {0, 0}, 0},
    {"codes 1x7", FP8_E4M3FN, FP8_ACTIVATION_CODES, FP8_F16, {1, 7}, {0, 0}, 0},
    {"dynamic tensor", FP8_BF16, FP8_ACTIVATION_DYNAMIC, FP8_F32, {0, 0}, {0, 0}, 0},
    {"dynamic row", FP8_F16, FP8_ACTIVATION_DYNAMIC, FP8_F32, {1, 0}, {0, 0}, 0},
    {"dynamic 1x128", FP8_F32, FP8_ACTIVATION_DYNAMIC, FP8_F32, {1, 128}, {0, 0}, 0},
    {"dynamic 1x32", FP8_BF16, FP8_ACTIVATION_DYNAMIC, FP8_E8M0FNU, {1, 32}, {0, 0}, 0},
    {"static", FP8_BF16, FP8_ACTIVATION_STATIC, FP8_F32, {0, 0}, {0, 0}, 0},
};

enum { ODD_X = 7 };

static const kind w_kinds[] = {
    {"tensor", FP8_E4M3FN, 0, FP8_F32, {0, 0}, {0, 0}, 0},
    {"channel", FP8_E4M3FN, 0, FP8_F32, {1, 0}, {0, 0}, 0},
    {"channel bf16", FP8_E5M2, 0, FP8_BF16, {1, 0}, {0, 0}, 0},
    {"block", FP8_E4M3FN, 0, FP8_F32, {128, 128}, {0, 0}, 0},
    {"block shard", FP8_E4M3FN, 0, FP8_F32, {128, 128}, {40, 64}, 0},
    {"block odd shard", FP8_E4M3FN, 0, FP8_F32, {128, 128}, {1, 3}, 0},
    {"block 48x20", FP8_E4M3FNUZ, 0, FP8_F16, {48, 20}, {0, 0}, 0},
    {"mx", FP8_E4M3FN, 0, FP8_E8M0FNU, {1, 32}, {0, 0}, 0},
    {"columns", FP8_E5M2, 0, FP8_F32, {0, 1}, {0, 0}, 0},
    {"columns by 7", FP8_E4M3FN, 0, FP8_BF16, {0, 7}, {0, 3}, 0},
    {"parts", FP8_E4M3FN, 0, FP8_F32, {0, 0}, {0, 0}, 3},
    {"high block", FP8_BF16, 0, FP8_F32, {128, 128}, {0, 0}, 0},
    {"high channel", FP8_F32, 0, FP8_F32, {1, 0}, {0, 0}, 0},
    {"high mx", FP8_F16, 0, FP8_E8M0FNU, {1, 32}, {0, 0}, 0},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int64_t shapes[][3] = {
    {0, 16, 32},   {1, 0, 32},    {1, 1, 0},     {1, 1, 1},      {1, 16, 32},   {2, 15, 3},
    {3, 17, 31},   {1, 63, 33},   {5, 64, 64},   {6, 65, 127},   {7, 66, 128},  {4, 130, 129},
    {12, 48, 255}, {13, 33, 256}, {31, 16, 260}, {32, 129, 100}, {33, 20, 384}, {1, 300, 520},
};

/* A whole problem, its memory and its answer. */
typedef struct problem {
    int64_t m, n, k, widths[3];
    fp8_linear_desc desc;
    fp8_tensor x, x_scales, w, w_scales, bias;
    bool has_w_scales;
    guard x_memory, w_memory;
    void *x_scale_memory, *w_scale_memory, *bias_memory;
    double *exact, *size; /* [m, n], without the bias */
    double largest_scale;
} problem;

static fp8_tensor scales_new(const kind *kd, int64_t rows, int64_t cols, void **memory)
{
    int64_t r = fp8_ceil_div(rows + kd->origin.rows, fp8_grid_extent(kd->grid.rows, rows));
    const int64_t c = fp8_ceil_div(cols + kd->origin.cols, fp8_grid_extent(kd->grid.cols, cols));
    r = kd->parts ? kd->parts : r;
    *memory = calloc((size_t)(r * c + 1), 4);
    for (int64_t i = 0; i < r * c; i++) {
        const float value = (0.5F + (float)(random_word() & 255) / 256) * 0x1p-6F;
        fp8_dtype_facts_of(kd->scale)->store(*memory, i, value, false);
    }
    return fp8_matrix(*memory, kd->scale, r, c);
}

static void fill(fp8_tensor *t)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(t->dtype);
    const float by = fp8_dtype_is_fp8(t->dtype) ? 100 : 1;
    for (int64_t i = 0; i < t->shape[0] * t->shape[1]; i++)
        facts->store(t->data, i, random_normal() * by, true);
}

/* Contiguous [rows, cols] that ends where a page ends. */
static fp8_tensor elements_new(fp8_dtype dtype, int64_t rows, int64_t cols, guard *memory)
{
    const size_t bytes = (size_t)(rows * cols * fp8_dtype_bits(dtype) / 8);
    *memory = guard_new(bytes);
    fp8_tensor t = fp8_matrix(guard_at_end(memory, bytes), dtype, rows, cols);
    fill(&t);
    return t;
}

/* What X or W is after quantization, by fp8_quantize; both in `codes` and `scales`. */
static void quantized(const fp8_context *ctx, const fp8_quantize_desc *desc, const fp8_tensor *from,
                      fp8_dtype scale, fp8_tensor *codes, fp8_tensor *scales)
{
    const int64_t rows = from->shape[0], cols = from->shape[1];
    const int64_t r = fp8_ceil_div(rows, fp8_grid_extent(desc->grid.rows, rows));
    const int64_t c = fp8_ceil_div(cols, fp8_grid_extent(desc->grid.cols, cols));
    void *scale_memory = calloc((size_t)(r * c + 1), 4);
    *codes = fp8_matrix(malloc((size_t)(rows * cols + 1)), FP8_E4M3FN, rows, cols);
    *scales = fp8_matrix(scale_memory, desc->static_scales ? FP8_F32 : scale, r, c);
    if (desc->static_scales && r > 0 && c > 0)
        *(float *)scale_memory = 0.01F;
    fp8_error err;
    if (fp8_quantize(ctx, desc, from, codes, scales, NULL, &err) != FP8_OK)
        fail_msg("%s", err.msg);
}

static double largest(const fp8_tensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++)
            most = fmax(most, element_of(t, i, j));
    return most;
}

static void answer(problem *p, const operand *x, const operand *w)
{
    double *xr = reals_of(x), *wr = reals_of(w);
    p->exact = malloc((size_t)(p->m * p->n + 1) * sizeof(double));
    p->size = malloc((size_t)(p->m * p->n + 1) * sizeof(double));
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++)
            dot_of(xr + i * p->k, wr + j * p->k, p->k, &p->exact[i * p->n + j],
                   &p->size[i * p->n + j]);
    p->largest_scale = (x->scales ? largest(x->scales) : 1) * largest(w->scales);
    free(xr);
    free(wr);
}

static void describe(problem *p, const kind *xk, const kind *wk)
{
    p->desc = (fp8_linear_desc)FP8_LINEAR_DESC_INIT;
    p->desc.activation = xk->activation;
    p->desc.x.grid = xk->grid;
    p->desc.x_scale = xk->activation == FP8_ACTIVATION_DYNAMIC ? xk->scale : FP8_DTYPE_NONE;
    p->desc.x_static = 0.01F;
    p->desc.w.grid = wk->grid;
    p->desc.w_scale = wk->scale;
    p->desc.w_origin = wk->origin;
    if (wk->parts) {
        p->widths[0] = p->n / 3;
        p->widths[1] = p->n / 2;
        p->widths[2] = p->n - p->widths[0] - p->widths[1];
        p->desc.width_count = 3; /* linear_of points to them */
    }
}

static problem problem_new(const fp8_context *ctx, const kind *xk, const kind *wk,
                           const int64_t *shape)
{
    problem p = {.m = shape[0], .n = shape[1], .k = shape[2]};
    describe(&p, xk, wk);
    p.x = elements_new(xk->dtype, p.m, p.k, &p.x_memory);
    p.w = elements_new(wk->dtype, p.n, p.k, &p.w_memory);
    fp8_tensor xq = p.x, wq = p.w, made_x = {0}, made_w = {0};
    operand x = {&p.x, NULL, xk->grid, {0, 0}, NULL};
    operand w = {&p.w, &p.w_scales, wk->grid, wk->origin, wk->parts ? p.widths : NULL};
    p.has_w_scales = fp8_dtype_is_fp8(wk->dtype);
    if (p.has_w_scales) {
        p.w_scales = scales_new(wk, p.n, p.k, &p.w_scale_memory);
    } else {
        quantized(ctx, &p.desc.w, &p.w, wk->scale, &wq, &made_w);
        w.elements = &wq;
        w.scales = &made_w;
    }
    if (xk->activation == FP8_ACTIVATION_CODES) {
        p.x_scales = scales_new(xk, p.m, p.k, &p.x_scale_memory);
        x.scales = &p.x_scales;
    } else if (xk->activation != FP8_ACTIVATION_NONE) {
        fp8_quantize_desc desc = p.desc.x;
        desc.static_scales = xk->activation == FP8_ACTIVATION_STATIC;
        quantized(ctx, &desc, &p.x, xk->scale, &xq, &made_x);
        x.elements = &xq;
        x.scales = &made_x;
    }
    if (p.m && p.n && p.k) {
        answer(&p, &x, &w);
    } else {
        p.exact = calloc((size_t)(p.m * p.n + 1), sizeof(double));
        p.size = calloc((size_t)(p.m * p.n + 1), sizeof(double));
    }
    p.bias_memory = malloc((size_t)p.n * 4 + 4);
    p.bias = fp8_vector(p.bias_memory, FP8_BF16, p.n);
    for (int64_t i = 0; i < p.n; i++)
        fp8_dtype_facts_of(FP8_BF16)->store(p.bias_memory, i, random_normal(), false);
    if (x.elements == &xq) {
        free(xq.data);
        free(made_x.data);
    }
    if (w.elements == &wq) {
        free(wq.data);
        free(made_w.data);
    }
    return p;
}

static void problem_free(problem *p)
{
    guard_free(&p->x_memory);
    guard_free(&p->w_memory);
    free(p->x_scale_memory);
    free(p->w_scale_memory);
    free(p->bias_memory);
    free(p->exact);
    free(p->size);
}

static fp8_linear *linear_of(const fp8_context *ctx, const problem *p, bool with_bias)
{
    fp8_linear *linear = NULL;
    fp8_error err;
    fp8_linear_desc desc = p->desc;
    desc.widths = desc.width_count ? p->widths : NULL;
    if (fp8_linear_create(ctx, &desc, &p->w, p->has_w_scales ? &p->w_scales : NULL,
                          with_bias ? &p->bias : NULL, &linear, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    return linear;
}

static void run(const fp8_linear *linear, const problem *p, fp8_tensor *y)
{
    uint64_t bytes;
    fp8_error err;
    assert_int_equal(fp8_linear_workspace(linear, p->m, &bytes, NULL), FP8_OK);
    guard workspace = guard_new(bytes);
    memset(guard_at_end(&workspace, bytes), 0xFF, bytes); /* NaN, where nobody writes */
    const bool codes = p->desc.activation == FP8_ACTIVATION_CODES;
    if (fp8_linear_run(linear, &p->x, codes ? &p->x_scales : NULL, y,
                       guard_at_end(&workspace, bytes), bytes, NULL, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    guard_free(&workspace);
}

/* The first element of y that is beyond its bound, as words; false if there is none. */
static bool find_wrong(const problem *p, const fp8_tensor *y, bool with_bias, char *words,
                       size_t bytes)
{
    const int roundings = p->desc.epilogue == FP8_EPILOGUE_BIAS_LAST ? 2 : 1;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const double exact = p->exact[i * p->n + j], size = p->size[i * p->n + j];
            const double bias =
                with_bias ? fp8_dtype_facts_of(p->bias.dtype)->load(p->bias.data, j) : 0;
            const double got = element_of(y, i, j);
            const double bound =
                linear_bound(p->k, exact, size, bias, p->largest_scale, y->dtype, roundings);
            if (!(fabs(got - (exact + bias)) <= bound)) {
                snprintf(words, bytes, "y[%lld,%lld] is %.9g, exactly %.9g, bound %.3g",
                         (long long)i, (long long)j, got, exact + bias, bound);
                return true;
            }
        }
    return false;
}

static const fp8_dtype y_dtypes[] = {FP8_F32, FP8_BF16, FP8_F16};

static long check_problem(const fp8_context *ctx, problem *p, const char *where)
{
    long checked = 0;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        p->desc.epilogue = (fp8_epilogue)(random_word() >> 8) % 3;
        fp8_linear *linear = linear_of(ctx, p, with_bias);
        for (size_t d = 0; d < COUNT(y_dtypes); d++) {
            char words[160];
            const size_t bytes = (size_t)(p->m * p->n * fp8_dtype_bits(y_dtypes[d]) / 8);
            guard memory = guard_new(bytes);
            fp8_tensor y = fp8_matrix(guard_at_end(&memory, bytes), y_dtypes[d], p->m, p->n);
            memset(y.data, 0xFF, bytes);
            run(linear, p, &y);
            if (find_wrong(p, &y, with_bias, words, sizeof words))
                fail_msg("%s, %s, bias %d: %s", where, fp8_dtype_name(y_dtypes[d]), with_bias,
                         words);
            guard_free(&memory);
            checked++;
        }
        fp8_linear_free(linear);
    }
    return checked;
}

static void every_pair_of_kinds_is_within_the_bound(void **state)
{
    (void)state;
    const bool all = getenv("FP8_TEST_EXHAUSTIVE") != NULL; /* else a fifth of the shapes each */
    fp8_context *contexts[LEVEL_COUNT];
    long checked[LEVEL_COUNT] = {0};
    for (int isa = 0; isa < LEVEL_COUNT; isa++)
        contexts[isa] = context_at_level((fp8_isa)isa, 2);
    for (size_t a = 0; a < COUNT(x_kinds); a++)
        for (size_t b = 0; b < COUNT(w_kinds); b++)
            for (size_t s = 0; s < COUNT(shapes); s++) {
                if (!all && (a + 2 * b + s) % 5 != 0)
                    continue;
                problem p = problem_new(contexts[0], &x_kinds[a], &w_kinds[b], shapes[s]);
                for (int isa = 0; isa < LEVEL_COUNT; isa++) {
                    char where[160];
                    snprintf(where, sizeof where, "x %s, w %s, [%lld,%lld,%lld], %s",
                             x_kinds[a].name, w_kinds[b].name, (long long)p.m, (long long)p.n,
                             (long long)p.k, fp8_isa_name((fp8_isa)isa));
                    if (contexts[isa])
                        checked[isa] += check_problem(contexts[isa], &p, where);
                }
                problem_free(&p);
            }
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        if (contexts[isa])
            printf("linear: %ld cases at level %s\n", checked[isa], fp8_isa_name((fp8_isa)isa));
        fp8_context_free(contexts[isa]);
    }
}

/* y of a problem in F32, allocated. */
static fp8_tensor result_of(const fp8_context *ctx, const problem *p, bool with_bias)
{
    fp8_tensor y = fp8_matrix(malloc((size_t)(p->m * p->n) * sizeof(float)), FP8_F32, p->m, p->n);
    fp8_linear *linear = linear_of(ctx, p, with_bias);
    run(linear, p, &y);
    fp8_linear_free(linear);
    return y;
}

static void expect_wrong(const problem *p, fp8_tensor y, bool with_bias, bool wrong)
{
    char words[160];
    assert_int_equal(find_wrong(p, &y, with_bias, words, sizeof words), wrong);
    free(y.data);
}

/* x . w with each sum rounded to 14 bits, as tensor cores without promotion keep it. */
static fp8_tensor unpromoted(const problem *p)
{
    fp8_tensor y = fp8_matrix(malloc((size_t)(p->m * p->n) * sizeof(float)), FP8_F32, p->m, p->n);
    const operand x = {&p->x, &p->x_scales, p->desc.x.grid, {0, 0}, NULL};
    const operand w = {&p->w, &p->w_scales, p->desc.w.grid, {0, 0}, NULL};
    double *xr = reals_of(&x), *wr = reals_of(&w);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p->k; k++) {
                int exponent;
                sum = frexp(sum + xr[i * p->k + k] * wr[j * p->k + k], &exponent);
                sum = ldexp(trunc(ldexp(sum, 14)), exponent - 14);
            }
            ((float *)y.data)[i * p->n + j] = (float)sum;
        }
    free(xr);
    free(wr);
    return y;
}

/* What must not pass does not: the bound is no wider than that. */
static void the_bound_catches_mistakes(void **state)
{
    (void)state;
    const kind *xk = &x_kinds[5], *wk = &w_kinds[3];
    const int64_t shape[] = {33, 260, 384};
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    problem p = problem_new(ctx, xk, wk, shape);
    float *scale = p.w_scale_memory;
    const int64_t last = p.w_scales.shape[0] * p.w_scales.shape[1] - 1;
    expect_wrong(&p, result_of(ctx, &p, true), true, false);
    expect_wrong(&p, result_of(ctx, &p, false), true, true); /* dropped bias */
    scale[last] *= 1.01F;                                    /* wrong scale in the last block */
    expect_wrong(&p, result_of(ctx, &p, true), true, true);
    scale[last] /= 1.01F;
    const float first = scale[0];
    scale[0] = scale[1]; /* swapped scales */
    scale[1] = first;
    expect_wrong(&p, result_of(ctx, &p, true), true, true);
    scale[1] = scale[0];
    scale[0] = first;
    expect_wrong(&p, unpromoted(&p), false, true);
    problem_free(&p);
    fp8_context_free(ctx);
}

/* The codes come back as they were given. */
static void check_export(const fp8_linear *linear, const problem *p)
{
    const size_t bytes = (size_t)(p->n * p->k);
    fp8_tensor codes = fp8_matrix(malloc(bytes + 1), p->w.dtype, p->n, p->k);
    assert_int_equal(fp8_linear_export(linear, &codes, NULL, NULL), FP8_OK);
    assert_memory_equal(codes.data, p->w.data, bytes);
    free(codes.data);
}

/* dX of a problem's weight against the definition, with dY of `dtype` made from X's seed. */
static void check_dx(const fp8_context *ctx, const problem *p, fp8_dtype dtype, const char *where)
{
    guard dy_memory, dx_memory = guard_new((size_t)(p->m * p->k * 4));
    const fp8_tensor dy = elements_new(dtype, p->m, p->n, &dy_memory);
    const size_t dx_bytes = (size_t)(p->m * p->k * fp8_dtype_bits(dtype) / 8);
    fp8_tensor dx = fp8_matrix(guard_at_end(&dx_memory, dx_bytes), dtype, p->m, p->k);
    memset(dx.data, 0xFF, dx_bytes);
    fp8_linear *linear = linear_of(ctx, p, true);
    uint64_t bytes;
    fp8_error err;
    check_export(linear, p);
    assert_int_equal(fp8_linear_workspace(linear, p->m, &bytes, NULL), FP8_OK);
    guard space = guard_new(bytes);
    memset(guard_at_end(&space, bytes), 0xFF, bytes);
    if (fp8_linear_run_dx(linear, &dy, &dx, guard_at_end(&space, bytes), bytes, NULL, &err))
        fail_msg("%s", err.msg);
    const operand g = {&dy, NULL, {0, 0}, {0, 0}, NULL};
    const operand w = {&p->w, &p->w_scales, p->desc.w.grid, p->desc.w_origin,
                       p->desc.width_count ? p->widths : NULL};
    double *gr = reals_of(&g), *wr = reals_of(&w);
    double *turned = malloc((size_t)(p->n * p->k + 1) * sizeof *turned);
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t k = 0; k < p->k; k++)
            turned[k * p->n + n] = wr[n * p->k + k];
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->k; k++) {
            double exact, size;
            dot_of(gr + i * p->n, turned + k * p->n, p->n, &exact, &size);
            const double got = element_of(&dx, i, k);
            const double bound = linear_bound(p->n, exact, size, 0, p->largest_scale, dtype, 1);
            if (!(fabs(got - exact) <= bound))
                fail_msg("%s: dx[%lld,%lld] is %.9g, exactly %.9g, bound %.3g", where, (long long)i,
                         (long long)k, got, exact, bound);
        }
    free(gr);
    free(wr);
    free(turned);
    fp8_linear_free(linear);
    guard_free(&space);
    guard_free(&dy_memory);
    guard_free(&dx_memory);
}

static void dx_of_every_weight_is_within_the_bound(void **state)
{
    (void)state;
    long checked = 0;
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 2);
        for (size_t b = 0; ctx && b < COUNT(w_kinds); b++)
            for (size_t s = 0; s < COUNT(shapes); s++) {
                char where[160];
                if (!fp8_dtype_is_fp8(w_kinds[b].dtype) || (b + s) % 2 != 0)
                    continue;
                /* X is not read, but where its scales change the packed weight is cut too. */
                const kind *xk = &x_kinds[s % 3 ? 0 : ODD_X];
                problem p = problem_new(ctx, xk, &w_kinds[b], shapes[s]);
                snprintf(where, sizeof where, "w %s, [%lld,%lld,%lld], %s", w_kinds[b].name,
                         (long long)p.m, (long long)p.n, (long long)p.k,
                         fp8_isa_name((fp8_isa)isa));
                check_dx(ctx, &p, y_dtypes[s % COUNT(y_dtypes)], where);
                problem_free(&p);
                checked++;
            }
        fp8_context_free(ctx);
    }
    printf("dx: %ld cases\n", checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_catches_mistakes),
        cmocka_unit_test(dx_of_every_weight_is_within_the_bound),
        cmocka_unit_test(every_pair_of_kinds_is_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
