/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - the facts that both forms of the report show, and the two writers. */
#ifndef FP8_CONVERT_REPORT_H
#define FP8_CONVERT_REPORT_H

#include "convert/page.h"
#include "convert/stats.h"

/* Totals over the rows of a finished conversion. */
typedef struct fp8_report {
    const fp8_context *ctx;
    const fp8_convert *conv;
    fp8_plan_summary plan;
    int64_t measured;           /* rows that were encoded */
    double least_db, median_db; /* of their SQNR; NaN if there are none */
    uint64_t elements;          /* encoded */
    uint64_t zeros, saturated;  /* codes */
    uint64_t codes[256];        /* how often each occurs */
    double *sqnr_db;            /* [measured], ascending */
} fp8_report;

/* SQNR of a row in dB, infinite if it is exact. */
double fp8_report_sqnr(const fp8_tensor_stats *stats);

/* Each writes the whole page. Errors: those of fp8_convert_stats; the page keeps its own. */
fp8_status fp8_report_html(const fp8_report *report, fp8_page *page, fp8_error *err);
fp8_status fp8_report_json(const fp8_report *report, fp8_page *page, fp8_error *err);

#endif
