/* SPDX-License-Identifier: Apache-2.0
 *
 * merge.h - what the codes of a part become when a fused weight is brought to one scale. */
#ifndef FP8_OP_MERGE_H
#define FP8_OP_MERGE_H

#include "fp8.h"

/* to[code] = E4M3FN code of f16(f16(code) * scale) / most: a step of fp8_requantize_with_max_scale
 * for one part. */
void fp8_merge_table(float scale, float most, uint8_t to[256]);

#endif
