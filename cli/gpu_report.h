/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_report.h - what `fp8 bench --device cuda` prints: the GPU once, then a record a case. */
#ifndef FP8_CLI_GPU_REPORT_H
#define FP8_CLI_GPU_REPORT_H

#include "cli/gpu_linear.h"
#include "cli/gpu_quantize.h"
#include "cli/json_out.h"

/* What bounds the GPU. */
typedef struct cli_gpu_peaks {
    double read, copy; /* bytes a second, measured */
    double known;      /* FP8 operations a second by its clock; 0: not known */
    double product;    /* the same, the most that a product of this run's libraries reached */
    const char *by;    /* which */
} cli_gpu_peaks;

typedef struct cli_gpu_report {
    cli_json *json; /* NULL: lines */
    const char *device;
    fp8_gpu_info gpu;
    const cli_gpu *driver;
    const cli_nvml *nvml;
    const cli_cublaslt *lt;
    cli_gpu_peaks peaks;
} cli_gpu_report;

/* The series of a linear; those without a graph were not timed. */
enum {
    CLI_COLD,
    CLI_WARM,
    CLI_APART,
    CLI_WHOLE,
    CLI_WHOLE_APART,
    CLI_PEERS, /* CLI_LT_FINALISTS for each of cli_peer_way */
    CLI_LINEAR_SERIES = CLI_PEERS + CLI_PEER_WAYS * CLI_LT_FINALISTS,
};
/* The series of a matrix. */
enum { CLI_FORTH, CLI_STATIC, CLI_BACK, CLI_COPY, CLI_QUANTIZE_SERIES };

/* What a case came to. */
typedef struct cli_gpu_times {
    const cli_series *series;
    int rounds;
    double host, whole_host;     /* seconds of the host for a call */
    double launch, whole_launch; /* for its launches alone; 0: not known */
    cli_sustained ours, peer;    /* seconds 0: not timed */
} cli_gpu_times;

/* The faster of the peer's finalists; NULL if none was timed. */
const cli_series *cli_gpu_faster(const cli_series *series, cli_peer_way way);

void cli_report_gpu(const cli_gpu_report *r, bool linear);
void cli_report_gpu_linear(const cli_gpu_report *r, const cli_gpu_linear *c,
                           const cli_gpu_times *times);
/* `what` is "x" or "w", of a linear of that shape. */
void cli_report_gpu_quantize(const cli_gpu_report *r, const cli_gpu_quantize *c,
                             const cli_linear_scheme *scheme, const cli_shape *shape,
                             const char *what, const cli_gpu_times *times);

#endif
