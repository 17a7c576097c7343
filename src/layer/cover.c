/* SPDX-License-Identifier: Apache-2.0
 *
 * cover.c - sets of rectangles: what is new in one, and adding it. A rectangle minus another is at
 * most four: above, below, left and right of it. */
#include "layer/cover.h"
#include "base/size.h"

#include <string.h>

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

fp8_rect fp8_rect_meet(fp8_rect a, fp8_rect b)
{
    fp8_rect r = {max_i64(a.row, b.row), max_i64(a.col, b.col), 0, 0};
    r.rows = max_i64(0, fp8_min_i64(a.row + a.rows, b.row + b.rows) - r.row);
    r.cols = max_i64(0, fp8_min_i64(a.col + a.cols, b.col + b.cols) - r.col);
    return r;
}

fp8_status fp8_rects_reserve(const fp8_context *ctx, fp8_rects *list, int64_t more, fp8_error *err)
{
    const int64_t need = list->count + more;
    if (need <= list->room)
        return FP8_OK;
    const int64_t room = max_i64(need, 2 * list->room);
    fp8_rect *at = fp8_alloc_zeroed(ctx, (uint64_t)room, sizeof *at);
    FP8_FAIL_IF(!at, err, FP8_E_NO_MEMORY, "no memory for %lld ranges", (long long)room);
    if (list->count)
        memcpy(at, list->at, (size_t)list->count * sizeof *at);
    fp8_release(ctx, list->at);
    list->at = at;
    list->room = room;
    return FP8_OK;
}

void fp8_rects_free(const fp8_context *ctx, fp8_rects *list)
{
    fp8_release(ctx, list->at);
    *list = (fp8_rects){0};
}

static void push(fp8_rects *list, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    const fp8_rect r = {row, col, rows, cols};
    if (!fp8_rect_is_empty(r))
        list->at[list->count++] = r;
}

void fp8_rects_push_difference(fp8_rects *list, fp8_rect a, fp8_rect cut)
{
    const int64_t below = cut.row + cut.rows, right = cut.col + cut.cols;
    push(list, a.row, a.col, cut.row - a.row, a.cols);
    push(list, cut.row, a.col, cut.rows, cut.col - a.col);
    push(list, cut.row, right, cut.rows, a.col + a.cols - right);
    push(list, below, a.col, a.row + a.rows - below, a.cols);
}

/* Takes `taken` out of every rectangle of the list. */
static fp8_status subtract(const fp8_context *ctx, fp8_rects *list, fp8_rect taken, fp8_error *err)
{
    for (int64_t i = 0; i < list->count;) {
        const fp8_rect a = list->at[i], cut = fp8_rect_meet(a, taken);
        if (fp8_rect_is_empty(cut)) {
            i++;
            continue;
        }
        FP8_TRY(fp8_rects_reserve(ctx, list, 4, err));
        list->at[i] = list->at[--list->count];
        fp8_rects_push_difference(list, a, cut);
    }
    return FP8_OK;
}

fp8_status fp8_cover_fresh(const fp8_context *ctx, const fp8_rects *cover, fp8_rect r,
                           fp8_rects *fresh, fp8_error *err)
{
    fresh->count = 0;
    FP8_TRY(fp8_rects_reserve(ctx, fresh, 1, err));
    push(fresh, r.row, r.col, r.rows, r.cols);
    for (int64_t i = 0; i < cover->count && fresh->count > 0; i++)
        FP8_TRY(subtract(ctx, fresh, cover->at[i], err));
    return FP8_OK;
}

/* Makes *a the union if the two form a rectangle. */
static bool merge(fp8_rect *a, fp8_rect b)
{
    const bool same_cols = a->col == b.col && a->cols == b.cols;
    const bool same_rows = a->row == b.row && a->rows == b.rows;
    if (same_cols && (a->row + a->rows == b.row || b.row + b.rows == a->row)) {
        a->row = fp8_min_i64(a->row, b.row);
        a->rows += b.rows;
        return true;
    }
    if (same_rows && (a->col + a->cols == b.col || b.col + b.cols == a->col)) {
        a->col = fp8_min_i64(a->col, b.col);
        a->cols += b.cols;
        return true;
    }
    return false;
}

void fp8_cover_add(fp8_rects *cover, fp8_rect r)
{
    if (fp8_rect_is_empty(r))
        return;
    for (int64_t i = 0; i < cover->count;) {
        if (merge(&r, cover->at[i])) {
            cover->at[i] = cover->at[--cover->count];
            i = 0;
        } else {
            i++;
        }
    }
    cover->at[cover->count++] = r;
}

int64_t fp8_cover_elements(const fp8_rects *cover)
{
    int64_t n = 0;
    for (int64_t i = 0; i < cover->count; i++)
        n += cover->at[i].rows * cover->at[i].cols;
    return n;
}
