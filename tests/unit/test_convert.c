/* SPDX-License-Identifier: Apache-2.0
 *
 * test_convert.c - whole conversions of small models: the bytes are those of the simple calls on
 * whole matrices, whatever the slabs and threads; what is carried over; replacing and resuming; bad
 * input; memory that runs out. */
#include "convert/convert.h"
#include "convert/geometry.h"
#include "support/counted_alloc.h"
#include "support/model_maker.h"
#include "support/sandbox.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static fp8_context *ctx;

static int make_sandbox(void **state)
{
    (void)state;
    sandbox_make();
    model_make_llama("model", 3);
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static int drop_sandbox(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    sandbox_remove();
    return 0;
}

static fp8_convert_desc request(fp8_verb verb, const char *src, const char *dst)
{
    static char paths[2][1024]; /* of the latest request */
    fp8_convert_desc d = FP8_CONVERT_DESC_INIT;
    snprintf(paths[0], sizeof paths[0], "%s", sandbox_path(src));
    snprintf(paths[1], sizeof paths[1], "%s", sandbox_path(dst));
    d.verb = verb;
    d.src = paths[0];
    d.dst = paths[1];
    return d;
}

static void must_convert(const fp8_convert_desc *desc)
{
    fp8_error err = {.msg = ""};
    fp8_status status = model_convert(ctx, desc, &err);
    if (status != FP8_OK)
        printf("%s: %s\n", fp8_status_name(status), err.msg);
    assert_int_equal(status, FP8_OK);
}

static void must_fail(const fp8_convert_desc *desc, fp8_status status, const char *words)
{
    fp8_error err = {.msg = ""};
    assert_int_equal(model_convert(ctx, desc, &err), status);
    assert_int_equal(err.code, status);
    if (!strstr(err.msg, words))
        printf("'%s' lacks '%s'\n", err.msg, words);
    assert_non_null(strstr(err.msg, words));
    assert_int_not_equal(access(desc->dst, F_OK), 0);
}

static bool exists(const char *name)
{
    return access(sandbox_path(name), F_OK) == 0;
}

static fp8_checkpoint *open_model(const char *name)
{
    fp8_checkpoint *ckpt;
    assert_int_equal(fp8_checkpoint_open(ctx, sandbox_path(name), &ckpt, NULL), FP8_OK);
    return ckpt;
}

/* ---- the bytes ---- */

/* codes and scales of matrix [rows, cols] at `x`, by one call. */
static void quantize_whole(fp8_grid grid, fp8_dtype scale, void *x, int64_t rows, int64_t cols,
                           unsigned char *codes, unsigned char *scales)
{
    int64_t gr = grid.rows ? (rows + grid.rows - 1) / grid.rows : 1;
    int64_t gc = grid.cols ? (cols + grid.cols - 1) / grid.cols : 1;
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.grid = grid;
    fp8_tensor xt = fp8_matrix(x, FP8_BF16, rows, cols);
    fp8_tensor ct = fp8_matrix(codes, FP8_E4M3FN, rows, cols);
    fp8_tensor st = fp8_matrix(scales, scale, gr, gc);
    assert_int_equal(fp8_quantize(ctx, &desc, &xt, &ct, &st, NULL, NULL), FP8_OK);
}

static void check_weight(const fp8_checkpoint *from, const fp8_checkpoint *to, const char *name,
                         const char *scale_name, fp8_grid grid, fp8_dtype scale)
{
    fp8_tensor_info x, c, s;
    unsigned char *values = model_read(from, name, &x);
    unsigned char *codes = model_read(to, name, &c), *scales = model_read(to, scale_name, &s);
    assert_int_equal(c.dtype, FP8_E4M3FN);
    int64_t experts = x.ndim == 3 ? x.shape[0] : 1;
    int64_t rows = x.shape[x.ndim - 2], cols = x.shape[x.ndim - 1];
    unsigned char *want = malloc(c.bytes), *want_scales = malloc(s.bytes);
    for (int64_t e = 0; e < experts; e++)
        quantize_whole(grid, scale, values + e * rows * cols * 2, rows, cols,
                       want + e * rows * cols, want_scales + e * (int64_t)s.bytes / experts);
    assert_memory_equal(codes, want, c.bytes);
    assert_memory_equal(scales, want_scales, s.bytes);
    free(values);
    free(codes);
    free(scales);
    free(want);
    free(want_scales);
}

static void bytes_are_those_of_the_simple_calls(void **state)
{
    (void)state;
    static const struct {
        const char *scheme, *weight, *scale_name;
        fp8_grid grid;
        fp8_dtype scale;
    } cases[] = {
        {"hf-block", "o_proj.weight", "o_proj.weight_scale_inv", {128, 128}, FP8_F32},
        {"hf-tensor", "o_proj.weight", "o_proj.weight_scale", {0, 0}, FP8_F32},
        {"ct-channel", "o_proj.weight", "o_proj.weight_scale", {1, 0}, FP8_F32},
        {"ct-mxfp8", "o_proj.weight", "o_proj.weight_scale", {1, 32}, FP8_E8M0FNU},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char weight[128], scale[128];
        snprintf(weight, sizeof weight, "model.layers.1.self_attn.%s", cases[i].weight);
        snprintf(scale, sizeof scale, "model.layers.1.self_attn.%s", cases[i].scale_name);
        fp8_convert_desc d = request(FP8_QUANTIZE, "model", cases[i].scheme);
        d.scheme = cases[i].scheme;
        must_convert(&d);
        fp8_checkpoint *from = open_model("model"), *to = open_model(cases[i].scheme);
        assert_string_equal(fp8_checkpoint_dialect(to), cases[i].scheme);
        check_weight(from, to, weight, scale, cases[i].grid, cases[i].scale);
        if (i == 0)
            check_weight(from, to, "model.layers.0.mlp.experts.down_proj",
                         "model.layers.0.mlp.experts.down_proj_scale_inv", cases[i].grid,
                         cases[i].scale);
        fp8_checkpoint_close(from);
        fp8_checkpoint_close(to);
    }
}

/* Every tensor of the source is in the output, and kept ones have their bytes. */
static void nothing_is_lost(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "out");
    must_convert(&d);
    fp8_checkpoint *from = open_model("model"), *to = open_model("out");
    int64_t kept = 0;
    for (int64_t i = 0; i < fp8_checkpoint_count(from); i++) {
        fp8_tensor_info a, b;
        fp8_checkpoint_tensor(from, i, &a);
        unsigned char *x = model_read(from, a.name, &a), *y = model_read(to, a.name, &b);
        assert_int_equal(a.ndim, b.ndim);
        assert_memory_equal(a.shape, b.shape, (size_t)a.ndim * sizeof *a.shape);
        if (a.dtype == b.dtype) {
            assert_memory_equal(x, y, a.bytes);
            kept++;
        }
        free(x);
        free(y);
    }
    assert_int_equal(kept, 7); /* two routers, three norms, embedding, head */
    fp8_checkpoint_close(from);
    fp8_checkpoint_close(to);
    assert_true(exists("out/tokenizer.json") && exists("out/README.md"));
    assert_true(exists("out/1_Pooling/config.json"));
    assert_false(exists("out/pytorch_model.bin"));
    assert_false(exists("out.partial"));
}

