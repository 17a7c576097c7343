/* SPDX-License-Identifier: Apache-2.0
 *
 * device_copy.c - copies of host matrices on a CUDA device. */
#include "support/device_copy.h"

#include "backend/cuda/module.h"

#include <stdio.h>
#include <stdlib.h>

fp8_context *device_context_or_skip(void)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx = NULL;
    fp8_error err = {0};
    desc.device = FP8_DEVICE_CUDA;
    if (!fp8_cuda_has_kernels()) {
        printf("SKIPPED: this build has no CUDA kernels\n");
        return NULL;
    }
    const fp8_status status = fp8_context_create(&desc, &ctx, &err);
    if (status == FP8_E_NO_DEVICE) {
        printf("SKIPPED: %s\n", err.msg);
        return NULL;
    }
    if (status != FP8_OK) {
        printf("%s\n", err.msg);
        exit(1);
    }
    return ctx;
}

bool device_arena_open(device_arena *arena, const fp8_context *ctx, uint64_t bytes)
{
    void *memory = NULL;
    *arena = (device_arena){.ctx = ctx, .bytes = bytes};
    if (fp8_device_alloc(ctx, bytes, &memory, NULL) != FP8_OK)
        return false;
    arena->memory = memory;
    return true;
}

void device_arena_close(device_arena *arena)
{
    fp8_device_free(arena->ctx, arena->memory);
}

/* The bytes that t's elements and what is between them take: [*low, *low + returned). */
static uint64_t range_of(const fp8_tensor *t, char **low)
{
    const int64_t bytes = fp8_dtype_bits(t->dtype) / 8;
    int64_t first = 0, last = 0;
    *low = t->data;
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0)
            return 0;
        const int64_t far = (t->shape[d] - 1) * t->stride[d];
        first += far < 0 ? far : 0;
        last += far < 0 ? 0 : far;
    }
    *low += first * bytes;
    return (uint64_t)((last - first + 1) * bytes);
}

fp8_tensor device_put(device_arena *arena, const fp8_tensor *t)
{
    enum { ALIGNMENT = 256 };
    char *low;
    const uint64_t bytes = range_of(t, &low);
    const uint64_t at =
        (arena->used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + (uintptr_t)low % ALIGNMENT;
    fp8_tensor there = *t;
    there.data = NULL;
    if (at + bytes > arena->bytes)
        return there;
    arena->used = at + bytes;
    if (fp8_device_copy(arena->ctx, arena->memory + at, low, bytes, arena->stream, NULL) == FP8_OK)
        there.data = arena->memory + at + ((char *)t->data - low);
    return there;
}

bool device_get(device_arena *arena, const fp8_tensor *t, const fp8_tensor *there)
{
    char *low, *low_there;
    const uint64_t bytes = range_of(t, &low);
    range_of(there, &low_there);
    return fp8_device_copy(arena->ctx, low, low_there, bytes, arena->stream, NULL) == FP8_OK &&
           fp8_device_wait(arena->ctx, arena->stream, NULL) == FP8_OK;
}

static fp8_status lost(fp8_error *err)
{
    if (err)
        snprintf(err->msg, sizeof err->msg, "the arena is full, or a copy failed");
    return FP8_E_NO_MEMORY;
}

fp8_status device_quantize(device_arena *arena, const fp8_quantize_desc *desc, const fp8_tensor *x,
                           fp8_tensor *codes, fp8_tensor *scales, fp8_error *err)
{
    arena->used = 0;
    const fp8_tensor x_there = device_put(arena, x);
    fp8_tensor codes_there = device_put(arena, codes), scales_there = device_put(arena, scales);
    if (!x_there.data || !codes_there.data || !scales_there.data)
        return lost(err);
    const fp8_status status =
        fp8_quantize(arena->ctx, desc, &x_there, &codes_there, &scales_there, arena->stream, err);
    if (status != FP8_OK)
        return status;
    return device_get(arena, codes, &codes_there) && device_get(arena, scales, &scales_there)
               ? FP8_OK
               : lost(err);
}

fp8_status device_dequantize(device_arena *arena, fp8_grid grid, const fp8_tensor *codes,
                             const fp8_tensor *scales, fp8_tensor *y, fp8_error *err)
{
    arena->used = 0;
    const fp8_tensor codes_there = device_put(arena, codes);
    const fp8_tensor scales_there = device_put(arena, scales);
    fp8_tensor y_there = device_put(arena, y);
    if (!codes_there.data || !scales_there.data || !y_there.data)
        return lost(err);
    const fp8_status status =
        fp8_dequantize(arena->ctx, grid, &codes_there, &scales_there, &y_there, arena->stream, err);
    if (status != FP8_OK)
        return status;
    return device_get(arena, y, &y_there) ? FP8_OK : lost(err);
}

fp8_status device_requantize(device_arena *arena, fp8_grid from, const fp8_tensor *codes,
                             const fp8_tensor *scales, const fp8_quantize_desc *to,
                             fp8_tensor *codes_out, fp8_tensor *scales_out, fp8_error *err)
{
    arena->used = 0;
    const fp8_tensor codes_there = device_put(arena, codes);
    const fp8_tensor scales_there = device_put(arena, scales);
    fp8_tensor codes_out_there = device_put(arena, codes_out);
    fp8_tensor scales_out_there = device_put(arena, scales_out);
    if (!codes_there.data || !scales_there.data || !codes_out_there.data || !scales_out_there.data)
        return lost(err);
    const fp8_status status =
        fp8_requantize(arena->ctx, from, &codes_there, &scales_there, to, &codes_out_there,
                       &scales_out_there, arena->stream, err);
    if (status != FP8_OK)
        return status;
    return device_get(arena, codes_out, &codes_out_there) &&
                   device_get(arena, scales_out, &scales_out_there)
               ? FP8_OK
               : lost(err);
}
