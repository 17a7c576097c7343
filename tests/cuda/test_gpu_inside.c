/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_inside.c - products of few rows whose kernels quantize X themselves give the bits of
 * those that get X from the quantizer: every such version, every kind of scale, bf16 and fp16, rows
 * apart, numbers that are small, large, zero or none. And the quantizer that makes bf16 of its
 * codes at once gives what quantizing and dequantizing give. */
#include "backend/cuda/cuda_quantize.h"
#include "backend/cuda/sm90.h"
#include "base/context.h"
#include "number/dtype.h"
#include "number/number.h"
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
    {1, 8, 16},     {1, 130, 2048}, {2, 64, 144},  {3, 40, 1040},  {4, 520, 8192},  {5, 63, 272},
    {8, 128, 4096}, {7, 200, 640},  {6, 72, 7168}, {8, 264, 4096}, {8, 1040, 1168}, {8, 64, 20480}};

/* How X is quantized; NAN_REFUSE makes NaN, as in a linear. */
static const fp8_quantize_desc kinds[] = {
    {sizeof(fp8_quantize_desc), FP8_RULE_BEST, {1, 0}, FP8_NAN_REFUSE, 0, 0, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_VLLM, {1, 0}, FP8_NAN_ORIGINAL, 0, 0, 2},
    {sizeof(fp8_quantize_desc), FP8_RULE_BEST, {1, 0}, FP8_NAN_PROPAGATE, 0, 1, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_BEST, {0, 0}, FP8_NAN_REFUSE, 0, 0, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_VLLM, {0, 0}, FP8_NAN_ORIGINAL, 0, 0, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_BEST, {0, 0}, FP8_NAN_REFUSE, 1, 0, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_VLLM, {0, 0}, FP8_NAN_ORIGINAL, 1, 0, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_BEST, {1, 128}, FP8_NAN_REFUSE, 0, 0, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_VLLM, {1, 128}, FP8_NAN_ORIGINAL, 0, 0, 0},
    {sizeof(fp8_quantize_desc), FP8_RULE_BEST, {1, 128}, FP8_NAN_PROPAGATE, 0, 1, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, KINDS = sizeof kinds / sizeof *kinds };

/* What the elements of X are like. */
enum { PLAIN, ZEROS, TINY, HUGE_ONES, NO_NUMBERS, DATA };

static float element(int data, fp8_dtype dtype)
{
    const uint32_t r = random_word();
    const float value = ((float)(r >> 8) * 0x1p-24F - 0.5F) * (float)(1 << (r & 7));
    const float large = dtype == FP8_F16 ? 0x1p9F : 0x1p118F;
    switch (data) {
    case ZEROS:
        return r % 200 ? (r & 256 ? -0.0F : 0.0F) : value;
    case TINY:
        return value * (dtype == FP8_F16 ? 0x1p-22F : 0x1p-130F);
    case HUGE_ONES:
        return value * large;
    case NO_NUMBERS:
        return r % 1500 ? value : r & 256 ? NAN : r & 512 ? -INFINITY : INFINITY;
    default:
        return value;
    }
}

/* X[m, k] with rows 16 bytes apart from each other; every second row of ZEROS is all zero. */
static fp8_tensor x_new(int data, fp8_dtype dtype, int32_t m, int32_t k)
{
    const int64_t stride = k + 8;
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    fp8_tensor x = fp8_matrix(calloc((size_t)(m * stride), sizeof(float)), dtype, m, k);
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < k; j++)
            facts->store(x.data, i * stride + j, data == ZEROS && i & 1 ? 0 : element(data, dtype),
                         false);
    x.stride[0] = stride;
    return x;
}

static gpu_tensor random_codes(int32_t rows, int32_t cols)
{
    uint8_t *codes = malloc((size_t)rows * (size_t)cols);
    for (int64_t i = 0; i < (int64_t)rows * cols; i++)
        codes[i] = (uint8_t)(random_word() % 0x7F | (random_word() & 0x80));
    const fp8_tensor host = fp8_matrix(codes, FP8_E4M3FN, rows, cols);
    const gpu_tensor there = gpu_tensor_new(gpu, &host, 0);
    free(codes);
    return there;
}

