/* SPDX-License-Identifier: Apache-2.0
 *
 * test_load_files.c - checkpoints that do not fit, change while they are read, fail half-way, or
 * are read in part: each is named, nothing of it stays, and the same load takes another. */
#include "support/layer_maker.h"
#include "support/meter.h"
#include "support/model_maker.h"
#include "support/sandbox_fixture.h"

#include <stdio.h>
#include <unistd.h>

static int set_up(void **state)
{
    (void)state;
    sandbox_make();
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

enum { N = 96, K = 64 };

static fp8_layer_desc desc_of(const char *name, fp8_grid grid)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = name;
    d.n = N;
    d.k = K;
    d.linear.w.grid = grid;
    return d;
}

/* The only tensor of a folder, as a matrix. Free its data. */
static fp8_tensor read_matrix(const char *folder, const char *name, int64_t rows, int64_t cols)
{
    fp8_checkpoint *ckpt;
    fp8_tensor_info info;
    assert_done(fp8_checkpoint_open(ctx, sandbox_path(folder), &ckpt, &err));
    void *data = model_read(ckpt, name, &info);
    const fp8_tensor t = fp8_matrix(data, info.dtype, rows, cols);
    fp8_checkpoint_close(ckpt);
    return t;
}

/* ---- that do not fit ------------------------------------------------------------------------- */

static void refuse_parts(fp8_dtype q, fp8_dtype k, const char *words)
{
    const fp8_layer_part parts[2] = {{"q_proj", 64, 1}, {"k_proj", 32, 1}};
    const made_tensor tensors[2] = {{"q_proj.weight", q, 2, {64, K}, 0},
                                    {"k_proj.weight", k, 2, {32, K}, 0}};
    fp8_layer_desc d = desc_of("qk_proj", (fp8_grid){1, 0});
    d.parts = parts;
    d.part_count = 2;
    model_make("parts", tensors, 2, "{}");
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(fp8_load_checkpoint(l.load, sandbox_path("parts"), &err), FP8_E_MISMATCH, words);
    assert_done(fp8_load_dummy(l.load, l.layer, 0, &err)); /* as if it had never been */
    end_loading(&l);
}

static void test_parts_of_two_kinds_are_refused(void **state)
{
    (void)state;
    refuse_parts(
        FP8_BF16, FP8_E4M3FN,
        "layer qk_proj: q_proj.weight is BF16, k_proj.weight is F8_E4M3 with F32 scales of "
        "blocks [0,0]: parts of one layer must be alike");
    refuse_parts(
        FP8_E4M3FN, FP8_BF16,
        "q_proj.weight is F8_E4M3 with F32 scales of blocks [0,0], k_proj.weight is BF16:");
    refuse_parts(FP8_E4M3FN, FP8_E5M2, "k_proj.weight is F8_E5M2 with");
    refuse_parts(FP8_BF16, FP8_F16, "q_proj.weight is BF16, k_proj.weight is F16:");
    refuse_parts(FP8_BF16, FP8_I8, "q_proj.weight is BF16, k_proj.weight is I8:");
}

static void test_parts_with_scales_of_two_grids_are_refused(void **state)
{
    (void)state;
    const fp8_layer_part parts[2] = {{"q_proj", 64, 1}, {"k_proj", 32, 1}};
    const made_tensor tensors[4] = {{"q_proj.weight", FP8_E4M3FN, 2, {64, K}, 0},
                                    {"q_proj.weight_scale", FP8_F32, 2, {64, 1}, 0},
                                    {"k_proj.weight", FP8_E4M3FN, 2, {32, K}, 0},
                                    {"k_proj.weight_scale", FP8_F32, 1, {1}, 0}};
    fp8_layer_desc d = desc_of("qk_proj", (fp8_grid){1, 0});
    d.parts = parts;
    d.part_count = 2;
    model_make("parts", tensors, 4, "{}");
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(fp8_load_checkpoint(l.load, sandbox_path("parts"), &err), FP8_E_MISMATCH,
                   "q_proj.weight is F8_E4M3 with F32 scales of blocks [1,0], k_proj.weight is "
                   "F8_E4M3 with F32 scales of blocks [0,0]");
    end_loading(&l);
}

static void refuse_bias(int64_t elements, const char *words)
{
    const made_tensor tensors[2] = {{"up.weight", FP8_BF16, 2, {N, K}, 0},
                                    {"up.bias", FP8_BF16, 1, {elements}, 0}};
    fp8_layer_desc d = desc_of("up", (fp8_grid){1, 0});
    d.has_bias = 1;
    model_make("bias", tensors, 2, "{}");
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(fp8_load_checkpoint(l.load, sandbox_path("bias"), &err), FP8_E_SHAPE, words);
    end_loading(&l);
}

static void test_a_bias_of_another_size_is_refused(void **state)
{
    (void)state;
    refuse_bias(N - 1, "layer up: up.bias has 95 elements, must have 96");
    refuse_bias(N + 1, "up.bias has 97 elements");
    refuse_bias(1, "up.bias has 1 elements");
    refuse_bias(0, "up.bias has 0 elements");
}

