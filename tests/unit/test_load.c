/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load.c - a layer from pieces: any pieces in any order give what the whole weight gives;
 * whole blocks never wait; what waits is bounded, refused or spilled; ranges written twice, ranges
 * that never come, pieces that are wrong, memory that runs out, and loading anew in place. */
#include "support/counted_alloc.h"
#include "support/layer_maker.h"
#include "support/meter.h"
#include "support/sandbox.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

static fp8_context *ctx;

static int set_up(void **state)
{
    (void)state;
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static int tear_down(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    return 0;
}

static uint64_t random_state = 1;

/* A number in [0, below). */
static int64_t random_below(int64_t below)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (int64_t)((random_state >> 33) % (uint64_t)below);
}

static fp8_layer_desc desc_of(int64_t n, int64_t k, fp8_grid grid)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "blk";
    d.n = n;
    d.k = k;
    d.linear.w.grid = grid;
    return d;
}

static fp8_status write_at(const loading *l, fp8_load_param param, fp8_tensor data, int64_t row,
                           int64_t col, fp8_error *err)
{
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.param = param;
    piece.data = data;
    piece.row = row;
    piece.col = col;
    return fp8_load_write(l->load, l->layer, &piece, err);
}

/* Rows and columns of w, at their place. */
static fp8_status write_rect(const loading *l, const fp8_tensor *w, int64_t row, int64_t rows,
                             int64_t col, int64_t cols, fp8_error *err)
{
    return write_at(l, FP8_PARAM_WEIGHT, view_of(*w, row, rows, col, cols), row, col, err);
}

static fp8_layer_info layer_info(const fp8_layer *layer)
{
    fp8_layer_info info;
    assert_int_equal(fp8_layer_get_info(layer, &info), FP8_OK);
    return info;
}

static fp8_load_info load_info(const fp8_load *load)
{
    fp8_load_info info;
    assert_int_equal(fp8_load_get_info(load, &info), FP8_OK);
    return info;
}

/* ---- any pieces, any order ------------------------------------------------------------------- */

typedef struct rect {
    int64_t row, rows, col, cols;
} rect;

/* Cuts [rows, cols] at random into `count` pieces in random order. */
static void cut_up(rect *pieces, int count, int64_t rows, int64_t cols)
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

static void load_in_pieces(fp8_grid grid, fp8_dtype dtype, const fp8_load_desc *options)
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
            assert_done(write_at(&l, FP8_PARAM_BIAS, bias, 0, 0, &err));
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

static void test_any_pieces_in_any_order(void **state)
{
    (void)state;
    const fp8_dtype dtypes[] = {FP8_BF16, FP8_F32, FP8_F16};
    for (int round = 0; round < 5; round++)
        for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
            load_in_pieces(grids[g], dtypes[round % 3], NULL);
}

