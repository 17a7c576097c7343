/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fault_load.c - every open, stat and read of fp8_load_checkpoint, and every call on a spill
 * file, fails, is cut short or interrupted, one after the other: the status says what happened,
 * each layer has the weight that it had or the new one, nothing leaks, and the same load then takes
 * what was refused. Killed at any of them, it leaves no file. */
#include "fault/fault.h"
#include "support/counted_alloc.h"
#include "support/layer_maker.h"
#include "support/model_maker.h"
#include "support/sandbox.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

/* Exit codes of the program that is run under the shim, beside those of fp8_status. */
enum { NO_SET_UP = 90, TORN_LAYER, NOT_RELOADABLE, WRONG_WEIGHT, LEAK };

enum { LAYERS = 3, FUSED_ROWS = 448, FEW_ROWS = 16, SIDE = 2304 };

/* A model of a fused layer, one that a rank of two has half the columns of, and a plain one with a
 * bias. */
static fp8_status declare(const fp8_context *ctx, fp8_layer *layers[LAYERS], const char *scheme)
{
    const fp8_layer_part parts[3] = {{"q", 256, 1}, {"k", 128, 1}, {"v", 64, 1}};
    static const char *const names[LAYERS] = {"qkv", "o", "up"};
    for (int i = 0; i < LAYERS; i++) {
        fp8_layer_desc d = FP8_LAYER_DESC_INIT;
        fp8_status status = fp8_online_linear(scheme, 0, &d.linear, NULL);
        d.name = names[i];
        d.n = i == 0 ? FUSED_ROWS : FEW_ROWS;
        d.k = i == 1 ? 2 * SIDE : 192;
        d.parts = i == 0 ? parts : NULL;
        d.part_count = i == 0 ? 3 : 0;
        d.cut = i == 1 ? FP8_CUT_COLS : FP8_CUT_NONE;
        d.rank = i == 1;
        d.ranks = 2;
        d.has_bias = i == 2;
        if (i != 1)
            d.rank = 0, d.ranks = 1;
        if (status == FP8_OK)
            status = fp8_layer_create(ctx, &d, &layers[i], NULL);
        if (status != FP8_OK)
            return status;
    }
    return FP8_OK;
}

static fp8_status begin(const fp8_context *ctx, fp8_layer *const layers[LAYERS], fp8_load **load)
{
    fp8_status status = fp8_load_create(ctx, NULL, load, NULL);
    for (int i = 0; i < LAYERS && status == FP8_OK; i++)
        status = fp8_load_add(*load, layers[i], NULL);
    return status;
}

/* A number that tells weights apart. */
static uint64_t sum_of(fp8_layer *layer)
{
    const fp8_linear *linear;
    uint64_t sum = 1469598103934665603U;
    if (fp8_layer_acquire(layer, 0, &linear, NULL) != FP8_OK)
        return 0;
    fp8_linear_info info;
    (void)fp8_linear_get_info(linear, &info);
    float *y = output_of(linear, 1);
    const unsigned char *bytes = (const unsigned char *)y;
    for (size_t i = 0; i < (size_t)info.n * sizeof *y; i++)
        sum = (sum ^ bytes[i]) * 1099511628211U;
    free(y);
    fp8_layer_release(layer);
    return sum;
}

static void sums_of(fp8_layer *const layers[LAYERS], uint64_t sums[LAYERS])
{
    for (int i = 0; i < LAYERS; i++)
        sums[i] = sum_of(layers[i]);
}

/* Loads `path` over layers that hold made-up weights; if that fails, checks them and tries again.
 */
