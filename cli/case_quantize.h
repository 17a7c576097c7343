/* SPDX-License-Identifier: Apache-2.0
 *
 * case_quantize.h - one matrix of `fp8 bench quantize`, ready to be quantized again and again. */
#ifndef FP8_CLI_CASE_QUANTIZE_H
#define FP8_CLI_CASE_QUANTIZE_H

#include "cli/options.h"
#include "fp8.h"

typedef struct cli_quantize_case {
    const fp8_context *ctx;
    fp8_quantize_desc desc;
    fp8_tensor x, codes, scales;
    double bytes;      /* of x */
    fp8_status status; /* of the calls: the first that is not FP8_OK */
    fp8_error err;
} cli_quantize_case;

/* How the command line wants matrices quantized, with scales of a grid. */
fp8_quantize_desc cli_quantize_desc(const cli_args *args, fp8_grid grid);
/* The status of a case; FP8_OK, after a warning, where --numerics does not define it. */
fp8_status cli_quantize_defined(const cli_args *args, fp8_status status, const fp8_error *err);

/* A matrix [rows, cols] of `dtype`. Errors: those of fp8_quantize. Free with cli_quantize_case_free
 * in any case. */
fp8_status cli_quantize_case_make(cli_quantize_case *c, const fp8_context *ctx, fp8_dtype dtype,
                                  fp8_dtype scale, const fp8_quantize_desc *desc, int64_t rows,
                                  int64_t cols, fp8_error *err);
/* One fp8_quantize; `arg` is the case. */
void cli_quantize_case_call(void *arg);
void cli_quantize_case_free(cli_quantize_case *c);

#endif