static void test_single_elements_in_any_order(void **state)
{
    (void)state;
    enum { N = 6, K = 40 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){4, 16});
    rect pieces[N * K];
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    loading l = begin_loading(ctx, &d, NULL);
    cut_up(pieces, N * K, N, K);
    for (int i = 0; i < N * K; i++)
        assert_done(write_rect(&l, &w, pieces[i].row, 1, pieces[i].col, 1, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    free(w.data);
}

static void test_whole_blocks_never_wait(void **state)
{
    (void)state;
    enum { N = 300, K = 320 };
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    for (size_t g = 1; g < sizeof grids / sizeof *grids; g++) {
        const int64_t rows = grids[g].rows ? grids[g].rows : N;
        const int64_t cols = grids[g].cols ? grids[g].cols : K;
        fp8_layer_desc d = desc_of(N, K, grids[g]);
        loading l = begin_loading(ctx, &d, NULL);
        for (int64_t i = 0; i < N; i += rows)
            for (int64_t j = 0; j < K; j += cols)
                assert_done(write_rect(&l, &w, i, fp8_min_i64(rows, N - i), j,
                                       fp8_min_i64(cols, K - j), &err));
        assert_int_equal(load_info(l.load).peak_waiting_bytes, 0);
        assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
        end_loading(&l);
    }
    free(w.data);
}

static void test_strided_pieces(void **state)
{
    (void)state;
    enum { N = 130, K = 140 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    fp8_tensor w = made_matrix(FP8_BF16, K, N, 1), turned = w;
    turned.shape[0] = N;
    turned.shape[1] = K;
    turned.stride[0] = 1;
    turned.stride[1] = N;
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &turned, 0, 70, 0, K, &err));
    assert_done(write_rect(&l, &turned, 70, N - 70, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &turned, NULL);
    end_loading(&l);
    free(w.data);
}

/* ---- what waits ------------------------------------------------------------------------------ */

static void test_back_pressure(void **state)
{
    (void)state;
    enum { N = 256, K = 128, BLOCK = 128 * 128 * 2 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    options.max_waiting_bytes = BLOCK;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    loading l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 0, 100, 0, K, &err));
    assert_int_equal(load_info(l.load).waiting_bytes, BLOCK);
    assert_refused(write_rect(&l, &w, 200, 56, 0, K, &err), FP8_E_NO_SPACE,
                   "32768 bytes must wait for the rest of their block, 32768 wait already, and "
                   "max_waiting_bytes is 32768");
    assert_done(write_rect(&l, &w, 100, 28, 0, K, &err)); /* the block is full, the room free */
    assert_int_equal(load_info(l.load).waiting_bytes, 0);
    assert_done(write_rect(&l, &w, 200, 56, 0, K, &err));
    assert_done(write_rect(&l, &w, 128, 72, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    assert_int_equal(load_info(l.load).peak_waiting_bytes, BLOCK);
    end_loading(&l);
    free(w.data);
}

static void test_what_exceeds_the_bound_is_spilled(void **state)
{
    (void)state;
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    options.spill = sandbox_make();
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (uint64_t bound = 1; bound < 100000; bound *= 50) {
            options.max_waiting_bytes = bound;
            load_in_pieces(grids[g], FP8_BF16, &options);
        }
    sandbox_remove();
}

/* More than one slab of a weight that is read back. */
static void test_a_large_weight_is_spilled_and_read_in_slabs(void **state)
{
    (void)state;
    enum { N = 700, K = 2100 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){0, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    options.spill = sandbox_make();
    options.max_waiting_bytes = 1;
    loading l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 300, 400, 0, K, &err));
    assert_int_equal(load_info(l.load).spilled_bytes, N * K * 2);
    assert_int_equal(load_info(l.load).waiting_bytes, 0);
    assert_done(write_rect(&l, &w, 0, 300, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    sandbox_remove();
    free(w.data);
}

static void test_a_spill_directory_that_is_not_there(void **state)
{
    (void)state;
    const fp8_layer_desc d = desc_of(128, 128, (fp8_grid){128, 128});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, 128, 128, 1);
    options.spill = "/nowhere/at/all";
    options.max_waiting_bytes = 1;
    loading l = begin_loading(ctx, &d, &options);
    assert_refused(write_rect(&l, &w, 0, 5, 0, 128, &err), FP8_E_NOT_FOUND,
                   "layer blk: weight: spill directory /nowhere/at/all: cannot make a file");
    assert_done(write_rect(&l, &w, 0, 128, 0, 128, &err)); /* nothing was taken before */
    end_loading(&l);
    free(w.data);
}

/* A spill file that cannot grow: the piece has not been, and may come again. */
static void test_a_spill_file_that_cannot_be_written(void **state)
{
    (void)state;
    enum { N = 200, K = 200 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){0, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    struct rlimit before, small;
    options.spill = sandbox_make();
    options.max_waiting_bytes = 1;
    loading l = begin_loading(ctx, &d, &options);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_refused(write_rect(&l, &w, 0, 100, 0, K, &err), FP8_E_IO, "cannot write");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(load_info(l.load).spilled_bytes, 0);
    assert_done(write_rect(&l, &w, 0, 100, 0, K, &err));
    assert_done(write_rect(&l, &w, 100, 100, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    sandbox_remove();
    free(w.data);
}

/* ---- twice, never ---------------------------------------------------------------------------- */

static void test_a_range_written_twice(void **state)
{
    (void)state;
    enum { N = 64, K = 64 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), other = made_matrix(FP8_BF16, N, K, 2);
    loading l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 0, 40, 0, K, &err));
    assert_refused(write_rect(&l, &w, 39, 25, 0, K, &err), FP8_E_EXISTS,
                   "layer blk: weight: some of rows [39,+25), columns [0,+64)");
    assert_int_equal(layer_info(l.layer).loading, 1);
    assert_done(write_rect(&l, &w, 40, 24, 0, K, &err));
    assert_refused(write_rect(&l, &w, 0, 1, 0, K, &err), FP8_E_EXISTS, "written before");
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    options.duplicates = FP8_DUPLICATE_IGNORE;
    l = begin_loading(ctx, &d, &options);
    assert_done(write_rect(&l, &w, 10, 30, 0, K, &err));
    for (int i = 0; i < 3; i++) /* what came first stays, and coming again is no progress */
        assert_done(write_rect(&l, &other, 10, 30, 0, K, &err));
    assert_int_equal(layer_info(l.layer).state, FP8_LAYER_DECLARED);
    memcpy((char *)other.data + 10 * K * 2, (char *)w.data + 10 * K * 2, 30 * K * 2);
    assert_done(write_rect(&l, &other, 0, N, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &other, NULL);
    assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
    end_loading(&l);
    free(w.data);
    free(other.data);
}

static void test_what_never_came_is_named(void **state)
{
    (void)state;
    enum { N = 64, K = 96 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 32});
    d.has_bias = 1;
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1);
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &w, 0, 10, 0, K, &err));
    assert_done(write_rect(&l, &w, 10, 54, 32, 64, &err));
    assert_string_equal(fp8_load_missing(l.load, 0),
                        "blk: weight: rows [10,64) of 64, columns [0,32) of 96");
    assert_string_equal(fp8_load_missing(l.load, 1),
                        "blk: bias: rows [0,64) of 64, columns [0,1) of 1");
    assert_null(fp8_load_missing(l.load, 2));
    assert_null(fp8_load_missing(l.load, -1));
    assert_refused(fp8_load_finish(l.load, &err), FP8_E_NOT_FOUND,
                   "never came: blk: weight: rows [10,64) of 64, columns [0,32) of 96; and more "
                   "ranges: 1");
    assert_done(write_rect(&l, &w, 10, 54, 0, 32, &err));
    assert_refused(fp8_load_finish(l.load, &err), FP8_E_NOT_FOUND, "never came: blk: bias");
    assert_int_equal(layer_info(l.layer).state, FP8_LAYER_DECLARED);
    end_loading(&l);
    free(w.data);
}

