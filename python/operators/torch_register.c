/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_register.c - tells PyTorch about the operators: their schemas and their kernels. Their
 * shapes without data and their gradients are python/fp8/ops.py's. */
#include "torch_device.h"
#include "torch_kernels.h"
#include "torch_view.h"

static const struct {
    const char *name, *schema;
    torch_kernel kernel; /* for the CPU and CUDA */
} operators[] = {
    {"linear", "linear(Tensor x, Tensor handle, int n) -> Tensor", fp8_torch_linear},
    {"linear_dx", "linear_dx(Tensor dy, Tensor handle, int k) -> Tensor", fp8_torch_linear_dx},
    {"quantize",
     "quantize(Tensor x, int rows, int cols, int rule, ScalarType code, ScalarType scale, "
     "bool pow2) -> (Tensor codes, Tensor scales)",
     fp8_torch_quantize},
    {"dequantize",
     "dequantize(Tensor codes, Tensor scales, int rows, int cols, ScalarType dtype) -> Tensor",
     fp8_torch_dequantize},
    {"scaled_mm",
     "scaled_mm(Tensor x, Tensor x_scales, int x_rows, int x_cols, Tensor w, Tensor w_scales, "
     "int w_rows, int w_cols, Tensor? bias, ScalarType dtype) -> Tensor",
     fp8_torch_scaled_mm},
};
enum { OPERATORS = sizeof operators / sizeof *operators };

/* A loop for PyTorch's threads: each gets a range of it. */
typedef struct loop {
    void (*body)(void *arg, int64_t i);
    void *arg;
} loop;

static void run_range(int64_t begin, int64_t end, void *arg)
{
    const loop *l = arg;
    for (int64_t i = begin; i < end; i++)
        l->body(l->arg, i);
}

/* fp8_parallel_for on PyTorch's own threads. */
static void parallel_for(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    (void)user;
    loop l = {body, arg};
    fp8_torch.torch_parallel_for(0, n, 1, run_range, &l);
}

/* Finds the libtorch_cpu and libtorch_cuda of these paths, which the process has loaded (the second
 * perhaps not), and gives PyTorch's parallel-for to contexts: *loops is its fp8_parallel_for, NULL
 * if this PyTorch has none. Errors: NOT_FOUND. */
FP8_API fp8_status fp8_torch_find(const char *libtorch, const char *cuda, fp8_parallel_for *loops,
                                  fp8_error *err);
/* Registers the operators in namespace fp8, on ctx of so many threads, for the life of the process;
 * once, after fp8_torch_find. Errors: STATE. */
FP8_API fp8_status fp8_torch_register(const fp8_context *ctx, int32_t threads, fp8_error *err);

fp8_status fp8_torch_find(const char *libtorch, const char *cuda, fp8_parallel_for *loops,
                          fp8_error *err)
{
    const fp8_status status = fp8_torch_load(libtorch, cuda, err);
    if (status != FP8_OK)
        return status;
    fp8_torch_find_dtypes();
    *loops = fp8_torch.torch_parallel_for ? parallel_for : NULL;
    return FP8_OK;
}

/* The kernels of one of PyTorch's dispatch keys. Nonzero: it could not be done. */
static int32_t register_kernels(const char *key)
{
    torch_library *kernels = NULL;
    int32_t failed = fp8_torch.aoti_torch_library_init_impl("fp8", key, "libfp8", 0, &kernels);
    for (int i = 0; !failed && i < OPERATORS; i++)
        failed = fp8_torch.aoti_torch_library_impl(kernels, operators[i].name, operators[i].kernel);
    return failed;
}

fp8_status fp8_torch_register(const fp8_context *ctx, int32_t threads, fp8_error *err)
{
    torch_library *schemas = NULL;
    fp8_torch_set_contexts(ctx, fp8_torch.torch_parallel_for ? parallel_for : NULL, threads);
    int32_t failed = fp8_torch.aoti_torch_library_init_def("fp8", "libfp8", 0, &schemas);
    for (int i = 0; !failed && i < OPERATORS; i++)
        failed = fp8_torch.aoti_torch_library_def(schemas, operators[i].schema);
    if (!failed)
        failed = register_kernels("CPU");
    if (!failed)
        failed = register_kernels("CUDA");
    if (failed)
        return fp8_torch_fail(err, FP8_E_STATE, "torch: the operators of fp8 cannot be registered");
    return FP8_OK;
}
