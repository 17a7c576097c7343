/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_shards.c - ranks that are all given the whole tensors and take their own: rows,
 * columns, fused parts, shared key and value heads, tensors that are fused on disk; codes whose
 * blocks the cuts do not respect; scales that the ranks agree on. A rank's weight is worth, element
 * by element, what that of one rank is worth there. */
#include "support/rank_fixture.h"

#include <math.h>

#include <stdio.h>

/* A fused weight: [q; k; v] of heads, or of any rows. */
enum { PARTS = 3, K = 320, HEAD = 20 };
static const fp8_layer_part qkv[PARTS] = {
    {"q", 8 * HEAD, 1}, {"k", 2 * HEAD, 1}, {"v", 2 * HEAD, 1}};
enum { N = 12 * HEAD };

/* The parts for so many ranks: two key and value heads are shared if there are more. */
static void parts_for(int ranks, fp8_cut cut, fp8_layer_part parts[PARTS])
{
    memcpy(parts, qkv, sizeof qkv);
    for (int p = 1; p < PARTS && cut == FP8_CUT_ROWS && ranks > 2; p++)
        parts[p].replicas = ranks / 2;
}

static fp8_layer_desc desc_for(int rank, int ranks, fp8_cut cut, const fp8_layer_part *parts)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "qkv";
    d.n = N;
    d.k = K;
    d.parts = parts;
    d.part_count = PARTS;
    d.cut = cut;
    d.rank = rank;
    d.ranks = ranks;
    return d;
}

/* The row of the whole weight that a rank's row is. */
static int64_t whole_row(int64_t row, int rank, int ranks, fp8_cut cut)
{
    if (cut != FP8_CUT_ROWS)
        return row;
    int64_t base = 0;
    for (int p = 0; p < PARTS; p++) {
        const int64_t copies = p && ranks > 2 ? ranks / 2 : 1;
        const int64_t mine = qkv[p].rows * copies / ranks;
        if (row < mine)
            return base + rank / copies * mine + row;
        row -= mine;
        base += qkv[p].rows;
    }
    return -1;
}

static int64_t whole_col(int64_t col, int rank, int ranks, fp8_cut cut)
{
    return cut == FP8_CUT_COLS ? rank * (K / ranks) + col : col;
}

/* One load of a rank's layer from whole tensors. */
typedef struct source {
    fp8_tensor weight, bias;
    fp8_tensor scale[PARTS]; /* of codes; [0] alone if fused on disk; data NULL: none */
    bool fused, merge;
    fp8_linear_desc linear;
    fp8_cut cut;
    int ranks;
    fp8_layer *layer[MAX_RANKS];
    fp8_error err[MAX_RANKS];
} source;

static fp8_status write_tensor(fp8_load *load, fp8_layer *layer, fp8_load_param param, int part,
                               fp8_tensor data, fp8_error *err)
{
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.param = param;
    piece.part = part;
    /* In two halves, the second first. */
    const int64_t rows = data.shape[0], half = data.ndim ? rows / 2 : 0;
    piece.row = half;
    piece.data = data;
    if (half > 0) {
        piece.data.shape[0] = rows - half;
        piece.data.data =
            (char *)data.data + half * data.stride[0] * (fp8_dtype_bits(data.dtype) / 8);
        const fp8_status status = fp8_load_write(load, layer, &piece, err);
        if (status != FP8_OK)
            return status;
        piece.data = data;
        piece.data.shape[0] = half;
    }
    piece.row = 0;
    return fp8_load_write(load, layer, &piece, err);
}