/* One run with slabs of so many bytes, as if memory were scarce. */
static void convert_with_slabs(const fp8_convert_desc *desc, const fp8_context *with,
                               uint64_t slab_bytes, int32_t slots)
{
    fp8_convert *conv;
    fp8_error err = {.msg = ""};
    assert_int_equal(fp8_convert_plan(with, desc, &conv, &err), FP8_OK);
    conv->limits.slab_bytes = slab_bytes;
    conv->limits.slots = slots;
    conv->limits.sync_bytes = 20000;
    fp8_limits_scratch(conv);
    fp8_status status = fp8_convert_run(conv, NULL, NULL, &err);
    if (status != FP8_OK)
        printf("%s\n", err.msg);
    assert_int_equal(status, FP8_OK);
    fp8_convert_free(conv);
}

/* Small slabs cut blocks apart, so that they need two passes; the bytes stay. */
static void slabs_and_threads_do_not_matter(void **state)
{
    (void)state;
    static const char *const schemes[] = {"hf-block", "hf-tensor", "ct-channel", "ct-block",
                                          "ct-mxfp8", "comfy",     "ct-tensor",  "modelopt-pcpt"};
    static const uint64_t slabs[] = {26000, 90000, 1 << 20};
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
        fp8_convert_desc d = request(FP8_QUANTIZE, "model", schemes[s]);
        d.scheme = schemes[s];
        must_convert(&d);
        d = request(FP8_QUANTIZE, "model", "other");
        d.scheme = schemes[s];
        d.force = 1;
        for (size_t k = 0; k < sizeof slabs / sizeof *slabs; k++)
            for (int32_t threads = 1; threads <= 3; threads += 2) {
                fp8_context_desc cd = FP8_CONTEXT_DESC_INIT;
                fp8_context *with;
                cd.threads = threads;
                assert_int_equal(fp8_context_create(&cd, &with, NULL), FP8_OK);
                convert_with_slabs(&d, with, slabs[k], 3 + (int32_t)k);
                fp8_context_free(with);
                assert_true(folders_equal(sandbox_path(schemes[s]), sandbox_path("other")));
            }
        d = request(FP8_DEQUANTIZE, schemes[s], "back");
        d.force = 1;
        must_convert(&d);
        d = request(FP8_DEQUANTIZE, schemes[s], "back2");
        d.force = 1;
        convert_with_slabs(&d, ctx, slabs[0], 3);
        assert_true(folders_equal(sandbox_path("back"), sandbox_path("back2")));
    }
}

