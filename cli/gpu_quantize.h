/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_quantize.h - one matrix of `fp8 bench quantize --device cuda`. */
#ifndef FP8_CLI_GPU_QUANTIZE_H
#define FP8_CLI_GPU_QUANTIZE_H

#include "cli/gpu_data.h"
#include "cli/gpu_timing.h"

typedef struct cli_gpu_quantize {
    const fp8_context *ctx;
    fp8_quantize_desc desc;
    int64_t rows, cols;
    fp8_tensor x, codes, scales; /* of copy 0; the others lie at: */
    void *x_at[CLI_GPU_MOST_COPIES], *codes_at[CLI_GPU_MOST_COPIES], *to_at[CLI_GPU_MOST_COPIES];
    int copies;
    bool cold;
    uint64_t bytes; /* read and written by a call */
} cli_gpu_quantize;

/* A matrix [rows, cols] of `dtype`. Free with cli_gpu_quantize_free in any case. Errors: those of
 * fp8_quantize. */
fp8_status cli_gpu_quantize_make(cli_gpu_quantize *c, const fp8_context *ctx, const cli_gpu *gpu,
                                 fp8_dtype dtype, fp8_dtype scale, const fp8_quantize_desc *desc,
                                 int64_t rows, int64_t cols, fp8_error *err);
void cli_gpu_quantize_free(cli_gpu_quantize *c);

/* For cli_recipe.enqueue; `arg` is the case. Quantized; with scales that are given; dequantized;
 * and a copy on the device that moves as many bytes. */
fp8_status cli_gpu_quantize_forth(void *arg, int64_t i, void *stream, fp8_error *err);
fp8_status cli_gpu_quantize_static(void *arg, int64_t i, void *stream, fp8_error *err);
fp8_status cli_gpu_quantize_back(void *arg, int64_t i, void *stream, fp8_error *err);
fp8_status cli_gpu_quantize_copy(void *arg, int64_t i, void *stream, fp8_error *err);

#endif
