/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_wide.c - every version of gemm_wide.cuh, chosen or not, on shapes around the edges of
 * its tiles and stages: within (K / 16 + 2) 2^-21 of the sum of |x w|, as for all tensor cores that
 * multiply 16 bits (docs/numerics.md, section 11), the fp32 bound of the epilogue and Y's rounding.
 * Data of both signs and of one; every kind of scales, dtype of Y and epilogue; guarded memory full
 * of NaN; odd strides of Y. */
#include "backend/cuda/wide.h"
#include "base/context.h"
#include "base/size.h"
#include "support/gpu.h"
#include "support/gpu_product.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "support/gpu_main.h"

static fp8_context *gpu;

static const int32_t shapes[][3] = {
    {1, 8, 16},       {1, 1, 128},      {2, 7, 144},       {3, 40, 48},      {7, 127, 128},
    {8, 128, 272},    {9, 129, 1040},   {15, 64, 256},     {16, 256, 2048},  {17, 576, 1168},
    {31, 255, 640},   {32, 257, 1280},  {33, 1152, 1152},  {63, 192, 1536},  {64, 320, 512},
    {65, 383, 384},   {68, 2112, 896},  {127, 256, 1024},  {128, 384, 4096}, {129, 420, 1280},
    {255, 255, 2048}, {256, 512, 1808}, {257, 383, 1536},  {300, 129, 272},  {513, 1288, 528},
    {777, 896, 640},  {16, 4096, 512},  {4, 512, 7168},    {1, 1288, 4096},  {5, 130, 1152},
    {2305, 144, 256}, {64, 17024, 128}, {260, 17024, 192},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, SAMPLES = 2048 };

/* One problem, on the host. */
typedef struct problem {
    fp8_wide_problem p;
    bool one_sign;
    int32_t blocks; /* of 128 columns */
    fp8_tensor x, w, scale, bias;
    samples y; /* without bias */
} problem;

static fp8_tensor w_scales_new(const fp8_wide_problem *p, int32_t blocks)
{
    const bool mx = p->kind == FP8_WIDE_MX;
    const int32_t across = (p->n + 127) / 128;
    const int32_t rows = p->kind == FP8_WIDE_TERMS   ? p->k
                         : p->kind != FP8_WIDE_BLOCK ? (p->turned ? 1 : p->n)
                         : p->turned                 ? blocks
                                                     : across;
    const int32_t cols = p->kind == FP8_WIDE_CHANNEL || p->kind == FP8_WIDE_TERMS ? 1
                         : mx                                                     ? (p->k + 31) / 32
                         : p->turned                                              ? across
                                                                                  : blocks;
    if (!mx)
        return scales_new(rows, cols);
    uint8_t *bytes = malloc((size_t)rows * (size_t)cols);
    for (int64_t i = 0; i < (int64_t)rows * cols; i++)
        bytes[i] = (uint8_t)(120 + random_word() % 9);
    return fp8_matrix(bytes, FP8_E8M0FNU, rows, cols);
}

/* Of element (n,k), whichever way W lies. */
static double scale_at(const problem *q, int64_t n, int64_t k)
{
    if (q->p.kind == FP8_WIDE_CHANNEL)
        return element_at(&q->scale, q->p.turned ? 0 : n, 0);
    if (q->p.kind == FP8_WIDE_TERMS)
        return element_at(&q->scale, k, 0);
    if (q->p.kind == FP8_WIDE_MX)
        return element_at(&q->scale, n, k / 32);
    return q->p.turned ? element_at(&q->scale, k / 128, n / 128)
                       : element_at(&q->scale, n / 128, k / 128);
}

static void answer(problem *q, int64_t s)
{
    const int64_t m = q->y.at[s] / q->p.n, n = q->y.at[s] % q->p.n;
    const bool turned = q->p.turned;
    double sum = 0, size = 0;
    for (int64_t k = 0; k < q->p.k; k++) {
        const double w = element_at(&q->w, turned ? k : n, turned ? n : k);
        const double product = element_at(&q->x, m, k) * w * scale_at(q, n, k);
        sum += product;
        size += fabs(product);
    }
    q->y.exact[s] = sum;
    q->y.size[s] = size;
}

