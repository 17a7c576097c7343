/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_checkpoint.c - layers straight from a checkpoint: bf16 quantized on the way as if it
 * were whole, FP8 of every dialect worth what dequantizing the checkpoint says, for one rank and
 * several; memory that grows by the FP8 size alone; what a checkpoint lacks; memory that runs out.
 */
#include "support/counted_alloc.h"
#include "support/meter.h"
#include "support/model_maker.h"
#include "support/ranks.h"
#include "support/sandbox_fixture.h"

#include <stdio.h>

static int set_up(void **state)
{
    fp8_context_desc d = FP8_CONTEXT_DESC_INIT;
    (void)state;
    d.threads = 1;
    sandbox_make();
    model_make_llama("bf16", 2);
    return fp8_context_create(&d, &ctx, NULL) != FP8_OK;
}

/* ---- a model --------------------------------------------------------------------------------- */

/* The linears of a layer of a Llama, fused as engines do: qkv, o, gate_up, down. */
enum { LINEARS = 4, MAX_LAYERS = 2 * LINEARS };

typedef struct model {
    int64_t hidden, inner, q, kv;
    fp8_linear_desc linear;
    int ranks, merge;
    fp8_layer *layers[MAX_LAYERS];
    char names[MAX_LAYERS][64], parts[MAX_LAYERS][3][64];
    fp8_layer_part part[MAX_LAYERS][3];
    fp8_layer_desc desc[MAX_LAYERS];
} model;

static const model llama = {.hidden = 192, .inner = 384, .q = 256, .kv = 128, .ranks = 1};

static void describe(model *m, int i, const char *name, const char *const part_names[3],
                     const int64_t rows[3], int64_t k, fp8_cut cut)
{
    const fp8_layer_desc empty = FP8_LAYER_DESC_INIT;
    fp8_layer_desc *d = &m->desc[i];
    *d = empty;
    snprintf(m->names[i], sizeof m->names[i], "model.layers.%d.%s", i / LINEARS, name);
    d->name = m->names[i];
    d->k = k;
    d->cut = cut;
    d->ranks = m->ranks;
    d->linear = m->linear;
    d->merge_scales = m->merge;
    for (int p = 0; p < 3 && rows[p]; p++) {
        snprintf(m->parts[i][p], sizeof m->parts[i][p], "model.layers.%d.%s", i / LINEARS,
                 part_names[p]);
        m->part[i][p] = (fp8_layer_part){m->parts[i][p], rows[p], 1};
        d->n += rows[p];
        d->part_count++;
    }
    d->parts = m->part[i];
}

static void describe_model(model *m)
{
    static const char *const qkv[3] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    static const char *const gate_up[3] = {"mlp.gate_proj", "mlp.up_proj", NULL};
    static const char *const o[3] = {"self_attn.o_proj"}, *const down[3] = {"mlp.down_proj"};
    for (int i = 0; i < MAX_LAYERS; i += LINEARS) {
        describe(m, i, "self_attn.qkv_proj", qkv, (int64_t[3]){m->q, m->kv, m->kv}, m->hidden,
                 FP8_CUT_ROWS);
        describe(m, i + 1, "self_attn.o_proj", o, (int64_t[3]){m->hidden}, m->q, FP8_CUT_COLS);
        describe(m, i + 2, "mlp.gate_up_proj", gate_up, (int64_t[3]){m->inner, m->inner}, m->hidden,
                 FP8_CUT_ROWS);
        describe(m, i + 3, "mlp.down_proj", down, (int64_t[3]){m->hidden}, m->inner, FP8_CUT_COLS);
    }
}

static fp8_status load_model(const fp8_context *c, model *m, const char *path, int rank,
                             const fp8_comm *comm, fp8_error *err)
{
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_load *load = NULL;
    if (comm)
        options.comm = *comm;
    fp8_status status = fp8_load_create(c, &options, &load, err);
    for (int i = MAX_LAYERS - 1; i >= 0 && status == FP8_OK; i--) {
        m->desc[i].rank = rank;
        status = fp8_layer_create(c, &m->desc[i], &m->layers[i], err);
        if (status == FP8_OK)
            status = fp8_load_add(load, m->layers[i], err);
    }
    if (status == FP8_OK)
        status = fp8_load_checkpoint(load, path, err);
    if (status == FP8_OK)
        status = fp8_load_finish(load, err);
    fp8_load_free(load);
    return status;
}