static fp8_status write_part(const source *s, fp8_load *load, fp8_layer *layer, int p,
                             fp8_error *err)
{
    int64_t row = 0;
    for (int i = 0; i < p; i++)
        row += qkv[i].rows;
    const int64_t rows = s->fused ? N : qkv[p].rows;
    const int part = s->fused ? -1 : p;
    fp8_tensor bias = s->bias;
    bias.data = (char *)bias.data + row * 4;
    bias.shape[0] = rows;
    fp8_status status = FP8_OK;
    if (s->scale[p].data)
        status = write_tensor(load, layer, FP8_PARAM_SCALE, part, s->scale[p], err);
    if (status == FP8_OK && s->bias.data)
        status = write_tensor(load, layer, FP8_PARAM_BIAS, part, bias, err);
    if (status == FP8_OK)
        status = write_tensor(load, layer, FP8_PARAM_WEIGHT, part,
                              view_of(s->weight, row, rows, 0, K), err);
    return status;
}

static void load_rank(void *arg, int rank, const fp8_comm *comm)
{
    source *s = arg;
    fp8_layer_part parts[PARTS];
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_load *load = NULL;
    fp8_error *err = &s->err[rank];
    parts_for(s->ranks, s->cut, parts);
    fp8_layer_desc d = desc_for(rank, s->ranks, s->cut, parts);
    d.linear = s->linear;
    d.merge_scales = s->merge;
    d.has_bias = s->bias.data != NULL;
    if (comm)
        options.comm = *comm;
    fp8_status status = fp8_layer_create(ctx, &d, &s->layer[rank], err);
    if (status == FP8_OK)
        status = fp8_load_create(ctx, &options, &load, err);
    if (status == FP8_OK)
        status = fp8_load_add(load, s->layer[rank], err);
    for (int p = s->fused ? 0 : PARTS - 1; p >= 0 && status == FP8_OK; p--)
        status = write_part(s, load, s->layer[rank], p, err);
    if (status == FP8_OK)
        status = fp8_load_finish(load, err);
    err->code = status;
    fp8_load_free(load);
}

static const fp8_linear *linear_of(const source *s, int rank)
{
    const fp8_linear *linear;
    if (s->err[rank].code != FP8_OK)
        fail_msg("rank %d of %d: %s", rank, s->ranks, s->err[rank].msg);
    assert_done(fp8_layer_acquire(s->layer[rank], 0, &linear, &err));
    return linear;
}

