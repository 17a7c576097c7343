/* SPDX-License-Identifier: Apache-2.0
 *
 * test_pattern.c - globs and expressions on tensor names, lists of module names in the four
 * syntaxes, their limits, and every allocation failing once. */
#include "ckpt/nameset.h"
#include "support/meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static fp8_context *context(const fp8_allocator *allocator)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    if (allocator)
        desc.allocator = *allocator;
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(&desc, &ctx, NULL), FP8_OK);
    return ctx;
}

static bool matches(const char *pattern, const char *name, uint64_t bytes)
{
    fp8_context *ctx = context(NULL);
    fp8_matcher *m;
    fp8_error err;
    bool matched;
    assert_int_equal(fp8_matcher_create(ctx, pattern, &m, &err), FP8_OK);
    assert_int_equal(fp8_matcher_test(m, name, bytes, &matched, &err), FP8_OK);
    fp8_matcher_free(m);
    fp8_context_free(ctx);
    return matched;
}

static bool on(const char *pattern, const char *name)
{
    return matches(pattern, name, strlen(name));
}

static void globs_cover_the_whole_name(void **state)
{
    (void)state;
    assert_true(on("lm_head.weight", "lm_head.weight"));
    assert_true(on("lm_head", "lm_head.weight"));
    assert_false(on("lm_head", "model.lm_head.weight"));
    assert_true(on("*lm_head", "model.lm_head.weight"));
    assert_true(on("model.layers.?.*", "model.layers.7.q.weight"));
    assert_false(on("model.layers.?.*", "model.layers.17.q.weight"));
    assert_true(on("*.[qk]_proj", "a.k_proj.weight"));
    assert_false(matches("a*", "a\0b", 3));
    char longest[1000];
    memset(longest, 'x', sizeof longest);
    assert_true(matches("x*", longest, sizeof longest));
}

static void expressions_match_at_the_start(void **state)
{
    (void)state;
    assert_true(on("re:model\\.layers\\.[0-9]+\\.", "model.layers.12.mlp.weight"));
    assert_false(on("re:layers", "model.layers.12.mlp.weight"));
    assert_true(on("re:.*mlp\\.gate$", "a.mlp.gate.weight"));
    assert_false(on("re:.*mlp\\.gate$", "a.mlp.gate_proj.weight"));
    assert_true(on("re:(?!.*vision).*proj", "text.q_proj.weight"));
    assert_false(on("re:(?!.*vision).*proj", "vision.q_proj.weight"));
    assert_true(on("re:gr\xc3\xbc.e", "gr\xc3\xbc\xc3\x9f"
                                      "e"));
    assert_true(matches("re:a.b", "a\0b", 3));
    assert_true(on("re:\xff", "\xff"));
    assert_true(on("re:.*z$", "\xff\xfez"));
}

static void bad_patterns_are_refused(void **state)
{
    (void)state;
    fp8_context *ctx = context(NULL);
    fp8_matcher *m;
    fp8_error err;
    assert_int_equal(fp8_matcher_create(ctx, "re:a(b", &m, &err), FP8_E_ARGUMENT);
    assert_null(m);
    assert_int_equal(err.pos, 3);
    assert_non_null(strstr(err.msg, "re:a(b"));
    assert_int_equal(fp8_matcher_create(ctx, "", &m, &err), FP8_E_ARGUMENT);
    char longest[5000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(fp8_matcher_create(ctx, longest, &m, &err), FP8_E_ARGUMENT);
    fp8_context_free(ctx);
}

static void runaway_expressions_are_stopped(void **state)
{
    (void)state;
    fp8_context *ctx = context(NULL);
    fp8_matcher *m;
    fp8_error err;
    bool matched;
    assert_int_equal(fp8_matcher_create(ctx, "re:(a+)+$", &m, &err), FP8_OK);
    const char *name = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
    assert_int_equal(fp8_matcher_test(m, name, strlen(name), &matched, &err), FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "(a+)+$"));
    fp8_matcher_free(m);
    fp8_matcher_free(NULL);
    fp8_context_free(ctx);
}

static bool listed(fp8_name_syntax syntax, const char *entry, const char *module)
{
    fp8_context *ctx = context(NULL);
    fp8_nameset set;
    fp8_error err;
    fp8_name_match found;
    fp8_nameset_init(&set, ctx, syntax);
    assert_int_equal(fp8_nameset_add(&set, "unrelated", 9, &err), FP8_OK);
    assert_int_equal(fp8_nameset_add(&set, entry, strlen(entry), &err), FP8_OK);
    assert_int_equal(fp8_nameset_match(&set, module, strlen(module), &found, &err), FP8_OK);
    fp8_nameset_free(&set);
    fp8_context_free(ctx);
    return found != FP8_NAME_NONE;
}

