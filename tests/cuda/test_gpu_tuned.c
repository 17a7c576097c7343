/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_tuned.c - kernels by name on a GPU: every candidate of fp8_explain makes Y within the
 * bound of the tensor cores (1e-3 of the sum of |x| |w|, and bf16's rounding) of what the plain
 * kernel makes, that sum being the plain kernel's product of the magnitudes; a context with a file
 * runs the file's kernel, bit for bit; from bf16, kernels that quantize X give the bits of those
 * that come after a quantizer. */
#include "backend/cuda/module.h"
#include "support/gpu.h"
#include "support/sandbox.h"

#include "number/number.h"

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

enum { MOST = 1 << 20, SCALES = 1 << 13 };

/* Y = X W^T, codes of both, a scale a row and a channel or 1x128 and 128x128; whole: X in bf16. */
typedef struct product {
    int64_t m, n, k;
    bool block, whole;
    fp8_linear_desc desc;
    fp8_linear *linear;
    gpu_tensor x, x_scales, y;
    void *workspace;
    uint64_t bytes;
} product;

static uint8_t codes_of(int64_t i, bool magnitudes)
{
    const uint32_t word = (uint32_t)(i + 1) * 2654435761u;
    return (uint8_t)((word >> 24 & 0xBF) & (magnitudes ? 0x7F : 0xFF));
}

static fp8_tensor codes_new(int64_t rows, int64_t cols, bool magnitudes)
{
    static uint8_t memory[2][MOST];
    static int turn;
    uint8_t *codes = memory[turn++ & 1];
    for (int64_t i = 0; i < rows * cols; i++)
        codes[i] = codes_of(i, magnitudes);
    return fp8_matrix(codes, FP8_E4M3FN, rows, cols);
}

static fp8_tensor scales_new(int64_t rows, int64_t cols)
{
    static float memory[2][SCALES];
    static int turn;
    float *scales = memory[turn++ & 1];
    for (int64_t i = 0; i < rows * cols; i++)
        scales[i] = 0.5F + (float)(i % 7) / 8;
    return fp8_matrix(scales, FP8_F32, rows, cols);
}

static fp8_tensor halves_new(int64_t rows, int64_t cols)
{
    static uint16_t halves[MOST];
    for (int64_t i = 0; i < rows * cols; i++)
        halves[i] = fp8_bf16_from_f32((float)(i * 37 % 251 - 125) / 16, false);
    return fp8_matrix(halves, FP8_BF16, rows, cols);
}

static int64_t blocks(int64_t n)
{
    return (n + 127) / 128;
}

static product product_new(const fp8_context *ctx, const int64_t *shape, bool block, bool whole,
                           bool magnitudes)
{
    static uint16_t outputs[MOST];
    product p = {
        .m = shape[0], .n = shape[1], .k = shape[2], block, whole, .desc = FP8_LINEAR_DESC_INIT};
    fp8_error err;
    p.desc.activation = whole ? FP8_ACTIVATION_DYNAMIC : FP8_ACTIVATION_CODES;
    p.desc.x.grid = (fp8_grid){1, block ? 128 : 0};
    p.desc.w.grid = block ? (fp8_grid){128, 128} : (fp8_grid){1, 0};
    const fp8_tensor w = codes_new(p.n, p.k, magnitudes);
    const fp8_tensor ws = block ? scales_new(blocks(p.n), blocks(p.k)) : scales_new(p.n, 1);
    gpu_need(fp8_linear_create(ctx, &p.desc, &w, &ws, NULL, &p.linear, &err), &err);
    const fp8_tensor x = whole ? halves_new(p.m, p.k) : codes_new(p.m, p.k, magnitudes);
    const fp8_tensor xs = scales_new(p.m, block ? blocks(p.k) : 1);
    const fp8_tensor y = fp8_matrix(outputs, FP8_BF16, p.m, p.n);
    p.x = gpu_tensor_new(ctx, &x, 0);
    p.x_scales = gpu_tensor_new(ctx, &xs, 0);
    p.y = gpu_tensor_new(ctx, &y, 1);
    gpu_need(fp8_linear_workspace(p.linear, p.m, &p.bytes, &err), &err);
    gpu_need(fp8_device_alloc(ctx, p.bytes, &p.workspace, &err), &err);
    return p;
}

static void product_free(product *p)
{
    fp8_device_free(p->x.ctx, p->workspace);
    gpu_tensor_free(&p->x);
    gpu_tensor_free(&p->x_scales);
    gpu_tensor_free(&p->y);
    fp8_linear_free(p->linear);
}

/* y[m,n] by a kernel; NULL: by the one that is chosen. */
static void run(const product *p, const char *kernel, uint16_t *y)
{
    fp8_error err = {.msg = ""};
    fp8_tensor out = fp8_matrix(y, FP8_BF16, p->m, p->n), to = p->y.t;
    memset(y, 0xFF, (size_t)(p->m * p->n) * sizeof *y);
    gpu_need(fp8_device_copy(p->x.ctx, to.data, y, (uint64_t)(p->m * p->n) * sizeof *y, NULL, &err),
             &err);
    const fp8_tensor *scales = p->whole ? NULL : &p->x_scales.t;
    const fp8_status status =
        kernel
            ? fp8_linear_run_kernel(p->linear, kernel, &p->x.t, scales, &to, p->workspace, p->bytes,
                                    NULL, &err)
            : fp8_linear_run(p->linear, &p->x.t, scales, &to, p->workspace, p->bytes, NULL, &err);
    if (status != FP8_OK)
        fail_msg("%s: %s", kernel ? kernel : "chosen", err.msg);
    gpu_need(fp8_device_wait(p->x.ctx, NULL, &err), &err);
    gpu_tensor_read(&p->y, &out);
}

static bool candidate(const product *p, int64_t i, fp8_candidate *out)
{
    return fp8_explain(p->x.ctx, &p->desc, p->m, p->n, p->k, p->x.t.dtype, FP8_E4M3FN, i, out,
                       NULL) == FP8_OK;
}

static const int64_t shapes[][3] = {
    {1, 512, 1024}, {16, 640, 1040}, {65, 384, 2048}, {300, 520, 768}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static uint16_t y[MOST], exact[MOST], sizes[MOST];

static void each_kernel_is_right(void **state)
{
    (void)state;
    long cases = 0;
    for (int i = 0; i < 2 * SHAPES; i++) {
        const int64_t *shape = shapes[i / 2];
        product p = product_new(gpu, shape, i & 1, false, false);
        product magnitudes = product_new(gpu, shape, i & 1, false, true);
        fp8_candidate c;
        run(&p, "gemm_plain", exact);
        run(&magnitudes, "gemm_plain", sizes);
        for (int64_t at = 0; candidate(&p, at, &c); at++, cases++) {
            run(&p, c.kernel, y);
            for (int64_t e = 0; e < p.m * p.n; e++) {
                const double is = fp8_bf16_to_f32(y[e]), should = fp8_bf16_to_f32(exact[e]);
                const double bound =
                    1e-3 * (double)fp8_bf16_to_f32(sizes[e]) * 1.01 + fabs(should) * 0x1p-7;
                if (!(fabs(is - should) <= bound))
                    fail_msg("%s [%lld,%lld,%lld]: y[%lld] is %g, plain %g, bound %g", c.kernel,
                             (long long)p.m, (long long)p.n, (long long)p.k, (long long)e, is,
                             should, bound);
            }
        }
        product_free(&p);
        product_free(&magnitudes);
    }
    printf("kernels by name: %ld cases\n", cases);
}

/* A context whose file names a kernel for the product. */
static fp8_context *context_with(const product *p, const char *kernel)
{
    char text[512];
    fp8_context *ctx;
    fp8_gpu_info info;
    fp8_error err;
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    gpu_need(fp8_gpu(0, &info, &err), &err);
    snprintf(text, sizeof text, "fp8-tuned 1\ndevice %s\ndriver %d\n%s %lld %lld %lld %s 1000\n",
             info.name, info.driver_version, p->block ? "block" : "channel", (long long)p->n,
             (long long)p->k, (long long)p->m, kernel);
    sandbox_make();
    sandbox_text("tuned", text);
    desc.device = FP8_DEVICE_CUDA;
    desc.tuned = sandbox_path("tuned");
    gpu_need(fp8_context_create(&desc, &ctx, &err), &err);
    sandbox_remove();
    return ctx;
}

static void a_file_makes_its_kernel_run(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SHAPES; i++) {
        product p = product_new(gpu, shapes[i / 2], i & 1, false, false);
        fp8_candidate last = {0}, c;
        for (int64_t at = 0; candidate(&p, at, &c); at++)
            if (!strcmp(c.isa, "sm_90a"))
                last = c;
        if (last.kernel) {
            fp8_context *ctx = context_with(&p, last.kernel);
            product q = product_new(ctx, shapes[i / 2], i & 1, false, false);
            assert_true(candidate(&q, 0, &c));
            assert_string_equal(c.kernel, last.kernel);
            assert_int_equal(c.chosen, 1);
            run(&p, last.kernel, exact);
            run(&q, NULL, y);
            assert_memory_equal(y, exact, (size_t)(p.m * p.n) * sizeof *y);
            product_free(&q);
            fp8_context_free(ctx);
        }
        product_free(&p);
    }
}

static void quantizing_kernels_give_the_same_bits(void **state)
{
    (void)state;
    static const char begin[] = "gemm_small_", quantize[] = "quantize_";
    long cases = 0;
    if (!fp8_cuda_has_kernels())
        skip();
    for (int i = 0; i < 2 * SHAPES && shapes[i / 2][0] <= 16; i++) {
        product p = product_new(gpu, shapes[i / 2], i & 1, true, false);
        fp8_candidate c;
        for (int64_t at = 0; candidate(&p, at, &c); at++) {
            const char *rest = c.kernel + strlen(begin);
            char twin[64];
            if (strncmp(c.kernel, begin, strlen(begin)) != 0 ||
                strncmp(rest, quantize, strlen(quantize)) != 0)
                continue;
            snprintf(twin, sizeof twin, "%s%s", begin, rest + strlen(quantize));
            run(&p, twin, exact);
            run(&p, c.kernel, y);
            assert_memory_equal(y, exact, (size_t)(p.m * p.n) * sizeof *y);
            cases++;
        }
        product_free(&p);
    }
    printf("quantizing by name: %ld cases\n", cases);
    assert_true(cases > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kernel_is_right),
                                       cmocka_unit_test(a_file_makes_its_kernel_run),
                                       cmocka_unit_test(quantizing_kernels_give_the_same_bits)};
    return gpu_main(tests, sizeof tests / sizeof *tests, &gpu);
}