/* ---- anew ------------------------------------------------------------------------------------ */

static void test_loading_anew_keeps_the_address_and_the_old_weight_until_whole(void **state)
{
    (void)state;
    enum { N = 100, K = 200 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    d.has_bias = 1;
    fp8_tensor w[2] = {made_matrix(FP8_BF16, N, K, 1), made_matrix(FP8_BF16, N, K, 2)};
    fp8_tensor bias[2] = {made_vector(FP8_F32, N, 3), made_vector(FP8_F32, N, 4)};
    loading l = begin_loading(ctx, &d, NULL);
    const fp8_linear *first, *now;
    assert_done(write_rect(&l, &w[0], 0, N, 0, K, &err));
    assert_done(write_at(&l, FP8_PARAM_BIAS, bias[0], 0, 0, &err));
    assert_done(fp8_layer_acquire(l.layer, 0, &first, &err));
    fp8_layer_release(l.layer);
    fp8_load_free(l.load);
    for (int abandoned = 1; abandoned >= 0; abandoned--) {
        assert_done(fp8_load_create(ctx, NULL, &l.load, &err));
        assert_done(fp8_load_add(l.load, l.layer, &err));
        assert_done(write_rect(&l, &w[1], 0, 50, 0, K, &err));
        assert_done(write_at(&l, FP8_PARAM_BIAS, bias[1], 0, 0, &err));
        assert_layer_is(l.layer, ctx, &d.linear, &w[0], &bias[0]);
        if (!abandoned)
            assert_done(write_rect(&l, &w[1], 50, 50, 0, K, &err));
        fp8_load_free(l.load);
    }
    assert_layer_is(l.layer, ctx, &d.linear, &w[1], &bias[1]);
    assert_done(fp8_layer_acquire(l.layer, 0, &now, &err));
    fp8_layer_release(l.layer);
    assert_ptr_equal(first, now);
    assert_int_equal(layer_info(l.layer).reloads, 1);
    fp8_layer_free(l.layer);
    for (int i = 0; i < 2; i++) {
        free(w[i].data);
        free(bias[i].data);
    }
}

/* A loaded weight is not made again of a source that was set before. */
static void test_a_load_replaces_a_source(void **state)
{
    (void)state;
    enum { N = 40, K = 64 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_tensor old = made_matrix(FP8_BF16, N, K, 1), w = made_matrix(FP8_BF16, N, K, 2);
    loading l = begin_loading(ctx, &d, NULL);
    const fp8_linear *linear;
    fp8_load_free(l.load);
    assert_done(fp8_layer_set_source(l.layer, &old, NULL, 1, &err));
    assert_done(fp8_load_create(ctx, NULL, &l.load, &err));
    assert_done(fp8_load_add(l.load, l.layer, &err));
    assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
    assert_done(fp8_layer_acquire(l.layer, 2, &linear, &err)); /* another version */
    fp8_layer_release(l.layer);
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    free(old.data);
    free(w.data);
}

/* The same load takes a layer again, one tensor after the other, as trainers send them. */
static void test_a_session_of_many_reloads(void **state)
{
    (void)state;
    enum { N = 40, K = 64, LAYERS = 3, ROUNDS = 4 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_layer *layers[LAYERS];
    fp8_load *load;
    assert_done(fp8_load_create(ctx, NULL, &load, &err));
    for (int i = 0; i < LAYERS; i++)
        assert_done(fp8_layer_create(ctx, &d, &layers[i], &err));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LAYERS; i++)
            assert_done(fp8_load_add(load, layers[i], &err));
        for (int i = LAYERS - 1; i >= 0; i--) {
            fp8_tensor w = made_matrix(FP8_BF16, N, K, (uint64_t)(round * LAYERS + i));
            const loading l = {layers[i], load};
            assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
            assert_layer_is(layers[i], ctx, &d.linear, &w, NULL);
            free(w.data);
        }
        assert_done(fp8_load_finish(load, &err));
        assert_int_equal(load_info(load).layers, LAYERS);
        assert_int_equal(load_info(load).whole, LAYERS);
    }
    fp8_load_free(load);
    for (int i = 0; i < LAYERS; i++) {
        assert_int_equal(layer_info(layers[i]).reloads, ROUNDS - 1);
        fp8_layer_free(layers[i]);
    }
}

/* ---- codes ----------------------------------------------------------------------------------- */

static void test_codes_are_taken_as_they_are(void **state)
{
    (void)state;
    enum { N = 150, K = 300 };
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        fp8_layer_desc d = desc_of(N, K, grids[g]);
        fp8_tensor w = made_matrix(FP8_E5M2, N, K, 1);
        const int64_t gr = grids[g].rows ? (N - 1) / grids[g].rows + 1 : 1;
        const int64_t gc = grids[g].cols ? (K - 1) / grids[g].cols + 1 : 1;
        fp8_tensor s = made_matrix(FP8_F32, gr, gc, 2);
        for (int64_t i = 0; i < gr * gc; i++)
            ((float *)s.data)[i] = 0.5F + (float)(i % 9);
        d.linear.w_code = FP8_E5M2;
        loading l = begin_loading(ctx, &d, NULL);
        if (g % 2)
            assert_done(write_at(&l, FP8_PARAM_SCALE, s, 0, 0, &err));
        assert_done(write_rect(&l, &w, 0, 67, 0, K, &err));
        assert_done(write_rect(&l, &w, 67, N - 67, 0, 33, &err));
        assert_done(write_rect(&l, &w, 67, N - 67, 33, K - 33, &err));
        if (!(g % 2))
            assert_done(write_at(&l, FP8_PARAM_SCALE, s, 0, 0, &err));
        const fp8_linear *mine;
        fp8_linear *want;
        assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
        assert_done(fp8_linear_create(ctx, &d.linear, &w, &s, NULL, &want, &err));
        assert_same_linear(mine, want);
        fp8_layer_release(l.layer);
        fp8_linear_free(want);
        end_loading(&l);
        free(w.data);
        free(s.data);
    }
}

