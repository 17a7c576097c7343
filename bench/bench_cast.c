/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_cast.c - casts and dequantization against memcpy of as many bytes, one thread each, at
 * every level of the machine. usage: bench_cast [elements, default 16777216 (memory); 16384 =
 * cache] One line a case: GB/s of bytes read plus written, and its ratio to memcpy's in the same
 * run. */
#include "base/context.h"
#include "number/dtype.h"

#include "bench.h"

#include <stdio.h>
#include <string.h>

typedef struct job {
    fp8_context *ctx;
    void *src, *dst;
    float *scales;
    fp8_dtype from, to;
    fp8_grid grid; /* of a dequantization; rows < 0: a cast */
    int64_t rows, cols;
    size_t bytes; /* read plus written */
} job;

static void run_copy(void *arg)
{
    job *j = arg;
    memcpy(j->dst, j->src, j->bytes / 2);
}

static void check(fp8_status status, const fp8_error *err)
{
    if (status != FP8_OK) {
        fprintf(stderr, "bench_cast: %s\n", err->msg);
        exit(1);
    }
}

static void run_cast(void *arg)
{
    job *j = arg;
    fp8_error err;
    check(fp8_cast(j->ctx, j->src, j->from, j->dst, j->to, j->rows * j->cols, 1, NULL, &err), &err);
}

static void run_dequantize(void *arg)
{
    job *j = arg;
    fp8_error err;
    const int64_t gr = j->grid.rows ? j->grid.rows : j->rows;
    const int64_t gc = j->grid.cols ? j->grid.cols : j->cols;
    fp8_tensor codes = fp8_matrix(j->src, j->from, j->rows, j->cols);
    fp8_tensor scales =
        fp8_matrix(j->scales, FP8_F32, (j->rows + gr - 1) / gr, (j->cols + gc - 1) / gc);
    fp8_tensor y = fp8_matrix(j->dst, j->to, j->rows, j->cols);
    check(fp8_dequantize(j->ctx, j->grid, &codes, &scales, &y, NULL, &err), &err);
}

static void report(job *j)
{
    double ours, copy;
    const int is_cast = j->grid.rows < 0;
    j->bytes =
        (size_t)(j->rows * j->cols) * (size_t)(fp8_dtype_bits(j->from) + fp8_dtype_bits(j->to)) / 8;
    bench_pair(is_cast ? run_cast : run_dequantize, j, run_copy, j, 0.01, &ours, &copy);
    char grid[64] = "";
    if (!is_cast)
        snprintf(grid, sizeof grid, " grid=%lldx%lld", (long long)j->grid.rows,
                 (long long)j->grid.cols);
    printf("bench %s isa=%s from=%s to=%s%s n=%lld GB/s=%.2f memcpy_GB/s=%.2f ratio=%.3f\n",
           is_cast ? "cast" : "dequantize", fp8_isa_name(j->ctx->isa), fp8_dtype_name(j->from),
           fp8_dtype_name(j->to), grid, (long long)(j->rows * j->cols),
           (double)j->bytes / ours * 1e-9, (double)j->bytes / copy * 1e-9, copy / ours);
    fflush(stdout);
}

static void report_casts(job j)
{
    static const fp8_dtype pairs[][2] = {
        {FP8_F32, FP8_E4M3FN},  {FP8_F32, FP8_E5M2},     {FP8_F32, FP8_E4M3FNUZ},
        {FP8_F32, FP8_BF16},    {FP8_F32, FP8_F16},      {FP8_BF16, FP8_F32},
        {FP8_E4M3FN, FP8_F32},  {FP8_E4M3FNUZ, FP8_F32}, {FP8_BF16, FP8_E4M3FN},
        {FP8_E4M3FN, FP8_BF16}, {FP8_F16, FP8_BF16},
    };
    j.grid = (fp8_grid){-1, -1};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        j.from = pairs[i][0];
        j.to = pairs[i][1];
        report(&j);
    }
}

static void report_dequantize(job j)
{
    static const fp8_grid grids[] = {{128, 128}, {1, 0}, {0, 0}, {1, 128}, {1, 32}};
    static const fp8_dtype to[] = {FP8_BF16, FP8_F32};
    j.from = FP8_E4M3FN;
    for (size_t i = 0; i < 2 * sizeof grids / sizeof *grids; i++) {
        j.grid = grids[i / 2];
        j.to = to[i % 2];
        report(&j);
    }
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 1 ? strtoll(argv[1], NULL, 10) : 1 << 24;
    job j = {.rows = n / 4096 ? n / 4096 : 1, .cols = n / 4096 ? 4096 : n};
    j.src = malloc((size_t)n * 4);
    j.dst = malloc((size_t)n * 4);
    j.scales = malloc((size_t)n * 4);
    if (n < 1 || !j.src || !j.dst || !j.scales)
        return fprintf(stderr, "usage: bench_cast [elements]\n"), 2;
    float *x = j.src;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)((i * 2654435761u) % 65536) / 64 - 512;
        j.scales[i] = 0.01f;
    }
    memset(j.dst, 0, (size_t)n * 4);
    for (int isa = FP8_ISA_SCALAR; isa <= (int)fp8_isa_detect(); isa++) {
        fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
        fp8_error err;
        desc.threads = 1;
        setenv("FP8_CPU_ISA", fp8_isa_name((fp8_isa)isa), 1);
        check(fp8_context_create(&desc, &j.ctx, &err), &err);
        report_casts(j);
        report_dequantize(j);
        fp8_context_free(j.ctx);
    }
    free(j.src);
    free(j.dst);
    free(j.scales);
    return 0;
}
