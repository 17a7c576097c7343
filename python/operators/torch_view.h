/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_view.h - PyTorch's tensors as the library sees them, and new ones. A tensor's handle is
 * owned by whoever got it; fp8_torch_drop gives it back. */
#ifndef FP8_TORCH_VIEW_H
#define FP8_TORCH_VIEW_H

#include "torch_shim.h"

/* Asks PyTorch for the numbers of its dtypes, once. */
void fp8_torch_find_dtypes(void);
/* The dtype of a PyTorch dtype's number, DTYPE_NONE if the library has none. */
fp8_dtype fp8_torch_dtype(torch_value number);
/* NULL is a no-op. */
void fp8_torch_drop(torch_tensor *tensor);

/* view[..] = tensor, of its own shape with at most two dimensions. Errors: SHAPE, DTYPE. */
fp8_status fp8_torch_view(const char *name, torch_tensor *tensor, fp8_tensor *view, fp8_error *err);
/* view[rows, K] = tensor[.., K]: leading dimensions are one. Where strides do not allow that,
 * *copy is a contiguous tensor, to be dropped by the caller, and the view is of it; else NULL.
 * Errors: SHAPE (no dimension), DTYPE, NO_MEMORY. */
fp8_status fp8_torch_rows(const char *name, torch_tensor *tensor, fp8_tensor *view,
                          torch_tensor **copy, fp8_error *err);
/* A new tensor [like's leading dimensions, cols] of like's dtype and device and, in *view, its
 * [rows, cols].
 * Errors: NO_MEMORY. */
fp8_status fp8_torch_new_rows(torch_tensor *like, int64_t cols, torch_tensor **tensor,
                              fp8_tensor *view, fp8_error *err);
/* A new matrix [rows, cols] on a device (torch_device.h), and its view. Errors: DTYPE, NO_MEMORY.
 */
fp8_status fp8_torch_new_matrix(int32_t device, int64_t rows, int64_t cols, fp8_dtype dtype,
                                torch_tensor **tensor, fp8_tensor *view, fp8_error *err);
/* New memory on a device, as a tensor. Errors: NO_MEMORY. */
fp8_status fp8_torch_new_bytes(int32_t device, uint64_t bytes, torch_tensor **tensor, void **data,
                               fp8_error *err);

#endif
