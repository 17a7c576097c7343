/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_handle.h - layers by number. An operator gets a number in a tensor, which a user
 * may copy, save or keep too long; a number that is not, or no longer, one of this process is an
 * error and never a pointer. */
#ifndef FP8_TORCH_HANDLE_H
#define FP8_TORCH_HANDLE_H

#include "fp8.h"

/* Takes the layer, which holds no source of the caller's and is on that device (torch_device.h),
 * and returns its number, 0 if there is no memory. Any thread. */
FP8_API int64_t fp8_torch_handle_add(fp8_layer *layer, int32_t device);
/* Frees the layer as soon as nobody uses it. A number that is none is a no-op. Any thread. */
FP8_API void fp8_torch_handle_remove(int64_t number);
/* The layer, which stays until fp8_torch_handle_release, and its device; NULL if the number is
 * none. Any thread. */
fp8_layer *fp8_torch_handle_acquire(int64_t number, int32_t *device);
void fp8_torch_handle_release(int64_t number);

#endif
