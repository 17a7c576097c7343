/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan.c - what is decided for each tensor and why: kinds, patterns, engines, fused sets. A
 * plan writes nothing. */
#include "support/model_maker.h"
#include "support/sandbox_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static int set_up(void **state)
{
    (void)state;
    sandbox_make();
    model_make_llama("model", 2);
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static fp8_convert_desc request(const fp8_pattern *patterns, size_t count)
{
    static char src[1024], dst[1024];
    fp8_convert_desc d = FP8_CONVERT_DESC_INIT;
    snprintf(src, sizeof src, "%s", sandbox_path("model"));
    snprintf(dst, sizeof dst, "%s", sandbox_path("out"));
    d.src = src;
    d.dst = dst;
    d.patterns = patterns;
    d.pattern_count = count;
    return d;
}

static fp8_convert *planned(const fp8_convert_desc *desc)
{
    fp8_convert *conv;
    fp8_error err = {.msg = ""};
    if (fp8_convert_plan(ctx, desc, &conv, &err) != FP8_OK)
        printf("%s\n", err.msg);
    assert_non_null(conv);
    assert_int_not_equal(access(desc->dst, F_OK), 0);
    return conv;
}

static fp8_plan_row row_of(const fp8_convert *conv, const char *name)
{
    fp8_plan_row row;
    for (int64_t i = 0; i < fp8_convert_count(conv); i++)
        if (fp8_convert_row(conv, i, &row) == FP8_OK && !strcmp(row.name, name))
            return row;
    fail_msg("no row %s", name);
    return row;
}

static void must_refuse(const fp8_convert_desc *desc, fp8_status status, const char *words)
{
    fp8_convert *conv;
    fp8_error err = {.msg = ""};
    assert_int_equal(fp8_convert_plan(ctx, desc, &conv, &err), status);
    assert_null(conv);
    if (!strstr(err.msg, words))
        printf("'%s' lacks '%s'\n", err.msg, words);
    assert_non_null(strstr(err.msg, words));
}

static void linear_weights_only(void **state)
{
    (void)state;
    static const struct {
        const char *name, *action;
    } rows[] = {
        {"model.layers.0.self_attn.q_proj.weight", "quantize"},
        {"model.layers.1.mlp.experts.down_proj", "quantize"},
        {"model.layers.0.mlp.gate.weight", "keep"},
        {"model.layers.0.input_layernorm.weight", "keep"},
        {"model.embed_tokens.weight", "keep"},
        {"lm_head.weight", "keep"},
    };
    fp8_convert_desc d = request(NULL, 0);
    fp8_convert *conv = planned(&d);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fp8_plan_row row = row_of(conv, rows[i].name);
        assert_string_equal(row.action, rows[i].action);
        assert_true(strlen(row.reason) > 3);
    }
    fp8_plan_summary s;
    fp8_convert_summary(conv, NULL);
    s.tensors = 7;
    fp8_convert_summary(NULL, &s);
    assert_int_equal(s.tensors, 0);
    fp8_convert_summary(conv, &s);
    assert_int_equal(s.tensors, s.changed + s.kept);
    assert_int_equal(s.shards_out, 2);
    assert_true(s.bytes_out < s.bytes_in && s.peak_memory_bytes < 256u << 20);
    fp8_convert_free(conv);
}

static void later_patterns_win(void **state)
{
    (void)state;
    const fp8_pattern patterns[] = {
        {FP8_PATTERN_KEEP, "*.layers.1.*", NULL},
        {FP8_PATTERN_SET, "re:model\\.layers\\.1\\.mlp\\.(gate|up)_proj", "ct-channel"},
    };
    fp8_convert_desc d = request(patterns, 2);
    d.scheme = "ct-block";
    fp8_convert *conv = planned(&d);
    assert_string_equal(row_of(conv, "model.layers.1.self_attn.o_proj.weight").action, "keep");
    fp8_plan_row row = row_of(conv, "model.layers.1.mlp.up_proj.weight");
    assert_string_equal(row.scheme, "ct-channel");
    assert_non_null(strstr(row.reason, "--set"));
    assert_string_equal(row_of(conv, "model.layers.0.mlp.up_proj.weight").scheme, "ct-block");
    fp8_convert_free(conv);
}

static void only_chooses_and_never_routers_by_chance(void **state)
{
    (void)state;
    fp8_pattern only = {FP8_PATTERN_ONLY, "*.mlp.*", NULL};
    fp8_convert_desc d = request(&only, 1);
    fp8_convert *conv = planned(&d);
    assert_string_equal(row_of(conv, "model.layers.0.mlp.down_proj.weight").action, "quantize");
    assert_string_equal(row_of(conv, "model.layers.0.self_attn.o_proj.weight").action, "keep");
    assert_string_equal(row_of(conv, "model.layers.0.mlp.gate.weight").action, "keep");
    fp8_convert_free(conv);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    fp8_pattern p = {FP8_PATTERN_KEEP, "*.nothing", NULL};
    fp8_convert_desc d = request(&p, 1);
    must_refuse(&d, FP8_E_NOT_FOUND, "*.nothing");
    p = (fp8_pattern){FP8_PATTERN_KEEP, "*.q_proj", NULL};
    must_refuse(&d, FP8_E_UNSUPPORTED, "one matrix");
    p = (fp8_pattern){FP8_PATTERN_SET, "lm_head", "hf-block"};
    must_refuse(&d, FP8_E_UNSUPPORTED, "output head");
    p = (fp8_pattern){FP8_PATTERN_SET, "*.o_proj", "hf-tensor"};
    must_refuse(&d, FP8_E_UNSUPPORTED, "");
    d = request(NULL, 0);
    d.scheme = "hf-nothing";
    must_refuse(&d, FP8_E_UNSUPPORTED, "hf-nothing");
    d = request(NULL, 0);
    d.engine = "abacus";
    must_refuse(&d, FP8_E_UNSUPPORTED, "abacus");
    d = request(NULL, 0);
    d.scheme = "ct-tensor-static";
    must_refuse(&d, FP8_E_UNSUPPORTED, "--activation-scales");
    d = request(NULL, 0);
    d.part_index = 3;
    d.part_count = 2;
    must_refuse(&d, FP8_E_ARGUMENT, "part 3 of 2");
}

/* 192 columns are a block and a half, which transformers cannot read. */
static void engines_keep_what_they_cannot_read(void **state)
{
    (void)state;
    fp8_convert_desc d = request(NULL, 0);
    d.engine = "transformers";
    fp8_convert *conv = planned(&d);
    fp8_plan_row row = row_of(conv, "model.layers.0.self_attn.o_proj.weight");
    assert_string_equal(row.action, "keep");
    assert_non_null(strstr(row.reason, "transformers"));
    fp8_convert_free(conv);
}

/* transformers' quantizer cuts a weight into whole blocks and knows no others. */
static void rules_meet_the_shapes_in_the_plan(void **state)
{
    (void)state;
    fp8_convert_desc d = request(NULL, 0);
    d.numerics = "transformers";
    must_refuse(&d, FP8_E_SHAPE, "self_attn.q_proj.weight: rule 'transformers' takes whole blocks");
    must_refuse(&d, FP8_E_SHAPE, "[256,192] is no multiple of 128 x 128");
    assert_int_not_equal(access(sandbox_path("out.partial"), F_OK), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(linear_weights_only),
        TEST(later_patterns_win),
        TEST(only_chooses_and_never_routers_by_chance),
        TEST(bad_requests_are_refused),
        TEST(engines_keep_what_they_cannot_read),
        TEST(rules_meet_the_shapes_in_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
