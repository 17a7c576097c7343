/* SPDX-License-Identifier: Apache-2.0
 *
 * tuned.h - which version of the fast kernels was measured to be the fastest for a layer: those of
 * a file that `fp8 tune` wrote for this device, then those of measured.inc, which is part of the
 * library. What was measured with m rows counts for all rows of m's class: one, up to 8, and then
 * up to each power of two and one and a half times it: 16, 24, 32, 48, 64, 96 .. Of one and up to 8
 * rows either class serves where only it was measured, and what the file has of either goes before
 * what is built in. For the rest there is the model of sm90_choose.c.
 *
 * The file: lines that end in '\n', words between single spaces, numbers without sign, '#' for a
 * line that says nothing.
 *
 *     fp8-tuned 1
 *     device NVIDIA H200
 *     driver 13000
 *     channel 4096 4096 16 gemm_small_channel_64x16_3_2 4510
 *
 * Kind, N, K, M, the version and its time in ns. */
#ifndef FP8_BACKEND_CUDA_TUNED_H
#define FP8_BACKEND_CUDA_TUNED_H

#include "base/context.h"

#include <stdbool.h>
#include <stddef.h>

/* A scale a row and a channel, 1x128 and 128x128, and the first with sums in 13 bits; the first two
 * from X in 16 bits, which the version quantizes or a quantizer before it; then X in 16 bits that
 * is not quantized: W with a scale a channel, 1x32, 128x128. Of 16 bits a version stands for bf16
 * and fp16 alike. */
typedef enum fp8_tuned_kind {
    FP8_TUNED_CHANNEL,
    FP8_TUNED_BLOCK,
    FP8_TUNED_FAST,
    FP8_TUNED_WHOLE_CHANNEL,
    FP8_TUNED_WHOLE_BLOCK,
    FP8_TUNED_WIDE_CHANNEL,
    FP8_TUNED_WIDE_MX,
    FP8_TUNED_WIDE_BLOCK,
    FP8_TUNED_KINDS,
} fp8_tuned_kind;

typedef struct fp8_tuned_row {
    int32_t kind, n, k, m;
    int32_t version; /* number for fp8_sm90_at; of WIDE kinds fp8_wide_at, X in bf16 */
    int32_t ns;
    int32_t line; /* of the file; 0: built in */
} fp8_tuned_row;

/* Immutable once a context has it. */
typedef struct fp8_tuned {
    fp8_tuned_row *rows; /* sorted, one a kind, n, k and class of m */
    size_t count, room;
    int64_t of_file; /* of which the file has brought so many */
    int64_t unknown; /* lines of it for versions that this library has not */
} fp8_tuned;

/* "channel", "block", "fast", "whole_channel", "whole_block", "wide_channel", "wide_mx",
 * "wide_block". */
extern const char *const fp8_tuned_kind_names[FP8_TUNED_KINDS];

/* What is known of a device called so, with the file `path` (NULL: none). Free with fp8_tuned_free.
 * Errors: NOT_FOUND, IO, FORMAT, TRUNCATED, UNSUPPORTED (a later version of the format), MISMATCH
 * (another device), NO_MEMORY; pos is the byte in the file. */
fp8_status fp8_tuned_load(const fp8_context *ctx, const char *device, const char *path,
                          fp8_tuned *out, fp8_error *err);
void fp8_tuned_free(const fp8_context *ctx, fp8_tuned *tuned);

/* The row for m rows of X; NULL if there is none. Any thread. */
const fp8_tuned_row *fp8_tuned_find(const fp8_tuned *tuned, fp8_tuned_kind kind, int32_t m,
                                    int32_t n, int32_t k);
/* The most rows of m's class. */
int32_t fp8_tuned_class(int32_t m);
/* The version of a name that can do the kind; -1: there is no such version, -2: it cannot. */
int32_t fp8_tuned_version(const char *name, fp8_tuned_kind kind);

/* Appends the lines of a file to rows; tuned_file.c. */
fp8_status fp8_tuned_read(const fp8_context *ctx, const char *device, const char *path,
                          fp8_tuned *tuned, fp8_error *err);
/* Room for one row more; NULL if there is no memory. */
fp8_tuned_row *fp8_tuned_add(const fp8_context *ctx, fp8_tuned *tuned);

#endif
