/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - the output files: which pieces are in which shard, in which order, at which offsets.
 *
 * A shard holds what the source's shard held (or --max-shard-size fills it); within it, pieces
 * stand by descending element size, then name, so that all are aligned. All is known before the
 * first byte is written. */
#ifndef FP8_CONVERT_LAYOUT_H
#define FP8_CONVERT_LAYOUT_H

#include "convert/convert.h"

enum { FP8_PIECE_DIMS = 5 };

/* Name, dtype and shape of one piece of the output. */
typedef struct fp8_piece {
    const char *suffix; /* of a companion; NULL: the item's own name */
    fp8_dtype dtype;
    int32_t ndim;
    const int64_t *shape; /* of the source tensor; NULL: in dims */
    int64_t dims[FP8_PIECE_DIMS];
} fp8_piece;

/* Piece `part` of an item; false if it has none. */
bool fp8_item_piece(const fp8_convert *conv, int64_t item, fp8_part part, fp8_piece *out);

/* Bytes of all pieces of an item. */
uint64_t fp8_item_bytes_out(const fp8_convert *conv, int64_t item);

/* Fills conv->layout and the offsets of the items. May be called again after items changed.
 * Errors: MISMATCH (a scale's name is taken), FORMAT (header too large), ARGUMENT, NO_MEMORY. */
fp8_status fp8_layout_make(fp8_convert *conv, fp8_error *err);
void fp8_layout_free(const fp8_context *ctx, fp8_layout *layout);

#endif