static gpu_tensor random_scales(int64_t count)
{
    const fp8_tensor host = scales_new(1, count);
    const gpu_tensor there = gpu_tensor_new(gpu, &host, 0);
    free(host.data);
    return there;
}

static gpu_tensor room(fp8_dtype dtype, int64_t rows, int64_t cols)
{
    const fp8_tensor host = fp8_matrix(NULL, dtype, rows, cols);
    return gpu_tensor_new(gpu, &host, 1);
}

/* A product on the device; the codes and scales of the quantizer stay, for all versions. */
typedef struct product {
    fp8_sm90_problem p;
    const fp8_quantize_desc *kind;
    fp8_quant q;
    gpu_tensor x, w, w_scale, bias, codes, scales;
    fp8_tensor scales_as_read; /* one, [m], or [k blocks, m padded] by columns */
    fp8_cuda_quantize_args inside;
} product;

static void quantize_outside(product *o)
{
    fp8_error err;
    gpu_need(fp8_cuda_begin(gpu->cuda, NULL, &err), &err);
    gpu_need(fp8_cuda_enqueue_quantize(gpu->cuda, &o->q, &o->x.t, &o->codes.t, &o->scales_as_read,
                                       NULL, &err),
             &err);
    fp8_cuda_leave(gpu->cuda);
}

static product product_new(const int32_t *shape, const fp8_quantize_desc *kind, int data,
                           fp8_dtype dtype)
{
    const int32_t m = shape[0], n = shape[1], k = shape[2], blocks = (k + 127) / 128;
    const bool block = kind->grid.cols != 0;
    const int64_t padded = (m + 3) / 4 * 4;
    product o = {.p = {.m = m, .n = n, .k = k, .block = block, .fast = true}, .kind = kind};
    fp8_tensor x = x_new(data, dtype, m, k);
    fp8_error err;
    o.x = gpu_tensor_new(gpu, &x, 0);
    o.w = random_codes(n, k);
    o.w_scale = random_scales(block ? (int64_t)((n + 127) / 128) * blocks : n);
    o.bias = random_scales(n);
    o.codes = room(FP8_E4M3FN, m, k);
    o.scales = kind->static_scales ? random_scales(1) : room(FP8_F32, blocks, padded);
    o.scales_as_read =
        fp8_matrix(o.scales.t.data, FP8_F32, kind->grid.rows ? m : 1, block ? blocks : 1);
    if (block) {
        o.scales_as_read.stride[0] = 1;
        o.scales_as_read.stride[1] = padded;
    }
    gpu_need(fp8_quant_prepare(&o.q, kind, dtype, FP8_E4M3FN, FP8_F32, m, k, &err), &err);
    o.inside = fp8_cuda_describe_quantize(&o.q, &o.x.t, &o.codes.t, &o.scales_as_read);
    quantize_outside(&o);
    free(x.data);
    return o;
}

static void product_free(product *o)
{
    gpu_tensor *all[] = {&o->x, &o->w, &o->w_scale, &o->bias, &o->codes, &o->scales};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_tensor_free(all[i]);
}

