/* SPDX-License-Identifier: Apache-2.0
 *
 * ref.c - the table of the reference kernels. */
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/ref/kernels.inc"
#undef FP8_KERNEL

#define FP8_KERNEL FP8_KERNEL_ROW
static const fp8_kernel kernels[] = {
#include "backend/ref/kernels.inc"
};

const fp8_backend fp8_backend_ref = {"ref", kernels, sizeof kernels / sizeof *kernels, NULL, 0};
