/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_transfer.c - matrices between the host and a device, wherever they lie and whatever their
 * strides. What the host has is gathered some rows at a time, into the memory that upload.h copies
 * from; what the device has is gathered by a kernel. */
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/matrix.h"
#include "backend/cuda/upload.h"
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

#include <string.h>

fp8_status fp8_cuda_find(const fp8_context *ctx, const void *data, bool *on_device, fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    *on_device = false;
    if (!data)
        return FP8_OK;
    FP8_TRY(fp8_cuda_enter(device, err));
    const fp8_status status = fp8_cuda_look_for(device, data, on_device, err);
    fp8_cuda_leave(device);
    return status;
}

static int64_t bytes_of(const fp8_tensor *t)
{
    return fp8_dtype_bits(t->dtype) / 8;
}

/* to[rows, to_cols] = from and zeros beyond its columns, both on the device; enqueued. */
static fp8_status copy_on_device(const fp8_context *ctx, const fp8_tensor *from,
                                 const fp8_tensor *to, fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    const fp8_copy_args args = {
        .from = fp8_cuda_matrix_of(from),
        .to = fp8_cuda_matrix_of(to),
        .rows = from->shape[0],
        .cols = from->shape[1],
        .to_cols = to->shape[1],
    };
    const fp8_cuda_shape shape = fp8_cuda_shape_for(device, args.rows * args.to_cols, 1);
    FP8_TRY(fp8_cuda_begin(device, NULL, err));
    const fp8_status status =
        fp8_cuda_launch(device, FP8_CUDA_copy_elements, &shape, &args, NULL, err);
    fp8_cuda_leave(device);
    return status;
}

fp8_status fp8_cuda_rearrange(const fp8_context *ctx, const fp8_tensor *from, const fp8_tensor *to,
                              fp8_error *err)
{
    FP8_TRY(copy_on_device(ctx, from, to, err));
    return fp8_device_wait(ctx, NULL, err);
}

/* Rows of a matrix that the host has, on their way to to[rows, ld] and zeros. */
typedef struct gathering {
    const fp8_tensor *t;
    int64_t first, ld;
    char *to;
} gathering;

static void gather_row(void *arg, int64_t i)
{
    const gathering *g = arg;
    const int64_t cols = g->t->shape[1], bytes = bytes_of(g->t);
    char *to = g->to + i * g->ld * bytes;
    if (g->t->stride[1] == 1)
        memcpy(to, fp8_element_at(g->t, g->first + i, 0), (size_t)(cols * bytes));
    for (int64_t j = 0; j < cols && g->t->stride[1] != 1; j++)
        memcpy(to + j * bytes, fp8_element_at(g->t, g->first + i, j), (size_t)bytes);
    memset(to + cols * bytes, 0, (size_t)((g->ld - cols) * bytes));
}

void fp8_cuda_gather(const fp8_context *ctx, const fp8_tensor *t, int64_t first, int64_t rows,
                     int64_t ld, void *to)
{
    enum { WORTH_IT = 1 << 16 }; /* bytes */
    gathering g = {t, first, ld, to};
    if (rows * ld * bytes_of(t) >= WORTH_IT) {
        fp8_run_parallel(ctx, rows, gather_row, &g);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        gather_row(&g, i);
}

typedef struct placing {
    const fp8_context *ctx;
    const fp8_tensor *t;
    int64_t ld;
} placing;

static fp8_status fill_rows(const void *arg, int64_t first, int64_t rows, uint8_t *to,
                            fp8_error *err)
{
    const placing *p = arg;
    (void)err;
    fp8_cuda_gather(p->ctx, p->t, first, rows, p->ld, to);
    return FP8_OK;
}

static fp8_status upload(const fp8_context *ctx, const fp8_tensor *t, void *to, int64_t ld,
                         fp8_error *err)
{
    const placing p = {ctx, t, ld};
    const int64_t row_bytes = ld * bytes_of(t);
    FP8_TRY(fp8_cuda_upload_rows(ctx, to, row_bytes, t->shape[0], row_bytes, fill_rows, &p, err));
    return fp8_cuda_upload_wait(ctx, err);
}

fp8_status fp8_cuda_place(const fp8_context *ctx, const fp8_tensor *t, void *to, int64_t ld,
                          fp8_error *err)
{
    bool on_device;
    if (t->shape[0] == 0 || ld == 0)
        return FP8_OK;
    FP8_TRY(fp8_cuda_find(ctx, t->data, &on_device, err));
    if (!on_device)
        return upload(ctx, t, to, ld, err);
    const fp8_tensor place = fp8_matrix(to, t->dtype, t->shape[0], ld);
    return fp8_cuda_rearrange(ctx, t, &place, err);
}

fp8_status fp8_cuda_fetch(const fp8_context *ctx, const fp8_tensor *t, void *host, fp8_error *err)
{
    const int64_t rows = t->shape[0], cols = t->shape[1];
    const uint64_t bytes = (uint64_t)(rows * cols * bytes_of(t));
    void *packed;
    bool on_device;
    if (bytes == 0)
        return FP8_OK;
    FP8_TRY(fp8_cuda_find(ctx, t->data, &on_device, err));
    if (!on_device) {
        fp8_cuda_gather(ctx, t, 0, rows, cols, host);
        return FP8_OK;
    }
    FP8_TRY(fp8_device_alloc(ctx, bytes, &packed, err));
    const fp8_tensor contiguous = fp8_matrix(packed, t->dtype, rows, cols);
    fp8_status status = copy_on_device(ctx, t, &contiguous, err);
    if (status == FP8_OK)
        status = fp8_device_copy(ctx, host, packed, bytes, NULL, err);
    if (status == FP8_OK)
        status = fp8_device_wait(ctx, NULL, err);
    fp8_device_free(ctx, packed);
    return status;
}
