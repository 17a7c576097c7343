/* SPDX-License-Identifier: Apache-2.0
 *
 * panel_kernels.h - the kernels of panel_kernels.inc, and how the files that define them unroll. */
#ifndef FP8_BACKEND_CPU_PANEL_KERNELS_H
#define FP8_BACKEND_CPU_PANEL_KERNELS_H

#include "op/backend.h"

#define FP8_PANEL(isa, x, min_m, max_m, cut, rows, cols, scratch, function) \
    fp8_kernel_panel function;
#include "backend/cpu/panel_kernels.inc"
#undef FP8_PANEL

/* Loops over a tile, whose sums must be registers: one variable index keeps all of an array in
 * memory. FP8_ROLLED: instrumented code is left alone, it would take minutes to compile. */
#if defined(FP8_ROLLED)
#define PANEL_UNROLL
#elif defined(__clang__)
#define PANEL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PANEL_UNROLL _Pragma("GCC unroll 8")
#endif

#endif
