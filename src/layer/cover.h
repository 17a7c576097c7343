/* SPDX-License-Identifier: Apache-2.0
 *
 * cover.h - which elements of a matrix have been written: a set of rectangles that do not overlap.
 * Completion is asked of the set, never of a count of what arrived. Neighbours that form a
 * rectangle are merged, so that pieces in any usual order leave few. */
#ifndef FP8_LAYER_COVER_H
#define FP8_LAYER_COVER_H

#include "base/context.h"

#include <stdbool.h>

/* Rows [row, row + rows), columns [col, col + cols). */
typedef struct fp8_rect {
    int64_t row, col, rows, cols;
} fp8_rect;

/* A list that grows; as a cover, its rectangles are disjoint. Zeroed: empty. */
typedef struct fp8_rects {
    fp8_rect *at;
    int64_t count, room;
} fp8_rects;

/* The common part; empty (rows or cols 0) if there is none. */
fp8_rect fp8_rect_meet(fp8_rect a, fp8_rect b);
static inline bool fp8_rect_is_empty(fp8_rect r)
{
    return r.rows <= 0 || r.cols <= 0;
}

/* Puts a without its part `cut` at the end of a list that has room for four more. */
void fp8_rects_push_difference(fp8_rects *list, fp8_rect a, fp8_rect cut);
/* Room for `more` rectangles. Error: NO_MEMORY, and the list is as it was. */
fp8_status fp8_rects_reserve(const fp8_context *ctx, fp8_rects *list, int64_t more, fp8_error *err);
void fp8_rects_free(const fp8_context *ctx, fp8_rects *list);

/* *fresh (emptied first) = what of r the cover does not hold, in disjoint rectangles. Error:
 * NO_MEMORY. */
fp8_status fp8_cover_fresh(const fp8_context *ctx, const fp8_rects *cover, fp8_rect r,
                           fp8_rects *fresh, fp8_error *err);
/* Adds a rectangle that the cover holds nothing of; there is room for it. */
void fp8_cover_add(fp8_rects *cover, fp8_rect r);
/* Elements in the list, at most those of one matrix. */
int64_t fp8_cover_elements(const fp8_rects *cover);

#endif
