/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_data.h - memory full of numbers for `fp8 bench`. */
#ifndef FP8_CLI_BENCH_DATA_H
#define FP8_CLI_BENCH_DATA_H

#include "cli/shapes.h"
#include "fp8.h"

/* A contiguous matrix [rows, cols] of numbers that look random: bf16, fp16 and fp32 of size 1/2 to
 * 1, codes of size up to 2 (none is NaN), scales of 1/64. data is NULL if there is no memory;
 * free() it. */
fp8_tensor cli_bench_matrix(fp8_dtype dtype, int64_t rows, int64_t cols);

/* Bytes of the last cache; 32 MiB where the system does not say. */
int64_t cli_last_cache(void);

/* Copies of a weight of so many bytes that are read in turn so that each comes from memory: 1 for
 * more rows of X than a multiplication waits for memory with, and as many as are more than twice
 * the last cache, within limits, for less. *cold: whether they are enough. */
int cli_bench_copies(int64_t m, double weight_bytes, bool *cold);
#define CLI_MOST_COPIES 64

#endif