static int reload(const fp8_context *ctx, fp8_layer *const layers[LAYERS], const char *path)
{
    uint64_t old[LAYERS], now[LAYERS], last[LAYERS], again[LAYERS];
    fp8_load *load = NULL;
    fp8_status made = begin(ctx, layers, &load);
    for (int i = 0; i < LAYERS && made == FP8_OK; i++)
        made = fp8_load_dummy(load, layers[i], 1, NULL);
    fp8_load_free(load);
    if (made != FP8_OK || begin(ctx, layers, &load) != FP8_OK)
        return NO_SET_UP;
    sums_of(layers, old);
    const fp8_status status = fp8_load_checkpoint(load, path, NULL);
    sums_of(layers, now);
    const fp8_status retried = fp8_load_checkpoint(load, path, NULL);
    const fp8_status finished = fp8_load_finish(load, NULL);
    sums_of(layers, last);
    fp8_load_free(load);
    if (retried != FP8_OK || finished != FP8_OK)
        return NOT_RELOADABLE;
    /* Once more, of which the shim knows nothing: what the weights should be. */
    made = begin(ctx, layers, &load);
    if (made == FP8_OK)
        made = fp8_load_checkpoint(load, path, NULL);
    fp8_load_free(load);
    sums_of(layers, again);
    for (int i = 0; i < LAYERS; i++) {
        if (now[i] != last[i] && (status == FP8_OK || now[i] != old[i]))
            return TORN_LAYER;
        if (made != FP8_OK || last[i] != again[i] || last[i] == old[i])
            return WRONG_WEIGHT;
    }
    return (int)status;
}

static int loader(const char *path, const char *scheme)
{
    counted_alloc a = {0};
    fp8_context *ctx = counted_context(&a);
    fp8_layer *layers[LAYERS] = {0};
    if (!ctx || declare(ctx, layers, scheme) != FP8_OK)
        return NO_SET_UP;
    const int code = reload(ctx, layers, path);
    for (int i = 0; i < LAYERS; i++)
        fp8_layer_free(layers[i]);
    fp8_context_free(ctx);
    return a.live ? LEAK : code;
}

/* ---- a spill file ---------------------------------------------------------------------------- */

/* A weight in pieces that all wait in a file; a piece that fails comes again. */
static int spill(const fp8_context *ctx, const char *directory, fp8_layer *layer,
                 const fp8_tensor *w)
{
    fp8_load_desc options = FP8_LOAD_DESC_INIT;
    fp8_load *load = NULL;
    fp8_status first = FP8_OK;
    int code = NO_SET_UP;
    options.max_waiting_bytes = 1;
    options.spill = directory;
    if (fp8_load_create(ctx, &options, &load, NULL) == FP8_OK &&
        fp8_load_add(load, layer, NULL) == FP8_OK)
        code = 0;
    for (int64_t i = 0; i < w->shape[0] && !code; i += 8) {
        fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
        piece.row = i;
        piece.data = view_of(*w, i, 8, 0, w->shape[1]);
        const fp8_status status = fp8_load_write(load, layer, &piece, NULL);
        first = first ? first : status;
        if (status != FP8_OK && fp8_load_write(load, layer, &piece, NULL) != FP8_OK)
            code = NOT_RELOADABLE;
    }
    if (!code && fp8_load_finish(load, NULL) != FP8_OK)
        code = NOT_RELOADABLE;
    fp8_load_free(load);
    return code ? code : (int)first;
}

static int spiller(const char *directory)
{
    counted_alloc a = {0};
    fp8_context *ctx = counted_context(&a);
    fp8_layer *layers[2] = {0};
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    fp8_tensor w = made_matrix(FP8_F32, 32, 40, 1);
    int code = NO_SET_UP;
    d.n = 32;
    d.k = 40;
    if (ctx && fp8_layer_create(ctx, &d, &layers[0], NULL) == FP8_OK &&
        fp8_layer_create(ctx, &d, &layers[1], NULL) == FP8_OK &&
        fp8_layer_set_source(layers[1], &w, NULL, 0, NULL) == FP8_OK)
        code = spill(ctx, directory, layers[0], &w);
    if (code < NO_SET_UP && sum_of(layers[0]) != sum_of(layers[1]))
        code = WRONG_WEIGHT;
    for (int i = 0; i < 2; i++)
        fp8_layer_free(layers[i]);
    fp8_context_free(ctx);
    free(w.data);
    return a.live ? LEAK : code;
}

