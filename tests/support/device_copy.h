/* SPDX-License-Identifier: Apache-2.0
 *
 * device_copy.h - matrices on a CUDA device beside those on the host, for tests: an arena of device
 * memory, views copied into it with all that lies between their elements and with the alignment
 * that they have, and copied back. Only one test thread uses an arena. */
#ifndef DEVICE_COPY_H
#define DEVICE_COPY_H

#include "fp8.h"

#include <stdbool.h>

typedef struct device_arena {
    const fp8_context *ctx; /* of a CUDA device */
    void *stream;
    char *memory;
    uint64_t bytes, used;
} device_arena;

/* A CUDA context of device 0; NULL if this machine has no GPU or the build no kernels: then a line
 * says so, and the test is to be skipped. */
fp8_context *device_context_or_skip(void);
enum { DEVICE_SKIPPED = 77 }; /* the exit code of a test that was */

bool device_arena_open(device_arena *arena, const fp8_context *ctx, uint64_t bytes);
void device_arena_close(device_arena *arena);

/* The view on the device of a copy of t; data NULL if the arena is full or the copy failed. */
fp8_tensor device_put(device_arena *arena, const fp8_tensor *t);
/* t's memory = what the view on the device holds. */
bool device_get(device_arena *arena, const fp8_tensor *t, const fp8_tensor *there);

/* fp8_quantize, fp8_dequantize and fp8_requantize of host matrices on the device: in, run, out. The
 * arena is emptied before. */
fp8_status device_quantize(device_arena *arena, const fp8_quantize_desc *desc, const fp8_tensor *x,
                           fp8_tensor *codes, fp8_tensor *scales, fp8_error *err);
fp8_status device_dequantize(device_arena *arena, fp8_grid grid, const fp8_tensor *codes,
                             const fp8_tensor *scales, fp8_tensor *y, fp8_error *err);
fp8_status device_requantize(device_arena *arena, fp8_grid from, const fp8_tensor *codes,
                             const fp8_tensor *scales, const fp8_quantize_desc *to,
                             fp8_tensor *codes_out, fp8_tensor *scales_out, fp8_error *err);

#endif
