/* SPDX-License-Identifier: Apache-2.0
 *
 * cut.c - a rank's share of a fused weight and of its scales. What is cut by rows: rank r of R has
 * rows [r / replicas * s, + s) of a part, s = rows * replicas / R; by columns: [r * K / R, + K / R)
 * of all. The scale of an element of the whole weight is that of its block there, wherever the cut
 * falls. */
#include "layer/cut.h"
#include "base/size.h"

static fp8_status check_ranks(const fp8_layer_desc *d, fp8_error *err)
{
    FP8_FAIL_IF((unsigned)d->cut > FP8_CUT_COLS, err, FP8_E_ARGUMENT, "cut %d is not 0..2",
                (int)d->cut);
    FP8_FAIL_IF(d->ranks < 0 || d->rank < 0 || d->rank >= (d->ranks ? d->ranks : 1), err,
                FP8_E_ARGUMENT, "rank %d of %d, must be 0 <= rank < ranks", d->rank, d->ranks);
    FP8_FAIL_IF(d->n < 0 || d->k < 0 || d->n > INT64_MAX / 2 || d->k > INT64_MAX / 2, err,
                FP8_E_SHAPE, "a weight [%lld,%lld] is impossible", (long long)d->n,
                (long long)d->k);
    return FP8_OK;
}

/* The rank's rows of one part. */
static fp8_status cut_part(const fp8_layer_desc *d, const fp8_layer_part *part, size_t i,
                           fp8_share *s, fp8_error *err)
{
    const int64_t replicas = part->replicas ? part->replicas : 1;
    const int64_t ranks = d->cut == FP8_CUT_ROWS && d->ranks ? d->ranks : 1;
    int64_t copies;
    FP8_FAIL_IF(part->rows < 0 || replicas < 0 ||
                    __builtin_mul_overflow(part->rows, replicas, &copies),
                err, FP8_E_SHAPE, "part %zu has %lld rows in %lld replicas", i,
                (long long)part->rows, (long long)replicas);
    FP8_FAIL_IF(replicas > 1 && d->cut != FP8_CUT_ROWS, err, FP8_E_ARGUMENT,
                "part %zu has %lld replicas, but rows are not cut", i, (long long)replicas);
    FP8_FAIL_IF(ranks % replicas, err, FP8_E_SHAPE,
                "part %zu: %lld replicas do not divide %lld ranks", i, (long long)replicas,
                (long long)ranks);
    FP8_FAIL_IF(copies % ranks, err, FP8_E_SHAPE,
                "part %zu: %lld rows in %lld replicas cannot be shared by %lld ranks", i,
                (long long)part->rows, (long long)replicas, (long long)ranks);
    s->name = part->name;
    s->whole = part->rows;
    s->rows = copies / ranks;
    s->source = ranks > 1 ? d->rank / replicas * s->rows : 0;
    return FP8_OK;
}

static fp8_status cut_parts(const fp8_layer_desc *d, fp8_cut_plan *plan, fp8_error *err)
{
    const fp8_layer_part one = {NULL, d->n, 1};
    plan->parts = d->parts ? (int64_t)d->part_count : 1;
    for (int64_t p = 0; p < plan->parts; p++) {
        fp8_share *s = &plan->share[p];
        *s = (fp8_share){.base = plan->n_whole, .row = plan->n};
        FP8_TRY(cut_part(d, d->parts ? &d->parts[p] : &one, (size_t)p, s, err));
        plan->n += s->rows;
        FP8_FAIL_IF(s->whole > d->n - plan->n_whole, err, FP8_E_SHAPE,
                    "the parts have more rows than the weight, %lld", (long long)d->n);
        plan->n_whole += s->whole;
    }
    FP8_FAIL_IF(plan->n_whole != d->n, err, FP8_E_SHAPE,
                "the parts have %lld rows, the weight %lld", (long long)plan->n_whole,
                (long long)d->n);
    return FP8_OK;
}

fp8_status fp8_cut_make(const fp8_layer_desc *d, fp8_cut_plan *plan, fp8_error *err)
{
    plan->n = plan->n_whole = plan->col = 0;
    FP8_TRY(check_ranks(d, err));
    FP8_TRY(cut_parts(d, plan, err));
    plan->k = plan->k_whole = d->k;
    if (d->cut != FP8_CUT_COLS || d->ranks <= 1)
        return FP8_OK;
    FP8_FAIL_IF(d->k % d->ranks, err, FP8_E_SHAPE, "%lld columns cannot be shared by %d ranks",
                (long long)d->k, d->ranks);
    plan->k = d->k / d->ranks;
    plan->col = d->rank * plan->k;
    return FP8_OK;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void fp8_cut_grid(const fp8_cut_plan *plan, fp8_grid whole, fp8_grid *local, fp8_grid *origin)
{
    *local = whole;
    *origin = (fp8_grid){0, whole.cols ? plan->col % whole.cols : 0};
    if (plan->parts == 1) {
        origin->rows = whole.rows ? plan->share[0].source % whole.rows : 0;
        return;
    }
    for (int64_t p = 0; p < plan->parts; p++) {
        const fp8_share *s = &plan->share[p];
        local->rows = gcd(local->rows, s->row);
        if (whole.rows)
            local->rows = gcd(gcd(local->rows, s->source), s->base);
    }
}

void fp8_cut_scale_rows(const fp8_cut_plan *plan, const fp8_linear_plan *linear, int64_t p,
                        int64_t *first, int64_t *count)
{
    const fp8_share *s = &plan->share[p];
    const int64_t origin = linear->desc.w_origin.rows;
    if (linear->desc.widths) {
        *first = p;
        *count = 1;
        return;
    }
    *first = (s->row + origin) / linear->unit_rows;
    *count = s->rows ? fp8_ceil_div(s->row + s->rows + origin, linear->unit_rows) - *first : 0;
}

int64_t fp8_cut_scale_row(const fp8_cut_plan *plan, const fp8_linear_plan *linear, fp8_grid whole,
                          int64_t p, int32_t tensor, int64_t i)
{
    const fp8_share *s = &plan->share[p];
    if (!whole.rows)
        return 0;
    const int64_t row = i * linear->unit_rows - linear->desc.w_origin.rows;
    const int64_t into = row > s->row ? row - s->row : 0;
    return ((tensor < 0 ? s->base : 0) + s->source + into) / whole.rows;
}

int64_t fp8_cut_scale_col(const fp8_cut_plan *plan, const fp8_linear_plan *linear, int64_t j)
{
    return linear->desc.w.grid.cols ? plan->col / linear->unit_cols + j : 0;
}

fp8_hit fp8_cut_weight(const fp8_cut_plan *plan, int64_t p, int32_t tensor, fp8_rect piece)
{
    const fp8_share *s = &plan->share[p];
    const int64_t first = (tensor < 0 ? s->base : 0) + s->source;
    const fp8_rect share = {first, plan->col, s->rows, plan->k};
    const fp8_rect both = fp8_rect_meet(share, piece);
    const fp8_hit hit = {{both.row - first + s->row, both.col - plan->col, both.rows, both.cols},
                         both.row - piece.row,
                         both.col - piece.col};
    return hit;
}