static void a_spill_file_meets_every_failure(void **state)
{
    (void)state;
    static const fault_case cases[] = {
        {"create", "ENOSPC", FP8_E_NO_SPACE, 0}, {"create", "EMFILE", FP8_E_IO, 0},
        {"pwrite", "ENOSPC", FP8_E_NO_SPACE, 0}, {"pwrite", "EIO", FP8_E_IO, 0},
        {"pwrite", "short", FP8_OK, 0},          {"pwrite", "EINTR", FP8_OK, 0},
        {"pread", "EIO", FP8_E_IO, 0},           {"pread", "eof", FP8_E_IO, 0},
        {"pread", "short", FP8_OK, 0},           {"pread", "EINTR", FP8_OK, 0},
    };
    static const fault_table table = {
        .cases = cases, .count = sizeof cases / sizeof *cases, .path = "/spill", .least = 1};
    char *argv[] = {"/proc/self/exe", "--spill", (char *)sandbox_path("spill"), NULL};
    assert_int_equal(mkdir(argv[2], 0777), 0);
    fault_table_run(&table, argv);
}

static int entries_of(const char *directory)
{
    int count = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

static void death_leaves_no_spill_file(void **state)
{
    (void)state;
    static const char *const deeds[] = {"kill", "torn", "killafter"};
    char *argv[] = {"/proc/self/exe", "--spill", (char *)sandbox_path("dying-spill"), NULL};
    assert_int_equal(mkdir(argv[2], 0777), 0);
    for (size_t d = 0; d < 3; d++) {
        fault_plan plan = {.call = "change", .deed = deeds[d], .path = "/dying-spill"};
        long calls = 0;
        assert_int_equal(fault_run(&plan, argv, &calls), FP8_OK);
        assert_true(calls >= 5); /* the file, and a block of each piece */
        for (plan.at = 1; plan.at <= calls; plan.at++) {
            assert_int_equal(fault_run(&plan, argv, NULL), 128 + SIGKILL);
            assert_int_equal(entries_of(argv[2]), 0);
        }
    }
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

static void every_call_fails(const char *scheme)
{
    static const fault_case cases[] = {
        {"pread", "EIO", FP8_E_IO, 0},   {"pread", "EINTR", FP8_OK, 0},
        {"pread", "short", FP8_OK, 0},   {"open", "EMFILE", FP8_E_IO, 0},
        {"open", "EACCES", FP8_E_IO, 0}, {"pread", "eof", FP8_E_TRUNCATED, 0},
        {"stat", "EIO", FP8_E_IO, 0},
    };
    fault_table table = {
        .cases = cases,
        .count = sizeof cases / sizeof *cases,
        .path = "/model/",
        .least = 10,
        .turns = 3, /* loads that the program makes */
        .most = 12, /* rows of `o` are read one by one */
    };
    char *argv[] = {"/proc/self/exe", "--load", (char *)sandbox_path("model"),
                    (char *)(uintptr_t)scheme, NULL};
    if (getenv("FP8_TEST_EXHAUSTIVE"))
        table.most = 0;
    fault_table_run(&table, argv);
}

static void each_failure_has_its_status(void **state)
{
    (void)state;
    every_call_fails("channel");
    every_call_fails("tensor"); /* is read twice */
}

static int make_model(void **state)
{
    (void)state;
    static const made_tensor tensors[] = {
        {"q.weight", FP8_BF16, 2, {256, 192}, 0},
        {"k.weight", FP8_BF16, 2, {128, 192}, 1},
        {"v.weight", FP8_BF16, 2, {64, 192}, 0},
        {"o.weight", FP8_BF16, 2, {FEW_ROWS, 2 * SIDE}, 1},
        {"up.weight", FP8_BF16, 2, {FEW_ROWS, 192}, 1},
        {"up.bias", FP8_BF16, 1, {FEW_ROWS}, 1},
    };
    setenv("OMP_NUM_THREADS", "1", 1); /* of the programs */
    sandbox_make();
    model_make("model", tensors, sizeof tensors / sizeof *tensors, "{}");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--load"))
        return loader(argv[2], argv[3]);
    if (argc == 3 && !strcmp(argv[1], "--spill"))
        return spiller(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failure_has_its_status),
        cmocka_unit_test(a_spill_file_meets_every_failure),
        cmocka_unit_test(death_leaves_no_spill_file),
    };
    return cmocka_run_group_tests(tests, make_model, fault_tear_down);
}