static void free_model(model *m)
{
    for (int i = 0; i < MAX_LAYERS; i++)
        fp8_layer_free(m->layers[i]);
    memset(m->layers, 0, sizeof m->layers);
}

/* ---- high precision -------------------------------------------------------------------------- */

/* The parts of a layer, one above the other, from a checkpoint. */
static fp8_tensor whole_weight(const fp8_checkpoint *ckpt, const fp8_layer_desc *d, fp8_dtype dtype)
{
    fp8_tensor w = made_matrix(dtype, d->n, d->k, 0);
    char *at = w.data;
    for (size_t p = 0; p < d->part_count; p++) {
        char name[128];
        fp8_tensor_info info;
        snprintf(name, sizeof name, "%s.weight", d->parts[p].name);
        unsigned char *data = model_read(ckpt, name, &info);
        assert_int_equal(info.dtype, dtype);
        memcpy(at, data, info.bytes);
        at += info.bytes;
        free(data);
    }
    return w;
}

static void test_bf16_is_quantized_on_the_way(void **state)
{
    (void)state;
    static const char *const schemes[] = {"tensor", "channel", "block", "mxfp8"};
    fp8_checkpoint *ckpt;
    assert_done(fp8_checkpoint_open(ctx, sandbox_path("bf16"), &ckpt, &err));
    for (int s = 0; s < 4; s++) {
        model m = llama;
        assert_done(fp8_online_linear(schemes[s], 0, &m.linear, &err));
        describe_model(&m);
        assert_done(load_model(ctx, &m, sandbox_path("bf16"), 0, NULL, &err));
        for (int i = 0; i < MAX_LAYERS; i++) {
            fp8_tensor w = whole_weight(ckpt, &m.desc[i], FP8_BF16);
            assert_layer_is(m.layers[i], ctx, &m.linear, &w, NULL);
            free(w.data);
        }
        free_model(&m);
    }
    fp8_checkpoint_close(ckpt);
}

/* What all ranks hold, put together, is what one holds; the scale of a tensor is agreed on. */
typedef struct joint {
    model whole, part[MAX_RANKS];
    const char *path;
    fp8_error err[MAX_RANKS];
} joint;

static void load_joint(void *arg, int rank, const fp8_comm *comm)
{
    joint *j = arg;
    j->err[rank].code = load_model(ctx, &j->part[rank], j->path, rank, comm, &j->err[rank]);
}

static void compare_share(const joint *j, int rank, int i)
{
    const fp8_layer_desc *d = &j->whole.desc[i];
    const fp8_linear *all, *mine;
    fp8_linear_info info;
    assert_done(fp8_layer_acquire(j->whole.layers[i], 0, &all, &err));
    assert_done(fp8_layer_acquire(j->part[rank].layers[i], 0, &mine, &err));
    assert_int_equal(fp8_linear_get_info(mine, &info), FP8_OK);
    float *a = reals_transposed(all), *b = reals_transposed(mine);
    const int ranks = j->part[rank].ranks;
    int64_t row = 0, first = 0;
    for (size_t p = 0; p < d->part_count; p++) {
        const bool cut = d->cut == FP8_CUT_ROWS;
        const int64_t rows = cut ? d->parts[p].rows / ranks : d->parts[p].rows;
        for (int64_t r = 0; r < rows; r++, row++)
            for (int64_t k = 0; k < info.k; k++) {
                const int64_t whole_row = first + (cut ? rank * rows : 0) + r;
                const int64_t whole_col = k + (cut ? 0 : rank * info.k);
                if (b[k * info.n + row] != a[whole_col * d->n + whole_row])
                    fail_msg("%s rank %d of %d: [%d,%d]", d->name, rank, ranks, (int)row, (int)k);
            }
        first += d->parts[p].rows;
    }
    free(a);
    free(b);
    fp8_layer_release(j->whole.layers[i]);
    fp8_layer_release(j->part[rank].layers[i]);
}

static void check_joint(const char *path, const model *like, const fp8_linear_desc *linear,
                        int ranks)
{
    static joint j;
    memset(&j, 0, sizeof j);
    j.path = path;
    j.whole = *like;
    j.whole.linear = *linear;
    describe_model(&j.whole);
    assert_done(load_model(ctx, &j.whole, path, 0, NULL, &err));
    for (int r = 0; r < ranks; r++) {
        j.part[r] = *like;
        j.part[r].linear = *linear;
        j.part[r].ranks = ranks;
        describe_model(&j.part[r]);
    }
    run_ranks(ranks, load_joint, &j);
    for (int r = 0; r < ranks; r++) {
        if (j.err[r].code != FP8_OK)
            fail_msg("rank %d: %s", r, j.err[r].msg);
        for (int i = 0; i < MAX_LAYERS; i++)
            compare_share(&j, r, i);
        free_model(&j.part[r]);
    }
    free_model(&j.whole);
}

