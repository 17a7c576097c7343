/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.h - some rows of a weight W[N,K] into panels and back, so that threads can share the work.
 */
#ifndef FP8_OP_PACK_H
#define FP8_OP_PACK_H

#include "fp8.h"

/* Where codes go: the packed weight, its columns (padding included), and a flag for each of its
 * rows.
 */
typedef struct fp8_packed {
    uint8_t *panels;
    uint8_t *nan_rows; /* [n], set to 1 where a code is a NaN; never to 0 */
    int64_t k;
} fp8_packed;

/* The packed weight's [row.., col..] = codes[r,c], any strides. What is beyond W is not touched. */
void fp8_pack_codes(const fp8_packed *to, const fp8_tensor *codes, int64_t row, int64_t col);

/* The way back: rows [first, first + 16) into rows of w. */
void fp8_unpack_panel(const uint8_t *panel, fp8_tensor *w, int64_t first);

#endif
