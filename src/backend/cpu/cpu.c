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

#define FP8_PANEL(isa, x, min_m, max_m, cut, rows, cols, scratch, function) \
    fp8_kernel_panel function;
#include "backend/cpu/panel_kernels.inc"
#undef FP8_PANEL

#define FP8_PANEL(isa, x, min_m, max_m, cut, rows, cols, scratch, function) \
    {#function, isa, x, min_m, max_m, cut, rows, cols, scratch, function},
static const fp8_panel_kernel panels[] = {
#include "backend/cpu/panel_kernels.inc"
    {0}, /* so that the table may be empty */
};

const fp8_backend fp8_backend_cpu = {"cpu", kernels, sizeof kernels / sizeof *kernels - 1, panels,
                                     sizeof panels / sizeof *panels - 1};
