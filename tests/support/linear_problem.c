/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_problem.c - see linear_problem.h. */
#include "support/linear_problem.h"

#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

uint32_t random_word(void)
{
    static uint32_t x = 7;
    return next_random(&x);
}

float random_normal(void)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(random_word() >> 8) * 0x1p-24F - 0.5F;
    return sum;
}

const kind x_kinds[X_KINDS] = {
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

const kind w_kinds[W_KINDS] = {
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

const int64_t linear_shapes[LINEAR_SHAPES][3] = {
    {0, 16, 32},   {1, 0, 32},    {1, 1, 0},     {1, 1, 1},      {1, 16, 32},   {2, 15, 3},
    {3, 17, 31},   {1, 63, 33},   {5, 64, 64},   {6, 65, 127},   {7, 66, 128},  {4, 130, 129},
    {12, 48, 255}, {13, 33, 256}, {31, 16, 260}, {32, 129, 100}, {33, 20, 384}, {1, 300, 520},
};

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

fp8_tensor elements_new(fp8_dtype dtype, int64_t rows, int64_t cols, guard *memory)
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

problem problem_new(const fp8_context *ctx, const kind *xk, const kind *wk, const int64_t *shape)
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

void problem_free(problem *p)
{
    guard_free(&p->x_memory);
    guard_free(&p->w_memory);
    free(p->x_scale_memory);
    free(p->w_scale_memory);
    free(p->bias_memory);
    free(p->exact);
    free(p->size);
}

fp8_linear *linear_of(const fp8_context *ctx, const problem *p, bool with_bias)
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

bool find_wrong(const problem *p, const fp8_tensor *y, bool with_bias, char *words, size_t bytes)
{
    const int roundings = p->desc.epilogue == FP8_EPILOGUE_BIAS_LAST ? 2 : 1;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const double exact = p->exact[i * p->n + j], size = p->size[i * p->n + j];
            const double bias =
                with_bias ? fp8_dtype_facts_of(p->bias.dtype)->load(p->bias.data, j) : 0;
            const double got = element_of(y, i, j);
            const double bound =
                linear_bound(p->k, exact, size, bias, p->largest_scale, y->dtype, roundings) +
                p->coarse * size;
            if (!(fabs(got - (exact + bias)) <= bound)) {
                snprintf(words, bytes, "y[%lld,%lld] is %.9g, exactly %.9g, bound %.3g",
                         (long long)i, (long long)j, got, exact + bias, bound);
                return true;
            }
        }
    return false;
}
