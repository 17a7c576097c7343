/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu.c - the table of the vector kernels. Compiled without any -m flag, like everything but the
 * kernels themselves. */
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

#define FP8_KERNEL FP8_KERNEL_ROW
static const fp8_kernel kernels[] = {
#include "backend/cpu/kernels.inc"
    {0}, /* so that the table may be empty */
};

const fp8_backend fp8_backend_cpu = {"cpu", kernels, sizeof kernels / sizeof *kernels - 1};
