/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fused.c - weights that engines fuse, through whole conversions: all parts alike or none, and
 * one scale for all where there is one a tensor. */
#include "support/model_maker.h"
#include "support/sandbox_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

#define ATTENTION "model.layers.0.self_attn."
#define EXPERT    "model.layers.0.mlp.experts.1."

static const made_tensor dense[] = {
    {ATTENTION "q_proj.weight", FP8_BF16, 2, {192, 128}, 0},
    {ATTENTION "k_proj.weight", FP8_BF16, 2, {64, 128}, 0},
    {ATTENTION "v_proj.weight", FP8_BF16, 2, {128, 128}, 0},
    {ATTENTION "o_proj.weight", FP8_BF16, 2, {128, 192}, 0},
};
static const made_tensor experts[] = {
    {EXPERT "gate_proj.weight", FP8_BF16, 2, {192, 128}, 0},
    {EXPERT "up_proj.weight", FP8_BF16, 2, {192, 128}, 0},
    {EXPERT "down_proj.weight", FP8_BF16, 2, {128, 192}, 0},
    {"model.layers.0.block_sparse_moe.experts.0.w1.weight", FP8_BF16, 2, {192, 128}, 0},
    {"model.layers.0.block_sparse_moe.experts.0.w2.weight", FP8_BF16, 2, {128, 192}, 0},
    {"model.layers.0.block_sparse_moe.experts.0.w3.weight", FP8_BF16, 2, {192, 128}, 0},
};

