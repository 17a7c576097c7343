/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layers.c - the vectors of weights that are quantized, or cut, when they are loaded, through
 * layers and loads, in pieces of a few rows:
 *
 *     online/linear, fused   codes and scales of each scheme; a weight with NaN is refused
 *     online/tp              ranks that agree, as threads
 *     online/batch_invariant its codes and scales; results are those of fp8_linear_create, which
 *                            test_online compares
 *     block/tp_*             a rank's results; its weight is worth, to the bit, what one rank's is
 * Left out: the per-tensor scale 0 of a zero weight. */
#include "golden/golden_linear.h"
#include "support/rank_fixture.h"

#include <math.h>
#include <stdio.h>

static const char online[] = "online", block[] = "block";
enum { FEW = 7 }; /* rows of a piece */

/* ---- loading --------------------------------------------------------------------------------- */

/* One tensor for a part (-1: all), in pieces. */
static fp8_status put(fp8_load *load, fp8_layer *layer, fp8_load_param param, int part,
                      const fp8_tensor *t, fp8_error *err)
{
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    fp8_status status = FP8_OK;
    piece.param = param;
    piece.part = part;
    for (int64_t i = 0; i < t->shape[0] && status == FP8_OK; i += FEW) {
        piece.row = i;
        piece.data = golden_slice(*t, i, fp8_min_i64(FEW, t->shape[0] - i), 0, t->shape[1]);
        status = fp8_load_write(load, layer, &piece, err);
    }
    return status;
}

/* A layer of a weight w that is whole in a tensor, with its scales if it is codes. */
static fp8_status load_layer(const fp8_layer_desc *d, const fp8_comm *comm, const fp8_tensor *w,
                             const fp8_tensor *scales, fp8_layer **out, fp8_error *err)
{
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_load *load = NULL;
    *out = NULL;
    if (comm)
        options.comm = *comm;
    fp8_status status = fp8_layer_create(ctx, d, out, err);
    if (status == FP8_OK)
        status = fp8_load_create(ctx, &options, &load, err);
    if (status == FP8_OK)
        status = fp8_load_add(load, *out, err);
    if (status == FP8_OK)
        status = put(load, *out, FP8_PARAM_WEIGHT, -1, w, err);
    for (size_t p = 0; scales && p < (d->part_count ? d->part_count : 1) && status == FP8_OK; p++)
        status = put(load, *out, FP8_PARAM_SCALE, (int)p, &scales[p], err);
    if (status == FP8_OK)
        status = fp8_load_finish(load, err);
    fp8_load_free(load);
    return status;
}

static bool same_bytes(const fp8_tensor *a, const golden_tensor *b)
{
    return !b || !memcmp(a->data, b->view.data, b->bytes);
}

/* ---- online/linear, fused -------------------------------------------------------------------- */

static const char *const schemes[] = {"tensor", "channel", "block"};

static bool is_finite(const fp8_tensor *x)
{
    for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++)
        if (!isfinite(element_of(x, i / x->shape[1], i % x->shape[1])))
            return false;
    return true;
}

/* A layer's codes and scales are the vectors' (NULL: not said). */
static void check_made(const char *mode, const char *name, fp8_layer *layer, const golden_tensor *q,
                       const golden_tensor *s)
{
    const fp8_linear *linear;
    assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
    exported e = export_of(linear);
    golden_check(online, mode, (q || s) && same_bytes(&e.codes, q) && same_bytes(&e.scales, s),
                 "%s: other codes or scales", name);
    exported_free(&e);
    fp8_layer_release(layer);
}

static void check_weight(const golden_file *f, const char *kind, const char *stem,
                         const char *scheme, const golden_tensor *q, const golden_tensor *s)
{
    const fp8_tensor w = golden_matrix(golden_findf(f, "%s_w", stem));
    const golden_tensor *widths = golden_findf(f, "%s_widths", stem);
    const char *mode = golden_text("layer %s %s", kind, scheme);
    fp8_layer_part parts[8] = {{0}};
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    fp8_layer *layer;
    fp8_error words = {0};
    d.n = w.shape[0];
    d.k = w.shape[1];
    for (int64_t i = 0; widths && i < widths->elements; i++, d.part_count++)
        parts[i].rows = ((const int32_t *)widths->view.data)[i];
    d.parts = d.part_count ? parts : NULL;
    assert_done(fp8_online_linear(scheme, 0, &d.linear, &err));
    const fp8_status status = load_layer(&d, NULL, &w, NULL, &layer, &words);
    if (!is_finite(&w))
        golden_check(online, golden_text("%s nan", mode), status == FP8_E_NAN, "%s: %s", stem,
                     fp8_status_name(status));
    else if (status != FP8_OK)
        golden_fail(online, mode, "%s: %s", stem, words.msg);
    else if (!q)
        golden_leave_out(online, mode);
    else
        check_made(mode, stem, layer, q, s);
    fp8_layer_free(layer);
}

