/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul.c - fp8_matmul: Y[M,N] = X[M,K] W[N,K]^T + bias as a linear that is made for one run. */
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

/* y lies apart from what the linear has copied, which passed its checks. */
static fp8_status check_copied(const fp8_tensor *w, const fp8_tensor *w_scales,
                               const fp8_tensor *bias, const fp8_tensor *y, fp8_error *err)
{
    FP8_TRY(fp8_check_apart(w, "w", y, "y", err));
    if (w_scales)
        FP8_TRY(fp8_check_apart(w_scales, "w_scales", y, "y", err));
    if (!bias)
        return FP8_OK;
    fp8_tensor row = fp8_matrix(bias->data, bias->dtype, 1, bias->shape[0]);
    row.stride[1] = bias->stride[0];
    return fp8_check_apart(&row, "bias", y, "y", err);
}

/* In memory of its own, which on a device cannot be let go before the work is done. */
static fp8_status run_once(const fp8_linear *linear, const fp8_tensor *x,
                           const fp8_tensor *x_scales, fp8_tensor *y, void *stream, fp8_error *err)
{
    uint64_t bytes;
    void *workspace;
    FP8_TRY(fp8_linear_workspace(linear, x->shape[0], &bytes, err));
    FP8_TRY(fp8_device_alloc(linear->ctx, bytes, &workspace, err));
    fp8_status status = fp8_linear_run(linear, x, x_scales, y, workspace, bytes, stream, err);
    if (status == FP8_OK && linear->cuda)
        status = fp8_cuda_linear_refuse(linear, x, stream, err);
    if (status == FP8_OK)
        status = fp8_device_wait(linear->ctx, stream, err);
    fp8_device_free(linear->ctx, workspace);
    return status;
}

fp8_status fp8_matmul(const fp8_context *ctx, const fp8_linear_desc *desc, const fp8_tensor *x,
                      const fp8_tensor *x_scales, const fp8_tensor *w, const fp8_tensor *w_scales,
                      const fp8_tensor *bias, fp8_tensor *y, void *stream, fp8_error *err)
{
    fp8_linear *linear;
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "matmul: the context is NULL");
    if (!ctx->cuda)
        FP8_TRY(fp8_need_no_stream(stream, "matmul", err));
    FP8_TRY(fp8_check_matrix(x, "x", -1, -1, err));
    FP8_TRY(fp8_check_matrix(w, "w", -1, -1, err));
    FP8_TRY(fp8_check_matrix(y, "y", x->shape[0], w->shape[0], err));
    FP8_TRY(fp8_linear_create(ctx, desc, w, w_scales, bias, &linear, err));
    fp8_status status = check_copied(w, w_scales, bias, y, err);
    if (status == FP8_OK)
        status = run_once(linear, x, x_scales, y, stream, err);
    fp8_linear_free(linear);
    return status;
}
