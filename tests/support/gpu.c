/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c - see gpu.h. */
#include "support/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, ALIGN = 16, POISON = 0xFF };

void gpu_need(fp8_status status, const fp8_error *err)
{
    if (status == FP8_OK)
        return;
    fprintf(stderr, "%s: %s\n", fp8_status_name(status), err->msg);
    abort();
}

fp8_context *gpu_context(void)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx = NULL;
    fp8_error err;
    desc.device = FP8_DEVICE_CUDA;
    const fp8_status status = fp8_context_create(&desc, &ctx, &err);
    if (status == FP8_E_NO_DEVICE) {
        printf("skipped: no GPU (%s)\n", err.msg);
        return NULL;
    }
    gpu_need(status, &err);
    fp8_gpu_info info;
    gpu_need(fp8_gpu(0, &info, &err), &err);
    printf("# %s\n", info.name);
    return ctx;
}

/* The first byte of a tensor's elements, and how many there are to the last. */
static char *extent(const fp8_tensor *t, uint64_t *bytes)
{
    const int64_t size = fp8_dtype_bits(t->dtype) / 8;
    int64_t low = 0, high = 0;
    *bytes = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0)
            return t->data;
        const int64_t span = (t->shape[d] - 1) * t->stride[d];
        *(span < 0 ? &low : &high) += span;
    }
    *bytes = (uint64_t)((high - low + 1) * size);
    return (char *)t->data + low * size;
}

gpu_tensor gpu_tensor_new(const fp8_context *ctx, const fp8_tensor *t, int poison)
{
    gpu_tensor g = {.ctx = ctx, .t = *t};
    fp8_error err;
    const char *first = extent(t, &g.bytes);
    const uint64_t shift = (uintptr_t)first % ALIGN, all = shift + g.bytes + GUARD;
    gpu_need(fp8_device_alloc(ctx, all, &g.memory, &err), &err);
    char *host = malloc(all);
    memset(host, POISON, all);
    if (!poison && g.bytes)
        memcpy(host + shift, first, g.bytes);
    gpu_need(fp8_device_copy(ctx, g.memory, host, all, NULL, &err), &err);
    gpu_need(fp8_device_wait(ctx, NULL, &err), &err);
    free(host);
    g.t.data = (char *)g.memory + shift + ((const char *)t->data - first);
    return g;
}

void gpu_tensor_read(const gpu_tensor *g, const fp8_tensor *t)
{
    uint64_t bytes;
    fp8_error err;
    char *first = extent(t, &bytes);
    const uint64_t shift = (uintptr_t)first % ALIGN, all = shift + g->bytes + GUARD;
    unsigned char *host = malloc(all);
    gpu_need(fp8_device_copy(g->ctx, host, g->memory, all, NULL, &err), &err);
    gpu_need(fp8_device_wait(g->ctx, NULL, &err), &err);
    for (uint64_t i = 0; i < all; i++)
        if ((i < shift || i >= shift + bytes) && host[i] != POISON) {
            fprintf(stderr, "byte %lld of a tensor was written\n", (long long)(i - shift));
            abort();
        }
    if (bytes)
        memcpy(first, host + shift, bytes);
    free(host);
}

void gpu_tensor_free(gpu_tensor *g)
{
    fp8_device_free(g->ctx, g->memory);
}
