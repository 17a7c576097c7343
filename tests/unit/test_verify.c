/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verify.c - fp8_verify's rules for engines and ranks, and fp8_diff; both with any number of
 * threads and with allocations that fail. What verify finds in damaged files is test_damage.c. */
#include "support/checkpoint_edit.h"
#include "support/context_fixture.h"
#include "support/meter.h"
#include "support/sandbox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

#define GOLDEN  "tests/golden/checkpoints/"
#define TIED    GOLDEN "llama_tied_hf_block"
#define SOURCE  GOLDEN "llama_tied_bf16"
#define CHANNEL GOLDEN "llama_untied_ct_channel_token"
#define UNTIED  GOLDEN "llama_untied_bf16"
#define LAYER   "model.layers.0."

/* ---- Engines ---- */

/* What is looked for among the findings, and how often it was there. */
typedef struct watch {
    const char *rule, *tensor, *words;
    bool is_error;
    int hits;
} watch;

static void on_finding(void *user, const fp8_finding *f)
{
    watch *w = user;
    w->hits += !strcmp(f->rule, w->rule) && !strcmp(f->tensor, w->tensor) &&
               strstr(f->message, w->words) && !f->is_error == !w->is_error;
}

typedef struct engine_case {
    const char *folder, *engine;
    int tp;
    watch wanted; /* rule "": there must be no error */
} engine_case;

static const engine_case engine_cases[] = {
    {TIED, "sglang", 0, {"fused-mixed", LAYER "self_attn.q_proj.weight", "v_proj.weight", true, 0}},
    {TIED, "vllm", 0, {"fused-mixed", LAYER "self_attn.q_proj.weight", "k_proj.weight", true, 0}},
    {TIED, "vllm", 0, {"engine-ignore", LAYER "self_attn.k_proj.weight", "whole name", true, 0}},
    {GOLDEN "qwen3_moe_hf_block",
     "vllm",
     0,
     {"engine-ignore", LAYER "mlp.gate.weight", "whole name", false, 0}},
    {TIED, "transformers", 0, {"", "", "", false, 0}},
    {CHANNEL, "vllm", 2, {"", "", "", false, 0}},
    {TIED, "vllm", 2, {"tp-block", LAYER "mlp.gate_proj.weight", "192 % 128", true, 0}},
    {TIED, "vllm", 2, {"tp-block", LAYER "mlp.down_proj.weight", "of 384 columns", true, 0}},
    {TIED, NULL, 2, {"tp-block", LAYER "mlp.gate_proj.weight", "192 % 128", true, 0}},
    {TIED, "transformers", 2, {"tp-block", LAYER "mlp.up_proj.weight", "192 % 128", false, 0}},
    {TIED, "sglang", 5, {"tp-split", LAYER "mlp.gate_proj.weight", "by 5 ranks", true, 0}},
    {GOLDEN "llama_untied_ct_block",
     "vllm",
     0,
     {"engine-refused", LAYER "mlp.gate_proj.weight", "fuses", true, 0}},
    {GOLDEN "llama_untied_ct_block",
     "transformers",
     0,
     {"engine-refused", LAYER "mlp.down_proj.weight", "first forward", true, 0}},
    {GOLDEN "llama_untied_hf_tensor",
     "vllm",
     0,
     {"engine-format", LAYER "mlp.down_proj.weight", "weight_scale,", true, 0}},
    {GOLDEN "llama_untied_hf_tensor", "transformers", 0, {"", "", "", false, 0}},
    {GOLDEN "llama_untied_ct_tensor_static",
     "vllm",
     0,
     {"fused-scales", LAYER "self_attn.k_proj.weight", "qkv_proj", false, 0}},
    {GOLDEN "llama_untied_ct_tensor_static",
     "tensorrt-llm",
     0,
     {"engine-format", LAYER "mlp.down_proj.weight", "does not load", true, 0}},
    {GOLDEN "llama_untied_ct_mxfp8",
     "vllm",
     0,
     {"engine-refused", LAYER "self_attn.k_proj.weight", "128 rows", true, 0}},
};

static void engines_are_asked(void **state)
{
    for (size_t i = 0; i < sizeof engine_cases / sizeof *engine_cases; i++) {
        const engine_case *c = &engine_cases[i];
        watch w = c->wanted;
        fp8_verify_summary sum;
        fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
        desc.path = c->folder;
        desc.engine = c->engine;
        desc.tp = c->tp;
        assert_int_equal(fp8_verify(*state, &desc, on_finding, &w, &sum, NULL), FP8_OK);
        if (*w.rule ? w.hits != 1 : sum.errors != 0)
            fail_msg("%s for %s, tp %d: %s hit %d times, %lld errors", c->folder,
                     c->engine ? c->engine : "none", c->tp, w.rule, w.hits, (long long)sum.errors);
    }
}

