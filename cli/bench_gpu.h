/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_gpu.h - fp8 bench linear|quantize --device cuda. */
#ifndef FP8_CLI_BENCH_GPU_H
#define FP8_CLI_BENCH_GPU_H

#include "cli/options.h"
#include "cli/shapes.h"

/* Returns the exit code. */
int cli_bench_gpu(const cli_args *args, const fp8_context *ctx, const cli_shapes *shapes);

#endif
