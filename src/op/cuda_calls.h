/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_calls.h - what an operation asks of backend/cuda when its context is one of a CUDA device.
 * The operation has checked shapes, dtypes, strides and overlap, by the same code as for the CPU;
 * what is left is to see that the memory is the device's, and to enqueue. Errors of all: ARGUMENT
 * (memory or stream of somewhere else), UNSUPPORTED, NO_KERNEL, STATE, DEVICE. */
#ifndef FP8_OP_CUDA_CALLS_H
#define FP8_OP_CUDA_CALLS_H

#include "base/context.h"

fp8_status fp8_cuda_dequantize(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                               const fp8_tensor *scales, const fp8_tensor *y, void *stream,
                               fp8_error *err);

#endif