static void test_ranks_of_bf16_join(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks *= 2)
        for (int channel = 0; channel <= 1; channel++) {
            fp8_linear_desc linear = FP8_LINEAR_DESC_INIT;
            linear.w.grid.rows = channel;
            check_joint(sandbox_path("bf16"), &llama, &linear, ranks);
        }
}

/* ---- FP8 ------------------------------------------------------------------------------------- */

/* Makes folder.name of `src` by a scheme (or dequantized to F32 without one). */
static fp8_status make(const char *src, const char *dst, const char *scheme)
{
    fp8_convert_desc d = FP8_CONVERT_DESC_INIT;
    char from[512], to[512];
    snprintf(from, sizeof from, "%s", src);
    snprintf(to, sizeof to, "%s", sandbox_path(dst));
    d.verb = scheme ? FP8_QUANTIZE : FP8_DEQUANTIZE;
    d.src = from;
    d.dst = to;
    d.scheme = scheme;
    d.force = 1;
    d.dtype = scheme ? FP8_DTYPE_NONE : FP8_F32;
    fp8_error err;
    const fp8_status status = model_convert(ctx, &d, &err);
    if (status != FP8_OK)
        printf("%s: %s\n", dst, err.msg);
    return status;
}

/* Every layer is worth what the dequantized checkpoint says, to the bit. */
static void check_reals(const char *path, const model *like)
{
    model m = *like;
    fp8_checkpoint *ckpt;
    const fp8_linear_desc plain = FP8_LINEAR_DESC_INIT;
    assert_int_equal(make(path, "f32", NULL), FP8_OK);
    assert_done(fp8_checkpoint_open(ctx, sandbox_path("f32"), &ckpt, &err));
    m.linear = plain;
    describe_model(&m);
    assert_done(load_model(ctx, &m, path, 0, NULL, &err));
    for (int i = 0; i < MAX_LAYERS; i++) {
        const fp8_linear *linear;
        fp8_tensor w = whole_weight(ckpt, &m.desc[i], FP8_F32);
        assert_done(fp8_layer_acquire(m.layers[i], 0, &linear, &err));
        float *real = reals_transposed(linear);
        for (int64_t n = 0; n < w.shape[0]; n++)
            for (int64_t k = 0; k < w.shape[1]; k++)
                if (real[k * w.shape[0] + n] != ((float *)w.data)[n * w.shape[1] + k])
                    fail_msg("%s: %s [%d,%d]", path, m.desc[i].name, (int)n, (int)k);
        free(real);
        free(w.data);
        fp8_layer_release(m.layers[i]);
    }
    fp8_checkpoint_close(ckpt);
    free_model(&m);
}

/* A model all of whose dimensions are whole blocks, which some formats ask for. */
static void make_even(const char *folder)
{
    static const char *const parts[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                        "mlp.down_proj"};
    static const int64_t shapes[][2] = {{256, 256}, {128, 256}, {128, 256}, {256, 256},
                                        {384, 256}, {384, 256}, {256, 384}};
    static char names[14][64];
    made_tensor tensors[14];
    for (int i = 0; i < 14; i++) {
        snprintf(names[i], sizeof names[i], "model.layers.%d.%s.weight", i / 7, parts[i % 7]);
        tensors[i] =
            (made_tensor){names[i], FP8_BF16, 2, {shapes[i % 7][0], shapes[i % 7][1], 0}, 0};
    }
    model_make(folder, tensors, 14, "{\"architectures\": [\"LlamaForCausalLM\"]}");
}

static bool has_fp8(const char *path)
{
    fp8_checkpoint *ckpt;
    assert_done(fp8_checkpoint_open(ctx, path, &ckpt, &err));
    const bool has = strcmp(fp8_checkpoint_dialect(ckpt), "none") != 0;
    fp8_checkpoint_close(ckpt);
    return has;
}

