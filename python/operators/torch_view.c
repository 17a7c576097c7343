/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_view.c - PyTorch's tensors as views, without a copy wherever strides allow. */
#include "torch_view.h"
#include "torch_device.h"

enum { MAX_DIMS = 64 }; /* PyTorch's own limit */

/* PyTorch's number of each dtype, -1 where it has none. */
static int32_t numbers[FP8_I64 + 1];

void fp8_torch_find_dtypes(void)
{
    for (int i = 0; i <= FP8_I64; i++)
        numbers[i] = -1;
    numbers[FP8_F32] = fp8_torch.aoti_torch_dtype_float32();
    numbers[FP8_F16] = fp8_torch.aoti_torch_dtype_float16();
    numbers[FP8_BF16] = fp8_torch.aoti_torch_dtype_bfloat16();
    numbers[FP8_E4M3FN] = fp8_torch.aoti_torch_dtype_float8_e4m3fn();
    numbers[FP8_E4M3FNUZ] = fp8_torch.aoti_torch_dtype_float8_e4m3fnuz();
    numbers[FP8_E5M2] = fp8_torch.aoti_torch_dtype_float8_e5m2();
    numbers[FP8_E5M2FNUZ] = fp8_torch.aoti_torch_dtype_float8_e5m2fnuz();
    numbers[FP8_I64] = fp8_torch.aoti_torch_dtype_int64();
    if (fp8_torch.torch_dtype_float8_e8m0fnu)
        numbers[FP8_E8M0FNU] = fp8_torch.torch_dtype_float8_e8m0fnu();
}

fp8_dtype fp8_torch_dtype(torch_value number)
{
    for (int i = 0; i <= FP8_I64; i++)
        if (numbers[i] == (int32_t)number)
            return (fp8_dtype)i;
    return FP8_DTYPE_NONE;
}

void fp8_torch_drop(torch_tensor *tensor)
{
    if (tensor)
        fp8_torch.aoti_torch_delete_tensor_object(tensor);
}

/* What PyTorch says of a tensor; the arrays are the tensor's. */
typedef struct facts {
    void *data;
    int32_t number;
    fp8_dtype dtype;
    int32_t device;
    int64_t dims;
    int64_t *shape, *stride;
} facts;

static fp8_status ask(const char *name, torch_tensor *tensor, facts *f, fp8_error *err)
{
    int32_t failed = fp8_torch.aoti_torch_get_data_ptr(tensor, &f->data);
    failed |= fp8_torch.aoti_torch_get_dtype(tensor, &f->number);
    failed |= fp8_torch.aoti_torch_get_dim(tensor, &f->dims);
    failed |= fp8_torch.aoti_torch_get_sizes(tensor, &f->shape);
    failed |= fp8_torch.aoti_torch_get_strides(tensor, &f->stride);
    if (failed)
        return fp8_torch_fail(err, FP8_E_ARGUMENT, "%s: not a strided tensor with storage", name);
    const fp8_status status = fp8_torch_device_of(name, tensor, &f->device, err);
    if (status != FP8_OK)
        return status;
    f->dtype = fp8_torch_dtype((torch_value)f->number);
    if (f->dtype == FP8_DTYPE_NONE)
        return fp8_torch_fail(err, FP8_E_DTYPE, "%s has a dtype that FP8 layers do not take", name);
    return FP8_OK;
}

fp8_status fp8_torch_view(const char *name, torch_tensor *tensor, fp8_tensor *view, fp8_error *err)
{
    facts f;
    fp8_status status = ask(name, tensor, &f, err);
    if (status != FP8_OK)
        return status;
    if (f.dims > 2)
        return fp8_torch_fail(err, FP8_E_SHAPE, "%s has %lld dimensions, must have at most 2", name,
                              (long long)f.dims);
    *view = (fp8_tensor){f.data, f.dtype, (int32_t)f.dims, {0}, {0}};
    for (int64_t i = 0; i < f.dims; i++) {
        view->shape[i] = f.shape[i];
        view->stride[i] = f.stride[i];
    }
    return FP8_OK;
}

