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

#define FP8_PANEL(isa, x, min_m, max_m, cut, rows, cols, scratch, function) \
    fp8_kernel_panel function;
#include "backend/ref/ref_panels.inc"
#undef FP8_PANEL

#define FP8_PANEL(isa, x, min_m, max_m, cut, rows, cols, scratch, function) \
    {#function, isa, x, min_m, max_m, cut, rows, cols, scratch, function},
static const fp8_panel_kernel panels[] = {
#include "backend/ref/ref_panels.inc"
};

const fp8_backend fp8_backend_ref = {"ref", kernels, sizeof kernels / sizeof *kernels, panels,
                                     sizeof panels / sizeof *panels};
