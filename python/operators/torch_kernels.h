/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_kernels.h - the operators' kernels, for the CPU and for CUDA, called by PyTorch's
 * dispatcher with their arguments on a stack, which they take and replace by their results. */
#ifndef FP8_TORCH_KERNELS_H
#define FP8_TORCH_KERNELS_H

#include "torch_shim.h"

void fp8_torch_linear(torch_value *stack, uint64_t arguments, uint64_t results);
void fp8_torch_linear_dx(torch_value *stack, uint64_t arguments, uint64_t results);
void fp8_torch_quantize(torch_value *stack, uint64_t arguments, uint64_t results);
void fp8_torch_dequantize(torch_value *stack, uint64_t arguments, uint64_t results);
void fp8_torch_scaled_mm(torch_value *stack, uint64_t arguments, uint64_t results);

/* Raises RuntimeError with err's words: PyTorch throws through the caller, which must hold nothing
 * any more. Returns if the status is FP8_OK. */
void fp8_torch_raise(const char *op, fp8_status status, const fp8_error *err);

#endif