static void test_nan_codes_are_seen_whenever_they_come(void **state)
{
    (void)state;
    enum { N = 40, K = 50 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    fp8_tensor w = made_matrix(FP8_E4M3FN, N, K, 1), s = made_matrix(FP8_F32, N, 1, 2);
    fp8_tensor bias = made_vector(FP8_F32, N, 3);
    for (int i = 0; i < N; i++)
        ((float *)s.data)[i] = 1;
    ((uint8_t *)w.data)[7 * K + 9] = 0x7f;
    d.has_bias = 1;
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &w, 0, N, 0, K, &err));
    assert_done(write_at(&l, FP8_PARAM_BIAS, bias, 0, 0, &err));
    assert_done(write_at(&l, FP8_PARAM_SCALE, s, 0, 0, &err));
    const fp8_linear *mine;
    assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
    float *y = output_of(mine, 1);
    fp8_layer_release(l.layer);
    for (int i = 0; i < N; i++)
        assert_int_equal(y[i] != y[i], i == 7);
    free(y);
    end_loading(&l);
    free(w.data);
    free(s.data);
    free(bias.data);
}

/* A weight whose scale is given is quantized as it comes, with one scale for all of it. */
static void test_a_given_scale_spares_the_waiting(void **state)
{
    (void)state;
    enum { N = 90, K = 70 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){0, 0});
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), codes = made_matrix(FP8_E4M3FN, N, K, 0);
    float scale = 0.03F;
    fp8_tensor s = fp8_matrix(&scale, FP8_F32, 1, 1), scalar = s;
    d.linear.w.static_scales = 1;
    scalar.ndim = 0;
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(write_rect(&l, &w, 0, 10, 0, K, &err), FP8_E_STATE,
                   "the scale of part 0 must be loaded before its weight");
    assert_done(write_at(&l, FP8_PARAM_SCALE, scalar, 0, 0, &err));
    for (int64_t i = 0; i < N; i += 9)
        assert_done(write_rect(&l, &w, i, 9, 0, K, &err));
    assert_int_equal(load_info(l.load).peak_waiting_bytes, 0);
    assert_done(fp8_quantize(ctx, &d.linear.w, &w, &codes, &s, &err));
    const fp8_linear *mine;
    assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
    exported e = export_of(mine);
    fp8_layer_release(l.layer);
    assert_memory_equal(e.codes.data, codes.data, N * K);
    assert_memory_equal(e.scales.data, &scale, sizeof scale);
    exported_free(&e);
    end_loading(&l);
    free(w.data);
    free(codes.data);
}