/* Dequantized values are code * scale, rounded once; the config loses its announcement. */
static void dequantize_gives_code_times_scale(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "q");
    must_convert(&d);
    d = request(FP8_DEQUANTIZE, "q", "f32");
    d.dtype = FP8_F32;
    must_convert(&d);
    fp8_checkpoint *q = open_model("q"), *f = open_model("f32");
    assert_string_equal(fp8_checkpoint_dialect(f), "none");
    const char *name = "model.layers.0.mlp.down_proj.weight";
    fp8_tensor_info c, s, y;
    unsigned char *codes = model_read(q, name, &c), *values = model_read(f, name, &y);
    unsigned char *scales = model_read(q, "model.layers.0.mlp.down_proj.weight_scale_inv", &s);
    int64_t rows = c.shape[0], cols = c.shape[1];
    float *want = malloc((size_t)(rows * cols) * sizeof *want);
    fp8_tensor ct = fp8_matrix(codes, FP8_E4M3FN, rows, cols), yt;
    fp8_tensor st = fp8_matrix(scales, FP8_F32, s.shape[0], s.shape[1]);
    yt = fp8_matrix(want, FP8_F32, rows, cols);
    assert_int_equal(fp8_dequantize(ctx, (fp8_grid){128, 128}, &ct, &st, &yt, NULL, NULL), FP8_OK);
    assert_int_equal(y.dtype, FP8_F32);
    assert_memory_equal(values, want, y.bytes);
    free(codes);
    free(scales);
    free(values);
    free(want);
    fp8_checkpoint_close(q);
    fp8_checkpoint_close(f);
}