/* To leave it out would be another model. */
static void test_a_bias_that_the_layer_lacks_is_refused(void **state)
{
    (void)state;
    const made_tensor tensors[2] = {{"up.weight", FP8_BF16, 2, {N, K}, 0},
                                    {"up.bias", FP8_BF16, 1, {N}, 0}};
    const fp8_layer_desc d = desc_of("up", (fp8_grid){1, 0});
    model_make("bias", tensors, 2, "{}");
    loading l = begin_loading(ctx, &d, NULL);
    assert_refused(fp8_load_checkpoint(l.load, sandbox_path("bias"), &err), FP8_E_MISMATCH,
                   "layer up: the checkpoint has up.bias, the layer no bias");
    end_loading(&l);
}

/* ---- that change or fail half-way ------------------------------------------------------------ */

static const made_tensor big = {"big.weight", FP8_BF16, 2, {N, K}, 0};

/* The maxima of a checkpoint that failed in its second part are not those of the next. */
static void test_another_checkpoint_after_one_that_failed(void **state)
{
    (void)state;
    const fp8_layer_part parts[2] = {{"gate", 64, 1}, {"up", N - 64, 1}};
    const made_tensor tensors[2] = {{"gate.weight", FP8_BF16, 2, {64, K}, 0},
                                    {"up.weight", FP8_BF16, 2, {N - 64, K}, 0}};
    fp8_layer_desc d = desc_of("gate_up", (fp8_grid){0, 0});
    const uint16_t huge = 0x7f00, infinity = 0x7f80;
    d.parts = parts;
    d.part_count = 2;
    model_make("two", tensors, 2, "{}");
    fp8_tensor gate = read_matrix("two", "gate.weight", 64, K);
    fp8_tensor up = read_matrix("two", "up.weight", N - 64, K);
    fp8_tensor w = made_matrix(FP8_BF16, N, K, 0);
    memcpy(w.data, gate.data, 64 * K * 2);
    memcpy((char *)w.data + 64 * K * 2, up.data, (N - 64) * K * 2);
    loading l = begin_loading(ctx, &d, NULL);
    model_poke("two", "gate.weight", 0, &huge, 2);
    model_poke("two", "up.weight", 5, &infinity, 2);
    assert_refused(fp8_load_checkpoint(l.load, sandbox_path("two"), &err), FP8_E_NAN,
                   "layer gate_up: up.weight: from [64,0] of the rank's share on: element [0,5] is "
                   "infinity");
    model_make("two", tensors, 2, "{}");
    assert_done(fp8_load_checkpoint(l.load, sandbox_path("two"), &err));
    assert_done(fp8_load_finish(l.load, &err));
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    end_loading(&l);
    free(gate.data);
    free(up.data);
    free(w.data);
}

/* A checkpoint fills up what pieces have begun, by one scale for both. */
static void test_a_checkpoint_after_pieces(void **state)
{
    (void)state;
    const fp8_grid grids[] = {{0, 0}, {1, 0}, {64, 32}};
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    model_make("good", &big, 1, "{}");
    options.duplicates = FP8_DUPLICATE_IGNORE;
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        const fp8_layer_desc d = desc_of("big", grids[g]);
        fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
        fp8_tensor w = read_matrix("good", "big.weight", N, K);
        fp8_tensor mine = made_matrix(FP8_BF16, 10, K, 1);
        loading l = begin_loading(ctx, &d, &options);
        piece.row = 7;
        piece.data = mine;
        assert_done(fp8_load_write(l.load, l.layer, &piece, &err));
        memcpy((char *)w.data + 7 * K * 2, mine.data, 10 * K * 2);
        assert_done(fp8_load_checkpoint(l.load, sandbox_path("good"), &err));
        assert_done(fp8_load_finish(l.load, &err));
        assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
        end_loading(&l);
        free(mine.data);
        free(w.data);
    }
}

/* An allocator that cuts a file short at its nth call. */
typedef struct saboteur {
    char path[512];
    int64_t calls, at;
} saboteur;

static void *cut_short(void *user, size_t bytes)
{
    saboteur *s = user;
    if (++s->calls == s->at)
        assert_int_equal(truncate(s->path, 8 + N * K), 0);
    return malloc(bytes + 1);
}

static void just_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