/* Returns how many schemes were checked. */
static int check_schemes(const char *folder, const model *like)
{
    const fp8_linear_desc plain = FP8_LINEAR_DESC_INIT;
    fp8_scheme_info scheme;
    int checked = 0;
    for (int64_t i = 0; fp8_scheme(i, &scheme) == FP8_OK; i++) {
        if (make(sandbox_path(folder), "fp8", scheme.name) != FP8_OK)
            continue; /* it needs activation scales */
        if (!has_fp8(sandbox_path("fp8")))
            continue; /* it takes whole blocks only */
        checked++;
        check_reals(sandbox_path("fp8"), like);
        for (int ranks = 2; ranks <= 4; ranks *= 2)
            check_joint(sandbox_path("fp8"), like, &plain, ranks);
    }
    return checked;
}

static void test_every_dialect_that_is_written_is_read(void **state)
{
    (void)state;
    const model even = {.hidden = 256, .inner = 384, .q = 256, .kv = 128, .ranks = 1};
    make_even("even");
    assert_int_equal(check_schemes("bf16", &llama), 11);
    assert_int_equal(check_schemes("even", &even), 12);
}

static void test_checkpoints_of_other_writers_are_read(void **state)
{
    (void)state;
    static const char *const folders[] = {"llama_untied_ct_block", "llama_untied_ct_channel_token",
                                          "llama_untied_ct_mxfp8", "llama_untied_ct_tensor_static",
                                          "llama_untied_ct_w8a16", "llama_untied_hf_tensor"};
    const model small = {.hidden = 128, .inner = 192, .q = 128, .kv = 64, .ranks = 1};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/golden/checkpoints/%s", folders[i]);
        check_reals(path, &small);
    }
}

