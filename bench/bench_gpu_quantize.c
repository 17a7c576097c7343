/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu_quantize.c - fp8_quantize and fp8_dequantize on GPU 0 against a copy on the device that
 * moves as many bytes, in turn in the same run, over buffers that together exceed the L2 cache;
 * and what a call costs the host.
 *
 *     bench_gpu_quantize [ROWS COLS]
 *
 * One line a case: GB/s are bytes read and written, once each, a second; medians of the rounds. */
#include "backend/cuda/cuda_device.h"
#include "base/context.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 15, MOST_SETS = 64, CACHE_BYTES = 200 << 20 };

static struct {
    fp8_cu_result (*cuEventCreate)(void **event, unsigned int flags);
    fp8_cu_result (*cuEventRecord)(void *event, void *stream);
    fp8_cu_result (*cuEventSynchronize)(void *event);
    fp8_cu_result (*cuEventElapsedTime)(float *ms, void *from, void *to);
} cu;

typedef struct bench_case {
    const char *name;
    fp8_rule rule;
    fp8_grid grid;
    fp8_dtype scale;
    int is_static, back;
} bench_case;

static const bench_case cases[] = {
    {"row", FP8_RULE_BEST, {1, 0}, FP8_F32, 0, 0},
    {"row-vllm", FP8_RULE_VLLM, {1, 0}, FP8_F32, 0, 0},
    {"group128", FP8_RULE_BEST, {1, 128}, FP8_F32, 0, 0},
    {"group128-deepseek", FP8_RULE_DEEPSEEK, {1, 128}, FP8_F32, 0, 0},
    {"block128", FP8_RULE_BEST, {128, 128}, FP8_F32, 0, 0},
    {"mxfp8", FP8_RULE_BEST, {1, 32}, FP8_E8M0FNU, 0, 0},
    {"tensor-static", FP8_RULE_BEST, {0, 0}, FP8_F32, 1, 0},
    {"tensor", FP8_RULE_BEST, {0, 0}, FP8_F32, 0, 0},
    {"dequantize-block128", FP8_RULE_BEST, {128, 128}, FP8_F32, 0, 1},
};

static const fp8_context *gpu;

typedef struct matrices {
    fp8_tensor x, codes, scales;
    char *to; /* for the copy */
} matrices;

static void must(fp8_status status, const fp8_error *err)
{
    if (status == FP8_OK)
        return;
    printf("%s\n", err->msg);
    exit(1);
}

static void *memory(uint64_t bytes)
{
    void *p;
    fp8_error err;
    must(fp8_device_alloc(gpu, bytes, &p, &err), &err);
    return p;
}

static void call(const bench_case *c, matrices *m)
{
    fp8_quantize_desc d = FP8_QUANTIZE_DESC_INIT;
    fp8_error err;
    d.rule = c->rule;
    d.grid = c->grid;
    d.nan = FP8_NAN_PROPAGATE;
    d.static_scales = c->is_static;
    must(c->back ? fp8_dequantize(gpu, c->grid, &m->codes, &m->scales, &m->x, NULL, &err)
                 : fp8_quantize(gpu, &d, &m->x, &m->codes, &m->scales, NULL, &err),
         &err);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Microseconds of the device for each of n calls (copies, if c is NULL), in turn over the sets;
 * and of the host. */
static double timed(const bench_case *c, matrices *sets, int n, uint64_t copy_bytes, double *host)
{
    static void *from, *to;
    fp8_error err;
    float ms;
    if (!from && (cu.cuEventCreate(&from, 0) || cu.cuEventCreate(&to, 0)))
        exit(1);
    cu.cuEventRecord(from, NULL);
    const double start = seconds();
    for (int i = 0; i < n; i++)
        if (c)
            call(c, &sets[i]);
        else
            must(fp8_device_copy(gpu, sets[i].to, sets[i].x.data, copy_bytes, NULL, &err), &err);
    *host = 1e6 * (seconds() - start) / n;
    cu.cuEventRecord(to, NULL);
    cu.cuEventSynchronize(to);
    cu.cuEventElapsedTime(&ms, from, to);
    return 1e3 * (double)ms / n;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, by_value);
    return values[ROUNDS / 2];
}

