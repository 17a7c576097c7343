/* SPDX-License-Identifier: Apache-2.0
 *
 * load_fixture.h - for tests of one layer that is loaded: pieces of a weight, cut up at random or
 * at a place, and what layer and load say. Includes what layer_maker.h needs. */
#ifndef LOAD_FIXTURE_H
#define LOAD_FIXTURE_H

#include "support/layer_maker.h"

static fp8_context *ctx;

static inline int set_up(void **state)
{
    (void)state;
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static inline int tear_down(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    return 0;
}

static uint64_t random_state = 1;

/* A number in [0, below). */
static inline int64_t random_below(int64_t below)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (int64_t)((random_state >> 33) % (uint64_t)below);
}

static inline fp8_layer_desc desc_of(int64_t n, int64_t k, fp8_grid grid)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "blk";
    d.n = n;
    d.k = k;
    d.linear.w.grid = grid;
    return d;
}

/* Rows and columns of w, at their place. */
static inline fp8_status write_rect(const loading *l, const fp8_tensor *w, int64_t row,
                                    int64_t rows, int64_t col, int64_t cols, fp8_error *err)
{
    return write_at(l, FP8_PARAM_WEIGHT, 0, view_of(*w, row, rows, col, cols), row, col, err);
}

static inline fp8_layer_info layer_info(const fp8_layer *layer)
{
    fp8_layer_info info;
    assert_int_equal(fp8_layer_get_info(layer, &info), FP8_OK);
    return info;
}

static inline fp8_load_info load_info(const fp8_load *load)
{
    fp8_load_info info;
    assert_int_equal(fp8_load_get_info(load, &info), FP8_OK);
    return info;
}

typedef struct rect {
    int64_t row, rows, col, cols;
} rect;

/* Cuts [rows, cols] at random into `count` pieces in random order. */
static inline void cut_up(rect *pieces, int count, int64_t rows, int64_t cols)
{
    pieces[0] = (rect){0, rows, 0, cols};
    for (int n = 1; n < count;) {
        rect *r = &pieces[random_below(n)];
        rect rest = *r;
        if (random_below(2) ? r->rows > 1 : r->cols <= 1 && r->rows > 1) {
            r->rows = 1 + random_below(r->rows - 1);
            rest.row += r->rows;
            rest.rows -= r->rows;
        } else if (r->cols > 1) {
            r->cols = 1 + random_below(r->cols - 1);
            rest.col += r->cols;
            rest.cols -= r->cols;
        } else {
            continue;
        }
        pieces[n++] = rest;
    }
    for (int i = count - 1; i > 0; i--) {
        const int64_t j = random_below(i + 1);
        const rect swap = pieces[i];
        pieces[i] = pieces[j];
        pieces[j] = swap;
    }
}

static const fp8_grid grids[] = {{0, 0}, {1, 0}, {128, 128}, {1, 128}, {1, 32}, {0, 1}, {16, 0}};

static inline void load_in_pieces(fp8_grid grid, fp8_dtype dtype, const fp8_load_desc *options)
{
    enum { N = 150, K = 288, PIECES = 24 };
    fp8_layer_desc d = desc_of(N, K, grid);
    rect pieces[PIECES];
    d.has_bias = 1;
    if (grid.cols == 32)
        d.linear.w_scale = FP8_E8M0FNU;
    fp8_tensor w = made_matrix(dtype, N, K, 5), bias = made_vector(FP8_BF16, N, 6);
    loading l = begin_loading(ctx, &d, options);
    const int bias_when = (int)random_below(PIECES);
    cut_up(pieces, PIECES, N, K);
    for (int i = 0; i < PIECES; i++) {
        const rect *p = &pieces[i];
        assert_int_equal(layer_info(l.layer).state, FP8_LAYER_DECLARED);
        if (i == bias_when)
            assert_done(write_at(&l, FP8_PARAM_BIAS, 0, bias, 0, 0, &err));
        assert_done(write_rect(&l, &w, p->row, p->rows, p->col, p->cols, &err));
    }
    assert_done(fp8_load_finish(l.load, &err));
    assert_int_equal(load_info(l.load).waiting_bytes, 0);
    assert_int_equal(load_info(l.load).spilled_bytes, 0);
    assert_layer_is(l.layer, ctx, &d.linear, &w, &bias);
    end_loading(&l);
    free(w.data);
    free(bias.data);
}

#endif
