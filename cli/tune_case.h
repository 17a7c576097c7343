/* SPDX-License-Identifier: Apache-2.0
 *
 * tune_case.h - one product of `fp8 tune`: every kernel that the library could choose for it is
 * timed with cold weights, in launches that follow each other as in a model, and the fastest
 * found. */
#ifndef FP8_CLI_TUNE_CASE_H
#define FP8_CLI_TUNE_CASE_H

#include "cli/gpu_linear.h"

typedef struct cli_tune_result {
    const char *kernel; /* the fastest; NULL: there is nothing to choose between */
    double seconds;     /* its median */
    const char *chosen; /* what the library takes as it is */
    double chosen_seconds;
    int candidates, timed; /* all; those that were timed in rounds, near the fastest by one try */
} cli_tune_result;

/* whole: from bf16, by a scheme that quantizes X, which is timed, too; else from what is
 * multiplied. A kernel that fails fails all of it, and the message names it. Errors: those of
 * fp8_linear_create and fp8_linear_run_kernel, DEVICE. */
fp8_status cli_tune_case(const fp8_context *ctx, cli_gpu *gpu, const cli_linear_scheme *scheme,
                         bool whole, cli_shape shape, double seconds, cli_tune_result *out,
                         fp8_error *err);

#endif
