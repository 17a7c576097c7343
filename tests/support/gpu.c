/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c - see gpu.h. */
#include "support/gpu.h"

#include <dlfcn.h>
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

fp8_context *gpu_context_of(int32_t index)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx = NULL;
    fp8_error err;
    desc.device = FP8_DEVICE_CUDA;
    desc.device_index = index;
    const fp8_status status = fp8_context_create(&desc, &ctx, &err);
    if (status == FP8_E_NO_DEVICE) {
        printf("skipped: no GPU %d (%s)\n", index, err.msg);
        return NULL;
    }
    gpu_need(status, &err);
    fp8_gpu_info info;
    gpu_need(fp8_gpu(index, &info, &err), &err);
    printf("# %s\n", info.name);
    return ctx;
}

fp8_context *gpu_context(void)
{
    return gpu_context_of(0);
}

static void need_driver(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "the driver: %s failed\n", what);
    abort();
}

gpu_driver gpu_driver_find(void)
{
    gpu_driver found;
    const struct {
        const char *name;
        void *place;
    } all[] = {{"cuDevicePrimaryCtxRetain", &found.retain},
               {"cuCtxSetCurrent", &found.set_current},
               {"cuMemGetInfo_v2", &found.mem_info},
               {"cuStreamCreate", &found.stream_create},
               {"cuStreamBeginCapture_v2", &found.begin},
               {"cuStreamEndCapture", &found.end},
               {"cuGraphInstantiateWithFlags", &found.instantiate},
               {"cuGraphLaunch", &found.launch}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
    need_driver(library != NULL, "dlopen");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *function = dlsym(library, all[i].name);
        need_driver(function != NULL, all[i].name);
        memcpy(all[i].place, &function, sizeof function);
    }
    need_driver(found.retain(&context, 0) == 0 && found.set_current(context) == 0, "device 0");
    return found;
}

void *gpu_stream_new(const gpu_driver *driver, int device)
{
    void *context, *stream = NULL;
    need_driver(driver->retain(&context, device) == 0 && driver->set_current(context) == 0 &&
                    driver->stream_create(&stream, 1) == 0,
                "cuStreamCreate");
    return stream;
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