static void check_weights(const golden_file *f, const char *kind)
{
    for (int64_t i = 0; f && i < golden_count(f); i++) {
        const char *name = golden_at(f, i)->name;
        const size_t n = strlen(name);
        if (n < 2 || strcmp(name + n - 2, "_w"))
            continue;
        const char *stem = golden_text("%.*s", (int)n - 2, name);
        for (int s = 0; s < 3; s++)
            if (golden_findf(f, "%s_%s_s", stem, schemes[s]))
                check_weight(f, kind, stem, schemes[s],
                             golden_findf(f, "%s_%s_q", stem, schemes[s]),
                             golden_findf(f, "%s_%s_s", stem, schemes[s]));
        if (!strcmp(stem, "mx"))
            check_weight(f, kind, stem, "mxfp8", golden_find(f, "mx_q"), golden_find(f, "mx_s"));
    }
}

/* ---- online/tp ------------------------------------------------------------------------------- */

typedef struct agreed {
    fp8_tensor w;
    fp8_cut cut;
    int ranks;
    const char *scheme;
    fp8_layer *layer[MAX_RANKS];
    fp8_error err[MAX_RANKS];
} agreed;

static void load_rank(void *arg, int rank, const fp8_comm *comm)
{
    agreed *a = arg;
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.n = a->w.shape[0];
    d.k = a->w.shape[1];
    d.cut = a->cut;
    d.rank = rank;
    d.ranks = a->ranks;
    (void)fp8_online_linear(a->scheme, 0, &d.linear, NULL);
    a->err[rank].code = load_layer(&d, comm, &a->w, NULL, &a->layer[rank], &a->err[rank]);
}

static void check_ranks(const golden_file *f, agreed *a)
{
    const char *kind = a->cut == FP8_CUT_ROWS ? "col" : "row";
    const bool channel = !strcmp(a->scheme, "channel");
    const char *mode = golden_text("layer tp %s %s", kind, a->scheme);
    run_ranks(a->ranks, load_rank, a);
    for (int r = 0; r < a->ranks; r++) {
        const char *infix = channel ? "_channel" : "";
        const golden_tensor *q = golden_findf(f, "%s_tp%d_rank%d%s_q", kind, a->ranks, r, infix);
        const golden_tensor *s =
            channel && a->cut == FP8_CUT_ROWS
                ? golden_findf(f, "%s_tp%d_rank%d_channel_s", kind, a->ranks, r)
                : golden_findf(f, "%s_tp%d%s_s", kind, a->ranks, infix);
        if (!s && a->cut == FP8_CUT_COLS && !channel)
            s = golden_find(f, "tp1_s");
        if (a->err[r].code != FP8_OK)
            golden_fail(online, mode, "rank %d of %d: %s", r, a->ranks, a->err[r].msg);
        else
            check_made(mode, golden_text("rank %d of %d", r, a->ranks), a->layer[r], q, s);
        fp8_layer_free(a->layer[r]);
    }
}

static void check_tp(const golden_file *f)
{
    agreed a = {.w = golden_matrix(golden_find(f, "w"))};
    for (a.ranks = 2; a.ranks <= MAX_RANKS; a.ranks *= 2)
        for (a.cut = FP8_CUT_ROWS; a.cut <= FP8_CUT_COLS; a.cut++)
            for (int s = 0; s < 2; s++) {
                a.scheme = schemes[s];
                if (golden_findf(f, "%s_tp%d_rank0_q", a.cut == FP8_CUT_ROWS ? "col" : "row",
                                 a.ranks))
                    check_ranks(f, &a);
            }
}

/* ---- online/batch_invariant ------------------------------------------------------------------ */

static void check_invariant(const golden_file *f)
{
    const fp8_tensor w = golden_matrix(golden_find(f, "w"));
    for (int s = 0; s < 2; s++) {
        fp8_layer_desc d = FP8_LAYER_DESC_INIT;
        fp8_layer *layer;
        fp8_error words = {0};
        d.n = w.shape[0];
        d.k = w.shape[1];
        assert_done(fp8_online_linear(schemes[s], 1, &d.linear, &err));
        if (load_layer(&d, NULL, &w, NULL, &layer, &words) != FP8_OK)
            golden_fail(online, "layer batch invariant", "%s", words.msg);
        else
            check_made("layer batch invariant", schemes[s], layer,
                       golden_findf(f, "%s_q", schemes[s]), golden_findf(f, "%s_s", schemes[s]));
        assert_layer_is(layer, ctx, &d.linear, &w, NULL);
        fp8_layer_free(layer);
    }
}