static void drop_rank(source *s, int rank)
{
    fp8_layer_release(s->layer[rank]);
    fp8_layer_free(s->layer[rank]);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* The scale of element (row, col) of the whole weight. */
static float scale_at(const source *s, int64_t row, int64_t col)
{
    const fp8_grid g = s->linear.w.grid;
    int part = 0;
    while (!s->fused && row >= qkv[part].rows)
        row -= qkv[part++].rows;
    const fp8_tensor *t = &s->scale[part];
    const int64_t i = g.rows ? row / g.rows : 0, j = g.cols ? col / g.cols : 0;
    return ((const float *)t->data)[i * t->shape[1] + j];
}

static void check_codes(source *s)
{
    for (int r = 0; r < s->ranks; r++) {
        load_rank(s, r, NULL);
        const fp8_linear *linear = linear_of(s, r);
        fp8_linear_info info;
        assert_int_equal(fp8_linear_get_info(linear, &info), FP8_OK);
        float *real = reals_transposed(linear);
        for (int64_t i = 0; i < info.n; i++)
            for (int64_t j = 0; j < info.k; j++) {
                const int64_t row = whole_row(i, r, s->ranks, s->cut);
                const int64_t col = whole_col(j, r, s->ranks, s->cut);
                const float want =
                    fp8_dtype_facts_of(s->weight.dtype)->load(s->weight.data, row * K + col) *
                    scale_at(s, row, col);
                if (real[j * info.n + i] != want)
                    fail_msg("grid %dx%d cut %d rank %d of %d fused %d: [%d,%d] is %g, not %g",
                             (int)s->linear.w.grid.rows, (int)s->linear.w.grid.cols, s->cut, r,
                             s->ranks, s->fused, (int)i, (int)j, (double)real[j * info.n + i],
                             (double)want);
            }
        free(real);
        drop_rank(s, r);
    }
}

static void make_scales(source *s)
{
    const fp8_grid g = s->linear.w.grid;
    memset(s->scale, 0, sizeof s->scale);
    for (int p = 0; p < (s->fused ? 1 : PARTS); p++) {
        const int64_t rows = s->fused ? N : qkv[p].rows;
        const int64_t gr = g.rows ? fp8_ceil_div(rows, g.rows) : 1;
        const int64_t gc = g.cols ? fp8_ceil_div(K, g.cols) : 1;
        s->scale[p] = made_matrix(FP8_F32, gr, gc, (uint64_t)p);
        for (int64_t i = 0; i < gr * gc; i++)
            ((float *)s->scale[p].data)[i] = 1 + 0.125F * (float)(p * 64 + i);
    }
}

static void free_scales(source *s)
{
    for (int p = 0; p < PARTS; p++)
        free(s->scale[p].data);
}

static void test_codes_keep_the_scales_of_their_blocks(void **state)
{
    (void)state;
    static const fp8_grid grids[] = {{128, 128}, {64, 32}, {0, 0},  {1, 0},
                                     {1, 32},    {7, 5},   {0, 128}};
    static const int ranks[] = {1, 2, 4, 8};
    source s = {.weight = made_matrix(FP8_E4M3FN, N, K, 1)};
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (int fused = 0; fused <= 1; fused++) {
            const fp8_linear_desc plain = FP8_LINEAR_DESC_INIT;
            s.fused = fused;
            s.linear = plain;
            s.linear.w.grid = grids[g];
            make_scales(&s);
            for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
                for (s.cut = FP8_CUT_NONE; s.cut <= FP8_CUT_COLS; s.cut++) {
                    s.ranks = s.cut == FP8_CUT_NONE ? 1 : ranks[r];
                    check_codes(&s);
                }
            free_scales(&s);
        }
    free(s.weight.data);
}

/* One part alone keeps its grid, whatever the offset: the shard says where in a block it begins. */
static void test_one_part_keeps_its_grid(void **state)
{
    (void)state;
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_E4M3FN, 320, 256, 1), scale = made_matrix(FP8_F32, 3, 2, 1);
    for (int i = 0; i < 6; i++)
        ((float *)scale.data)[i] = (float)(1 + i);
    d.n = 320;
    d.k = 256;
    d.cut = FP8_CUT_ROWS;
    d.ranks = 2;
    d.rank = 1;
    d.linear.w.grid = (fp8_grid){128, 128};
    fp8_layer *layer;
    fp8_load *load;
    const fp8_linear *linear;
    fp8_linear_info info;
    assert_done(fp8_layer_create(ctx, &d, &layer, &err));
    assert_done(fp8_load_create(ctx, NULL, &load, &err));
    assert_done(fp8_load_add(load, layer, &err));
    assert_done(write_tensor(load, layer, FP8_PARAM_WEIGHT, 0, w, &err));
    assert_done(write_tensor(load, layer, FP8_PARAM_SCALE, 0, scale, &err));
    assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
    assert_int_equal(fp8_linear_get_info(linear, &info), FP8_OK);
    assert_int_equal(info.scale_rows, 2); /* rows 160..255 and 256..319 */
    assert_int_equal(info.scale_cols, 2);
    fp8_layer_release(layer);
    fp8_load_free(load);
    fp8_layer_free(layer);
    free(w.data);
    free(scale.data);
}