static void run(const bench_case *c, fp8_dtype in, int64_t rows, int64_t cols, const void *data)
{
    matrices sets[MOST_SETS];
    const int64_t elements = rows * cols, in_bytes = fp8_dtype_bits(in) / 8;
    const int64_t gr = c->grid.rows ? c->grid.rows : rows, gc = c->grid.cols ? c->grid.cols : cols;
    const int64_t scales = (rows + gr - 1) / gr * ((cols + gc - 1) / gc);
    const int64_t bytes = elements * (in_bytes + 1) + scales * fp8_dtype_bits(c->scale) / 8;
    int n = (int)(CACHE_BYTES / bytes + 1);
    double ours[ROUNDS], copies[ROUNDS], host[ROUNDS], copy_host;
    fp8_error err;
    n = n < 4 ? 4 : n > MOST_SETS ? MOST_SETS : n;
    for (int i = 0; i < n; i++) {
        matrices *m = &sets[i];
        m->x = fp8_matrix(memory((uint64_t)(elements * in_bytes)), in, rows, cols);
        m->codes = fp8_matrix(memory((uint64_t)elements), FP8_E4M3FN, rows, cols);
        m->scales = fp8_matrix(memory((uint64_t)scales * 4), c->scale, (rows + gr - 1) / gr,
                               (cols + gc - 1) / gc);
        m->to = memory((uint64_t)bytes);
        must(fp8_device_copy(gpu, m->x.data, data, (uint64_t)(elements * in_bytes), NULL, &err),
             &err);
        const float one = 0.01f;
        if (c->is_static)
            must(fp8_device_copy(gpu, m->scales.data, &one, sizeof one, NULL, &err), &err);
        bench_case forth = *c;
        forth.back = 0;
        call(&forth, m);
    }
    for (int r = -2; r < ROUNDS; r++) {
        const int at = r < 0 ? 0 : r;
        copies[at] = timed(NULL, sets, n, (uint64_t)bytes / 2, &copy_host);
        ours[at] = timed(c, sets, n, 0, &host[at]);
    }
    const double us = median(ours), copy_us = median(copies);
    printf("gpu-quantize %-20s %-4s %6lldx%-6lld %8.2f us %7.0f GB/s, copy %7.0f GB/s, ratio %.2f, "
           "host %.2f us\n",
           c->name, fp8_dtype_name(in), (long long)rows, (long long)cols, us,
           (double)bytes / us * 1e-3, (double)(bytes / 2 * 2) / copy_us * 1e-3, copy_us / us,
           median(host));
    for (int i = 0; i < n; i++) {
        fp8_device_free(gpu, sets[i].x.data);
        fp8_device_free(gpu, sets[i].codes.data);
        fp8_device_free(gpu, sets[i].scales.data);
        fp8_device_free(gpu, sets[i].to);
    }
}

/* bf16 or fp16 or fp32 of about normal size, no two alike for long. */
static void *random_data(fp8_dtype in, int64_t n)
{
    const int bytes = fp8_dtype_bits(in) / 8;
    char *data = malloc((size_t)(n * bytes));
    uint32_t seed = 7;
    for (int64_t i = 0; data && i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint32_t f32 = (seed & 0x81FFFFFF) | 0x3E000000;
        const uint16_t half =
            (uint16_t)(in == FP8_BF16 ? f32 >> 16 : (seed >> 16 & 0x87FF) | 0x3000);
        memcpy(data + i * bytes, in == FP8_F32 ? (const void *)&f32 : (const void *)&half,
               (size_t)bytes);
    }
    return data;
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][2] = {{1, 4096},    {64, 8192},   {512, 4096},
                                        {4096, 4096}, {8192, 8192}, {16384, 16384}};
    static const fp8_dtype inputs[] = {FP8_BF16, FP8_F16, FP8_F32};
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx;
    fp8_gpu_info info;
    fp8_error err;
    desc.device = FP8_DEVICE_CUDA;
    if (fp8_context_create(&desc, &ctx, &err) != FP8_OK)
        return printf("SKIPPED: %s\n", err.msg), 77;
    gpu = ctx;
    must(fp8_gpu(0, &info, &err), &err);
    printf("%s\n", info.name);
    void *driver = dlopen(FP8_DRIVER_NAME, RTLD_NOW);
    *(void **)&cu.cuEventCreate = dlsym(driver, "cuEventCreate");
    *(void **)&cu.cuEventRecord = dlsym(driver, "cuEventRecord");
    *(void **)&cu.cuEventSynchronize = dlsym(driver, "cuEventSynchronize");
    *(void **)&cu.cuEventElapsedTime = dlsym(driver, "cuEventElapsedTime");
    must(fp8_cuda_enter(ctx->cuda, &err), &err);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const int64_t rows = argc > 2 ? atoll(argv[1]) : shapes[s][0];
        const int64_t cols = argc > 2 ? atoll(argv[2]) : shapes[s][1];
        for (int i = 0; i < 3; i++) {
            if (i && rows * cols != 8192 * 8192)
                continue; /* fp16 and fp32 at one size */
            void *data = random_data(inputs[i], rows * cols);
            for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
                run(&cases[c], inputs[i], rows, cols, data);
            free(data);
        }
        if (argc > 2)
            break;
    }
    fp8_cuda_leave(ctx->cuda);
    fp8_context_free(ctx);
    return 0;
}
