/* SPDX-License-Identifier: Apache-2.0
 *
 * test_made.c - what the pipeline makes, fp8_verify passes: every scheme, every rounding rule that
 * the scheme knows, every engine that loads it; and a changed bit of it is found. Users are told
 * the same of it. */
#include "support/checkpoint_edit.h"
#include "support/context_fixture.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

#define GOLDEN "tests/golden/checkpoints/"

typedef struct recipe {
    const char *source, *scheme, *numerics, *engine;
} recipe;

/* Quantizes into `dst`; false if the scheme is not defined for the rule, the engine or a shape. */
static bool make(const fp8_context *ctx, const recipe *r, const char *dst)
{
    fp8_convert_desc desc = FP8_CONVERT_DESC_INIT;
    fp8_convert *conv;
    fp8_error err = {.msg = ""};
    desc.src = r->source;
    desc.dst = dst;
    desc.scheme = r->scheme;
    desc.numerics = r->numerics;
    desc.engine = r->engine;
    fp8_status status = fp8_convert_plan(ctx, &desc, &conv, &err);
    if (status == FP8_OK) {
        status = fp8_convert_run(conv, NULL, NULL, &err);
        fp8_convert_free(conv);
    }
    if (status == FP8_E_UNSUPPORTED || status == FP8_E_ARGUMENT || status == FP8_E_SHAPE)
        return false;
    if (status != FP8_OK)
        fail_msg("%s %s %s: %s", r->source, r->scheme, r->numerics ? r->numerics : "", err.msg);
    return true;
}

static void on_finding(void *user, const fp8_finding *f)
{
    char *all = user;
    size_t used = strlen(all);
    if (f->is_error)
        snprintf(all + used, 4096 - used, "\n  %s [%s] %s", f->rule, f->tensor, f->message);
}

static fp8_verify_summary verify(const fp8_context *ctx, const recipe *r, const char *dst,
                                 const char *source, char all[4096])
{
    fp8_verify_summary sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    all[0] = 0;
    desc.path = dst;
    desc.against = source;
    desc.engine = r->engine;
    assert_int_equal(fp8_verify(ctx, &desc, on_finding, all, &sum, NULL), FP8_OK);
    return sum;
}

/* 1 if the recipe was made, and passed. */
static int make_and_verify(const fp8_context *ctx, const recipe *r)
{
    char all[4096];
    int made = 0;
    sandbox_make();
    const char *dst = sandbox_path("dst");
    if (make(ctx, r, dst)) {
        fp8_verify_summary sum = verify(ctx, r, dst, r->source, all);
        if (sum.errors || sum.compared < 10)
            fail_msg("%s, %s, %s for %s: %lld compared%s", r->source, r->scheme,
                     r->numerics ? r->numerics : "best", r->engine ? r->engine : "none",
                     (long long)sum.compared, all);
        made = 1;
    }
    sandbox_remove();
    return made;
}

static void every_scheme_and_source_passes(void **state)
{
    static const char *const sources[] = {GOLDEN "llama_untied_bf16", GOLDEN "llama_tied_bf16",
                                          GOLDEN "qwen3_moe_bf16"};
    fp8_scheme_info scheme;
    int made = 0;
    for (size_t k = 0; k < sizeof sources / sizeof *sources; k++)
        for (int64_t i = 0; fp8_scheme(i, &scheme) == FP8_OK; i++) {
            recipe r = {sources[k], scheme.name, NULL, NULL};
            made += make_and_verify(*state, &r);
        }
    print_message("%d of schemes and sources\n", made);
    assert_true(made >= 33);
}

static void every_rule_passes(void **state)
{
    static const char *const schemes[] = {"hf-block", "hf-tensor", "ct-channel", "ct-mxfp8"};
    int made = 0;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) /* one a grid */
        for (int64_t k = 0; fp8_rule_name(k); k++) {
            recipe r = {GOLDEN "llama_tied_bf16", schemes[i], fp8_rule_name(k), NULL};
            made += make_and_verify(*state, &r);
        }
    print_message("%d of schemes and rules\n", made);
    assert_true(made >= 30);
}

static void every_engine_passes(void **state)
{
    fp8_scheme_info scheme;
    int made = 0;
    for (int64_t i = 0; fp8_scheme(i, &scheme) == FP8_OK; i++)
        for (int64_t k = 0; fp8_engine_name(k); k++) {
            recipe r = {GOLDEN "llama_untied_bf16", scheme.name, NULL, fp8_engine_name(k)};
            if (strstr(scheme.loaders, r.engine))
                made += make_and_verify(*state, &r);
        }
    print_message("%d of schemes and engines\n", made);
    assert_true(made >= 20);
}