/* Between dialects of one grid the codes stay; there and back gives the same files. */
static void convert_renames_or_requantizes(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "hf");
    fp8_pattern no_experts = {FP8_PATTERN_KEEP, "*.experts.*", NULL}; /* CT cannot hold them */
    d.patterns = &no_experts;
    d.pattern_count = 1;
    must_convert(&d);
    d = request(FP8_CONVERT, "hf", "ct");
    d.scheme = "ct-block";
    must_convert(&d);
    d = request(FP8_CONVERT, "ct", "hf2");
    must_convert(&d);
    assert_true(folders_equal(sandbox_path("hf"), sandbox_path("hf2")));
    d = request(FP8_CONVERT, "hf", "channel");
    d.scheme = "ct-channel";
    must_convert(&d);
    fp8_checkpoint *c = open_model("channel");
    assert_string_equal(fp8_checkpoint_dialect(c), "ct-channel");
    fp8_tensor_info info;
    free(model_read(c, "model.layers.0.mlp.down_proj.weight_scale", &info));
    assert_int_equal(info.shape[0], 192);
    assert_int_equal(info.shape[1], 1);
    fp8_checkpoint_close(c);
}

/* q, k and v of a per-tensor scheme have one scale; for transformers each has its own. */
static void fused_weights_share_a_scale(void **state)
{
    (void)state;
    static const char *const parts[] = {"q_proj", "k_proj", "v_proj"};
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "t");
    d.scheme = "ct-tensor";
    must_convert(&d);
    d = request(FP8_QUANTIZE, "model", "t2");
    d.scheme = "ct-tensor";
    d.engine = "transformers";
    must_convert(&d);
    fp8_checkpoint *fused = open_model("t"), *single = open_model("t2");
    float scales[2][3];
    for (int k = 0; k < 3; k++) {
        char name[128];
        fp8_tensor_info info;
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s.weight_scale", parts[k]);
        unsigned char *a = model_read(fused, name, &info), *b = model_read(single, name, &info);
        memcpy(&scales[0][k], a, 4);
        memcpy(&scales[1][k], b, 4);
        free(a);
        free(b);
    }
    float most = scales[1][0];
    for (int k = 0; k < 3; k++)
        most = scales[1][k] > most ? scales[1][k] : most;
    for (int k = 0; k < 3; k++)
        assert_true(scales[0][k] == most);
    assert_true(scales[1][0] != scales[1][1] || scales[1][1] != scales[1][2]);
    fp8_checkpoint_close(fused);
    fp8_checkpoint_close(single);
}

/* ---- files and folders ---- */

static void shards_follow_the_source_or_the_limit(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "same");
    must_convert(&d);
    assert_true(exists("same/model-00001-of-00003.safetensors"));
    assert_true(exists("same/model-00003-of-00003.safetensors"));
    d = request(FP8_QUANTIZE, "model", "small");
    d.max_shard_bytes = 100000;
    must_convert(&d);
    fp8_checkpoint *small = open_model("small");
    assert_null(fp8_checkpoint_warning(small, 0));
    assert_true(small->shard_count > 5);
    for (int64_t s = 0; s < small->shard_count; s++)
        assert_true(small->shards[s].header.data_bytes <= 100000 ||
                    small->shards[s].header.count <= 2);
    fp8_checkpoint_close(small);
    d = request(FP8_QUANTIZE, "model", "one");
    d.max_shard_bytes = 1 << 30;
    must_convert(&d);
    assert_true(exists("one/model.safetensors"));
    assert_false(exists("one/model.safetensors.index.json"));
    d = request(FP8_QUANTIZE, "one/../model/model-00002-of-00003.safetensors", "single");
    must_convert(&d);
    assert_true(exists("single/model-00002-of-00003.safetensors"));
    assert_false(exists("single/tokenizer.json"));
}

static void targets_are_checked(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "model/inside");
    must_fail(&d, FP8_E_ARGUMENT, "inside");
    d = request(FP8_QUANTIZE, "model", "nowhere/out");
    must_fail(&d, FP8_E_IO, "does not exist");
    d = request(FP8_QUANTIZE, "model", "..");
    fp8_error err;
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_ARGUMENT);
    d = request(FP8_QUANTIZE, "model", "model");
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_ARGUMENT);
    d.force = 1;
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_ARGUMENT);
    assert_true(exists("model/config.json"));
    sandbox_text("plain", "a file");
    d = request(FP8_QUANTIZE, "model", "plain");
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_EXISTS);
    d.force = 1;
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_EXISTS);
}