/* ---- block/tp_* ------------------------------------------------------------------------------ */

/* The weight of a file, and how it is cut. */
typedef struct cut_file {
    const golden_file *f;
    const char *name;
    fp8_cut cut;
    fp8_tensor w, scales[2];
    fp8_layer_part parts[2];
    fp8_layer_desc desc;
} cut_file;

static void open_cut(const golden_file *f, const char *name, cut_file *c)
{
    const golden_tensor *s = golden_find(f, "b_scale");
    const fp8_layer_desc empty = FP8_LAYER_DESC_INIT;
    const bool merged = s->view.ndim == 3;
    memset(c, 0, sizeof *c);
    c->f = f;
    c->name = name;
    c->w = golden_matrix(golden_find(f, "b"));
    c->desc = empty;
    c->desc.n = c->w.shape[0];
    c->desc.k = c->w.shape[1];
    c->desc.cut = strncmp(name, "tp_row_", 7) ? FP8_CUT_ROWS : FP8_CUT_COLS;
    c->desc.linear.w.grid = (fp8_grid){128, 128};
    c->scales[0] = golden_matrix(s);
    for (int p = 0; merged && p < 2; p++) {
        c->parts[p].rows = c->desc.n / 2;
        c->scales[p] = fp8_matrix((float *)s->view.data + p * s->view.stride[0], FP8_F32,
                                  s->view.shape[1], s->view.shape[2]);
    }
    c->desc.part_count = merged ? 2 : 0;
}

/* The fused tensor stands on disk as its parts' scales say: a part at a time. */
static fp8_layer *load_cut(cut_file *c, int rank, int ranks, fp8_activation activation)
{
    fp8_layer *layer = NULL;
    fp8_error err = {0};
    c->desc.parts = c->desc.part_count ? c->parts : NULL;
    c->desc.rank = rank;
    c->desc.ranks = ranks;
    c->desc.linear.activation = activation;
    c->desc.linear.x.grid = (fp8_grid){1, 128};
    if (load_layer(&c->desc, NULL, &c->w, c->scales, &layer, &err) != FP8_OK)
        fail_msg("%s rank %d of %d: %s", c->name, rank, ranks, err.msg);
    return layer;
}

/* real[k,n] of a rank's weight, as one rank would have it there. */
static void check_worth(cut_file *c, const float *whole, int rank, int ranks)
{
    fp8_layer *layer = load_cut(c, rank, ranks, FP8_ACTIVATION_NONE);
    const int64_t parts = c->desc.part_count ? 2 : 1, of_part = c->desc.n / parts;
    const bool rows = c->desc.cut == FP8_CUT_ROWS;
    const int64_t n = rows ? of_part / ranks : of_part, k = rows ? c->desc.k : c->desc.k / ranks;
    const fp8_linear *linear;
    int64_t differing = 0;
    assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
    float *real = reals_transposed(linear);
    for (int64_t i = 0; i < parts * n; i++)
        for (int64_t j = 0; j < k; j++) {
            const int64_t row = i / n * of_part + i % n + (rows ? rank * n : 0);
            const int64_t col = j + (rows ? 0 : rank * k);
            differing += real[j * parts * n + i] != whole[col * c->desc.n + row];
        }
    golden_check(block, "layer tp worth", differing == 0, "%s rank %d of %d: %lld elements",
                 c->name, rank, ranks, (long long)differing);
    free(real);
    fp8_layer_release(layer);
    fp8_layer_free(layer);
}

/* How far Y[i,j] may be from the exact sum; real[k,n] is the weight, scales included. */
static double element_bound(const fp8_tensor *x, const fp8_tensor *xs, const float *real, int64_t n,
                            int64_t i, int64_t j)
{
    bound_sums sums = {.x = FP8_BF16, .k = x->shape[1]};
    for (int64_t c = 0; c < sums.k; c++) {
        const double scale = fabs(element_of(xs, i, c / 128));
        const double input = fabs(element_of(x, i, c)), weight = fabs((double)real[c * n + j]);
        sums.products += input * scale * weight;
        sums.weights += scale * weight;
        sums.inputs += input;
        sums.scales += scale;
    }
    return bound_of(&sums);
}