/* ---- made-up weights ------------------------------------------------------------------------- */

static void test_dummy_weights_are_the_same_for_any_ranks(void **state)
{
    (void)state;
    enum { N = 48, K = 64 };
    fp8_layer_desc d = desc_of(N, K, (fp8_grid){1, 0});
    d.has_bias = 1;
    loading whole = begin_loading(ctx, &d, NULL);
    assert_done(fp8_load_dummy(whole.load, whole.layer, 9, &err));
    assert_done(fp8_load_finish(whole.load, &err));
    const fp8_linear *all, *part;
    assert_done(fp8_layer_acquire(whole.layer, 0, &all, &err));
    exported e = export_of(all);
    for (int r = 0; r < 3; r++) {
        d.cut = FP8_CUT_ROWS;
        d.rank = r;
        d.ranks = 3;
        loading l = begin_loading(ctx, &d, NULL);
        assert_done(fp8_load_dummy(l.load, l.layer, 9, &err));
        assert_done(fp8_layer_acquire(l.layer, 0, &part, &err));
        exported f = export_of(part);
        assert_memory_equal(f.codes.data, (char *)e.codes.data + r * 16 * K, 16 * K);
        assert_memory_equal(f.scales.data, (char *)e.scales.data + r * 16 * 4, 16 * 4);
        fp8_layer_release(l.layer);
        exported_free(&f);
        end_loading(&l);
    }
    fp8_layer_release(whole.layer);
    exported_free(&e);
    assert_refused(fp8_load_dummy(whole.load, whole.layer, 9, &err), FP8_E_STATE, "whole");
    end_loading(&whole);
}

