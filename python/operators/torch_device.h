/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_device.h - where tensors are, and what works there: FP8_TORCH_CPU, or the index of a CUDA
 * device. A context for CUDA is made when it is first asked for, and lives as long as the process;
 * what is enqueued goes into PyTorch's current stream. */
#ifndef FP8_TORCH_DEVICE_H
#define FP8_TORCH_DEVICE_H

#include "torch_shim.h"

enum { FP8_TORCH_CPU = -1 };

/* What contexts for CUDA are made with; once, before any kernel can run. */
void fp8_torch_set_contexts(const fp8_context *cpu, fp8_parallel_for loops, int32_t threads);
/* *out = the context of a device. Errors: NO_DEVICE and others of fp8_context_create. Any thread.
 */
FP8_API fp8_status fp8_torch_context(int32_t device, const fp8_context **out, fp8_error *err);
/* Makes the context of a CUDA device with a file of `fp8 tune`. Errors: STATE (there is one),
 * others as fp8_torch_context. Any thread. */
FP8_API fp8_status fp8_torch_use_tuned(int32_t device, const char *tuned, fp8_error *err);

/* Errors: UNSUPPORTED (neither the CPU nor CUDA), ARGUMENT. */
fp8_status fp8_torch_device_of(const char *name, torch_tensor *tensor, int32_t *device,
                               fp8_error *err);
/* Errors: ARGUMENT, it is somewhere else; those of fp8_torch_device_of. */
fp8_status fp8_torch_must_be_on(const char *name, torch_tensor *tensor, int32_t device,
                                fp8_error *err);
/* PyTorch's current stream there; NULL on the CPU. Errors: UNSUPPORTED (this PyTorch has no CUDA).
 */
fp8_status fp8_torch_stream(int32_t device, void **stream, fp8_error *err);

/* A new tensor of a PyTorch dtype's number, its strides in elements. Errors: NO_MEMORY. */
fp8_status fp8_torch_new(int32_t device, int64_t dims, const int64_t *shape, const int64_t *stride,
                         int32_t number, torch_tensor **tensor, void **data, fp8_error *err);

#endif