/* Loads a file that is cut short at call `at`; false if it was read by then. */
static bool load_while_cut(int64_t at, fp8_grid grid)
{
    saboteur s = {.at = 0};
    fp8_context_desc cd = FP8_CONTEXT_DESC_INIT;
    fp8_context *own;
    fp8_error said = {0};
    const fp8_layer_desc d = desc_of("big", grid);
    cd.allocator = (fp8_allocator){cut_short, just_free, &s};
    model_make("cut", &big, 1, "{}");
    snprintf(s.path, sizeof s.path, "%s", sandbox_path("cut/model.safetensors"));
    assert_done(fp8_context_create(&cd, &own, &err));
    loading l = begin_loading(own, &d, NULL);
    s.calls = 0;
    s.at = at;
    const fp8_status status = fp8_load_checkpoint(l.load, sandbox_path("cut"), &said);
    const bool reached = s.calls >= at;
    if (status != FP8_OK && status != FP8_E_TRUNCATED && status != FP8_E_MISMATCH)
        fail_msg("cut at allocation %d: %s: %s", (int)at, fp8_status_name(status), said.msg);
    if (status != FP8_OK && strncmp(said.msg, "layer big", 9) && !strstr(said.msg, "safetensors"))
        fail_msg("%s", said.msg);
    model_make("cut", &big, 1, "{}");
    if (status != FP8_OK)
        assert_done(fp8_load_checkpoint(l.load, sandbox_path("cut"), &err));
    fp8_tensor w = read_matrix("cut", "big.weight", N, K);
    assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
    free(w.data);
    end_loading(&l);
    fp8_context_free(own);
    return reached;
}

static void test_a_file_that_is_cut_short_while_it_is_read(void **state)
{
    (void)state;
    for (int tensor = 0; tensor <= 1; tensor++) {
        int64_t at = 1;
        while (load_while_cut(at, (fp8_grid){!tensor, 0}))
            at++;
        assert_true(at > 20);
    }
}

/* Memory that runs out leaves a load that can be given the checkpoint again. */
static fp8_status load_twice(const fp8_context *c, void *arg)
{
    const fp8_layer_desc d = desc_of("big", *(const fp8_grid *)arg);
    loading l = {0};
    fp8_status status = fp8_layer_create(c, &d, &l.layer, NULL);
    if (status == FP8_OK)
        status = fp8_load_create(c, NULL, &l.load, NULL);
    if (status == FP8_OK)
        status = fp8_load_add(l.load, l.layer, NULL);
    if (status == FP8_OK) {
        status = fp8_load_checkpoint(l.load, sandbox_path("good"), NULL);
        if (status == FP8_E_NO_MEMORY) { /* it runs out once */
            assert_done(fp8_load_checkpoint(l.load, sandbox_path("good"), &err));
            fp8_tensor w = read_matrix("good", "big.weight", N, K);
            assert_layer_is(l.layer, ctx, &d.linear, &w, NULL);
            free(w.data);
        }
    }
    end_loading(&l);
    return status;
}

static void test_memory_may_run_out_and_come_back(void **state)
{
    (void)state;
    const fp8_grid grids[] = {{0, 0}, {1, 0}, {64, 32}};
    model_make("good", &big, 1, "{}");
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++) {
        fp8_grid grid = grids[g];
        assert_true(meter_try(load_twice, &grid) > 20);
    }
}

/* ---- in part --------------------------------------------------------------------------------- */

/* Bytes that this process has read; 0 where that is not told. */
static long bytes_read(void)
{
    long bytes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    if (file && fscanf(file, "rchar: %ld", &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes;
}

/* A rank whose weight is cut along its columns reads those, if the rest is more than a page. */
static void test_a_rank_reads_its_columns(void **state)
{
    (void)state;
    enum { ROWS = 256, RANKS = 8, HEADER = 4096 };
    const struct {
        int64_t cols;
        bool in_part;
    } cases[] = {{4096, true}, {1024, false}};
    for (int c = 0; c < 2; c++) {
        const made_tensor down = {"down.weight", FP8_BF16, 2, {ROWS, cases[c].cols}, 0};
        const int64_t cols = cases[c].cols, share = cols / RANKS;
        fp8_layer_desc d = desc_of("down", (fp8_grid){1, 0});
        model_make("down", &down, 1, "{}");
        fp8_tensor w = read_matrix("down", "down.weight", ROWS, cols);
        d.n = ROWS;
        d.k = cols;
        d.cut = FP8_CUT_COLS;
        d.ranks = RANKS;
        for (d.rank = 0; d.rank < RANKS; d.rank++) {
            loading l = begin_loading(ctx, &d, NULL);
            const long before = bytes_read();
            assert_done(fp8_load_checkpoint(l.load, sandbox_path("down"), &err));
            const long read = bytes_read() - before;
            const long want = ROWS * 2 * (cases[c].in_part ? share : cols);
            if (before)
                assert_true(read >= want && read < want + 3 * HEADER);
            fp8_tensor mine = view_of(w, 0, ROWS, d.rank * share, share);
            assert_layer_is(l.layer, ctx, &d.linear, &mine, NULL);
            end_loading(&l);
        }
        free(w.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_of_two_kinds_are_refused),
        cmocka_unit_test(test_parts_with_scales_of_two_grids_are_refused),
        cmocka_unit_test(test_a_bias_of_another_size_is_refused),
        cmocka_unit_test(test_a_bias_that_the_layer_lacks_is_refused),
        cmocka_unit_test(test_another_checkpoint_after_one_that_failed),
        cmocka_unit_test(test_a_checkpoint_after_pieces),
        cmocka_unit_test(test_a_file_that_is_cut_short_while_it_is_read),
        cmocka_unit_test(test_memory_may_run_out_and_come_back),
        cmocka_unit_test(test_a_rank_reads_its_columns),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
