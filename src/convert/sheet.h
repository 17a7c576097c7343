/* SPDX-License-Identifier: Apache-2.0
 *
 * sheet.h - the header of one output file and the index of all: the texts that name every piece.
 * Names and shapes of scales are made here when they are needed, and not kept in the plan. */
#ifndef FP8_CONVERT_SHEET_H
#define FP8_CONVERT_SHEET_H

#include "ckpt/text.h"
#include "convert/layout.h"

/* Sorts the shard's entries, and fills their offsets, the items' offsets and the shard's sizes. */
fp8_status fp8_sheet_place(fp8_convert *conv, fp8_out_shard *shard, fp8_error *err);

/* Puts the first bytes of a shard's file. Errors: NO_MEMORY, and those of *out when it is closed.
 */
fp8_status fp8_sheet_head(const fp8_convert *conv, const fp8_out_shard *shard, fp8_text *out,
                          fp8_error *err);

/* Puts the text of the index; the same errors. */
fp8_status fp8_sheet_index(const fp8_convert *conv, fp8_text *out, fp8_error *err);
/* How long it will be. Error NO_MEMORY. */
fp8_status fp8_sheet_index_bytes(const fp8_convert *conv, uint64_t *bytes, fp8_error *err);

#endif
