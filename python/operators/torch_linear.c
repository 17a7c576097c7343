/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_linear.c - the operators over a layer:
 *     linear(Tensor x, Tensor handle, int n) -> Tensor         y[..,N] = x[..,K] W^T + bias
 *     linear_dx(Tensor dy, Tensor handle, int k) -> Tensor     dx[..,K] = dy[..,N] W
 * n and k are there for the shapes that PyTorch computes without data; they must be the layer's.
 */
#include "torch_device.h"
#include "torch_handle.h"
#include "torch_kernels.h"
#include "torch_view.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void fp8_torch_raise(const char *op, fp8_status status, const fp8_error *err)
{
    if (status != FP8_OK)
        fp8_torch.aoti_torch_check(false, op, "libfp8", 0, err->msg);
}

/* A thread's workspace: kept from call to call, as large as was needed so far. */
typedef struct workspace {
    void *memory;
    uint64_t bytes;
} workspace;

static _Thread_local workspace own;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    pthread_key_create(&key, free);
}

static void *borrow(uint64_t bytes)
{
    if (bytes <= own.bytes)
        return own.memory;
    pthread_once(&once, make_key);
    free(own.memory);
    own.memory = malloc(bytes);
    own.bytes = own.memory ? bytes : 0;
    pthread_setspecific(key, own.memory); /* freed when the thread ends */
    return own.memory;
}

typedef fp8_status (*run_function)(const fp8_linear *linear, const fp8_tensor *x, fp8_tensor *y,
                                   void *memory, uint64_t bytes, void *stream, fp8_error *err);

static fp8_status run_y(const fp8_linear *linear, const fp8_tensor *x, fp8_tensor *y, void *memory,
                        uint64_t bytes, void *stream, fp8_error *err)
{
    return fp8_linear_run(linear, x, NULL, y, memory, bytes, stream, err);
}

static fp8_status run_dx(const fp8_linear *linear, const fp8_tensor *dy, fp8_tensor *dx,
                         void *memory, uint64_t bytes, void *stream, fp8_error *err)
{
    return fp8_linear_run_dx(linear, dy, dx, memory, bytes, stream, err);
}

static fp8_status run_here(const fp8_linear *linear, run_function function, const fp8_tensor *x,
                           fp8_tensor *y, uint64_t bytes, fp8_error *err)
{
    void *memory = borrow(bytes);
    if (bytes && !memory)
        return fp8_torch_fail(err, FP8_E_NO_MEMORY, "linear: no memory for %llu bytes of workspace",
                              (unsigned long long)bytes);
    return function(linear, x, y, memory, bytes, NULL, err);
}

/* The workspace is PyTorch's: it goes by streams, and into the pool of a graph that is captured. */
static fp8_status run_there(int32_t device, const fp8_linear *linear, run_function function,
                            const fp8_tensor *x, fp8_tensor *y, uint64_t bytes, fp8_error *err)
{
    void *memory = NULL, *stream = NULL;
    torch_tensor *room = NULL;
    fp8_status status = fp8_torch_stream(device, &stream, err);
    if (status == FP8_OK)
        status = fp8_torch_new_bytes(device, bytes, &room, &memory, err);
    if (status == FP8_OK)
        status = function(linear, x, y, memory, bytes, stream, err);
    fp8_torch_drop(room);
    return status;
}

static fp8_status run(int32_t device, const fp8_linear *linear, run_function function,
                      const fp8_tensor *x, fp8_tensor *y, fp8_error *err)
{
    uint64_t bytes;
    const fp8_status status = fp8_linear_workspace(linear, x->shape[0], &bytes, err);
    if (status != FP8_OK)
        return status;
    return device == FP8_TORCH_CPU ? run_here(linear, function, x, y, bytes, err)
                                   : run_there(device, linear, function, x, y, bytes, err);
}

/* y = function(x), x and y with any leading dimensions. */
static fp8_status apply(int32_t device, const fp8_linear *linear, run_function function,
                        torch_tensor *x, int64_t cols, torch_tensor **y, fp8_error *err)
{
    fp8_tensor from, to;
    torch_tensor *copy = NULL;
    fp8_status status = fp8_torch_rows("x", x, &from, &copy, err);
    if (status == FP8_OK)
        status = fp8_torch_new_rows(x, cols, y, &to, err);
    if (status == FP8_OK)
        status = run(device, linear, function, &from, &to, err);
    fp8_torch_drop(copy);
    return status;
}

static fp8_status number_in(torch_tensor *handle, int64_t *number, fp8_error *err)
{
    fp8_tensor view;
    fp8_status status = fp8_torch_must_be_on("handle", handle, FP8_TORCH_CPU, err);
    if (status == FP8_OK)
        status = fp8_torch_view("handle", handle, &view, err);
    if (status != FP8_OK)
        return status;
    if (view.dtype != FP8_I64 || view.ndim != 0)
        return fp8_torch_fail(err, FP8_E_ARGUMENT, "handle must be an int64 scalar");
    memcpy(number, view.data, sizeof *number);
    return FP8_OK;
}

static fp8_status apply_layer(int32_t device, fp8_layer *layer, run_function function,
                              torch_tensor *x, int64_t cols, torch_tensor **y, fp8_error *err)
{
    const fp8_linear *linear;
    fp8_linear_info info;
    fp8_status status = fp8_layer_acquire(layer, 0, &linear, err);
    if (status != FP8_OK)
        return status;
    fp8_linear_get_info(linear, &info);
    const int64_t wanted = function == run_y ? info.n : info.k;
    if (cols == wanted)
        status = apply(device, linear, function, x, cols, y, err);
    else
        status = fp8_torch_fail(err, FP8_E_SHAPE, "the result has %lld columns, asked for %lld",
                                (long long)wanted, (long long)cols);
    fp8_layer_release(layer);
    return status;
}

static fp8_status call(run_function function, torch_tensor *x, torch_tensor *handle, int64_t cols,
                       torch_tensor **y, fp8_error *err)
{
    int64_t number = 0;
    fp8_status status = number_in(handle, &number, err);
    if (status != FP8_OK)
        return status;
    int32_t device;
    fp8_layer *layer = fp8_torch_handle_acquire(number, &device);
    if (!layer)
        return fp8_torch_fail(err, FP8_E_STATE,
                              "handle %lld names no layer of this process: it was freed, or comes "
                              "from another one",
                              (long long)number);
    status = fp8_torch_must_be_on("x", x, device, err);
    if (status == FP8_OK)
        status = apply_layer(device, layer, function, x, cols, y, err);
    fp8_torch_handle_release(number);
    return status;
}

static void kernel(const char *name, run_function function, torch_value *stack)
{
    torch_tensor *x = (torch_tensor *)stack[0], *handle = (torch_tensor *)stack[1], *y = NULL;
    fp8_error err;
    const fp8_status status = call(function, x, handle, (int64_t)stack[2], &y, &err);
    fp8_torch_drop(x);
    fp8_torch_drop(handle);
    if (status != FP8_OK)
        fp8_torch_drop(y);
    fp8_torch_raise(name, status, &err);
    stack[0] = (torch_value)y;
}

void fp8_torch_linear(torch_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    kernel("fp8::linear", run_y, stack);
}

void fp8_torch_linear_dx(torch_value *stack, uint64_t arguments, uint64_t results)
{
    (void)arguments, (void)results;
    kernel("fp8::linear_dx", run_dx, stack);
}
