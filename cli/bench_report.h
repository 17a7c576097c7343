/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_report.h - what `fp8 bench` prints: the machine once, then a line or JSON object a case. */
#ifndef FP8_CLI_BENCH_REPORT_H
#define FP8_CLI_BENCH_REPORT_H

#include "cli/case_linear.h"
#include "cli/case_quantize.h"
#include "cli/json_out.h"
#include "cli/peers.h"
#include "cli/timing.h"

#define CLI_MOST_PEAKS 8

/* What bounds the machine: all is measured at the start of a run, and what a case is compared with
 * again before that. */
typedef struct cli_peaks {
    fp8_peak items[CLI_MOST_PEAKS]; /* the first is that of reading */
    int count;
} cli_peaks;

typedef struct cli_bench_report {
    cli_json *json; /* NULL: lines of text */
    int threads;
    cli_peaks peaks;
    cli_peer peers[CLI_PEER_COUNT];
    int peer_count; /* 0 where nothing is compared */
} cli_bench_report;

/* Measures all peaks. Errors: those of fp8_machine_peak. */
fp8_status cli_peaks_measure(cli_peaks *peaks, const fp8_context *ctx, double seconds,
                             fp8_error *err);
/* Measures the peak of that name again, if there is one. */
fp8_status cli_peaks_again(cli_peaks *peaks, const fp8_context *ctx, const char *name,
                           double seconds, fp8_error *err);
/* The peak of that name, 0 if there is none. */
double cli_peak_of(const cli_peaks *peaks, const char *name);

void cli_report_machine(const cli_bench_report *report);
/* times[0] is ours, times[1 + i] that of peer i; its median is 0 if it was not timed. */
void cli_report_linear(const cli_bench_report *report, const cli_linear_case *c,
                       const cli_timed *times, int rounds);
/* `what` is "x" or "w", of a linear of that shape. */
void cli_report_quantize(const cli_bench_report *report, const cli_quantize_case *c,
                         const cli_linear_scheme *scheme, const cli_shape *shape, const char *what,
                         const cli_timed *time, int rounds);

#endif
