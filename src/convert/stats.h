/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h - what a conversion measured of each tensor that it encoded, for the report.
 *
 * The sums are taken chunk by chunk in an order that depends on the shape alone, so they are the
 * same for any number of threads, instruction set and memory limit. Kept on disk in DST.partial
 * until the report is written: a model may have 90,000 tensors. */
#ifndef FP8_CONVERT_STATS_H
#define FP8_CONVERT_STATS_H

#include "base/status.h"

#include <stdbool.h>

typedef struct fp8_tensor_stats {
    uint64_t elements;
    double sum_sq;       /* sum of x^2 over the source's values */
    double sum_err_sq;   /* sum of (x - code * scale)^2; SQNR = 10 log10(sum_sq / sum_err_sq) dB */
    double max_err;      /* largest |x - code * scale| */
    uint64_t saturated;  /* codes of the largest finite magnitude */
    uint64_t zeros;      /* codes of value zero */
    uint64_t codes[256]; /* how often each code occurs */
} fp8_tensor_stats;

/* The statistics of row i of the plan, read from disk. *measured = false: the row was not encoded
 * (kept, dropped, renamed ..). Only while a run writes its report. */
fp8_status fp8_convert_stats(const fp8_convert *conv, int64_t i, fp8_tensor_stats *out,
                             bool *measured, fp8_error *err);

/* The name ends as a report can be written: .html or .json. */
bool fp8_report_knows(const char *path);

/* Writes FILE.html or FILE.json (by its ending; ARGUMENT for another) about a finished conversion,
 * from fp8_convert_count, _row, _summary, _warning and fp8_convert_stats alone. In report.c. */
fp8_status fp8_report_write(const fp8_context *ctx, const fp8_convert *conv, const char *path,
                            fp8_error *err);

#endif
