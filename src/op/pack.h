/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.h - one panel of a weight W[N,K] at a time, so that threads can share the work. */
#ifndef FP8_OP_PACK_H
#define FP8_OP_PACK_H

#include "fp8.h"

/* panel = rows [first, first + 16) of the codes w[N,K], any strides. */
void fp8_pack_panel(uint8_t *panel, const fp8_tensor *w, int64_t first);

/* A bit for each of those rows that holds a NaN. */
uint32_t fp8_nan_rows(const fp8_tensor *w, int64_t first);

/* The way back, into rows of w. */
void fp8_unpack_panel(const uint8_t *panel, fp8_tensor *w, int64_t first);

#endif