static void force_replaces_the_whole_folder(void **state)
{
    (void)state;
    assert_int_equal(mkdir(sandbox_path("old"), 0777), 0);
    sandbox_text("old/stale.txt", "x");
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "old");
    fp8_error err;
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_EXISTS);
    assert_true(exists("old/stale.txt"));
    d.force = 1;
    must_convert(&d);
    assert_false(exists("old/stale.txt"));
    assert_true(exists("old/config.json"));
    assert_false(exists("old.partial"));
}

static void stop_now(void *conv, const fp8_progress *progress)
{
    if (progress->bytes_done)
        fp8_convert_stop(conv);
}

static void on_finding(void *rule, const fp8_finding *finding)
{
    assert_true(finding->is_error);
    snprintf(rule, 32, "%s", finding->rule);
}

/* The only finding of what a stopped run leaves, as a whole and in parts. */
static void is_found_unfinished(const char *path)
{
    char rule[32] = "";
    fp8_verify_summary sum;
    fp8_verify_desc d = FP8_VERIFY_DESC_INIT;
    d.path = sandbox_path(path);
    assert_int_equal(fp8_verify(ctx, &d, on_finding, rule, &sum, NULL), FP8_OK);
    assert_string_equal(rule, "unfinished");
    assert_int_equal(sum.errors, 1);
}

static void stop_at_once(const fp8_convert_desc *d)
{
    fp8_convert *conv;
    assert_int_equal(fp8_convert_plan(ctx, d, &conv, NULL), FP8_OK);
    fp8_convert_stop(conv);
    assert_int_equal(fp8_convert_run(conv, NULL, NULL, NULL), FP8_E_STOPPED);
    fp8_convert_free(conv);
}

/* Nobody goes on with, nor starts over, what another process holds. */
static void a_run_at_work_is_left_alone(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "busy");
    fp8_convert *planned;
    d.force = 1;
    assert_int_equal(fp8_convert_plan(ctx, &d, &planned, NULL), FP8_OK);
    stop_at_once(&d);
    const int fd = open(sandbox_path("busy.partial/journal.1"), O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    must_fail(&d, FP8_E_STATE, "another process is at work");
    assert_int_equal(fp8_convert_run(planned, NULL, NULL, NULL), FP8_E_STATE);
    d.force = 0;
    must_fail(&d, FP8_E_STATE, "another process is at work");
    d.resume = 1;
    must_fail(&d, FP8_E_STATE, "another process is at work");
    assert_true(exists("busy.partial/journal.1"));
    close(fd);
    assert_int_equal(fp8_convert_run(planned, NULL, NULL, NULL), FP8_OK);
    fp8_convert_free(planned);
    assert_true(exists("busy/config.json"));
}

static void remove_journal(void *path, const fp8_progress *progress)
{
    (void)progress;
    unlink(path);
}

/* Somebody cleans up: the run has nothing to show, and says so. */
static void a_run_without_its_journal_fails(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "gone");
    fp8_convert *conv;
    fp8_error err = {.msg = ""};
    char path[1024];
    snprintf(path, sizeof path, "%s", sandbox_path("gone.partial/journal.1"));
    assert_int_equal(fp8_convert_plan(ctx, &d, &conv, &err), FP8_OK);
    assert_int_equal(fp8_convert_run(conv, remove_journal, path, &err), FP8_E_IO);
    assert_non_null(strstr(err.msg, "was removed"));
    fp8_convert_free(conv);
    assert_false(exists("gone"));
}

