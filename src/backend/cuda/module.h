/* SPDX-License-Identifier: Apache-2.0
 *
 * module.h - the kernels of this build on one device. They are compiled when the library is built,
 * one fatbin a family (machine code for some capabilities and PTX, which the driver compiles for
 * all later ones), embedded, and all loaded when a context is made: a launch loads nothing, so that
 * it may be captured into a graph. A build without nvcc has no fatbins. */
#ifndef FP8_BACKEND_CUDA_MODULE_H
#define FP8_BACKEND_CUDA_MODULE_H

#include "backend/cuda/driver.h"
#include "backend/cuda/wide_args.h"

/* FP8_CUDA_FATBINS: X(family) for each that was compiled; the build says. */
#ifndef FP8_CUDA_FATBINS
#define FP8_CUDA_FATBINS(X)
#endif

typedef enum fp8_cuda_kernel {
#define FP8_CUDA_KERNEL(family, function, least, most, shared, what) FP8_CUDA_##function,
#include "backend/cuda/kernels.inc"
#undef FP8_CUDA_KERNEL
    FP8_CUDA_KERNELS
} fp8_cuda_kernel;

/* A row of kernels.inc. */
typedef struct fp8_cuda_kernel_row {
    const char *family, *function;
    int32_t least, most; /* compute capabilities, both included */
    int32_t shared_bytes;
    const char *what;
} fp8_cuda_kernel_row;
/* Row i; NULL past the last. Any thread. */
const fp8_cuda_kernel_row *fp8_cuda_kernel_at(size_t i);

enum { FP8_CUDA_MAX_FAMILIES = 16 };

typedef struct fp8_cuda_module {
    fp8_cu_library libraries[FP8_CUDA_MAX_FAMILIES];
    fp8_cu_function functions[FP8_CUDA_KERNELS]; /* NULL: not for this device, or not built */
} fp8_cuda_module;

/* Whether this build has any. */
bool fp8_cuda_has_kernels(void);

struct fp8_cuda_device;
/* Fills device->module; the device's context is current. Errors: NO_KERNEL (a fatbin lacks what
 * kernels.inc lists), those of fp8_driver_fail; then nothing is loaded. */
fp8_status fp8_cuda_module_load(struct fp8_cuda_device *device, fp8_error *err);
void fp8_cuda_module_unload(struct fp8_cuda_device *device);

#endif