/* Static activations take the largest scale of the parts. */
static void test_input_scales_are_loaded(void **state)
{
    (void)state;
    model m = {.hidden = 128, .inner = 192, .q = 128, .kv = 64, .ranks = 1};
    const fp8_linear_desc plain = FP8_LINEAR_DESC_INIT;
    m.linear = plain;
    m.linear.activation = FP8_ACTIVATION_STATIC;
    m.linear.x.grid = (fp8_grid){0, 0};
    describe_model(&m);
    assert_done(load_model(ctx, &m, "tests/golden/checkpoints/llama_untied_ct_tensor_static", 0,
                           NULL, &err));
    free_model(&m);
    assert_refused(
        load_model(ctx, &m, "tests/golden/checkpoints/llama_untied_ct_block", 0, NULL, &err),
        FP8_E_NOT_FOUND, "has no input_scale for model.layers.0");
    free_model(&m);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { SIDE = 1024, ONE = SIDE * SIDE };

static void make_stack(const char *folder, int layers)
{
    static made_tensor tensors[32];
    static char names[32][32];
    for (int i = 0; i < layers; i++) {
        snprintf(names[i], sizeof names[i], "l.%d.proj.weight", i);
        tensors[i] = (made_tensor){names[i], FP8_BF16, 2, {SIDE, SIDE, 0}, 0};
    }
    model_make(folder, tensors, layers, "{}");
}

/* Bytes of linears when each is finished, and the most that was ever held. */
typedef struct timeline {
    uint64_t peak, final;
} timeline;

static timeline load_stack(const char *folder, int layers, const char *scheme)
{
    counted_alloc a = {0};
    fp8_context *counted = counted_context(&a);
    fp8_layer *made[32];
    fp8_load *load;
    timeline t = {0};
    assert_done(fp8_load_create(counted, NULL, &load, &err));
    for (int i = 0; i < layers; i++) {
        char name[32];
        fp8_layer_desc d = FP8_LAYER_DESC_INIT;
        snprintf(name, sizeof name, "l.%d.proj", i);
        d.name = name;
        d.n = d.k = SIDE;
        assert_done(fp8_online_linear(scheme, 0, &d.linear, &err));
        assert_done(fp8_layer_create(counted, &d, &made[i], &err));
        assert_done(fp8_load_add(load, made[i], &err));
    }
    assert_done(fp8_load_checkpoint(load, sandbox_path(folder), &err));
    assert_done(fp8_load_finish(load, &err));
    fp8_load_free(load);
    t.peak = a.peak_bytes;
    t.final = a.bytes;
    for (int i = 0; i < layers; i++)
        fp8_layer_free(made[i]);
    fp8_context_free(counted);
    assert_int_equal(a.live, 0);
    return t;
}

static void test_memory_grows_by_the_fp8_size_alone(void **state)
{
    (void)state;
    static const char *const schemes[] = {"tensor", "channel", "block", "mxfp8"};
    make_stack("few", 8);
    make_stack("many", 32);
    for (int s = 0; s < 4; s++) {
        const timeline few = load_stack("few", 8, schemes[s]);
        const timeline many = load_stack("many", 32, schemes[s]);
        printf("%s: 8 layers: final %.2f MiB, peak +%.2f; 32: final %.2f MiB, peak +%.2f; a layer "
               "in bf16: 2 MiB\n",
               schemes[s], (double)few.final / (1 << 20),
               (double)(few.peak - few.final) / (1 << 20), (double)many.final / (1 << 20),
               (double)(many.peak - many.final) / (1 << 20));
        assert_true(few.peak < few.final + 3 * (uint64_t)ONE); /* one and a half layers in bf16 */
        assert_true(many.peak < many.final + 3 * (uint64_t)ONE);
        assert_true(many.peak - few.peak <= many.final - few.final + 65536);
        assert_true(few.final < 8 * (uint64_t)ONE * 105 / 100);
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void refuse_layer(const char *path, const fp8_layer_desc *d, fp8_status want,
                         const char *words)
{
    fp8_layer *layer;
    fp8_load *load;
    assert_done(fp8_layer_create(ctx, d, &layer, &err));
    assert_done(fp8_load_create(ctx, NULL, &load, &err));
    assert_done(fp8_load_add(load, layer, &err));
    assert_refused(fp8_load_checkpoint(load, path, &err), want, words);
    fp8_load_free(load);
    fp8_layer_free(layer);
}

static void test_what_a_checkpoint_lacks_is_named(void **state)
{
    (void)state;
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "model.layers.7.mlp.down_proj";
    d.n = 192;
    d.k = 384;
    refuse_layer(sandbox_path("bf16"), &d, FP8_E_NOT_FOUND,
                 "layer model.layers.7.mlp.down_proj: the checkpoint has neither "
                 "model.layers.7.mlp.down_proj.weight nor a weight for each part");
    d.name = "model.layers.1.mlp.down_proj";
    d.has_bias = 1;
    refuse_layer(sandbox_path("bf16"), &d, FP8_E_NOT_FOUND,
                 "the checkpoint has no bias for model.layers.1.mlp.down_proj");
    d.has_bias = 0;
    d.n = 193;
    refuse_layer(sandbox_path("bf16"), &d, FP8_E_SHAPE, "[192,384], must be [193,384]");
    d.name = "model";
    refuse_layer(sandbox_path("bf16"), &d, FP8_E_NOT_FOUND, "neither");
    refuse_layer("/nowhere", &d, FP8_E_NOT_FOUND, "/nowhere");
    const uint32_t nan_bits = 0x7fc00000;
    assert_int_equal(make(sandbox_path("bf16"), "fp8", "hf-block"), FP8_OK);
    model_poke("fp8", "model.layers.0.self_attn.o_proj.weight_scale_inv", 1, &nan_bits, 4);
    d.name = "model.layers.0.self_attn.o_proj";
    d.n = 192;
    d.k = 256;
    refuse_layer(sandbox_path("fp8"), &d, FP8_E_SCALE,
                 "layer model.layers.0.self_attn.o_proj: scale: linear: w_scales[0,1] is nan");
}

static fp8_status load_all(const fp8_context *c, void *arg)
{
    model m = llama;
    const fp8_linear_desc plain = FP8_LINEAR_DESC_INIT;
    m.linear = plain;
    describe_model(&m);
    const fp8_status status = load_model(c, &m, arg, 0, NULL, NULL);
    free_model(&m);
    return status;
}

static void test_memory_may_run_out_anywhere(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", sandbox_path("bf16"));
    assert_true(meter_try(load_all, path) > 100);
    assert_int_equal(make(path, "fp8", "hf-block"), FP8_OK);
    snprintf(path, sizeof path, "%s", sandbox_path("fp8"));
    assert_true(meter_try(load_all, path) > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_is_quantized_on_the_way),
        cmocka_unit_test(test_ranks_of_bf16_join),
        cmocka_unit_test(test_every_dialect_that_is_written_is_read),
        cmocka_unit_test(test_checkpoints_of_other_writers_are_read),
        cmocka_unit_test(test_input_scales_are_loaded),
        cmocka_unit_test(test_memory_grows_by_the_fp8_size_alone),
        cmocka_unit_test(test_what_a_checkpoint_lacks_is_named),
        cmocka_unit_test(test_memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