static void a_stopped_run_can_be_resumed(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "whole");
    must_convert(&d);
    d = request(FP8_QUANTIZE, "model", "parted");
    fp8_convert *conv;
    fp8_error err = {.msg = ""};
    assert_int_equal(fp8_convert_plan(ctx, &d, &conv, &err), FP8_OK);
    fp8_convert_stop(conv);
    assert_int_equal(fp8_convert_run(conv, stop_now, conv, &err), FP8_E_STOPPED);
    fp8_convert_free(conv);
    assert_true(exists("parted.partial"));
    assert_false(exists("parted"));
    is_found_unfinished("parted.partial");
    is_found_unfinished("parted.partial/files");
    is_found_unfinished("parted.partial/journal.1");
    assert_int_equal(rename(sandbox_path("parted.partial/journal.1"), sandbox_path("moved")), 0);
    is_found_unfinished("parted.partial/"); /* stopped before it had one */
    assert_int_equal(rename(sandbox_path("moved"), sandbox_path("parted.partial/journal.1")), 0);
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_EXISTS); /* neither resume nor force */
    d.resume = 1;
    d.scheme = "ct-block";
    assert_int_equal(model_convert(ctx, &d, &err), FP8_E_MISMATCH); /* other options */
    assert_true(exists("parted.partial"));
    d.scheme = NULL;
    must_convert(&d);
    assert_true(folders_equal(sandbox_path("whole"), sandbox_path("parted")));
    assert_false(exists("parted.partial"));
}

static void parts_make_the_same_folder(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "alone");
    must_convert(&d);
    d = request(FP8_QUANTIZE, "model", "together");
    d.part_count = 5; /* more than there are shards */
    for (int32_t i = 5; i >= 1; i--) {
        assert_false(exists("together"));
        d.part_index = i;
        must_convert(&d);
    }
    assert_true(folders_equal(sandbox_path("alone"), sandbox_path("together")));
    assert_false(exists("together.partial"));
}

/* ---- bad input ---- */

static const unsigned char nan_bf16[2] = {0xc0, 0x7f};

static void nan_is_refused_by_name_and_place(void **state)
{
    (void)state;
    model_make_llama("sick", 2);
    model_poke("sick", "model.layers.1.mlp.down_proj.weight", 384 * 150 + 7, nan_bf16, 2);
    static const char *const schemes[] = {"hf-block", "hf-tensor", "ct-channel"};
    for (int i = 0; i < 3; i++) {
        fp8_convert_desc d = request(FP8_QUANTIZE, "sick", "out");
        d.scheme = schemes[i];
        must_fail(&d, FP8_E_NAN, "model.layers.1.mlp.down_proj.weight");
        must_fail(&d, FP8_E_NAN, "row 150, column 7");
        assert_false(exists("out.partial"));
    }
}

/* The header, the index and the config know that the tensor was kept. */
static void nan_can_be_kept(void **state)
{
    (void)state;
    model_make_llama("sick", 2);
    model_poke("sick", "model.layers.1.mlp.down_proj.weight", 5, nan_bf16, 2);
    model_poke("sick", "model.layers.0.self_attn.k_proj.weight", 9, nan_bf16, 2);
    fp8_convert_desc d = request(FP8_QUANTIZE, "sick", "out");
    d.keep_nan = 1;
    fp8_convert *conv;
    assert_int_equal(fp8_convert_plan(ctx, &d, &conv, NULL), FP8_OK);
    assert_int_equal(fp8_convert_run(conv, NULL, NULL, NULL), FP8_OK);
    int warnings = 0;
    for (int64_t i = 0; fp8_convert_warning(conv, i); i++)
        warnings += strstr(fp8_convert_warning(conv, i), "NaN") != NULL;
    assert_int_equal(warnings, 2);
    fp8_convert_free(conv);
    fp8_checkpoint *out = open_model("out");
    fp8_tensor_info info;
    static const char *const kept[] = {
        "model.layers.1.mlp.down_proj.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight"};
    for (int i = 0; i < 4; i++) {
        free(model_read(out, kept[i], &info));
        assert_int_equal(info.dtype, FP8_BF16);
    }
    free(model_read(out, "model.layers.1.self_attn.k_proj.weight", &info));
    assert_int_equal(info.dtype, FP8_E4M3FN);
    assert_non_null(strstr(out->config, "model.layers.1.mlp.down_proj"));
    assert_non_null(strstr(out->config, "model.layers.0.self_attn.q_proj"));
    assert_null(fp8_checkpoint_warning(out, 0));
    fp8_checkpoint_close(out);
}

