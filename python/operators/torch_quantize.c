/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_quantize.c - the operators that prepare nothing; a grid is two numbers, 0 = all:
 *     quantize(Tensor x, int rows, int cols, int rule, ScalarType code, ScalarType scale, bool
 * pow2)
 *         -> (Tensor codes, Tensor scales)
 *     dequantize(Tensor codes, Tensor scales, int rows, int cols, ScalarType dtype) -> Tensor
 *     scaled_mm(Tensor x, Tensor x_scales, int x_rows, int x_cols, Tensor w, Tensor w_scales,
 *         int w_rows, int w_cols, Tensor? bias, ScalarType dtype) -> Tensor
 */
#include "torch_device.h"
#include "torch_kernels.h"
#include "torch_view.h"

#include <stdlib.h>

#define TRY(call)                          \
    do {                                   \
        const fp8_status status_ = (call); \
        if (status_ != FP8_OK)             \
            return status_;                \
    } while (0)

static torch_tensor *tensor(torch_value value)
{
    return (torch_tensor *)value;
}

static int64_t blocks(int64_t extent, int64_t block)
{
    if (block <= 0)
        return extent > 0 && block == 0;
    return (extent + block - 1) / block;
}

/* What a call works with. */
typedef struct place {
    int32_t device;
    const fp8_context *ctx;
    void *stream;
} place;

/* Where the first tensor is. */
static fp8_status find_place(const char *name, torch_tensor *t, place *at, fp8_error *err)
{
    TRY(fp8_torch_device_of(name, t, &at->device, err));
    TRY(fp8_torch_context(at->device, &at->ctx, err));
    return fp8_torch_stream(at->device, &at->stream, err);
}

static fp8_status matrix(const place *at, const char *name, torch_tensor *t, fp8_tensor *view,
                         fp8_error *err)
{
    TRY(fp8_torch_must_be_on(name, t, at->device, err));
    TRY(fp8_torch_view(name, t, view, err));
    if (view->ndim != 2)
        return fp8_torch_fail(err, FP8_E_SHAPE, "%s has %d dimensions, must be a matrix", name,
                              (int)view->ndim);
    return FP8_OK;
}

static fp8_status quantize(const torch_value *a, torch_tensor **codes, torch_tensor **scales,
                           fp8_error *err)
{
    place at;
    fp8_tensor x, c, s;
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.grid = (fp8_grid){(int64_t)a[1], (int64_t)a[2]};
    desc.rule = (fp8_rule)a[3];
    desc.pow2_scales = (uint8_t)a[6];
    TRY(find_place("x", tensor(a[0]), &at, err));
    if (at.device != FP8_TORCH_CPU)
        desc.nan = FP8_NAN_PROPAGATE; /* the call returns before x is read */
    TRY(matrix(&at, "x", tensor(a[0]), &x, err));
    TRY(fp8_torch_new_matrix(at.device, x.shape[0], x.shape[1], fp8_torch_dtype(a[4]), codes, &c,
                             err));
    TRY(fp8_torch_new_matrix(at.device, blocks(x.shape[0], desc.grid.rows),
                             blocks(x.shape[1], desc.grid.cols), fp8_torch_dtype(a[5]), scales, &s,
                             err));
    return fp8_quantize(at.ctx, &desc, &x, &c, &s, at.stream, err);
}

void fp8_torch_quantize(torch_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    torch_tensor *codes = NULL, *scales = NULL;
    fp8_error err;
    const fp8_status status = quantize(stack, &codes, &scales, &err);
    fp8_torch_drop(tensor(stack[0]));
    if (status != FP8_OK) {
        fp8_torch_drop(codes);
        fp8_torch_drop(scales);
    }
    fp8_torch_raise("fp8::quantize", status, &err);
    stack[0] = (torch_value)codes;
    stack[1] = (torch_value)scales;
}

static fp8_status dequantize(const torch_value *a, torch_tensor **y, fp8_error *err)
{
    place at;
    fp8_tensor codes, scales, to;
    const fp8_grid grid = {(int64_t)a[2], (int64_t)a[3]};
    TRY(find_place("codes", tensor(a[0]), &at, err));
    TRY(matrix(&at, "codes", tensor(a[0]), &codes, err));
    TRY(matrix(&at, "scales", tensor(a[1]), &scales, err));
    TRY(fp8_torch_new_matrix(at.device, codes.shape[0], codes.shape[1], fp8_torch_dtype(a[4]), y,
                             &to, err));
    return fp8_dequantize(at.ctx, grid, &codes, &scales, &to, at.stream, err);
}

void fp8_torch_dequantize(torch_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    torch_tensor *y = NULL;
    fp8_error err;
    const fp8_status status = dequantize(stack, &y, &err);
    fp8_torch_drop(tensor(stack[0]));
    fp8_torch_drop(tensor(stack[1]));
    if (status != FP8_OK)
        fp8_torch_drop(y);
    fp8_torch_raise("fp8::dequantize", status, &err);
    stack[0] = (torch_value)y;
}

static fp8_status scaled_mm(const torch_value *a, torch_tensor *bias, torch_tensor **y,
                            fp8_error *err)
{
    place at;
    fp8_tensor x, x_scales, w, w_scales, b, to;
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = FP8_ACTIVATION_CODES;
    desc.x.grid = (fp8_grid){(int64_t)a[2], (int64_t)a[3]};
    desc.w.grid = (fp8_grid){(int64_t)a[6], (int64_t)a[7]};
    TRY(find_place("x", tensor(a[0]), &at, err));
    TRY(matrix(&at, "x", tensor(a[0]), &x, err));
    TRY(matrix(&at, "x_scales", tensor(a[1]), &x_scales, err));
    TRY(matrix(&at, "w", tensor(a[4]), &w, err));
    TRY(matrix(&at, "w_scales", tensor(a[5]), &w_scales, err));
    if (bias) {
        TRY(fp8_torch_must_be_on("bias", bias, at.device, err));
        TRY(fp8_torch_view("bias", bias, &b, err));
    }
    TRY(fp8_torch_new_matrix(at.device, x.shape[0], w.shape[0], fp8_torch_dtype(a[9]), y, &to,
                             err));
    if (at.stream) /* which made w, perhaps; the default stream reads it */
        TRY(fp8_device_wait(at.ctx, at.stream, err));
    return fp8_matmul(at.ctx, &desc, &x, &x_scales, &w, &w_scales, bias ? &b : NULL, &to, at.stream,
                      err);
}

/* What an optional argument holds; its own memory is freed. */
static torch_tensor *take_optional(torch_value value)
{
    torch_value *held = (torch_value *)value;
    if (!held)
        return NULL;
    torch_tensor *found = tensor(*held);
    if (fp8_torch.torch_delete_stable_ivalue)
        fp8_torch.torch_delete_stable_ivalue(held);
    else if (fp8_torch._ZdlPv)
        fp8_torch._ZdlPv(held);
    return found;
}

void fp8_torch_scaled_mm(torch_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    torch_tensor *bias = take_optional(stack[8]), *y = NULL;
    fp8_error err;
    const fp8_status status = scaled_mm(stack, bias, &y, &err);
    const int taken[] = {0, 1, 4, 5};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        fp8_torch_drop(tensor(stack[taken[i]]));
    fp8_torch_drop(bias);
    if (status != FP8_OK)
        fp8_torch_drop(y);
    fp8_torch_raise("fp8::scaled_mm", status, &err);
    stack[0] = (torch_value)y;
}