static int set_up(void **state)
{
    (void)state;
    sandbox_make();
    model_make("dense", dense, sizeof dense / sizeof *dense,
               "{\n  \"model_type\": \"llama\",\n  \"torch_dtype\": \"float16\"\n}\n");
    model_make("experts", experts, sizeof experts / sizeof *experts,
               "{\n  \"model_type\": \"qwen3_moe\"\n}\n");
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static void convert(fp8_verb verb, const char *src, const char *dst, const char *scheme,
                    const char *engine)
{
    fp8_convert_desc d = FP8_CONVERT_DESC_INIT;
    fp8_error err = {.msg = ""};
    d.verb = verb;
    d.src = sandbox_path(src);
    d.dst = sandbox_path(dst);
    d.scheme = scheme;
    d.engine = engine;
    if (model_convert(ctx, &d, &err) != FP8_OK)
        fail_msg("%s", err.msg);
}

static fp8_checkpoint *open_model(const char *name)
{
    fp8_checkpoint *ckpt;
    assert_int_equal(fp8_checkpoint_open(ctx, sandbox_path(name), &ckpt, NULL), FP8_OK);
    return ckpt;
}

static float scale_of(const fp8_checkpoint *ckpt, const char *name)
{
    fp8_tensor_info info;
    float value;
    unsigned char *data = model_read(ckpt, name, &info);
    assert_int_equal(info.bytes, sizeof value);
    memcpy(&value, data, sizeof value);
    free(data);
    return value;
}

static void print_finding(void *user, const fp8_finding *f)
{
    (void)user;
    printf("%s %s %s\n", f->rule, f->tensor, f->message);
}

/* Nothing is wrong with it, for the engine either; source may be NULL. */
static void must_verify(const char *folder, const char *source, const char *engine)
{
    fp8_verify_desc d = FP8_VERIFY_DESC_INIT;
    fp8_verify_summary summary;
    d.path = sandbox_path(folder);
    d.against = source ? sandbox_path(source) : NULL;
    d.engine = engine;
    assert_int_equal(fp8_verify(ctx, &d, print_finding, NULL, &summary, NULL), FP8_OK);
    assert_int_equal(summary.errors, 0);
    assert_int_equal(summary.warnings, 0);
    assert_int_equal(summary.compared > 0, source != NULL);
}

static void same_bytes(const char *a, const char *b, const char *name)
{
    fp8_tensor_info in_a, in_b;
    fp8_checkpoint *x = open_model(a), *y = open_model(b);
    unsigned char *p = model_read(x, name, &in_a), *q = model_read(y, name, &in_b);
    assert_int_equal(in_a.dtype, in_b.dtype);
    assert_int_equal(in_a.bytes, in_b.bytes);
    assert_memory_equal(p, q, in_a.bytes);
    free(p);
    free(q);
    fp8_checkpoint_close(x);
    fp8_checkpoint_close(y);
}

static void config_has(const char *folder, const char *text, bool there)
{
    char name[256], json[8192];
    snprintf(name, sizeof name, "%s/config.json", folder);
    FILE *file = fopen(sandbox_path(name), "rb");
    assert_non_null(file);
    size_t n = fread(json, 1, sizeof json - 1, file);
    fclose(file);
    json[n] = 0;
    if ((strstr(json, text) != NULL) != there)
        fail_msg("%s: '%s' must%s be in: %s", name, text, there ? "" : " not", json);
}

/* 192 rows of q are a block and a half, which vLLM refuses in a fused matrix: q, k and v get back
 * the precision that the config names, although v alone could be written. */
static void what_cannot_be_carried_over_is_dequantized(void **state)
{
    (void)state;
    convert(FP8_QUANTIZE, "dense", "tensor", "hf-tensor", "vllm");
    convert(FP8_CONVERT, "tensor", "block", "hf-block", "vllm");
    fp8_checkpoint *ckpt = open_model("block");
    static const char *const names[] = {ATTENTION "q_proj.weight", ATTENTION "k_proj.weight",
                                        ATTENTION "v_proj.weight", ATTENTION "o_proj.weight"};
    for (int i = 0; i < 4; i++) {
        fp8_tensor_info info;
        assert_int_equal(fp8_checkpoint_find(ckpt, names[i], strlen(names[i]), &info), FP8_OK);
        assert_int_equal(info.dtype, i < 3 ? FP8_F16 : FP8_E4M3FN);
    }
    assert_int_equal(fp8_checkpoint_count(ckpt), 5);
    fp8_checkpoint_close(ckpt);
    config_has("block", "\"" ATTENTION "q_proj\"", true);
    config_has("block", "\"" ATTENTION "k_proj\"", true);
    config_has("block", "\"" ATTENTION "v_proj\"", true);
    config_has("block", "o_proj", false);
    must_verify("block", NULL, "vllm");
    fp8_convert_desc d = FP8_CONVERT_DESC_INIT;
    d.verb = FP8_DEQUANTIZE;
    d.src = sandbox_path("tensor");
    d.dst = sandbox_path("plain");
    d.dtype = FP8_F16;
    assert_int_equal(model_convert(ctx, &d, NULL), FP8_OK);
    for (int i = 0; i < 3; i++)
        same_bytes("block", "plain", names[i]);
}

/* Why is shown before anything is written. */
static void the_plan_says_why(void **state)
{
    (void)state;
    convert(FP8_QUANTIZE, "dense", "tensor", "hf-tensor", "vllm");
    fp8_convert_desc d = FP8_CONVERT_DESC_INIT;
    fp8_convert *conv;
    int dequantized = 0;
    d.verb = FP8_CONVERT;
    d.src = sandbox_path("tensor");
    d.dst = sandbox_path("block");
    assert_int_equal(fp8_convert_plan(ctx, &d, &conv, NULL), FP8_OK);
    for (int64_t i = 0; i < fp8_convert_count(conv); i++) {
        fp8_plan_row row;
        assert_int_equal(fp8_convert_row(conv, i, &row), FP8_OK);
        if (strcmp(row.action, "dequantize") != 0)
            continue;
        dequantized++;
        assert_int_equal(row.dtype_out, FP8_F16);
        assert_non_null(strstr(row.reason, strstr(row.name, "v_proj") ? "fused with" : "128 rows"));
    }
    assert_int_equal(dequantized, 3);
    fp8_convert_free(conv);
}

/* vLLM keeps the larger scale of an expert's two input matrices and quantizes both again, which a
 * shared scale makes needless; transformers does not fuse them, and each is best with its own. */
static void parts_of_an_expert_share_a_scale(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
    } pairs[] = {
        {EXPERT "gate_proj.weight_scale", EXPERT "up_proj.weight_scale"},
        {"model.layers.0.block_sparse_moe.experts.0.w1.weight_scale",
         "model.layers.0.block_sparse_moe.experts.0.w3.weight_scale"},
    };
    convert(FP8_QUANTIZE, "experts", "shared", "ct-tensor", "vllm");
    convert(FP8_QUANTIZE, "experts", "own", "ct-tensor", "transformers");
    fp8_checkpoint *shared = open_model("shared"), *own = open_model("own");
    for (int i = 0; i < 2; i++) {
        float a = scale_of(own, pairs[i].a), b = scale_of(own, pairs[i].b);
        assert_true(a != b);
        assert_true(scale_of(shared, pairs[i].a) == (a > b ? a : b));
        assert_true(scale_of(shared, pairs[i].b) == (a > b ? a : b));
    }
    fp8_checkpoint_close(shared);
    fp8_checkpoint_close(own);
    must_verify("shared", "experts", "vllm");
}

/* 192 rows are no whole blocks, but experts' blocks stay their own. */
static void blocks_of_experts_are_their_own(void **state)
{
    (void)state;
    convert(FP8_QUANTIZE, "experts", "block", "hf-block", "vllm");
    fp8_checkpoint *ckpt = open_model("block");
    assert_int_equal(fp8_checkpoint_count(ckpt), 12);
    fp8_checkpoint_close(ckpt);
    must_verify("block", "experts", "vllm");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_cannot_be_carried_over_is_dequantized),
        TEST(the_plan_says_why),
        TEST(parts_of_an_expert_share_a_scale),
        TEST(blocks_of_experts_are_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
