/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_device.h - one CUDA device: what it is, its primary context, memory on it, and whether a
 * caller's stream belongs to it. The primary context is the one that PyTorch, CuPy and the CUDA
 * runtime use, so their pointers and streams are good here; no context is ever created, and the one
 * that was current in a thread is current again when a function returns.
 *
 * A fp8_cuda_device does not change between open and close, but for what waits in `upload`: any
 * thread. */
#ifndef FP8_BACKEND_CUDA_DEVICE_H
#define FP8_BACKEND_CUDA_DEVICE_H

#include "backend/cuda/driver.h"
#include "backend/cuda/module.h"
#include "backend/cuda/tuned.h"
#include "base/device.h"

/* What kernels will ask for at the least: compute capability 8.0 (A100). */
#define FP8_CUDA_LEAST_CAPABILITY 80
/* Where a kernel may begin before the one before it has ended. */
#define FP8_CUDA_DEPENDENT_CAPABILITY 90

typedef struct fp8_cuda_facts {
    char name[96];      /* "NVIDIA H100 80GB HBM3" */
    int32_t capability; /* 10 * major + minor: 90 */
    int32_t processors; /* multiprocessors: 132 */
    uint64_t memory_bytes;
    float memory_rate; /* bytes a us by clock and bus width: 3.35e6; 0: the driver does not say */
} fp8_cuda_facts;

struct fp8_cuda_device {
    fp8_driver driver;
    char label[16]; /* "cuda:0", the beginning of every error */
    int32_t index;
    bool has_others; /* the process may use more devices */
    fp8_cu_device handle;
    fp8_cu_context primary; /* retained */
    fp8_cuda_facts facts;
    fp8_cuda_module module;         /* empty until fp8_cuda_module_load */
    fp8_tuned tuned;                /* empty until the context is made */
    struct fp8_cuda_upload *upload; /* with a lock of its own; NULL until the context is made */
};

/* How many devices this process may use; 0 is no error. */
fp8_status fp8_cuda_count(const fp8_driver *driver, int32_t *count, fp8_error *err);
/* What device `index` is, without starting anything on it. Errors: NO_DEVICE (there is none of that
 * index), those of fp8_driver_fail. */
fp8_status fp8_cuda_describe(const fp8_driver *driver, int32_t index, fp8_cuda_facts *out,
                             fp8_error *err);

/* Takes hold of a device until fp8_cuda_close. Errors: as fp8_cuda_describe, UNSUPPORTED (its
 * compute capability is too low). */
fp8_status fp8_cuda_open(const fp8_driver *driver, int32_t index, fp8_cuda_device *out,
                         fp8_error *err);
/* The driver's errors are not told: there is nothing left to do about them. */
void fp8_cuda_close(const fp8_cuda_device *device);

/* Makes the device's context current in this thread, until fp8_cuda_leave makes current what was
 * before. They nest. Errors: STATE (somebody destroyed the context), those of fp8_driver_fail: then
 * there is nothing to leave. */
fp8_status fp8_cuda_enter(const fp8_cuda_device *device, fp8_error *err);
void fp8_cuda_leave(const fp8_cuda_device *device);

/* *out = memory on the device, aligned to 256 bytes, for fp8_cuda_free; 0 for 0 bytes. Not while a
 * stream of this thread is captured. Errors: NO_MEMORY, those of fp8_cuda_enter. */
fp8_status fp8_cuda_alloc(const fp8_cuda_device *device, uint64_t bytes, fp8_cu_pointer *out,
                          fp8_error *err);
/* 0 is a no-op. Waits for whatever still uses the memory. */
void fp8_cuda_free(const fp8_cuda_device *device, fp8_cu_pointer memory);

#endif
