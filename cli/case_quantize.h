/* SPDX-License-Identifier: Apache-2.0
 *
 * case_quantize.h - one matrix of `fp8 bench quantize`, ready to be quantized again and again. */
#ifndef FP8_CLI_CASE_QUANTIZE_H
#define FP8_CLI_CASE_QUANTIZE_H

#include "cli/linear_scheme.h"
#include "fp8.h"

typedef struct cli_quantize_case {
    const fp8_context *ctx;
    fp8_quantize_desc desc;
    fp8_tensor x, codes, scales; /* x in bf16 */
    double bytes;                /* of x */
    fp8_status status;           /* of the calls: the first that is not FP8_OK */
    fp8_error err;
} cli_quantize_case;

/* A matrix [rows, cols] in bf16 under a grid. Errors: those of fp8_quantize. Free with
 * cli_quantize_case_free in any case. */
fp8_status cli_quantize_case_make(cli_quantize_case *c, const fp8_context *ctx, fp8_grid grid,
                                  fp8_dtype scale, int64_t rows, int64_t cols, fp8_error *err);
/* One fp8_quantize; `arg` is the case. */
void cli_quantize_case_call(void *arg);
void cli_quantize_case_free(cli_quantize_case *c);

#endif