/* One scale on disk for the whole fused weight is every part's. */
static void test_merged_scales_are_those_of_the_field(void **state)
{
    (void)state;
    const int64_t widths[PARTS] = {qkv[0].rows, qkv[1].rows, qkv[2].rows};
    float part_scales[PARTS] = {0.5F, 0.125F, 0.75F}, most;
    source s = {.weight = made_matrix(FP8_E4M3FN, N, K, 1), .merge = true, .ranks = 1};
    const fp8_linear_desc plain = FP8_LINEAR_DESC_INIT;
    fp8_fused_desc fused = FP8_FUSED_DESC_INIT;
    fp8_tensor codes = made_matrix(FP8_E4M3FN, N, K, 0);
    const fp8_tensor scales = fp8_vector(part_scales, FP8_F32, PARTS);
    fused.widths = widths;
    fused.width_count = PARTS;
    s.linear = plain;
    for (int p = 0; p < PARTS; p++)
        s.scale[p] = fp8_matrix(&part_scales[p], FP8_F32, 1, 1);
    load_rank(&s, 0, NULL);
    exported e = export_of(linear_of(&s, 0));
    assert_done(fp8_requantize_with_max_scale(&fused, &s.weight, &scales, &codes, &most, &err));
    assert_int_equal(e.info.scale_rows, 1);
    assert_memory_equal(e.scales.data, &most, sizeof most);
    assert_memory_equal(e.codes.data, codes.data, N * K);
    exported_free(&e);
    drop_rank(&s, 0);
    s.fused = true; /* one scale already: the bytes stay */
    load_rank(&s, 0, NULL);
    e = export_of(linear_of(&s, 0));
    assert_memory_equal(e.scales.data, part_scales, sizeof(float));
    assert_memory_equal(e.codes.data, s.weight.data, N * K);
    exported_free(&e);
    drop_rank(&s, 0);
    free(s.weight.data);
    free(codes.data);
}

/* ---- high precision -------------------------------------------------------------------------- */

/* The rank's rows and columns of the whole weight. */
static fp8_tensor share_of(const source *s, int rank, int64_t n, int64_t k)
{
    fp8_tensor share = made_matrix(s->weight.dtype, n, k, 0);
    const int64_t bytes = fp8_dtype_bits(s->weight.dtype) / 8;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            memcpy((char *)share.data + (i * k + j) * bytes,
                   (const char *)s->weight.data + (whole_row(i, rank, s->ranks, s->cut) * K +
                                                   whole_col(j, rank, s->ranks, s->cut)) *
                                                      bytes,
                   (size_t)bytes);
    return share;
}

/* Without agreement a rank quantizes its share as if there were nothing else. */
static void check_share(source *s, int rank)
{
    const fp8_linear *linear = linear_of(s, rank);
    fp8_linear_info info;
    fp8_linear *want;
    assert_int_equal(fp8_linear_get_info(linear, &info), FP8_OK);
    fp8_tensor share = share_of(s, rank, info.n, info.k);
    float bias[N];
    const fp8_tensor vector = fp8_vector(bias, FP8_F32, info.n);
    const bool has_bias = !(s->cut == FP8_CUT_COLS && rank > 0);
    for (int64_t i = 0; i < info.n; i++)
        bias[i] = ((const float *)s->bias.data)[whole_row(i, rank, s->ranks, s->cut)];
    assert_done(
        fp8_linear_create(ctx, &s->linear, &share, NULL, has_bias ? &vector : NULL, &want, &err));
    assert_same_linear(linear, want);
    fp8_linear_free(want);
    free(share.data);
}

static const char *const schemes[] = {"tensor", "channel", "block", "mxfp8"};

static void test_each_rank_quantizes_its_share(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 4};
    source s = {.weight = made_matrix(FP8_BF16, N, K, 1), .bias = made_vector(FP8_F32, N, 2)};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        for (int r = 0; r < 3; r++)
            for (s.cut = FP8_CUT_ROWS; s.cut <= FP8_CUT_COLS; s.cut++)
                for (int fused = 0; fused <= 1; fused++) {
                    if (!strcmp(schemes[i], "mxfp8") && s.cut == FP8_CUT_COLS && ranks[r] == 4)
                        continue; /* 80 columns are no multiple of 32 */
                    assert_done(fp8_online_linear(schemes[i], 0, &s.linear, &err));
                    s.ranks = ranks[r];
                    s.fused = fused;
                    for (int rank = 0; rank < s.ranks; rank++) {
                        load_rank(&s, rank, NULL);
                        check_share(&s, rank);
                        drop_rank(&s, rank);
                    }
                }
    free(s.weight.data);
    free(s.bias.data);
}