static void test_dummy_fills_what_is_missing_of_codes(void **state)
{
    (void)state;
    fp8_layer_desc d = desc_of(40, 64, (fp8_grid){1, 32});
    d.linear.w_scale = FP8_E8M0FNU;
    d.linear.activation = FP8_ACTIVATION_STATIC;
    d.linear.x.grid = (fp8_grid){0, 0};
    fp8_tensor w = made_matrix(FP8_E4M3FN, 40, 64, 1);
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(write_rect(&l, &w, 3, 4, 0, 64, &err));
    assert_done(fp8_load_dummy(l.load, l.layer, 1, &err));
    const fp8_linear *mine;
    assert_done(fp8_layer_acquire(l.layer, 0, &mine, &err));
    exported e = export_of(mine);
    fp8_layer_release(l.layer);
    assert_memory_equal((char *)e.codes.data + 3 * 64, (char *)w.data + 3 * 64, 4 * 64);
    exported_free(&e);
    end_loading(&l);
    free(w.data);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_a_refused_piece_has_not_been(void **state)
{
    (void)state;
    enum { N = 140, K = 140 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){128, 128});
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), bad = made_matrix(FP8_BF16, N, K, 1);
    const uint16_t infinity = 0x7f80;
    memcpy((char *)bad.data + 2 * (131 * K + 139), &infinity, 2); /* in a strip that must wait */
    memcpy((char *)bad.data + 2 * (3 * K + 2), &infinity, 2);     /* in a whole block */
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(write_rect(&l, &bad, 0, 130, 0, K, &err), FP8_E_NAN, "infinity");
    assert_int_equal(load_info(l.load).waiting_bytes, 0);
    assert_done(write_rect(&l, &w, 0, 130, 0, K, &err));
    assert_refused(
        write_rect(&l, &bad, 130, 5, 0, K, &err), FP8_E_NAN,
        "layer blk: weight: from [130,0] of the rank's share on: element [1,139] is infinity");
    fp8_tensor f32 = made_matrix(FP8_F32, N, K, 1);
    assert_refused(write_rect(&l, &f32, 130, 5, 0, K, &err), FP8_E_DTYPE,
                   "weight is F32, its other pieces are BF16");
    assert_done(write_rect(&l, &w, 130, 10, 0, K, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    free(w.data);
    free(bad.data);
    free(f32.data);
}

static void test_bad_pieces_are_refused(void **state)
{
    (void)state;
    enum { N = 64, K = 32 };
    const fp8_layer_desc d = desc_of(N, K, (fp8_grid){32, 0});
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 1), v = made_vector(FP8_F32, N, 1);
    fp8_tensor codes = made_matrix(FP8_E4M3FN, N, K, 1), ints = w;
    loading l = begin_loading(ctx, &d, NULL);
    fp8_load_piece p = FP8_LOAD_PIECE_INIT;
    p.data = w;
    p.struct_bytes = 0;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "struct_bytes");
    p.struct_bytes = sizeof p;
    p.part = 1;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "no part 1 of 1");
    p.part = -2;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "no part -2");
    p.part = 0;
    p.param = (fp8_load_param)4;
    assert_refused(fp8_load_write(l.load, l.layer, &p, &err), FP8_E_ARGUMENT, "no parameter 4");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, w, 1, 0, &err), FP8_E_SHAPE,
                   "rows [1,+64), columns [0,+32) are not inside a tensor [64,32]");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, w, 0, -1, &err), FP8_E_SHAPE, "not inside");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, w, INT64_MAX, 0, &err), FP8_E_SHAPE,
                   "not inside");
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, v, 0, 0, &err), FP8_E_SHAPE, "1 dimensions");
    assert_refused(write_at(&l, FP8_PARAM_BIAS, v, 0, 0, &err), FP8_E_ARGUMENT, "no bias");
    assert_refused(write_at(&l, FP8_PARAM_INPUT_SCALE, v, 0, 0, &err), FP8_E_ARGUMENT,
                   "take no scale");
    ints.dtype = FP8_I16;
    assert_refused(write_at(&l, FP8_PARAM_WEIGHT, ints, 0, 0, &err), FP8_E_DTYPE, "I16");
    ((float *)v.data)[1] = -1;
    v.shape[0] = 2;
    assert_refused(write_at(&l, FP8_PARAM_SCALE, v, 0, 0, &err), FP8_E_SCALE,
                   "must be finite and positive");
    assert_done(write_rect(&l, &w, 0, 32, 0, K, &err));
    assert_refused(write_rect(&l, &codes, 32, 32, 0, K, &err), FP8_E_DTYPE, "F8_E4M3");
    assert_refused(write_at(&l, FP8_PARAM_SCALE, v, 0, 0, &err), FP8_E_STATE,
                   "makes its own scales");
    end_loading(&l);
    free(w.data);
    free(v.data);
    free(codes.data);
}