static problem problem_new(const int32_t *shape, int32_t kind, bool f16, bool turned, bool one_sign)
{
    problem q = {.p = {.m = shape[0],
                       .n = shape[1],
                       .k = shape[2],
                       .kind = kind,
                       .f16 = f16,
                       .turned = turned},
                 .one_sign = one_sign};
    const int32_t whole = (shape[1] + 15) / 16 * 16; /* rows of W turned are aligned */
    q.blocks = (int32_t)fp8_ceil_div(shape[2], 128);
    q.x = elements_new(f16 ? FP8_F16 : FP8_BF16, shape[0], shape[2], 3, one_sign);
    q.w = elements_new(FP8_E4M3FN, turned ? shape[2] : shape[1], turned ? whole : shape[2], 300,
                       one_sign);
    q.scale = w_scales_new(&q.p, q.blocks);
    q.bias = elements_new(FP8_F32, 1, shape[1], 10, one_sign);
    q.y = samples_new(shape[0], shape[1], SAMPLES);
    for (int64_t s = 0; s < q.y.count; s++)
        answer(&q, s);
    return q;
}

static void problem_free(problem *q)
{
    void *all[] = {q->x.data, q->w.data, q->scale.data, q->bias.data};
    samples_free(&q->y);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* The problem's operands on the device. */
typedef struct operands {
    gpu_tensor x, w, scale, bias;
} operands;

/* How Y is made. */
typedef struct form {
    fp8_dtype dtype;
    int64_t stride;
    bool bias, bias_last;
} form;

static double worst; /* error over bound */

static void check(const problem *q, const fp8_tensor *y, const form *f, const char *name)
{
    const double coarse = ((double)q->p.k / 16 + 2) * 0x1p-21;
    const double v = f->dtype == FP8_F32 ? 0x1p-24 : f->dtype == FP8_F16 ? 0x1p-11 : 0x1p-8;
    check_numbers(y, name);
    for (int64_t s = 0; s < q->y.count; s++) {
        const int64_t i = q->y.at[s] / q->p.n, j = q->y.at[s] % q->p.n;
        const double add = f->bias ? element_at(&q->bias, 0, j) : 0, exact = q->y.exact[s] + add;
        const double sums = coarse * q->y.size[s] + 8 * 0x1p-24 * (q->y.size[s] + fabs(add));
        const double bound = sums + (f->bias_last ? 2 : 1) *
                                        (v * (fabs(q->y.exact[s]) + fabs(add) + sums) + 0x1p-24);
        const double got = element_at(y, i, j), error = fabs(got - exact) / bound;
        if (fabs(exact) > 65504 - bound && f->dtype == FP8_F16)
            continue;
        worst = error > worst ? error : worst;
        if (!(error <= 1))
            fail_msg("%s: y[%lld,%lld] is %.9g, exactly %.9g, bound %.3g", name, (long long)i,
                     (long long)j, got, exact, bound);
    }
}

static void run(const problem *q, const operands *o, const fp8_wide_version *v, const form *f)
{
    char name[128];
    void *memory = malloc((size_t)(q->p.m * f->stride) * 4);
    fp8_tensor y = fp8_matrix(memory, f->dtype, q->p.m, q->p.n);
    fp8_error err;
    snprintf(name, sizeof name, "%s, split %d, y %s, [%d,%d,%d]",
             fp8_cuda_kernel_at(v->kernel)->function, v->split, fp8_dtype_name(f->dtype), q->p.m,
             q->p.n, q->p.k);
    y.stride[0] = f->stride;
    gpu_tensor yd = gpu_tensor_new(gpu, &y, 1);
    const fp8_wide_matrices m = {.x = o->x.t.data,
                                 .w = o->w.t.data,
                                 .scale = o->scale.t.data,
                                 .bias = f->bias ? o->bias.t.data : NULL,
                                 .y = yd.t.data,
                                 .x_stride = q->p.k,
                                 .w_stride = q->w.stride[0],
                                 .one_scale = q->p.turned,
                                 .y_stride = f->stride,
                                 .y_dtype = f->dtype,
                                 .bias_last = f->bias_last};
    gpu_need(fp8_cuda_begin(gpu->cuda, NULL, &err), &err);
    gpu_need(fp8_wide_launch(gpu->cuda, v, &q->p, &m, NULL, &err), &err);
    fp8_cuda_leave(gpu->cuda);
    if (fp8_device_wait(gpu, NULL, &err) != FP8_OK)
        fail_msg("%s: %s", name, err.msg);
    gpu_tensor_read(&yd, &y);
    check(q, &y, f, name);
    gpu_tensor_free(&yd);
    free(memory);
}

/* Every version that there is room for, whatever the model thinks of it. */
static long check_problem(const problem *q, int turn)
{
    static const fp8_dtype dtypes[] = {FP8_BF16, FP8_F16, FP8_F32};
    operands o = {gpu_tensor_new(gpu, &q->x, 0), gpu_tensor_new(gpu, &q->w, 0),
                  gpu_tensor_new(gpu, &q->scale, 0), gpu_tensor_new(gpu, &q->bias, 0)};
    const char *only = getenv("ONLY");
    const fp8_wide_version *v;
    fp8_wide_plan plan;
    long cases = 0;
    for (size_t i = 0; (v = fp8_wide_at(i)); i++) {
        if (v->kind != q->p.kind || v->f16 != q->p.f16 || v->turned != q->p.turned ||
            v->split > q->blocks || !fp8_wide_plan_make(gpu->cuda, v, &q->p, &plan) ||
            (only && !strstr(fp8_cuda_kernel_at(v->kernel)->function, only)))
            continue;
        const form f = {dtypes[turn % 3], q->p.n + (turn / 3 % 2 ? 3 : 0), turn % 5 != 0,
                        turn % 5 == 1};
        run(q, &o, v, &f);
        turn++;
        cases++;
    }
    gpu_tensor *all[] = {&o.x, &o.w, &o.scale, &o.bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_tensor_free(all[i]);
    return cases;
}

static void every_version_is_within_the_bound(void **state)
{
    (void)state;
    const char *most = getenv("MOST"); /* multiplications, for a sanitizer */
    long cases = 0;
    if (!fp8_cuda_has_kernels() || !gpu->cuda->module.functions[fp8_wide_at(0)->kernel])
        skip();
    for (int s = 0; s < SHAPES; s++)
        for (int kind = 0; kind < FP8_WIDE_KINDS; kind++)
            for (int way = 0; way < 4; way++) {
                const bool f16 = way & 1, turned = way >> 1;
                if ((most && (double)shapes[s][0] * shapes[s][1] * shapes[s][2] > atof(most)) ||
                    (kind == FP8_WIDE_MX && (f16 || turned)) ||
                    (kind == FP8_WIDE_TERMS && (f16 || !turned)))
                    continue;
                problem q = problem_new(shapes[s], kind, f16, turned, (s + kind + way) % 2);
                cases += check_problem(&q, s + kind + way);
                problem_free(&q);
            }
    printf("wide kernels: %ld cases, the largest error %.3f of its bound\n", cases, worst);
}

/* The model chooses a version for every problem, one that does not depend on m where asked. */
static void there_is_always_a_choice(void **state)
{
    (void)state;
    if (!fp8_cuda_has_kernels() || !gpu->cuda->module.functions[fp8_wide_at(0)->kernel])
        skip();
    for (int s = 0; s < SHAPES; s++)
        for (int kind = 0; kind < FP8_WIDE_KINDS; kind++) {
            fp8_wide_problem p = {.m = shapes[s][0],
                                  .n = shapes[s][1],
                                  .k = shapes[s][2],
                                  .kind = kind,
                                  .turned = kind == FP8_WIDE_TERMS};
            assert_non_null(fp8_wide_choose(gpu->cuda, &p));
            p.invariant = true;
            const fp8_wide_version *v = fp8_wide_choose(gpu->cuda, &p);
            p.m = 4096;
            assert_non_null(v);
            assert_ptr_equal(v, fp8_wide_choose(gpu->cuda, &p));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_version_is_within_the_bound),
                                       cmocka_unit_test(there_is_always_a_choice)};
    return gpu_main(tests, sizeof tests / sizeof *tests, &gpu);
}