/* With agreement the codes are those of the whole weight. */
static void check_agreed(source *s, int64_t calls_each)
{
    fp8_linear *whole;
    fp8_error err = {0};
    assert_int_equal(fp8_linear_create(ctx, &s->linear, &s->weight, NULL, NULL, &whole, &err),
                     FP8_OK);
    exported w = export_of(whole);
    assert_int_equal(run_ranks(s->ranks, load_rank, s), calls_each * s->ranks);
    for (int r = 0; r < s->ranks; r++) {
        exported e = export_of(linear_of(s, r));
        for (int64_t i = 0; i < e.info.n; i++) {
            const int64_t row = whole_row(i, r, s->ranks, s->cut);
            assert_memory_equal((char *)e.codes.data + i * e.info.k,
                                (char *)w.codes.data + row * K + whole_col(0, r, s->ranks, s->cut),
                                (size_t)e.info.k);
            if (e.info.scale_rows > 1)
                assert_memory_equal((float *)e.scales.data + i, (float *)w.scales.data + row, 4);
        }
        assert_memory_equal(e.scales.data, w.scales.data, e.info.scale_rows > 1 ? 0 : 4);
        exported_free(&e);
        drop_rank(s, r);
    }
    exported_free(&w);
    fp8_linear_free(whole);
}

static void test_ranks_agree_on_scales_that_they_share(void **state)
{
    (void)state;
    source s = {.weight = made_matrix(FP8_BF16, N, K, 1)};
    for (int i = 0; i < 2; i++)
        for (s.ranks = 1; s.ranks <= 8; s.ranks *= 2)
            for (s.cut = FP8_CUT_ROWS; s.cut <= FP8_CUT_COLS; s.cut++) {
                const bool shared = s.ranks > 1 && (i == 0 || s.cut == FP8_CUT_COLS);
                assert_done(fp8_online_linear(schemes[i], 0, &s.linear, &err));
                check_agreed(&s, shared);
            }
    free(s.weight.data);
}

/* Each part is quantized by the scale that was given for it, wherever the cuts fall. */
static void test_given_scales_of_the_parts(void **state)
{
    (void)state;
    float given[PARTS] = {0.02F, 0.5F, 0.125F};
    source s = {.weight = made_matrix(FP8_F32, N, K, 1)};
    const fp8_linear_desc plain = FP8_LINEAR_DESC_INIT;
    s.linear = plain;
    s.linear.w.static_scales = 1;
    s.linear.w_scale = FP8_BF16; /* of scales that are made */
    for (int p = 0; p < PARTS; p++)
        s.scale[p] = fp8_matrix(&given[p], FP8_F32, 1, 1);
    for (s.cut = FP8_CUT_NONE; s.cut <= FP8_CUT_COLS; s.cut++) {
        s.ranks = s.cut == FP8_CUT_NONE ? 1 : 4;
        for (int r = 0; r < s.ranks; r++) {
            load_rank(&s, r, NULL);
            exported e = export_of(linear_of(&s, r));
            assert_int_equal(e.info.scale_rows, PARTS);
            assert_memory_equal(e.scales.data, given, sizeof given);
            for (int64_t i = 0; i < e.info.n * e.info.k; i++) {
                const int64_t row = whole_row(i / e.info.k, r, s.ranks, s.cut);
                const int64_t col = whole_col(i % e.info.k, r, s.ranks, s.cut);
                const int part = row < qkv[0].rows ? 0 : row < qkv[0].rows + qkv[1].rows ? 1 : 2;
                uint8_t code;
                const float x = ((const float *)s.weight.data)[row * K + col] / given[part];
                fp8_dtype_facts_of(FP8_E4M3FN)->store(&code, 0, x, true);
                assert_int_equal(((const uint8_t *)e.codes.data)[i], code);
            }
            exported_free(&e);
            drop_rank(&s, r);
        }
    }
    free(s.weight.data);
}