/* One bit of one code of each quantized weight of each scheme. */
static void a_changed_bit_is_found(void **state)
{
    fp8_scheme_info scheme;
    for (int64_t i = 0; fp8_scheme(i, &scheme) == FP8_OK; i++) {
        recipe r = {GOLDEN "llama_untied_bf16", scheme.name, NULL, NULL};
        char all[4096];
        sandbox_make();
        assert_int_equal(mkdir(sandbox_path("bad"), 0777), 0);
        if (make(*state, &r, sandbox_path("dst"))) {
            edit_model *model = edit_load(*state, sandbox_path("dst"), 1);
            int changed = 0;
            for (int k = 0; k < model->count; k++) {
                edit_tensor *t = &model->tensors[k];
                if (t->dtype == FP8_E4M3FN) {
                    t->data[5000 + 17 * k] ^= 0x81; /* sign and last bit: never 0 for -0 */
                    changed++;
                }
            }
            edit_save(*state, model, sandbox_path("bad"));
            edit_free(model);
            fp8_verify_summary sum = verify(*state, &r, sandbox_path("bad"), r.source, all);
            if (sum.errors != changed)
                fail_msg("%s: %d changed, %lld found%s", scheme.name, changed,
                         (long long)sum.errors, all);
        }
        sandbox_remove();
    }
}

/* Weights that were told, and those of a scheme with scales for a row and no quantized input. */
typedef struct told {
    const fp8_checkpoint *ckpt;
    int64_t count, weight_only;
} told;

static void on_weight(void *user, const fp8_weight_info *w)
{
    told *t = user;
    fp8_tensor_info weight, scale;
    fp8_linear_desc linear;
    assert_int_equal(fp8_checkpoint_tensor(t->ckpt, w->weight, &weight), FP8_OK);
    assert_int_equal(fp8_checkpoint_tensor(t->ckpt, w->scale, &scale), FP8_OK);
    assert_int_equal(weight.dtype, FP8_E4M3FN);
    assert_non_null(strstr(scale.name, "scale"));
    assert_int_equal(fp8_online_linear(w->layer, 0, &linear, NULL), FP8_OK);
    assert_int_equal(linear.w.grid.rows, w->grid.rows);
    assert_int_equal(linear.w.grid.cols, w->grid.cols);
    t->weight_only += linear.activation == FP8_ACTIVATION_NONE;
    t->count++;
}

static void weights_are_told_with_the_layers_that_take_them(void **state)
{
    fp8_scheme_info scheme;
    int made = 0;
    assert_int_equal(fp8_checkpoint_weights(NULL, on_weight, NULL, NULL), FP8_E_ARGUMENT);
    for (int64_t i = 0; fp8_scheme(i, &scheme) == FP8_OK; i++) {
        recipe r = {GOLDEN "llama_untied_bf16", scheme.name, NULL, NULL};
        char all[4096];
        fp8_checkpoint *ckpt;
        sandbox_make();
        if (make(*state, &r, sandbox_path("dst"))) {
            told t = {0};
            assert_int_equal(fp8_checkpoint_open(*state, sandbox_path("dst"), &ckpt, NULL), FP8_OK);
            t.ckpt = ckpt;
            assert_int_equal(fp8_checkpoint_weights(ckpt, NULL, &t, NULL), FP8_E_ARGUMENT);
            assert_int_equal(fp8_checkpoint_weights(ckpt, on_weight, &t, NULL), FP8_OK);
            fp8_checkpoint_close(ckpt);
            assert_int_equal(t.count, verify(*state, &r, sandbox_path("dst"), NULL, all).quantized);
            assert_int_equal(t.weight_only, strcmp(scheme.name, "ct-w8a16") ? 0 : t.count);
            made++;
        }
        sandbox_remove();
    }
    assert_true(made >= 10);
}

static void a_config_is_measured_and_written(void **state)
{
    static const char *const kept[] = {"lm_head", "a \"quoted\" name"};
    char text[4096] = "untouched";
    uint64_t bytes, again;
    fp8_error err;
    assert_int_equal(fp8_scheme_config(*state, "ct-channel", kept, 2, NULL, 0, &bytes, NULL),
                     FP8_OK);
    assert_int_equal(fp8_scheme_config(*state, "ct-channel", kept, 2, text, bytes, &again, NULL),
                     FP8_OK);
    assert_string_equal(text, "untouched"); /* its NUL has no room */
    assert_int_equal(
        fp8_scheme_config(*state, "ct-channel", kept, 2, text, bytes + 1, &again, NULL), FP8_OK);
    assert_int_equal(again, bytes);
    assert_int_equal(strlen(text), bytes);
    assert_non_null(strstr(text, "\"strategy\": \"channel\""));
    assert_non_null(strstr(text, "a \\\"quoted\\\" name"));
    assert_int_equal(fp8_scheme_config(*state, "comfy", NULL, 0, NULL, 0, &bytes, &err),
                     FP8_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "does not announce comfy"));
    assert_int_equal(fp8_scheme_config(*state, "none", NULL, 0, NULL, 0, &bytes, &err),
                     FP8_E_UNSUPPORTED);
    assert_int_equal(fp8_scheme_config(*state, "hf-block", NULL, 1, NULL, 0, &bytes, &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(fp8_scheme_config(NULL, "hf-block", NULL, 0, NULL, 0, &bytes, &err),
                     FP8_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_told_with_the_layers_that_take_them),
        cmocka_unit_test(a_config_is_measured_and_written),
        cmocka_unit_test(every_scheme_and_source_passes),
        cmocka_unit_test(every_rule_passes),
        cmocka_unit_test(every_engine_passes),
        cmocka_unit_test(a_changed_bit_is_found),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
