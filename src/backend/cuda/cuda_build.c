/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_build.c - a linear in the making on a CUDA device: codes go to their places as they come,
 * scales and bias are gathered on the host and placed at the end. High precision is quantized by
 * the CPU, straight into the memory that the copies are made from: the device holds nothing but
 * the linear, and the bytes are the CPU's. */
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/matrix.h"
#include "backend/cuda/upload.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

#include <string.h>

static fp8_status allocate_host(fp8_build *build, fp8_error *err)
{
    const fp8_linear *l = build->linear;
    const fp8_linear_plan *p = &l->plan;
    const uint64_t scales = (uint64_t)(p->scale_rows * p->scale_cols);
    build->scales = fp8_alloc_zeroed(l->ctx, scales, (uint64_t)(fp8_dtype_bits(p->scale) / 8));
    build->bias = fp8_alloc_zeroed(l->ctx, (uint64_t)p->n, sizeof *build->bias);
    FP8_FAIL_IF(!build->scales || !build->bias, err, FP8_E_NO_MEMORY,
                "linear: no memory for %llu scales and a bias of %lld", (unsigned long long)scales,
                (long long)p->n);
    return FP8_OK;
}

fp8_status fp8_cuda_build_begin(const fp8_context *ctx, const fp8_linear_plan *plan, fp8_build *out,
                                fp8_error *err)
{
    *out = (fp8_build){0};
    FP8_TRY(fp8_cuda_linear_allocate(ctx, plan, &out->linear, err));
    fp8_status status = allocate_host(out, err);
    if (status == FP8_OK)
        status = fp8_cuda_linear_clear_padding(out->linear, err);
    if (status != FP8_OK)
        fp8_build_drop(out);
    return status;
}

/* Where code (row, col) is. */
static uint8_t *code_at(const fp8_linear *l, int64_t row, int64_t col)
{
    return l->cuda->codes + row * l->cuda->ld + col;
}

/* ---- codes as they are ---- */

typedef struct sending {
    const fp8_context *ctx;
    const fp8_tensor *x; /* codes, or high precision, for which the rest is */
    const fp8_quant *q;
    int64_t row0; /* of x in the matrix that is requested */
    const float *operand;
} sending;

static fp8_status fill_codes(const void *arg, int64_t first, int64_t rows, uint8_t *to,
                             fp8_error *err)
{
    const sending *s = arg;
    (void)err;
    fp8_cuda_gather(s->ctx, s->x, first, rows, s->x->shape[1], to);
    return FP8_OK;
}

fp8_status fp8_cuda_build_codes(const fp8_linear *l, const fp8_tensor *codes, int64_t row,
                                int64_t col, fp8_error *err)
{
    const sending s = {.ctx = l->ctx, .x = codes};
    return fp8_cuda_upload_rows(l->ctx, code_at(l, row, col), l->cuda->ld, codes->shape[0],
                                codes->shape[1], fill_codes, &s, err);
}

/* ---- codes that are made ---- */

static fp8_status fill_encoded(const void *arg, int64_t first, int64_t rows, uint8_t *to,
                               fp8_error *err)
{
    const sending *s = arg;
    fp8_tensor some = *s->x, codes = fp8_matrix(to, s->q->code, rows, s->x->shape[1]);
    some.data = fp8_element_at(s->x, first, 0);
    some.shape[0] = rows;
    return fp8_quant_encode(s->ctx, s->q, &some, s->row0 + first, s->operand, &codes, err);
}

fp8_status fp8_cuda_build_encode(const fp8_linear *l, const fp8_quant *q, const fp8_tensor *x,
                                 int64_t row0, const float *operand, int64_t row, int64_t col,
                                 fp8_error *err)
{
    const sending s = {l->ctx, x, q, row0, operand};
    return fp8_cuda_upload_rows(l->ctx, code_at(l, row, col), l->cuda->ld, x->shape[0], x->shape[1],
                                fill_encoded, &s, err);
}

fp8_status fp8_cuda_build_map(const fp8_linear *l, int64_t row, int64_t rows, const uint8_t to[256],
                              fp8_error *err)
{
    const fp8_cuda_device *device = l->ctx->cuda;
    fp8_map_args args = {code_at(l, row, 0), l->cuda->ld, rows, l->plan.k, {0}};
    const fp8_cuda_shape shape = fp8_cuda_shape_for(device, rows * l->plan.k, 1);
    if (rows * l->plan.k == 0)
        return FP8_OK;
    memcpy(args.to, to, sizeof args.to);
    FP8_TRY(fp8_cuda_upload_wait(l->ctx, err));
    FP8_TRY(fp8_cuda_begin(device, NULL, err));
    const fp8_status status = fp8_cuda_launch(device, FP8_CUDA_map_codes, &shape, &args, NULL, err);
    fp8_cuda_leave(device);
    FP8_TRY(status);
    return fp8_device_wait(l->ctx, NULL, err);
}

/* ---- the end ---- */

fp8_status fp8_cuda_build_finish(fp8_build *build, fp8_error *err)
{
    fp8_linear *l = build->linear;
    const fp8_linear_plan *p = &l->plan;
    const fp8_tensor scales = fp8_matrix(build->scales, p->scale, p->scale_rows, p->scale_cols);
    const fp8_tensor bias = fp8_vector(build->bias, FP8_F32, p->n);
    FP8_TRY(fp8_cuda_linear_place_scales(l, &scales, false, err));
    if (l->has_bias)
        FP8_TRY(fp8_cuda_linear_place_bias(l, &bias, err));
    FP8_TRY(fp8_cuda_linear_place_x_static(l, err));
    return fp8_cuda_upload_wait(l->ctx, err);
}