/* Y of a version on the host. */
static fp8_tensor y_of(const product *o, const fp8_sm90_version *v)
{
    const bool inside = v->quantizes;
    const int64_t bytes = (int64_t)o->p.m * o->p.n * 4;
    fp8_tensor y = fp8_matrix(malloc((size_t)bytes), FP8_F32, o->p.m, o->p.n);
    gpu_tensor there = gpu_tensor_new(gpu, &y, 1);
    fp8_error err;
    const fp8_sm90_matrices m = {.quantize = inside ? &o->inside : NULL,
                                 .x = inside ? NULL : o->codes.t.data,
                                 .w = o->w.t.data,
                                 .y = there.t.data,
                                 .y_dtype = FP8_F32,
                                 .x_stride = o->p.k,
                                 .w_stride = o->p.k,
                                 .y_stride = o->p.n,
                                 .scales = {.x = inside ? NULL : o->scales_as_read.data,
                                            .w = o->w_scale.t.data,
                                            .bias = o->bias.t.data,
                                            .x_step = o->scales_as_read.shape[0] > 1,
                                            .x_stride = (int32_t)o->scales_as_read.stride[1]}};
    gpu_need(fp8_cuda_begin(gpu->cuda, NULL, &err), &err);
    gpu_need(fp8_sm90_launch(gpu->cuda, v, &o->p, &m, NULL, &err), &err);
    fp8_cuda_leave(gpu->cuda);
    if (fp8_device_wait(gpu, NULL, &err) != FP8_OK)
        fail_msg("%s, [%d,%d,%d]: %s", v->name, o->p.m, o->p.n, o->p.k, err.msg);
    gpu_tensor_read(&there, &y);
    gpu_tensor_free(&there);
    return y;
}

/* The bits; or NaN both, which NaN it is nobody says. */
static bool same(const fp8_tensor *a, const fp8_tensor *b, int64_t i)
{
    const float x = ((const float *)a->data)[i], y = ((const float *)b->data)[i];
    return fp8_bits_of_f32(x) == fp8_bits_of_f32(y) || (isnan(x) && isnan(y));
}

/* The version of the same tile, split and ring that multiplies codes: it is called so, without
 * "quantize_". */
static const fp8_sm90_version *twin_of(const fp8_sm90_version *v)
{
    static const char begin[] = "gemm_small_";
    char name[64];
    snprintf(name, sizeof name, "%s%s", begin, v->name + strlen(begin) + strlen("quantize_"));
    const fp8_sm90_version *twin = fp8_sm90_find(name);
    assert_non_null(twin);
    return twin;
}

static void compare(const product *o, const fp8_sm90_version *v, int data)
{
    fp8_tensor want = y_of(o, twin_of(v)), got = y_of(o, v);
    for (int64_t i = 0; i < (int64_t)o->p.m * o->p.n; i++)
        if (!same(&want, &got, i))
            fail_msg("%s, [%d,%d,%d], kind %d, %s, data %d: y[%lld] is %.9g, of codes %.9g",
                     v->name, o->p.m, o->p.n, o->p.k, (int)(o->kind - kinds),
                     fp8_dtype_name(o->x.t.dtype), data, (long long)i,
                     (double)((float *)got.data)[i], (double)((float *)want.data)[i]);
    free(want.data);
    free(got.data);
}

/* All versions that quantize; some never suit so few rows, but may be asked all the same. */
static long check_product(const product *o, int data)
{
    const fp8_sm90_version *v;
    fp8_sm90_plan plan;
    long cases = 0;
    for (size_t i = 0; (v = fp8_sm90_at(i)); i++)
        if (v->block == o->p.block && v->quantizes && o->p.m <= v->cols &&
            fp8_sm90_plan_small(gpu->cuda, v, &o->p, &plan)) {
            compare(o, v, data);
            cases++;
        }
    return cases;
}

static void inside_is_outside(void **state)
{
    (void)state;
    const int few = getenv("FEW") ? atoi(getenv("FEW")) : 1; /* one in so many, for a sanitizer */
    long cases = 0;
    int turn = 0;
    if (!fp8_cuda_has_kernels())
        skip();
    for (int s = 0; s < SHAPES; s++)
        for (int k = 0; k < KINDS; k++)
            for (int data = 0; data < DATA; data++) {
                if (turn++ % few)
                    continue;
                product o = product_new(shapes[s], &kinds[k], data, turn & 1 ? FP8_BF16 : FP8_F16);
                cases += check_product(&o, data);
                product_free(&o);
            }
    printf("quantized inside: %ld cases\n", cases);
    assert_true(cases > 0);
}

/* ---- bf16 of codes, at once ---- */