static void test_bad_calls_are_refused(void **state)
{
    (void)state;
    const fp8_layer_desc d = desc_of(8, 8, (fp8_grid){0, 0});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_load *other;
    fp8_load_info info;
    fp8_load_piece p = FP8_LOAD_PIECE_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, 8, 8, 1);
    loading l = begin_loading(ctx, &d, NULL);
    assert_done(fp8_load_create(ctx, NULL, &other, &err));
    assert_refused(fp8_load_add(other, l.layer, &err), FP8_E_STATE, "in a load already");
    assert_refused(fp8_load_write(other, l.layer, &p, &err), FP8_E_ARGUMENT, "not added");
    assert_refused(fp8_load_dummy(other, l.layer, 0, &err), FP8_E_STATE, "not in this load");
    assert_refused(fp8_layer_set_source(l.layer, &w, NULL, 0, &err), FP8_E_STATE, "at work");
    fp8_layer *copy;
    assert_refused(fp8_layer_clone(l.layer, NULL, &copy, &err), FP8_E_STATE, "at work");
    fp8_load_free(other);
    options.struct_bytes = 1;
    assert_refused(fp8_load_create(ctx, &options, &other, &err), FP8_E_ARGUMENT, "struct_bytes");
    options.struct_bytes = sizeof options;
    options.spill = "/tmp";
    assert_refused(fp8_load_create(ctx, &options, &other, &err), FP8_E_ARGUMENT, "spill");
    options.spill = NULL;
    options.duplicates = (fp8_duplicate)2;
    assert_refused(fp8_load_create(ctx, &options, &other, &err), FP8_E_ARGUMENT, "duplicates 2");
    assert_refused(fp8_load_create(NULL, NULL, &other, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_create(ctx, NULL, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_add(NULL, l.layer, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_write(l.load, l.layer, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_finish(NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_checkpoint(l.load, NULL, &err), FP8_E_ARGUMENT, "NULL");
    assert_refused(fp8_load_dummy(NULL, l.layer, 0, &err), FP8_E_ARGUMENT, "NULL");
    assert_int_equal(fp8_load_get_info(NULL, &info), FP8_E_ARGUMENT);
    assert_null(fp8_load_missing(NULL, 0));
    fp8_load_free(NULL);
    end_loading(&l);
    free(w.data);
}

static void test_layers_without_elements(void **state)
{
    (void)state;
    const fp8_layer_desc none = desc_of(0, 8, (fp8_grid){1, 0}),
                         thin = desc_of(8, 0, (fp8_grid){0, 0});
    loading a = begin_loading(ctx, &none, NULL), b = begin_loading(ctx, &thin, NULL);
    assert_done(fp8_load_finish(a.load, &err));
    assert_done(fp8_load_finish(b.load, &err));
    assert_int_equal(layer_info(a.layer).state, FP8_LAYER_READY);
    assert_int_equal(layer_info(b.layer).state, FP8_LAYER_READY);
    end_loading(&a);
    end_loading(&b);
}

static void test_codes_without_elements_have_no_scale(void **state)
{
    (void)state;
    uint8_t nothing = 0;
    float scale = 3;
    fp8_layer_desc d = desc_of(8, 0, (fp8_grid){0, 0});
    fp8_tensor bias = made_vector(FP8_F32, 8, 1);
    const fp8_linear *linear;
    d.has_bias = 1;
    for (int given = 0; given <= 1; given++) { /* a checkpoint may have one all the same */
        loading l = begin_loading(ctx, &d, NULL);
        assert_done(
            write_at(&l, FP8_PARAM_WEIGHT, fp8_matrix(&nothing, FP8_E4M3FN, 8, 0), 0, 0, &err));
        if (given)
            assert_done(
                write_at(&l, FP8_PARAM_SCALE, fp8_matrix(&scale, FP8_F32, 1, 1), 0, 0, &err));
        assert_done(write_at(&l, FP8_PARAM_BIAS, bias, 0, 0, &err));
        assert_done(fp8_load_finish(l.load, &err));
        assert_done(fp8_layer_acquire(l.layer, 0, &linear, &err));
        float *y = output_of(linear, 1);
        assert_memory_equal(y, bias.data, 8 * sizeof *y);
        free(y);
        fp8_layer_release(l.layer);
        end_loading(&l);
    }
    free(bias.data);
}

/* A load of one layer in strips that wait, with a bias, and a list of what is missing. */
static fp8_status load_once(const fp8_context *c, void *arg)
{
    const fp8_tensor *w = arg;
    fp8_layer_desc d = desc_of(140, 140, (fp8_grid){128, 128});
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    loading l = {0};
    options.spill = "/tmp";
    options.max_waiting_bytes = 1000;
    fp8_status status = fp8_layer_create(c, &d, &l.layer, NULL);
    if (status == FP8_OK)
        status = fp8_load_create(c, &options, &l.load, NULL);
    if (status == FP8_OK)
        status = fp8_load_add(l.load, l.layer, NULL);
    if (status == FP8_OK)
        status = write_rect(&l, w, 0, 70, 0, 140, NULL);
    if (status == FP8_OK)
        status = write_rect(&l, w, 70, 70, 0, 130, NULL);
    if (status == FP8_OK && fp8_load_finish(l.load, NULL) == FP8_E_NO_MEMORY)
        status = FP8_E_NO_MEMORY;
    if (status == FP8_OK)
        status = write_rect(&l, w, 70, 70, 130, 10, NULL);
    end_loading(&l);
    return status;
}

static void test_memory_may_run_out_anywhere(void **state)
{
    (void)state;
    fp8_tensor w = made_matrix(FP8_BF16, 140, 140, 1);
    assert_true(meter_try(load_once, &w) > 20);
    free(w.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_pieces_in_any_order),
        cmocka_unit_test(test_single_elements_in_any_order),
        cmocka_unit_test(test_whole_blocks_never_wait),
        cmocka_unit_test(test_strided_pieces),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_what_exceeds_the_bound_is_spilled),
        cmocka_unit_test(test_a_large_weight_is_spilled_and_read_in_slabs),
        cmocka_unit_test(test_a_spill_directory_that_is_not_there),
        cmocka_unit_test(test_a_spill_file_that_cannot_be_written),
        cmocka_unit_test(test_a_range_written_twice),
        cmocka_unit_test(test_what_never_came_is_named),
        cmocka_unit_test(test_loading_anew_keeps_the_address_and_the_old_weight_until_whole),
        cmocka_unit_test(test_a_load_replaces_a_source),
        cmocka_unit_test(test_a_session_of_many_reloads),
        cmocka_unit_test(test_codes_are_taken_as_they_are),
        cmocka_unit_test(test_nan_codes_are_seen_whenever_they_come),
        cmocka_unit_test(test_a_given_scale_spares_the_waiting),
        cmocka_unit_test(test_dummy_weights_are_the_same_for_any_ranks),
        cmocka_unit_test(test_dummy_fills_what_is_missing_of_codes),
        cmocka_unit_test(test_a_refused_piece_has_not_been),
        cmocka_unit_test(test_bad_pieces_are_refused),
        cmocka_unit_test(test_bad_calls_are_refused),
        cmocka_unit_test(test_layers_without_elements),
        cmocka_unit_test(test_codes_without_elements_have_no_scale),
        cmocka_unit_test(test_memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
