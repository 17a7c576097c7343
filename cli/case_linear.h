/* SPDX-License-Identifier: Apache-2.0
 *
 * case_linear.h - one linear of `fp8 bench linear`, ready to be called again and again. */
#ifndef FP8_CLI_CASE_LINEAR_H
#define FP8_CLI_CASE_LINEAR_H

#include "cli/bench_data.h"
#include "cli/linear_scheme.h"
#include "fp8.h"

typedef struct cli_linear_case {
    const cli_linear_scheme *scheme;
    cli_shape shape;
    fp8_linear *copies[CLI_MOST_COPIES]; /* of one weight, taken in turn */
    int copy_count, next;
    bool cold; /* the weight comes from memory */
    fp8_tensor x, x_scales, y;
    void *workspace;
    uint64_t workspace_bytes;
    double weight_bytes; /* codes and scales */
    fp8_candidate chosen;
    fp8_status status; /* of the calls: the first that is not FP8_OK */
    fp8_error err;
} cli_linear_case;

/* Errors: those of fp8_linear_create, NO_MEMORY. Free with cli_linear_case_free in any case. */
fp8_status cli_linear_case_make(cli_linear_case *c, const fp8_context *ctx,
                                const cli_linear_scheme *scheme, cli_shape shape, fp8_error *err);
/* One run; `arg` is the case. */
void cli_linear_case_call(void *arg);
void cli_linear_case_free(cli_linear_case *c);

#endif
