/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_amx.h - fp8_panel_bf16_amx on emulated tiles. It needs level avx512_bf16. One thread. */
#ifndef FP8_TESTS_EMULATED_AMX_H
#define FP8_TESTS_EMULATED_AMX_H

#include "op/panel.h"

fp8_kernel_panel emulated_panel_bf16_amx;

/* Whether no tile is configured, as before the first and after each run. */
bool emulated_idle(void);

#endif
