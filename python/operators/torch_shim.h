/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_shim.h - the functions of PyTorch's stable C interface that the operators use. They are
 * looked up in the libtorch that the process has loaded, so nothing here is built against PyTorch.
 * A function returns 0, or nonzero where PyTorch threw. Source: torch/csrc/stable/c/shim.h and
 * torch/csrc/inductor/aoti_torch/c/shim.h of PyTorch 2.9 to 2.13. */
#ifndef FP8_TORCH_SHIM_H
#define FP8_TORCH_SHIM_H

#include "fp8.h"

#include <stdbool.h>

/* An argument or a result of a kernel: an integer, a tensor's owning handle, or, for what the
 * schema calls optional, NULL or a pointer to one of them. */
typedef uint64_t torch_value;
typedef struct torch_tensor torch_tensor;
typedef struct torch_library torch_library;
typedef void (*torch_kernel)(torch_value *stack, uint64_t arguments, uint64_t results);
typedef void (*torch_range)(int64_t begin, int64_t end, void *arg);

/* Name, result, arguments. */
/* clang-format off */
#define FP8_TORCH_REQUIRED(f)                                                                       \
    f(aoti_torch_check, void, (bool, const char *, const char *, uint32_t, const char *))           \
    f(aoti_torch_copy_, int32_t, (torch_tensor *, torch_tensor *, int32_t))                         \
    f(aoti_torch_delete_tensor_object, int32_t, (torch_tensor *))                                   \
    f(aoti_torch_device_type_cpu, int32_t, (void))                                                  \
    f(aoti_torch_device_type_cuda, int32_t, (void))                                                 \
    f(aoti_torch_dtype_bfloat16, int32_t, (void))                                                   \
    f(aoti_torch_dtype_float16, int32_t, (void))                                                    \
    f(aoti_torch_dtype_float32, int32_t, (void))                                                    \
    f(aoti_torch_dtype_float8_e4m3fn, int32_t, (void))                                              \
    f(aoti_torch_dtype_float8_e4m3fnuz, int32_t, (void))                                            \
    f(aoti_torch_dtype_float8_e5m2, int32_t, (void))                                                \
    f(aoti_torch_dtype_float8_e5m2fnuz, int32_t, (void))                                            \
    f(aoti_torch_dtype_int64, int32_t, (void))                                                      \
    f(aoti_torch_dtype_uint8, int32_t, (void))                                                      \
    f(aoti_torch_empty_strided, int32_t, (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, torch_tensor **)) \
    f(aoti_torch_get_data_ptr, int32_t, (torch_tensor *, void **))                                  \
    f(aoti_torch_get_device_index, int32_t, (torch_tensor *, int32_t *))                            \
    f(aoti_torch_get_device_type, int32_t, (torch_tensor *, int32_t *))                             \
    f(aoti_torch_get_dim, int32_t, (torch_tensor *, int64_t *))                                     \
    f(aoti_torch_get_dtype, int32_t, (torch_tensor *, int32_t *))                                   \
    f(aoti_torch_get_sizes, int32_t, (torch_tensor *, int64_t **))                                  \
    f(aoti_torch_get_strides, int32_t, (torch_tensor *, int64_t **))                                \
    f(aoti_torch_library_def, int32_t, (torch_library *, const char *))                             \
    f(aoti_torch_library_impl, int32_t, (torch_library *, const char *, torch_kernel))              \
    f(aoti_torch_library_init_def, int32_t, (const char *, const char *, uint32_t, torch_library **)) \
    f(aoti_torch_library_init_impl, int32_t, (const char *, const char *, const char *, uint32_t, torch_library **))
/* clang-format on */

/* NULL where the libtorch is too old: 2.10, 2.11, and 2.13 have them. _ZdlPv is operator delete,
 * by which an optional's memory is freed before torch_delete_stable_ivalue came. */
#define FP8_TORCH_OPTIONAL(f)                                                        \
    f(torch_parallel_for, int32_t, (int64_t, int64_t, int64_t, torch_range, void *)) \
        f(torch_dtype_float8_e8m0fnu, int32_t, (void))                               \
            f(torch_delete_stable_ivalue, int32_t, (torch_value *)) f(_ZdlPv, void, (void *))

/* Of PyTorch's library for CUDA; NULL where that is not loaded. */
#define FP8_TORCH_CUDA(f) f(aoti_torch_get_current_cuda_stream, int32_t, (int32_t, void **))

typedef struct torch_shim {
#define FP8_MEMBER(name, result, arguments) result(*name) arguments;
    FP8_TORCH_REQUIRED(FP8_MEMBER)
    FP8_TORCH_OPTIONAL(FP8_MEMBER)
    FP8_TORCH_CUDA(FP8_MEMBER)
#undef FP8_MEMBER
} torch_shim;

/* The one table of the process; written by fp8_torch_load before any kernel can run. */
extern torch_shim fp8_torch;

/* Fills fp8_torch from the libtorch_cpu at `path`, which must be loaded already, and from the
 * libtorch_cuda at `cuda`, if that is. Errors: NOT_FOUND, the message names the library or the
 * function. */
fp8_status fp8_torch_load(const char *path, const char *cuda, fp8_error *err);
/* Writes an error as the library's functions do, and returns its code. */
fp8_status fp8_torch_fail(fp8_error *err, fp8_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
