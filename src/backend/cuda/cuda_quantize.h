/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quantize.h - the quantizer as part of another operation on a device. */
#ifndef FP8_BACKEND_CUDA_CUDA_QUANTIZE_H
#define FP8_BACKEND_CUDA_CUDA_QUANTIZE_H

#include "backend/cuda/kernel_args.h"
#include "backend/cuda/launch.h"
#include "op/quantize.h"

/* What kernels are told: how x becomes codes and scales. */
fp8_cuda_quantize_args fp8_cuda_describe_quantize(const fp8_quant *q, const fp8_tensor *x,
                                                  const fp8_tensor *codes,
                                                  const fp8_tensor *scales);

/* codes and scales = quantize(x), between fp8_cuda_begin and fp8_cuda_leave, of matrices that are
 * checked and the device's. Never waits: FP8_NAN_REFUSE makes NaN of what is not finite. Errors:
 * those of fp8_cuda_launch. */
fp8_status fp8_cuda_enqueue_quantize(const fp8_cuda_device *device, const fp8_quant *q,
                                     const fp8_tensor *x, const fp8_tensor *codes,
                                     const fp8_tensor *scales, void *stream, fp8_error *err);

/* y, in bf16, = what the codes and scales of quantize(x) stand for, likewise; scales say what
 * theirs would be, and are not written. *done is false where no kernel does it, and then nothing is
 * enqueued. */
fp8_status fp8_cuda_enqueue_rounded(const fp8_cuda_device *device, const fp8_quant *q,
                                    const fp8_tensor *x, const fp8_tensor *scales,
                                    const fp8_tensor *y, void *stream, bool *done, fp8_error *err);

/* y = codes * scales of the units of a grid, likewise. */
fp8_status fp8_cuda_enqueue_dequantize(const fp8_cuda_device *device, fp8_grid grid,
                                       const fp8_tensor *codes, const fp8_tensor *scales,
                                       const fp8_tensor *y, void *stream, fp8_error *err);

#endif
