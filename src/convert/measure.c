/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c - sums of squares and the histogram of codes. */
#include "convert/measure.h"
#include "base/size.h"
#include "op/quantize.h"

#include <math.h>

/* Eight sums side by side, added up in a fixed order: quick, and the same everywhere. */
enum { LANES = 8 };

static double sum_of(const double lanes[LANES])
{
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
           ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/* sums[0..1] and *max_err over x[n] and y[n]. */
static void sum_chunk(const float *x, const float *y, int64_t n, double sums[2], double *max_err)
{
    double square[LANES] = {0}, error[LANES] = {0};
    double most = *max_err;
    for (int64_t i = 0; i < n; i++) {
        double v = x[i], e = v - (double)y[i];
        square[i % LANES] += v * v;
        error[i % LANES] += e * e;
        most = fabs(e) > most ? fabs(e) : most;
    }
    sums[0] = sum_of(square);
    sums[1] = sum_of(error);
    *max_err = most;
}

static void count_codes(const uint8_t *codes, int64_t n, uint64_t counts[256])
{
    for (int64_t i = 0; i < n; i++)
        counts[codes[i]]++;
}

fp8_status fp8_measure(const fp8_context *ctx, const fp8_measure_slab *slab, double *sums,
                       fp8_tensor_stats *stats, fp8_error *err)
{
    int64_t rows = slab->x.shape[0], cols = slab->x.shape[1];
    int64_t x_bytes = fp8_dtype_bits(slab->x.dtype) / 8;
    for (int64_t row = 0; row < rows; row += slab->chunk_rows) {
        int64_t n = fp8_min_i64(slab->chunk_rows, rows - row);
        float *x = slab->room, *y = x + slab->chunk_rows * cols;
        uint8_t *data = (uint8_t *)slab->codes.data + row * cols;
        fp8_tensor codes = fp8_matrix(data, slab->codes.dtype, n, cols);
        fp8_tensor real = fp8_matrix(y, FP8_F32, n, cols);
        FP8_TRY(fp8_cast(ctx, (const char *)slab->x.data + row * cols * x_bytes, slab->x.dtype, x,
                         FP8_F32, n * cols, 0, NULL, err));
        FP8_TRY(
            fp8_dequant_rows(ctx, slab->grid, &codes, &slab->scales, slab->row0 + row, &real, err));
        sum_chunk(x, y, n * cols, sums, &stats->max_err);
        count_codes(data, n * cols, stats->codes);
        sums += 2;
    }
    stats->elements += (uint64_t)(rows * cols);
    return FP8_OK;
}

void fp8_measure_add(fp8_tensor_stats *total, const fp8_tensor_stats *slab, const double *sums,
                     int64_t chunks)
{
    for (int64_t i = 0; i < chunks; i++) {
        total->sum_sq += sums[2 * i];
        total->sum_err_sq += sums[2 * i + 1];
    }
    total->elements += slab->elements;
    total->max_err = slab->max_err > total->max_err ? slab->max_err : total->max_err;
    for (int c = 0; c < 256; c++)
        total->codes[c] += slab->codes[c];
}

void fp8_measure_finish(const fp8_context *ctx, fp8_dtype code, fp8_tensor_stats *stats)
{
    uint8_t codes[256];
    float values[256], most = 0;
    for (int c = 0; c < 256; c++)
        codes[c] = (uint8_t)c;
    if (fp8_cast(ctx, codes, code, values, FP8_F32, 256, 0, NULL, NULL) != FP8_OK)
        return; /* cannot be: `code` was encoded to */
    for (int c = 0; c < 256; c++)
        if (isfinite(values[c]) && fabsf(values[c]) > most)
            most = fabsf(values[c]);
    stats->saturated = stats->zeros = 0;
    for (int c = 0; c < 256; c++) {
        stats->saturated += isfinite(values[c]) && fabsf(values[c]) == most ? stats->codes[c] : 0;
        stats->zeros += values[c] == 0 ? stats->codes[c] : 0;
    }
}