/* X[m, k] as codes and back, in one launch and in two. */
static void compare_reals(int32_t m, int32_t k, const fp8_quantize_desc *kind, fp8_dtype dtype,
                          fp8_dtype code, int data)
{
    fp8_tensor host = x_new(data, dtype, m, k);
    gpu_tensor x = gpu_tensor_new(gpu, &host, 0), codes = room(code, m, k);
    gpu_tensor scales = room(FP8_E8M0FNU, m, k / kind->grid.cols);
    gpu_tensor want = room(FP8_BF16, m, k), got = room(FP8_BF16, m, k);
    const size_t bytes = (size_t)m * (size_t)k * 2;
    fp8_tensor a = fp8_matrix(malloc(bytes), FP8_BF16, m, k);
    fp8_tensor b = fp8_matrix(malloc(bytes), FP8_BF16, m, k);
    fp8_quant q;
    fp8_error err;
    bool done = false;
    gpu_need(fp8_quant_prepare(&q, kind, dtype, code, FP8_E8M0FNU, m, k, &err), &err);
    gpu_need(fp8_cuda_begin(gpu->cuda, NULL, &err), &err);
    gpu_need(fp8_cuda_enqueue_rounded(gpu->cuda, &q, &x.t, &scales.t, &got.t, NULL, &done, &err),
             &err);
    gpu_need(fp8_cuda_enqueue_quantize(gpu->cuda, &q, &x.t, &codes.t, &scales.t, NULL, &err), &err);
    gpu_need(fp8_cuda_enqueue_dequantize(gpu->cuda, kind->grid, &codes.t, &scales.t, &want.t, NULL,
                                         &err),
             &err);
    fp8_cuda_leave(gpu->cuda);
    assert_true(done);
    gpu_need(fp8_device_wait(gpu, NULL, &err), &err);
    gpu_tensor_read(&want, &a);
    gpu_tensor_read(&got, &b);
    for (int64_t i = 0; i < (int64_t)m * k; i++)
        if (((uint16_t *)a.data)[i] != ((uint16_t *)b.data)[i])
            fail_msg("[%d,%d] of %s, groups of %d, %s, data %d: number %lld is %04X, of codes %04X",
                     m, k, fp8_dtype_name(dtype), (int)kind->grid.cols, fp8_dtype_name(code), data,
                     (long long)i, ((uint16_t *)b.data)[i], ((uint16_t *)a.data)[i]);
    gpu_tensor *all[] = {&x, &codes, &scales, &want, &got};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu_tensor_free(all[i]);
    free(host.data);
    free(a.data);
    free(b.data);
}

static void reals_are_what_codes_stand_for(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 256}, {3, 4096}, {37, 768}, {300, 1280}};
    static const fp8_dtype inputs[] = {FP8_BF16, FP8_F16, FP8_F32};
    static const fp8_nan_policy policies[] = {FP8_NAN_REFUSE, FP8_NAN_PROPAGATE};
    /* The last three are for 32 columns. */
    static const fp8_rule rules[] = {FP8_RULE_BEST, FP8_RULE_DEEPSEEK, FP8_RULE_MX_OCP,
                                     FP8_RULE_VLLM, FP8_RULE_COMPRESSED_TENSORS};
    long cases = 0;
    if (!fp8_cuda_has_kernels())
        skip();
    for (int s = 0; s < 4; s++)
        for (int cols = 32; cols <= 256; cols *= 2)
            for (int i = 0; i < 3; i++)
                for (int data = 0; data < DATA; data++, cases++) {
                    const fp8_rule rule = rules[cases % (cols == 32 ? 5 : 2)];
                    const fp8_quantize_desc kind = {sizeof(fp8_quantize_desc),
                                                    rule,
                                                    {1, cols},
                                                    policies[cases % 3 & 1],
                                                    0,
                                                    1,
                                                    0};
                    compare_reals(sizes[s][0], sizes[s][1], &kind, inputs[i],
                                  rule == FP8_RULE_BEST && cases % 4 ? FP8_E5M2 : FP8_E4M3FN, data);
                }
    printf("bf16 of codes: %ld cases\n", cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(inside_is_outside),
                                       cmocka_unit_test(reals_are_what_codes_stand_for)};
    return gpu_main(tests, sizeof tests / sizeof *tests, &gpu);
}
