/* SPDX-License-Identifier: Apache-2.0
 *
 * choose.h - what becomes of each tensor. */
#ifndef FP8_CONVERT_CHOOSE_H
#define FP8_CONVERT_CHOOSE_H

#include "convert/convert.h"

/* Decides every item. Errors: UNSUPPORTED, MISMATCH, NOT_FOUND (a pattern without a match), FORMAT,
 * NO_MEMORY. */
fp8_status fp8_choose(fp8_convert *conv, fp8_error *err);

/* Keeps item i, and what is fused with it, because element `pos` of it is NaN or infinite. */
fp8_status fp8_choose_keep_nan(fp8_convert *conv, int64_t item, int64_t pos, fp8_error *err);

/* The grid of an item's output scales on its matrices, and the request that makes them. */
fp8_grid fp8_item_grid(const fp8_convert *conv, int64_t item);
fp8_quantize_desc fp8_item_quantize_desc(const fp8_convert *conv, int64_t item);

#endif
