/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h - what a context asks of the backend of a device that is not the CPU. The base includes
 * no backend: it declares this, and backend/cuda implements it. */
#ifndef FP8_BASE_DEVICE_H
#define FP8_BASE_DEVICE_H

#include "base/status.h"

#include <stddef.h>

typedef struct fp8_cuda_device fp8_cuda_device;

/* Loads the driver and takes hold of CUDA device `index`, with ctx's memory and the choices of the
 * file `tuned` (NULL: none). Errors: NO_DEVICE, UNSUPPORTED (driver or device too old), those of
 * the file, NO_MEMORY, DEVICE and others that the driver gives. */
fp8_status fp8_cuda_attach(const fp8_context *ctx, int32_t index, const char *tuned,
                           fp8_cuda_device **out, fp8_error *err);
/* NULL is a no-op. */
void fp8_cuda_detach(const fp8_context *ctx, fp8_cuda_device *device);
/* What kernels this build has for CUDA, in words; static. */
const char *fp8_cuda_build(void);
/* "choices: 216 measured, built in": what is known beforehand of which kernel is the fastest. */
void fp8_cuda_write_choices(const fp8_cuda_device *device, char *line, size_t bytes);
/* "cuda:0" */
const char *fp8_cuda_label(const fp8_cuda_device *device);

#endif
