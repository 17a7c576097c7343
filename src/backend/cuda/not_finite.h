/* SPDX-License-Identifier: Apache-2.0
 *
 * not_finite.h - the policy FP8_NAN_REFUSE on a device, for who may wait: the first element that is
 * NaN or infinite is an error. Needs 8 bytes of the device's memory, and reads x once more. */
#ifndef FP8_BACKEND_CUDA_NOT_FINITE_H
#define FP8_BACKEND_CUDA_NOT_FINITE_H

#include "backend/cuda/gemm_args.h"
#include "backend/cuda/launch.h"

/* Looks at args->x[rows, cols] in stream order, and waits; but in a stream that is being captured,
 * where nobody may wait, nothing is done. args->first is not read. Errors: NAN, with the number of
 * the element; NO_MEMORY, those of fp8_cuda_begin. */
fp8_status fp8_cuda_refuse_not_finite(const fp8_context *ctx, const fp8_find_args *args,
                                      void *stream, fp8_error *err);

#endif
