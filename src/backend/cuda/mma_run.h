/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_run.h - products of a linear by the kernels for all devices: gemm_mma.cu and gemm_dx.cu do
 * what the tensor cores of compute capability 8.0 can, gemm_plain.cu everything. */
#ifndef FP8_BACKEND_CUDA_MMA_RUN_H
#define FP8_BACKEND_CUDA_MMA_RUN_H

#include "backend/cuda/launch.h"
#include "op/linear.h"

/* Enqueues Y[m,n] = X[m,k] W[n,k]^T + bias, X as it is multiplied: codes with scales, or, scales
 * being NULL, high precision. wanted: the kernel's name, or NULL. Errors: NO_KERNEL, `wanted` is
 * another than the one for the product or the plain one; those of fp8_cuda_launch. */
fp8_status fp8_mma_run(const fp8_linear *linear, const fp8_tensor *x, const fp8_tensor *scales,
                       const fp8_tensor *y, const char *wanted, void *stream, fp8_error *err);
/* Enqueues dX[m,k] = dY[m,n] W. Errors: those of fp8_cuda_launch. */
fp8_status fp8_mma_run_dx(const fp8_linear *linear, const fp8_tensor *dy, const fp8_tensor *dx,
                          void *stream, fp8_error *err);
/* The kernel for a run of a plan with X in a dtype, if its matrices are contiguous and aligned. */
fp8_cuda_kernel fp8_mma_kernel(const fp8_linear_plan *plan, fp8_dtype x);

#endif