static void each_syntax_has_its_rule(void **state)
{
    (void)state;
    static const struct {
        fp8_name_syntax syntax;
        const char *entry, *module;
        bool wanted;
    } cases[] = {
        {FP8_NAMES_EXACT, "a.b", "a.b", true},
        {FP8_NAMES_EXACT, "a", "a.b", false},
        {FP8_NAMES_CT, "a.b", "a.b", true},
        {FP8_NAMES_CT, "b", "a.b", false},
        {FP8_NAMES_CT, "re:.*mlp.gate$", "l.0.mlp.gate", true},
        {FP8_NAMES_CT, "re:.*mlp.gate$", "l.0.mlp.gate_proj", false},
        {FP8_NAMES_CT, "Linear", "anything.at.all", true},
        {FP8_NAMES_HF, "lm_head", "lm_head", true},
        {FP8_NAMES_HF, "k_proj", "l.0.k_proj", true},
        {FP8_NAMES_HF, "proj", "l.0.k_proj", true},
        {FP8_NAMES_HF, "mlp.gate", "l.0.mlp.gate", true},
        {FP8_NAMES_HF, "mlp.gate", "mlp.gate_proj", false},
        {FP8_NAMES_HF, "layer.1", "layer.1.attn", true},
        {FP8_NAMES_HF, "layer.1", "layer.11.attn", false},
        {FP8_NAMES_HF, "layer.*", "layer.11.attn", true},
        {FP8_NAMES_HF, "visual|audio", "audio.x", true},
        {FP8_NAMES_HF, "visual|audio", "audiox", false},
        {FP8_NAMES_GLOB, "*kv_b_proj*", "l.0.kv_b_proj", true},
        {FP8_NAMES_GLOB, "l.0", "l.0.kv_b_proj", true},
        {FP8_NAMES_GLOB, "l.1", "l.10.kv_b_proj", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(listed(cases[i].syntax, cases[i].entry, cases[i].module), cases[i].wanted);
}

static void long_lists_stay_exact(void **state)
{
    (void)state;
    enum { N = 60000 };
    fp8_context *ctx = context(NULL);
    fp8_nameset set;
    fp8_name_match found;
    char name[64];
    fp8_nameset_init(&set, ctx, FP8_NAMES_EXACT);
    for (int i = 0; i < N; i += 2) {
        int n = snprintf(name, sizeof name, "model.layers.%d.mlp", i);
        assert_int_equal(fp8_nameset_add(&set, name, (uint64_t)n, NULL), FP8_OK);
    }
    for (int i = 0; i < N; i++) {
        int n = snprintf(name, sizeof name, "model.layers.%d.mlp", i);
        assert_int_equal(fp8_nameset_match(&set, name, (uint64_t)n, &found, NULL), FP8_OK);
        assert_int_equal(found, i % 2 == 0 ? FP8_NAME_EXACT : FP8_NAME_NONE);
    }
    assert_int_equal(set.count, N / 2);
    assert_int_equal(fp8_nameset_add(&set, "a\0b", 3, NULL), FP8_E_ARGUMENT);
    fp8_nameset_free(&set);
    fp8_context_free(ctx);
}

static void modules_end_before_weight(void **state)
{
    (void)state;
    assert_int_equal(fp8_module_bytes("a.weight", 8), 1);
    assert_int_equal(fp8_module_bytes("a.bias", 6), 6);
    assert_int_equal(fp8_module_bytes(".weight", 7), 7);
}

static fp8_status build_set(const fp8_context *ctx, void *arg)
{
    (void)arg;
    fp8_nameset set;
    fp8_error err;
    fp8_name_match match;
    static const char *const entries[] = {"lm_head", "a.*", "k_proj", "b", "c", "d", "e",
                                          "f",       "g",   "h",      "i", "j", "k", "l",
                                          "m",       "n",   "o",      "p", "q", "r"};
    fp8_nameset_init(&set, ctx, FP8_NAMES_HF);
    fp8_status status = FP8_OK;
    for (size_t i = 0; i < sizeof entries / sizeof *entries && status == FP8_OK; i++)
        status = fp8_nameset_add(&set, entries[i], strlen(entries[i]), &err);
    if (status == FP8_OK)
        status = fp8_nameset_match(&set, "model.x", 7, &match, &err);
    fp8_nameset_free(&set);
    fp8_matcher *m = NULL;
    bool matched;
    if (status == FP8_OK)
        status = fp8_matcher_create(ctx, "*.q", &m, &err);
    if (status == FP8_OK)
        status = fp8_matcher_test(m, "model.q.weight", 14, &matched, &err);
    fp8_matcher_free(m);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(meter_try(build_set, NULL) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(globs_cover_the_whole_name),
        cmocka_unit_test(expressions_match_at_the_start),
        cmocka_unit_test(bad_patterns_are_refused),
        cmocka_unit_test(runaway_expressions_are_stopped),
        cmocka_unit_test(each_syntax_has_its_rule),
        cmocka_unit_test(long_lists_stay_exact),
        cmocka_unit_test(modules_end_before_weight),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