static void wrong_arguments_are_refused(void **state)
{
    fp8_verify_summary sum;
    fp8_error err;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    assert_int_equal(fp8_verify(*state, &desc, NULL, NULL, &sum, &err), FP8_E_ARGUMENT);
    desc.path = TIED;
    assert_int_equal(fp8_verify(*state, &desc, NULL, NULL, NULL, &err), FP8_E_ARGUMENT);
    desc.engine = "no engine";
    assert_int_equal(fp8_verify(*state, &desc, NULL, NULL, &sum, &err), FP8_E_ARGUMENT);
    desc.engine = NULL;
    desc.tp = -1;
    assert_int_equal(fp8_verify(*state, &desc, NULL, NULL, &sum, &err), FP8_E_ARGUMENT);
    desc.tp = 0;
    desc.against = "no such folder";
    assert_int_equal(fp8_verify(*state, &desc, NULL, NULL, &sum, &err), FP8_E_NOT_FOUND);
    desc.path = "no such folder";
    assert_int_equal(fp8_verify(*state, &desc, NULL, NULL, &sum, &err), FP8_E_NOT_FOUND);
}

/* A tensor of more sizes than are held is a finding about the container, not about config.json. */
static void what_cannot_be_held_is_found(void **state)
{
    enum { SIZES = 65536 };
    char json[2 * SIZES + 100] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[1";
    watch w = {"container", "", "more than 65535 sizes", true, 0};
    fp8_verify_summary sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    char *end = json + strlen(json);
    for (int i = 1; i < SIZES; i++, end += 2)
        memcpy(end, ",1", 2);
    strcpy(end, "],\"data_offsets\":[0,4]}}");
    desc.path = sandbox_make();
    sandbox_safetensors("model.safetensors", json, 4);
    assert_int_equal(fp8_verify(*state, &desc, on_finding, &w, &sum, NULL), FP8_OK);
    assert_int_equal(w.hits, 1);
    sandbox_remove();
}

/* An entry of the list of modules that are not quantized which no name is matched with in time. */
static void a_pattern_of_too_much_work_is_found_once(void **state)
{
    watch w = {"config-broken", "", "limit exceeded", true, 0};
    fp8_verify_summary sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    edit_model *m = edit_load(*state, CHANNEL, 1);
    edit_config(m, "\"lm_head\"", "\"lm_head\", \"re:(?:(?:[a-z0-9_.]+)+)+[!#]\"");
    desc.path = sandbox_make();
    edit_save(*state, m, desc.path);
    edit_free(m);
    assert_int_equal(fp8_verify(*state, &desc, on_finding, &w, &sum, NULL), FP8_OK);
    assert_int_equal(w.hits, 1);
    assert_int_equal(sum.errors, 1);
    sandbox_remove();
}

/* ---- Diff ---- */

typedef struct rows {
    fp8_diff_row row[EDIT_MAX_TENSORS];
    char name[EDIT_MAX_TENSORS][160];
    int count;
} rows;

static void on_row(void *user, const fp8_diff_row *row)
{
    rows *r = user;
    snprintf(r->name[r->count], sizeof *r->name, "%s", row->name);
    r->row[r->count++] = *row;
}

static rows *diff(const fp8_context *ctx, const char *a, const char *b)
{
    rows *r = calloc(1, sizeof *r);
    fp8_error err;
    assert_non_null(r);
    if (fp8_diff(ctx, a, b, on_row, r, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    return r;
}

static const fp8_diff_row *row_of(const rows *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (!strcmp(r->name[i], name))
            return &r->row[i];
    fail_msg("no row %s", name);
    return NULL;
}

static void a_checkpoint_equals_itself(void **state)
{
    rows *r = diff(*state, TIED, TIED);
    assert_int_equal(r->count, 11); /* 16 tensors, the scales of 5 weights are part of them */
    for (int i = 0; i < r->count; i++) {
        assert_int_equal(r->row[i].kind, FP8_DIFF_SAME);
        assert_int_equal(r->row[i].differing, 0);
        assert_true(r->row[i].max_abs_error == 0 && r->row[i].sqnr_db == (double)INFINITY);
    }
    free(r);
}

static void codes_are_compared_by_their_values(void **state)
{
    rows *r = diff(*state, SOURCE, TIED);
    assert_int_equal(r->count, 11);
    const fp8_diff_row *q = row_of(r, LAYER "self_attn.q_proj.weight");
    assert_int_equal(q->kind, FP8_DIFF_DTYPE);
    assert_int_equal(q->dtype_a, FP8_BF16);
    assert_int_equal(q->dtype_b, FP8_E4M3FN);
    assert_true(q->sqnr_db > 30 && q->sqnr_db < 33 && q->max_abs_error > 0);
    assert_int_equal(row_of(r, "model.norm.weight")->kind, FP8_DIFF_SAME);
    free(r);
}

/* The same numbers by other codes and scales are the same: a scale doubled, exponents lowered. */
static void equal_values_are_equal(void **state)
{
    edit_model *model = edit_load(*state, TIED, 1);
    edit_tensor *w = edit_find(model, LAYER "mlp.gate_proj.weight");
    edit_tensor *s = edit_find(model, LAYER "mlp.gate_proj.weight_scale_inv");
    float *scale = (float *)(void *)s->data;
    uint64_t changed = 0;
    for (uint64_t i = 0; i < s->bytes / 4; i++)
        scale[i] *= 2;
    for (uint64_t i = 0; i < w->bytes; i++) { /* codes of normal halves stay exact */
        unsigned char magnitude = w->data[i] & 0x7f;
        if (magnitude >= 16)
            w->data[i] = (unsigned char)(w->data[i] - 8);
        else
            changed += magnitude != 0; /* twice the value now */
    }
    edit_save(*state, model, sandbox_make());
    rows *r = diff(*state, TIED, sandbox_path("."));
    const fp8_diff_row *row = row_of(r, w->name);
    assert_int_equal(row->kind, FP8_DIFF_VALUES);
    assert_int_equal(row->differing, changed);
    free(r);
    edit_free(model);
    sandbox_remove();
}

static void differences_are_named(void **state)
{
    edit_model *model = edit_load(*state, TIED, 2);
    edit_find(model, "model.norm.weight")->data[3] ^= 0x80;
    edit_remove(model, LAYER "input_layernorm.weight");
    edit_copy(model, "model.norm.weight", "model.extra.weight");
    edit_tensor *t = edit_find(model, LAYER "post_attention_layernorm.weight");
    t->ndim = 2;
    t->shape[0] = 2;
    t->shape[1] = 128;
    edit_save(*state, model, sandbox_make());
    rows *r = diff(*state, TIED, sandbox_path("."));
    assert_int_equal(row_of(r, "model.norm.weight")->kind, FP8_DIFF_VALUES);
    assert_int_equal(row_of(r, "model.norm.weight")->differing, 1);
    assert_int_equal(row_of(r, LAYER "input_layernorm.weight")->kind, FP8_DIFF_ONLY_A);
    assert_int_equal(row_of(r, "model.extra.weight")->kind, FP8_DIFF_ONLY_B);
    assert_int_equal(row_of(r, LAYER "post_attention_layernorm.weight")->kind, FP8_DIFF_SHAPE);
    assert_int_equal(r->count, 12);
    free(r);
    edit_free(model);
    sandbox_remove();
}

/* ---- Threads and memory ---- */

static void threads_do_not_change_the_sums(void **state)
{
    (void)state;
    fp8_verify_summary first, sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    desc.path = CHANNEL;
    desc.against = UNTIED;
    for (int32_t threads = 1; threads <= 5; threads++) {
        fp8_context *ctx;
        fp8_context_desc desc_n = FP8_CONTEXT_DESC_INIT;
        desc_n.threads = threads;
        assert_int_equal(fp8_context_create(&desc_n, &ctx, NULL), FP8_OK);
        assert_int_equal(fp8_verify(ctx, &desc, NULL, NULL, &sum, NULL), FP8_OK);
        if (threads == 1)
            first = sum;
        assert_memory_equal(&sum, &first, sizeof sum);
        fp8_context_free(ctx);
    }
}

static fp8_status run_verify(const fp8_context *ctx, void *arg)
{
    (void)arg;
    fp8_verify_summary sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    desc.path = TIED;
    desc.against = SOURCE;
    desc.engine = "vllm";
    return fp8_verify(ctx, &desc, NULL, NULL, &sum, NULL);
}

static fp8_status run_diff(const fp8_context *ctx, void *arg)
{
    rows r = {.count = 0};
    (void)arg;
    return fp8_diff(ctx, SOURCE, TIED, on_row, &r, NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(meter_try(run_verify, NULL) > 10);
    assert_true(meter_try(run_diff, NULL) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_are_asked),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(what_cannot_be_held_is_found),
        cmocka_unit_test(a_pattern_of_too_much_work_is_found_once),
        cmocka_unit_test(a_checkpoint_equals_itself),
        cmocka_unit_test(codes_are_compared_by_their_values),
        cmocka_unit_test(equal_values_are_equal),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(threads_do_not_change_the_sums),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