static fp8_status broken_max(void *user, const char *name, float *values, int64_t n, fp8_error *err)
{
    (void)values;
    if (user && err)
        snprintf(err->msg, sizeof err->msg, "rank 1 is gone, asked for %s [%d]", name, (int)n);
    return FP8_E_IO;
}

static void test_an_agreement_that_fails_can_be_tried_again(void **state)
{
    (void)state;
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_BF16, 32, 32, 1);
    fp8_layer *layer;
    fp8_load *load;
    fp8_layer_info info;
    d.name = "proj";
    d.n = d.k = 32;
    d.ranks = 2;
    d.cut = FP8_CUT_ROWS;
    options.comm = (fp8_comm){broken_max, &options};
    assert_done(fp8_layer_create(ctx, &d, &layer, &err));
    assert_done(fp8_load_create(ctx, &options, &load, &err));
    assert_done(fp8_load_add(load, layer, &err));
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.data = w;
    for (int i = 0; i < 2; i++)
        assert_refused(fp8_load_write(load, layer, &piece, &err), FP8_E_IO,
                       "layer proj: weight: rank 1 is gone, asked for proj [1]");
    assert_int_equal(fp8_layer_get_info(layer, &info), FP8_OK);
    assert_int_equal(info.state, FP8_LAYER_DECLARED);
    fp8_load_free(load);
    fp8_layer_free(layer);
    free(w.data);
}

/* A maximum that is none. */
static fp8_status wrong_max(void *user, const char *name, float *values, int64_t n, fp8_error *err)
{
    (void)name;
    (void)err;
    const float wrong = *(float *)user;
    for (int64_t i = 0; i < n; i++)
        values[i] = wrong;
    return wrong == 7 ? FP8_E_NO_SPACE : FP8_OK; /* without a word */
}

static void test_an_agreement_on_no_maximum_is_refused(void **state)
{
    (void)state;
    static const struct {
        float wrong;
        fp8_status status;
        const char *words;
    } cases[] = {{NAN, FP8_E_MISMATCH, "agreed on a maximum of nan for scale 0, this rank has "},
                 {INFINITY, FP8_E_MISMATCH, "of inf"},
                 {0, FP8_E_MISMATCH, "of 0"},
                 {-1, FP8_E_MISMATCH, "of -1"},
                 {7, FP8_E_NO_SPACE, "layer proj: weight: the ranks could not agree"},
                 {1000, FP8_OK, ""}};
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    float wrong;
    d.name = "proj";
    d.n = d.k = 32;
    d.ranks = 2;
    d.cut = FP8_CUT_COLS;
    options.comm = (fp8_comm){wrong_max, &wrong};
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.data = made_matrix(FP8_BF16, 32, 32, 1);
    for (d.linear.w.grid.rows = 0; d.linear.w.grid.rows < 2; d.linear.w.grid.rows++) {
        loading l = begin_loading(ctx, &d, &options);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            wrong = cases[i].wrong;
            assert_refused(fp8_load_write(l.load, l.layer, &piece, &err), cases[i].status,
                           cases[i].words);
        }
        end_loading(&l);
    }
    free(piece.data.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_keep_the_scales_of_their_blocks),
        cmocka_unit_test(test_one_part_keeps_its_grid),
        cmocka_unit_test(test_merged_scales_are_those_of_the_field),
        cmocka_unit_test(test_each_rank_quantizes_its_share),
        cmocka_unit_test(test_ranks_agree_on_scales_that_they_share),
        cmocka_unit_test(test_given_scales_of_the_parts),
        cmocka_unit_test(test_an_agreement_that_fails_can_be_tried_again),
        cmocka_unit_test(test_an_agreement_on_no_maximum_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