static int64_t rows_of(const facts *f)
{
    int64_t rows = 1;
    for (int64_t i = 0; i + 1 < f->dims; i++)
        rows *= f->shape[i];
    return rows;
}

/* Whether all leading dimensions step as one; *step is by how much. */
static bool leading_step(const facts *f, int64_t *step)
{
    int64_t rows = 1;
    *step = f->shape[f->dims - 1];
    for (int64_t i = f->dims - 2; i >= 0; i--) {
        if (f->shape[i] == 1)
            continue;
        if (rows == 1)
            *step = f->stride[i];
        else if (f->stride[i] != *step * rows)
            return false;
        rows *= f->shape[i];
    }
    return true;
}

/* A contiguous one. */
static fp8_status new_tensor(int32_t device, int64_t dims, const int64_t *shape, int32_t number,
                             torch_tensor **tensor, void **data, fp8_error *err)
{
    int64_t stride[MAX_DIMS], step = 1;
    for (int64_t i = dims - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape[i] > 1 ? shape[i] : 1;
    }
    return fp8_torch_new(device, dims, shape, stride, number, tensor, data, err);
}

fp8_status fp8_torch_rows(const char *name, torch_tensor *tensor, fp8_tensor *view,
                          torch_tensor **copy, fp8_error *err)
{
    facts f;
    int64_t step;
    *copy = NULL;
    fp8_status status = ask(name, tensor, &f, err);
    if (status != FP8_OK)
        return status;
    if (f.dims < 1 || f.dims > MAX_DIMS)
        return fp8_torch_fail(err, FP8_E_SHAPE, "%s has %lld dimensions, must have at least 1",
                              name, (long long)f.dims);
    const int64_t rows = rows_of(&f), cols = f.shape[f.dims - 1];
    if (leading_step(&f, &step)) {
        *view = fp8_matrix(f.data, f.dtype, rows, cols);
        view->stride[0] = step;
        view->stride[1] = f.stride[f.dims - 1];
        return FP8_OK;
    }
    void *data = NULL;
    status = new_tensor(f.device, f.dims, f.shape, f.number, copy, &data, err);
    if (status != FP8_OK)
        return status;
    if (fp8_torch.aoti_torch_copy_(*copy, tensor, 0))
        return fp8_torch_fail(err, FP8_E_NO_MEMORY, "%s cannot be made contiguous", name);
    *view = fp8_matrix(data, f.dtype, rows, cols);
    return FP8_OK;
}

fp8_status fp8_torch_new_rows(torch_tensor *like, int64_t cols, torch_tensor **tensor,
                              fp8_tensor *view, fp8_error *err)
{
    facts f;
    int64_t shape[MAX_DIMS];
    void *data = NULL;
    *tensor = NULL;
    fp8_status status = ask("x", like, &f, err);
    if (status != FP8_OK)
        return status;
    for (int64_t i = 0; i + 1 < f.dims; i++)
        shape[i] = f.shape[i];
    shape[f.dims - 1] = cols;
    status = new_tensor(f.device, f.dims, shape, f.number, tensor, &data, err);
    if (status == FP8_OK)
        *view = fp8_matrix(data, f.dtype, rows_of(&f), cols);
    return status;
}

fp8_status fp8_torch_new_matrix(int32_t device, int64_t rows, int64_t cols, fp8_dtype dtype,
                                torch_tensor **tensor, fp8_tensor *view, fp8_error *err)
{
    const int64_t shape[2] = {rows, cols};
    void *data = NULL;
    *tensor = NULL;
    if (dtype == FP8_DTYPE_NONE || numbers[dtype] < 0)
        return fp8_torch_fail(err, FP8_E_DTYPE, "this PyTorch has no such dtype");
    fp8_status status = new_tensor(device, 2, shape, numbers[dtype], tensor, &data, err);
    if (status == FP8_OK)
        *view = fp8_matrix(data, dtype, rows, cols);
    return status;
}

fp8_status fp8_torch_new_bytes(int32_t device, uint64_t bytes, torch_tensor **tensor, void **data,
                               fp8_error *err)
{
    const int64_t shape = (int64_t)bytes;
    return new_tensor(device, 1, &shape, fp8_torch.aoti_torch_dtype_uint8(), tensor, data, err);
}
