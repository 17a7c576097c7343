/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h - how far codes are from what they stand for. Plain C that no compiler may reorder, so
 * that every machine finds the same sums. */
#ifndef FP8_CONVERT_MEASURE_H
#define FP8_CONVERT_MEASURE_H

#include "base/context.h"
#include "convert/stats.h"

typedef struct fp8_measure_slab {
    fp8_tensor x, codes; /* [rows, cols], contiguous */
    fp8_tensor scales;   /* of the grid's units from row -row0 on */
    fp8_grid grid;
    int64_t row0;       /* first row, counted from that of the first unit */
    int64_t chunk_rows; /* rows of a pair of sums */
    float *room;        /* 2 * chunk_rows * cols */
} fp8_measure_slab;

/* sums[2i], sums[2i+1] = sum of x^2 and of (x - code * scale)^2 over chunk i; everything else is
 * added to *stats. */
fp8_status fp8_measure(const fp8_context *ctx, const fp8_measure_slab *slab, double *sums,
                       fp8_tensor_stats *stats, fp8_error *err);

/* Adds a slab's stats, and its sums in their order, to a tensor's. */
void fp8_measure_add(fp8_tensor_stats *total, const fp8_tensor_stats *slab, const double *sums,
                     int64_t chunks);

/* Fills saturated and zeros from the histogram. */
void fp8_measure_finish(const fp8_context *ctx, fp8_dtype code, fp8_tensor_stats *stats);

#endif
