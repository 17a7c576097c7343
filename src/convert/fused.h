/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.h - which modules an engine makes one matrix of: q, k and v; gate and up. All of them must
 * be quantized alike or not at all, and one per-tensor scale should serve them all, since the
 * engine would requantize to the largest. */
#ifndef FP8_CONVERT_FUSED_H
#define FP8_CONVERT_FUSED_H

#include "convert/convert.h"

enum { FP8_FUSED_PARTS = 3 };

/* The engine fuses at all. */
bool fp8_engine_fuses(const char *engine);

/* The items fused with item i, itself included: their indices in members[], in a fixed order.
 * Returns how many there are in the checkpoint; 0 if the item's name is none that is fused. */
int fp8_fused_members(const fp8_convert *conv, int64_t item, int64_t members[FP8_FUSED_PARTS]);

#endif