/* Y[m,n] of a layer from codes of X, in F32. Free it. */
static float *results_of(fp8_layer *layer, const fp8_tensor *x, const fp8_tensor *xs, int64_t n)
{
    const int64_t m = x->shape[0];
    fp8_tensor y = fp8_matrix(calloc((size_t)(m * n + 1), 4), FP8_F32, m, n);
    const fp8_linear *linear;
    uint64_t bytes;
    assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
    assert_done(fp8_linear_workspace(linear, m, &bytes, &err));
    void *workspace = malloc(bytes);
    assert_done(fp8_linear_run(linear, x, xs, &y, workspace, bytes, NULL, &err));
    free(workspace);
    fp8_layer_release(layer);
    return y.data;
}

static float *reals_of_layer(fp8_layer *layer)
{
    const fp8_linear *linear;
    assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
    float *real = reals_transposed(linear);
    fp8_layer_release(layer);
    return real;
}

static void check_result(cut_file *c, int rank, int ranks, const fp8_tensor *want)
{
    const bool rows = c->desc.cut == FP8_CUT_ROWS;
    const char *of_rank = golden_text("tp%d_rank%d_", ranks, rank);
    const fp8_tensor x = golden_matrix(golden_findf(c->f, "%sa", rows ? "" : of_rank));
    const fp8_tensor xs = golden_matrix(golden_findf(c->f, "%sa_scale", rows ? "" : of_rank));
    const int64_t m = want->shape[0], n = want->shape[1];
    fp8_layer *plain = load_cut(c, rank, ranks, FP8_ACTIVATION_NONE);
    fp8_layer *layer = load_cut(c, rank, ranks, FP8_ACTIVATION_CODES);
    float *real = reals_of_layer(plain), *y = results_of(layer, &x, &xs, n);
    int64_t beyond = 0;
    for (int64_t i = 0; i < m * n; i++)
        beyond += !(fabs(y[i] - golden_real(want, i / n, i % n)) <=
                    element_bound(&x, &xs, real, n, i / n, i % n));
    golden_check(block, "layer tp results", beyond == 0, "%s rank %d of %d: %lld of %lld", c->name,
                 rank, ranks, (long long)beyond, (long long)(m * n));
    free(real);
    free(y);
    fp8_layer_free(plain);
    fp8_layer_free(layer);
}

static void check_cut(const golden_file *f, const char *name)
{
    cut_file c;
    open_cut(f, name, &c);
    fp8_layer *one = load_cut(&c, 0, 1, FP8_ACTIVATION_NONE);
    float *whole = reals_of_layer(one);
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++)
        for (int r = 0; r < ranks; r++) {
            const int64_t cut = c.desc.cut == FP8_CUT_COLS ? c.desc.k
                                : c.desc.part_count        ? c.desc.n / 2
                                                           : c.desc.n;
            const golden_tensor *want = golden_findf(f, "tp%d_rank%d_out_f64", ranks, r);
            if (!want)
                want = golden_findf(f, "tp%d_rank%d_partial_f64", ranks, r);
            if (cut % ranks == 0)
                check_worth(&c, whole, r, ranks);
            if (want)
                check_result(&c, r, ranks, &want->view);
        }
    free(whole);
    fp8_layer_free(one);
}

/* ---- all files ------------------------------------------------------------------------------- */

static void online_layers_agree(void **state)
{
    (void)state;
    if (!golden_has(online))
        skip();
    golden_file *linear = golden_load(online, "linear.safetensors");
    golden_file *fused = golden_load(online, "fused.safetensors");
    golden_file *tp = golden_load(online, "tp.safetensors");
    golden_file *invariant = golden_load(online, "batch_invariant.safetensors");
    check_weights(linear, "linear");
    check_weights(fused, "fused");
    if (tp)
        check_tp(tp);
    if (invariant)
        check_invariant(invariant);
    golden_free(linear);
    golden_free(fused);
    golden_free(tp);
    golden_free(invariant);
    assert_true(golden_report_by(online, "expected_layers.tsv"));
}

static void block_shards_agree(void **state)
{
    (void)state;
    if (!golden_has(block))
        skip();
    char **names = golden_names(block, ".safetensors");
    for (int i = 0; names[i]; i++) {
        golden_file *f = golden_load(block, names[i]);
        if (!strncmp(names[i], "tp_", 3) && golden_find(f, "b"))
            check_cut(f, names[i]);
        golden_free(f);
    }
    golden_free_names(names);
    assert_true(golden_report_by(block, "expected_layers.tsv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(online_layers_agree),
        cmocka_unit_test(block_shards_agree),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