static void verbs_must_fit_the_source(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "q");
    must_convert(&d);
    d = request(FP8_QUANTIZE, "q", "out");
    must_fail(&d, FP8_E_MISMATCH, "already quantized");
    d = request(FP8_DEQUANTIZE, "model", "out");
    must_fail(&d, FP8_E_MISMATCH, "no FP8 weight");
    d = request(FP8_CONVERT, "model", "out");
    must_fail(&d, FP8_E_MISMATCH, "use quantize");
}

static void too_little_memory_is_an_error(void **state)
{
    (void)state;
    static const made_tensor wide[] = {{"a.weight", FP8_BF16, 2, {2, 3000000, 0}, 0}};
    model_make("wide", wide, 1, "{}");
    fp8_convert_desc d = request(FP8_QUANTIZE, "wide", "out");
    d.max_memory_bytes = 1 << 20;
    must_fail(&d, FP8_E_NO_MEMORY, "rows of 6000000 bytes in a.weight");
    d.max_memory_bytes = (uint64_t)1 << 30;
    must_convert(&d);
}

/* ---- memory ---- */

/* Every allocation of a plan and a run fails once: NO_MEMORY, nothing leaks, and the run that
 * follows gives the right bytes. */
static void memory_may_run_out(void **state)
{
    (void)state;
    fp8_convert_desc d = request(FP8_QUANTIZE, "model", "right");
    d.scheme = "hf-tensor";
    d.max_memory_bytes = 32 << 20;
    must_convert(&d);
    d = request(FP8_QUANTIZE, "model", "failing");
    d.scheme = "hf-tensor";
    d.max_memory_bytes = 32 << 20;
    d.resume = 1;
    for (int64_t n = 1;; n++) {
        counted_alloc a = {.fail_at = n};
        fp8_context *counted = counted_context(&a);
        fp8_error err = {.msg = ""};
        assert_non_null(counted);
        fp8_status status = model_convert(counted, &d, &err);
        fp8_context_free(counted);
        assert_int_equal(a.live, 0);
        if (a.calls < n) {
            assert_int_equal(status, FP8_OK);
            printf("memory_may_run_out: %lld allocations\n", (long long)n - 1);
            break;
        }
        if (status == FP8_OK) { /* the advice about a file may fail */
            d.force = 1;
            continue;
        }
        if (status != FP8_E_NO_MEMORY)
            printf("allocation %lld: %s\n", (long long)n, err.msg);
        assert_int_equal(status, FP8_E_NO_MEMORY);
    }
    assert_true(folders_equal(sandbox_path("right"), sandbox_path("failing")));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_sandbox, drop_sandbox)
    const struct CMUnitTest tests[] = {
        TEST(bytes_are_those_of_the_simple_calls),
        TEST(nothing_is_lost),
        TEST(slabs_and_threads_do_not_matter),
        TEST(dequantize_gives_code_times_scale),
        TEST(convert_renames_or_requantizes),
        TEST(fused_weights_share_a_scale),
        TEST(shards_follow_the_source_or_the_limit),
        TEST(targets_are_checked),
        TEST(force_replaces_the_whole_folder),
        TEST(a_run_at_work_is_left_alone),
        TEST(a_run_without_its_journal_fails),
        TEST(a_stopped_run_can_be_resumed),
        TEST(parts_make_the_same_folder),
        TEST(nan_is_refused_by_name_and_place),
        TEST(nan_can_be_kept),
        TEST(verbs_must_fit_the_source),
        TEST(too_little_memory_is_an_error),
        TEST(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
