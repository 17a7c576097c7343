/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h - putting kernels into a stream. An operation is
 *
 *     FP8_TRY(fp8_cuda_begin(device, stream, err));     the context is current, the stream good
 *     status = .. fp8_cuda_check_memory, fp8_cuda_launch ..
 *     fp8_cuda_leave(device);
 *
 * It allocates nothing, waits for nothing and may be captured into a graph, in any thread. What
 * goes wrong on the device later is told by a later call, as FP8_E_DEVICE. */
#ifndef FP8_BACKEND_CUDA_LAUNCH_H
#define FP8_BACKEND_CUDA_LAUNCH_H

#include "backend/cuda/cuda_device.h"

/* How many threads run a kernel, and how. */
typedef struct fp8_cuda_shape {
    uint32_t grid[3]; /* blocks; 0 counts as 1 */
    uint32_t threads; /* of a block */
    uint32_t shared_bytes;
    uint32_t cluster; /* blocks side by side (x) that form a cluster; 0 = none */
    bool balanced;    /* blocks of a cluster may share an SM, wherever there is room */
    bool dependent;   /* the kernel waits by itself for the one before it */
} fp8_cuda_shape;

/* The stream is a default stream (NULL, or CUDA's constants 1 and 2), or one of the device's
 * primary context. Errors: ARGUMENT, those of fp8_cuda_enter; then there is nothing to leave. */
fp8_status fp8_cuda_begin(const fp8_cuda_device *device, void *stream, fp8_error *err);

/* The kernel's one parameter is the struct at `arguments`, which is copied. Errors: NO_KERNEL (it
 * is not for this device), those of fp8_driver_fail. */
fp8_status fp8_cuda_launch(const fp8_cuda_device *device, fp8_cuda_kernel kernel,
                           const fp8_cuda_shape *shape, const void *arguments, void *stream,
                           fp8_error *err);

/* Whether kernels can read what is at data: memory of the device, or of the host if it was pinned
 * by CUDA. Memory of another device does not pass, whatever the two have been allowed to read of
 * each other. `name` begins the sentence. NULL passes. Errors: ARGUMENT. */
fp8_status fp8_cuda_check_memory(const fp8_cuda_device *device, const void *data, const char *name,
                                 fp8_error *err);
/* The same of what the host may have as well: *on_device, false for memory that the driver does not
 * know. The device's context is current. Errors: ARGUMENT (memory of another device). */
fp8_status fp8_cuda_look_for(const fp8_cuda_device *device, const void *data, bool *on_device,
                             fp8_error *err);

#endif
