/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_linear.c - runs and compares the linear layers of the vectors. */
#include "golden/golden_linear.h"
#include "support/gpu.h"
#include "support/levels.h"

#include <stdarg.h>
#include <string.h>

enum { GPU = LEVEL_COUNT, WAYS = 2 * (LEVEL_COUNT + 1) };
static fp8_context *contexts[LEVEL_COUNT + 1];

const fp8_context *golden_context(int isa)
{
    static bool made;
    for (int i = 0; !made && i < LEVEL_COUNT; i++)
        contexts[i] = context_at_level((fp8_isa)i, 1);
    if (!made)
        contexts[GPU] = gpu_context();
    made = true;
    return contexts[isa];
}

void golden_linear_end(void)
{
    for (int i = 0; i <= GPU; i++)
        fp8_context_free(contexts[i]);
}

/* ---- tensors --------------------------------------------------------------------------------- */

fp8_tensor golden_matrix(const golden_tensor *t)
{
    fp8_tensor view = {.data = NULL};
    if (!t)
        return view;
    view = t->view;
    if (view.ndim < 2)
        view = fp8_matrix(view.data, view.dtype, t->elements, 1);
    return view;
}

fp8_tensor golden_slice(fp8_tensor t, int64_t first_row, int64_t rows, int64_t first_col,
                        int64_t cols)
{
    const int64_t at = first_row * t.stride[0] + first_col * t.stride[1];
    t.data = (char *)t.data + at * fp8_dtype_bits(t.dtype) / 8;
    t.shape[0] = rows;
    t.shape[1] = cols;
    return t;
}

double golden_real(const fp8_tensor *t, int64_t i, int64_t j)
{
    double value;
    if (t->dtype != FP8_F64)
        return element_of(t, i, j);
    memcpy(&value, (char *)t->data + (i * t->stride[0] + j * t->stride[1]) * 8, sizeof value);
    return value;
}

const char *golden_text(const char *format, ...)
{
    static char texts[64][256];
    static int turn;
    char *text = texts[turn = (turn + 1) % 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof texts[0], format, args);
    va_end(args);
    return text;
}

