/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_data.h - memory of a GPU full of numbers for `fp8 bench`, and how many copies of a matrix it
 * takes to read each from memory. */
#ifndef FP8_CLI_GPU_DATA_H
#define FP8_CLI_GPU_DATA_H

#include "cli/gpu_driver.h"

#include <stdbool.h>

enum { CLI_GPU_MOST_COPIES = 128 };

/* Copies of something of so many bytes that are used in turn: together eight times the L2 cache,
 * within limits, since what was asked to leave the cache first stays longer than twice its size.
 * *cold: whether they are at least twice the cache. */
int cli_gpu_copies(const cli_gpu *gpu, double bytes, bool *cold);
/* *out = a contiguous matrix [rows, cols] of numbers as cli_bench_matrix makes them. Free its
 * data with fp8_device_free. Errors: NO_MEMORY, DEVICE. */
fp8_status cli_gpu_matrix(const fp8_context *ctx, fp8_dtype dtype, int64_t rows, int64_t cols,
                          fp8_tensor *out, fp8_error *err);
/* copies[1 .. count) = as many bytes of the device, with what copies[0] holds. */
fp8_status cli_gpu_repeat(const fp8_context *ctx, uint64_t bytes, int count, void **copies,
                          fp8_error *err);
/* copies[0 .. count) = such a matrix and copies of it. */
fp8_status cli_gpu_matrices(const fp8_context *ctx, fp8_dtype dtype, int64_t rows, int64_t cols,
                            int count, void **copies, fp8_error *err);
/* *out = count numbers of fp32 or E8M0, all 1/64. */
fp8_status cli_gpu_scales(const fp8_context *ctx, fp8_dtype dtype, int64_t count, void **out,
                          fp8_error *err);

#endif
