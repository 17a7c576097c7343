/* SPDX-License-Identifier: Apache-2.0
 *
 * upload.c - the two pieces, used in turn; who sends has both to itself until its last row is
 * filled. */
#include "backend/cuda/upload.h"
#include "backend/cuda/cuda_device.h"
#include "base/size.h"

#include <pthread.h>

enum { SLOTS = 2, SLOT_BYTES = 4 << 20, NON_BLOCKING = 1 };

typedef struct slot {
    uint8_t *memory;
    int64_t bytes;
    bool pinned; /* else it is the context's */
    fp8_cu_stream stream;
} slot;

struct fp8_cuda_upload {
    pthread_mutex_t lock;
    slot slots[SLOTS];
    int next;
};

fp8_cuda_upload *fp8_cuda_upload_new(const fp8_context *ctx)
{
    fp8_cuda_upload *u = fp8_alloc_zeroed(ctx, 1, sizeof *u);
    if (u && pthread_mutex_init(&u->lock, NULL)) {
        fp8_release(ctx, u);
        return NULL;
    }
    return u;
}

/* The device's context is current. */
static void drop_memory(const fp8_context *ctx, const fp8_cuda_device *device, slot *s)
{
    if (s->pinned)
        device->driver.cuMemFreeHost(s->memory);
    else
        fp8_release(ctx, s->memory);
    s->memory = NULL;
    s->bytes = 0;
}

void fp8_cuda_upload_free(const fp8_context *ctx, const fp8_cuda_device *device, fp8_cuda_upload *u)
{
    if (!u)
        return;
    const bool entered = fp8_cuda_enter(device, NULL) == FP8_OK;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &u->slots[i];
        if (entered && s->stream) {
            device->driver.cuStreamSynchronize(s->stream);
            device->driver.cuStreamDestroy(s->stream);
        }
        if (entered || !s->pinned) /* what is pinned goes with the context otherwise */
            drop_memory(ctx, device, s);
    }
    if (entered)
        fp8_cuda_leave(device);
    pthread_mutex_destroy(&u->lock);
    fp8_release(ctx, u);
}

/* Memory of at least so many bytes; nothing is on its way from the slot. */
static fp8_status grow(const fp8_context *ctx, slot *s, int64_t bytes, fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    void *memory = NULL;
    drop_memory(ctx, device, s);
    s->pinned =
        device->driver.cuMemHostAlloc(&memory, (size_t)bytes, 0) == FP8_CU_SUCCESS && memory;
    s->memory = s->pinned ? memory : fp8_alloc(ctx, (uint64_t)bytes);
    FP8_FAIL_IF(!s->memory, err, FP8_E_NO_MEMORY, "%s: no memory for %lld bytes on their way",
                device->label, (long long)bytes);
    s->bytes = bytes;
    return FP8_OK;
}

/* The slot can be filled with so many bytes. */
static fp8_status make_ready(const fp8_context *ctx, slot *s, int64_t bytes, fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    const fp8_driver *driver = &device->driver;
    if (!s->stream)
        FP8_DRIVER_TRY(driver, err, device->label, cuStreamCreate, &s->stream, NON_BLOCKING);
    FP8_DRIVER_TRY(driver, err, device->label, cuStreamSynchronize, s->stream);
    return s->bytes >= bytes ? FP8_OK : grow(ctx, s, bytes, err);
}

static fp8_status send(const fp8_cuda_device *device, const slot *s, uint8_t *to, int64_t ld,
                       int64_t rows, int64_t bytes, fp8_error *err)
{
    const fp8_cu_copy_2d copy = {
        .from_type = FP8_CU_MEMORY_HOST,
        .from_host = s->memory,
        .from_pitch = (size_t)bytes,
        .to_type = FP8_CU_MEMORY_DEVICE,
        .to_device = (fp8_cu_pointer)(uintptr_t)to,
        .to_pitch = (size_t)ld,
        .row_bytes = (size_t)bytes,
        .rows = (size_t)rows,
    };
    FP8_DRIVER_TRY(&device->driver, err, device->label, cuMemcpy2DAsync,
                   (const struct CUDA_MEMCPY2D_st *)&copy, s->stream);
    return FP8_OK;
}

/* The lock is held, the device's context current. */
static fp8_status send_rows(const fp8_context *ctx, uint8_t *to, int64_t ld, int64_t rows,
                            int64_t bytes, fp8_cuda_fill fill, const void *arg, fp8_error *err)
{
    fp8_cuda_upload *u = ctx->cuda->upload;
    const int64_t fit = SLOT_BYTES / bytes, step = fit > 0 ? fit : 1;
    const int64_t room = step * bytes > SLOT_BYTES ? step * bytes : SLOT_BYTES;
    for (int64_t i = 0; i < rows; i += step) {
        const int64_t some = fp8_min_i64(step, rows - i);
        slot *s = &u->slots[u->next];
        FP8_TRY(make_ready(ctx, s, room, err));
        FP8_TRY(fill(arg, i, some, s->memory, err));
        FP8_TRY(send(ctx->cuda, s, to + i * ld, ld, some, bytes, err));
        u->next = (u->next + 1) % SLOTS;
    }
    return FP8_OK;
}

fp8_status fp8_cuda_upload_rows(const fp8_context *ctx, void *to, int64_t ld, int64_t rows,
                                int64_t bytes, fp8_cuda_fill fill, const void *arg, fp8_error *err)
{
    if (rows <= 0 || bytes <= 0)
        return FP8_OK;
    FP8_TRY(fp8_cuda_enter(ctx->cuda, err));
    pthread_mutex_lock(&ctx->cuda->upload->lock);
    const fp8_status status = send_rows(ctx, to, ld, rows, bytes, fill, arg, err);
    pthread_mutex_unlock(&ctx->cuda->upload->lock);
    fp8_cuda_leave(ctx->cuda);
    return status;
}

static fp8_status wait_for_slots(const fp8_cuda_device *device, fp8_error *err)
{
    for (int i = 0; i < SLOTS; i++)
        if (device->upload->slots[i].stream)
            FP8_DRIVER_TRY(&device->driver, err, device->label, cuStreamSynchronize,
                           device->upload->slots[i].stream);
    return FP8_OK;
}

fp8_status fp8_cuda_upload_wait(const fp8_context *ctx, fp8_error *err)
{
    FP8_TRY(fp8_cuda_enter(ctx->cuda, err));
    pthread_mutex_lock(&ctx->cuda->upload->lock);
    const fp8_status status = wait_for_slots(ctx->cuda, err);
    pthread_mutex_unlock(&ctx->cuda->upload->lock);
    fp8_cuda_leave(ctx->cuda);
    return status;
}