fp8_grid golden_grid(const golden_file *f, const char *key)
{
    fp8_grid grid = {128, 128};
    const char *found = golden_metadata(f);
    found = found ? strstr(found, golden_text("\"%s\"", key)) : NULL;
    char *at = found ? strpbrk(found + strlen(key) + 2, "0123456789") : NULL;
    if (at) {
        grid.rows = strtoll(at, &at, 10);
        at += strcspn(at, "0123456789");
        grid.cols = strtoll(at, &at, 10);
    }
    return grid;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const fp8_tensor *or_null(const fp8_tensor *t)
{
    return t->dtype == FP8_DTYPE_NONE ? NULL : t;
}

/* The same case with what a run reads and writes on a GPU, if the context is one of it; weight and
 * bias stay on the host. */
typedef struct placed {
    golden_linear c;
    fp8_tensor y;
    gpu_tensor x, x_scales, out;
    bool on_gpu;
} placed;

static placed place(const fp8_context *ctx, const golden_linear *c, const fp8_tensor *y)
{
    placed p = {.c = *c, .y = *y, .on_gpu = ctx->cuda != NULL};
    if (!p.on_gpu)
        return p;
    p.x = gpu_tensor_new(ctx, &c->x, 0);
    p.x_scales = gpu_tensor_new(ctx, c->x_scales.dtype ? &c->x_scales : &c->x, 0);
    p.out = gpu_tensor_new(ctx, y, 1);
    p.c.x = p.x.t;
    p.y = p.out.t;
    if (c->x_scales.dtype)
        p.c.x_scales = p.x_scales.t;
    return p;
}

static void bring_back(placed *p, const fp8_tensor *y)
{
    if (!p->on_gpu)
        return;
    gpu_tensor_read(&p->out, y);
    gpu_tensor_free(&p->x);
    gpu_tensor_free(&p->x_scales);
    gpu_tensor_free(&p->out);
}

static fp8_status run_prepared(const fp8_context *ctx, const golden_linear *c, fp8_tensor *y,
                               fp8_error *err)
{
    fp8_linear *linear;
    uint64_t bytes;
    void *workspace = NULL;
    const fp8_tensor bias = fp8_vector(c->bias.data, c->bias.dtype, c->bias.shape[0]);
    fp8_status status = fp8_linear_create(ctx, &c->desc, &c->w, or_null(&c->w_scales),
                                          or_null(&bias), &linear, err);
    if (status != FP8_OK)
        return status;
    status = fp8_linear_workspace(linear, c->x.shape[0], &bytes, err);
    if (status == FP8_OK)
        status = fp8_device_alloc(ctx, bytes + 1, &workspace, err);
    if (status == FP8_OK)
        status = fp8_linear_run(linear, &c->x, c->x_codes.data ? NULL : or_null(&c->x_scales), y,
                                workspace, bytes, NULL, err);
    fp8_device_free(ctx, workspace);
    fp8_linear_free(linear);
    return status;
}

static fp8_status run_at_once(const fp8_context *ctx, const golden_linear *c, fp8_tensor *y,
                              fp8_error *err)
{
    const fp8_tensor bias = fp8_vector(c->bias.data, c->bias.dtype, c->bias.shape[0]);
    return fp8_matmul(ctx, &c->desc, &c->x, c->x_codes.data ? NULL : or_null(&c->x_scales), &c->w,
                      or_null(&c->w_scales), or_null(&bias), y, NULL, err);
}

/* What is compared with each Y; false and words if it is wrong. */
typedef bool (*compare_fn)(const void *arg, const fp8_tensor *y, char *words, size_t bytes);

/* Of the sum of absolute products, what the tensor cores of a GPU may lose beyond the bound. */
static double coarse;

static bool same_bits(const void *arg, const fp8_tensor *y, char *words, size_t bytes)
{
    const fp8_tensor *want = arg;
    const int64_t size = fp8_dtype_bits(y->dtype) / 8, cols = y->shape[1];
    for (int64_t i = 0; i < y->shape[0] * cols; i++) {
        const char *ours =
            (const char *)y->data + (i / cols * y->stride[0] + i % cols * y->stride[1]) * size;
        const char *theirs = (const char *)want->data +
                             (i / cols * want->stride[0] + i % cols * want->stride[1]) * size;
        if (!memcmp(ours, theirs, (size_t)size))
            continue;
        snprintf(words, bytes, "y[%lld,%lld] is %.9g, want %.9g", (long long)(i / cols),
                 (long long)(i % cols), element_of(y, i / cols, i % cols),
                 element_of(want, i / cols, i % cols));
        return false;
    }
    return true;
}

static void run_everywhere(const golden_linear *c, const char *mode, fp8_dtype dtype,
                           compare_fn compare, const void *arg)
{
    const int64_t m = c->x.shape[0], n = c->w.shape[0];
    const size_t bytes = (size_t)(2 * m * n * fp8_dtype_bits(dtype) / 8);
    fp8_tensor y = fp8_matrix(malloc(bytes + 1), dtype, m, n);
    fp8_error err = {.msg = ""};
    bool ok = true;
    int way = 0;
    for (; ok && way < WAYS; way++) {
        const fp8_context *ctx = golden_context(way / 2);
        if (!ctx)
            continue;
        memset(y.data, 0xFF, bytes);
        if (ctx->cuda &&
            compare == same_bits) { /* rows with gaps: no kernel that adds in 13 bits */
            y.stride[0] = 2 * n;
            y.stride[1] = 2;
        }
        coarse = ctx->cuda ? 1e-3 : 0;
        placed p = place(ctx, c, &y);
        ok = (way % 2 ? run_at_once : run_prepared)(ctx, &p.c, &p.y, &err) == FP8_OK;
        bring_back(&p, &y);
        ok = ok && compare(arg, &y, err.msg, sizeof err.msg);
    }
    const int level = (way - 1) / 2;
    golden_check(c->family, mode, ok, "%s, level %s, %s: %s", c->name,
                 level == GPU ? "of a GPU" : fp8_isa_name((fp8_isa)level),
                 way % 2 ? "prepared" : "at once", err.msg);
    free(y.data);
}

static bool same_shape(const golden_linear *c, const char *mode, const fp8_tensor *t)
{
    if (t->shape[0] == c->x.shape[0] && t->shape[1] == c->w.shape[0])
        return true;
    golden_fail(c->family, mode, "%s: [%lld,%lld] is no Y of [%lld,%lld]", c->name,
                (long long)t->shape[0], (long long)t->shape[1], (long long)c->x.shape[0],
                (long long)c->w.shape[0]);
    return false;
}

void golden_linear_bits(const golden_linear *c, const char *mode, const fp8_tensor *want)
{
    if (same_shape(c, mode, want))
        run_everywhere(c, mode, want->dtype, same_bits, want);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* The answer of a case, [m,n] each, bias not included, and what it is wanted of. */
typedef struct answer {
    const golden_linear *c;
    double *sum, *size;
    double scale; /* largest product of scales */
    int roundings;
} answer;

static double largest(const fp8_tensor *t)
{
    double most = 0;
    for (int64_t i = 0; t->dtype && i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++)
            most = fmax(most, element_of(t, i, j));
    return t->dtype ? most : 1;
}

static answer answer_new(const golden_linear *c)
{
    const int64_t m = c->x.shape[0], n = c->w.shape[0], k = c->w.shape[1];
    const operand x = {
        c->x_codes.data ? &c->x_codes : &c->x, or_null(&c->x_scales), c->desc.x.grid, {0, 0}, NULL};
    const operand w = {&c->w, or_null(&c->w_scales), c->desc.w.grid, c->desc.w_origin,
                       c->desc.widths};
    double *xr = reals_of(&x), *wr = reals_of(&w);
    answer a = {.c = c, .scale = largest(&c->x_scales) * largest(&c->w_scales)};
    a.roundings = c->desc.epilogue == FP8_EPILOGUE_BIAS_LAST ? 2 : 1;
    a.sum = malloc((size_t)(m * n + 1) * sizeof(double));
    a.size = malloc((size_t)(m * n + 1) * sizeof(double));
    if (c->desc.weight_math == FP8_WEIGHT_ROUNDED)
        for (int64_t i = 0; i < n * k; i++) {
            const fp8_dtype_facts *facts = fp8_dtype_facts_of(c->x.dtype);
            const double scale = element_of(&c->w_scales, c->desc.w.grid.rows ? i / k : 0, 0);
            uint32_t rounded;
            facts->store(&rounded, 0, (float)scale, false);
            const float product = (float)element_of(&c->w, i / k, i % k) * facts->load(&rounded, 0);
            facts->store(&rounded, 0, product, false);
            wr[i] = facts->load(&rounded, 0);
        }
    for (int64_t i = 0; i < m * n; i++)
        dot_of(xr + i / n * k, wr + i % n * k, k, &a.sum[i], &a.size[i]);
    free(xr);
    free(wr);
    return a;
}

static void answer_free(answer *a)
{
    free(a->sum);
    free(a->size);
}

static double bias_of(const golden_linear *c, int64_t j)
{
    return c->bias.dtype ? element_of(&c->bias, j, 0) : 0;
}

/* Whether `got` may stand for the exact value; an infinity only where the bound reaches beyond the
 * largest number of its dtype. */
static bool is_within(double got, double exact, double bound, fp8_dtype dtype)
{
    const double overflow = dtype == FP8_F16 ? 65520 : 0x1.FFp127;
    if (isinf(got))
        return (exact < 0) == (got < 0) && fabs(exact) + bound >= overflow;
    return fabs(got - exact) <= bound;
}

static bool within_bound(const void *arg, const fp8_tensor *y, char *words, size_t bytes)
{
    const answer *a = arg;
    const int64_t n = y->shape[1];
    for (int64_t i = 0; i < y->shape[0] * n; i++) {
        const double bias = bias_of(a->c, i % n), got = element_of(y, i / n, i % n);
        const double bound = linear_bound(a->c->w.shape[1], a->sum[i], a->size[i], bias, a->scale,
                                          y->dtype, a->roundings) +
                             coarse * a->size[i];
        if (is_within(got, a->sum[i] + bias, bound, y->dtype))
            continue;
        snprintf(words, bytes, "[%lld,%lld] is %.9g, exactly %.9g, bound %.3g", (long long)(i / n),
                 (long long)(i % n), got, a->sum[i] + bias, bound);
        return false;
    }
    return true;
}

/* The vectors' exact values are ours: the same definition. Some round the product of two scales to
 * fp32. */
static bool same_definition(const answer *a, const fp8_tensor *exact, char *words, size_t bytes)
{
    const int64_t n = exact->shape[1];
    for (int64_t i = 0; i < exact->shape[0] * n; i++) {
        const double got = golden_real(exact, i / n, i % n);
        const double want = a->sum[i] + bias_of(a->c, i % n);
        if (fabs(got - want) <= 0x1p-23 * (a->size[i] + fabs(want)))
            continue;
        snprintf(words, bytes, "exactly [%lld,%lld] is %.17g by the file, %.17g by definition",
                 (long long)(i / n), (long long)(i % n), got, want);
        return false;
    }
    return true;
}

void golden_linear_bound(const golden_linear *c, const char *mode, fp8_dtype y,
                         const fp8_tensor *exact, const fp8_tensor *theirs)
{
    char words[256] = "";
    if ((exact && !same_shape(c, mode, exact)) || (theirs && !same_shape(c, mode, theirs)))
        return;
    answer a = answer_new(c);
    if ((exact && !same_definition(&a, exact, words, sizeof words)) ||
        (theirs && !within_bound(&a, theirs, words, sizeof words)))
        golden_fail(c->family, mode, "%s: the vector: %s", c->name, words);
    else
        run_everywhere(c, mode, y, within_bound, &a);
    answer_free(&a);
}
