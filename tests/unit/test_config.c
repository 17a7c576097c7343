/* SPDX-License-Identifier: Apache-2.0
 *
 * test_config.c - config.json: facts read, quantization_config written for every scheme and read
 * back as what it was, spliced in and cut out with every other byte kept. */
#include "ckpt/announce.h"
#include "ckpt/quantconfig.h"
#include "support/meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static fp8_context *ctx;

static int make_context(void **state)
{
    (void)state;
    return fp8_context_create(NULL, &ctx, NULL) == FP8_OK ? 0 : -1;
}

static int free_context(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    return 0;
}

/* ---- facts ---- */

static fp8_config facts(const char *text)
{
    fp8_config c;
    fp8_error err = {0};
    fp8_status status = fp8_config_read(text, strlen(text), &c, &err);
    if (status != FP8_OK)
        print_error("%s\n", err.msg);
    assert_int_equal(status, FP8_OK);
    return c;
}

static void facts_are_read(void **state)
{
    (void)state;
    fp8_config c = facts("{\"architectures\": [\"LlamaForCausalLM\", \"X\"], \"model_type\": "
                         "\"llama\", \"hidden_size\": 4096, \"num_attention_heads\": 32, "
                         "\"num_key_value_heads\": 8, \"num_hidden_layers\": 32, "
                         "\"tie_word_embeddings\": true, \"rms_norm_eps\": 1e-06}");
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_string_equal(c.model_type, "llama");
    assert_true(c.tied && !c.multimodal);
    assert_true(c.hidden == 4096 && c.heads == 32 && c.kv_heads == 8 && c.layers == 32);
    assert_null(c.quantization.text);
}

static void facts_have_several_spellings(void **state)
{
    (void)state;
    fp8_config c = facts("{\"n_embd\": 256, \"n_head\": 8, \"n_layer\": 6, \"n_routed_experts\": "
                         "256, \"num_nextn_predict_layers\": 1}");
    assert_true(c.hidden == 256 && c.heads == 8 && c.layers == 6);
    assert_true(c.experts == 256 && c.mtp_layers == 1);
}

static void language_models_may_be_nested(void **state)
{
    (void)state;
    fp8_config c = facts("{\"architectures\": [\"A\"], \"text_config\": {\"hidden_size\": 64, "
                         "\"tie_word_embeddings\": true, \"quantization_config\": "
                         "{\"quant_method\": \"fp8\"}}, \"vision_config\": {\"hidden_size\": 7}}");
    assert_true(c.hidden == 64 && c.tied && c.multimodal);
    assert_non_null(c.quantization.text);
    c = facts("{\"tie_word_embeddings\": false, \"text_config\": {\"tie_word_embeddings\": true}}");
    assert_false(c.tied);
}

static void odd_facts_are_absent(void **state)
{
    (void)state;
    fp8_config c = facts(" {\"hidden_size\": [1], \"num_attention_heads\": -3, \"n_layer\": 1.5, "
                         "\"architectures\": null, \"quantization_config\": null}\n");
    assert_true(c.hidden == 0 && c.heads == 0 && c.layers == 0);
    assert_string_equal(c.architecture, "");
    assert_null(c.quantization.text);
    assert_int_equal(fp8_config_read(NULL, 0, &c, NULL), FP8_OK);
}

static void broken_configs_are_refused(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "", "[]", "{", "{} x", "{\"hidden_size\": 1,}", "{\"hidden_size\": 1, \"hidden_size\": 2}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        fp8_config c;
        fp8_error err;
        assert_int_equal(fp8_config_read(broken[i], strlen(broken[i]), &c, &err), FP8_E_FORMAT);
        assert_memory_equal(err.msg, "config.json: ", 13);
    }
}

/* ---- splicing ---- */

static void check_splice(const char *text, const char *value, const char *wanted)
{
    char *out;
    uint64_t bytes;
    fp8_error err = {0};
    assert_int_equal(fp8_config_splice(ctx, text, strlen(text), value, &out, &bytes, &err), FP8_OK);
    assert_string_equal(out, wanted);
    assert_int_equal(bytes, strlen(wanted));
    fp8_release(ctx, out);
}

static const char value[] = "{\n  \"a\": [\n    1,\n    2\n  ]\n}";

static void members_are_inserted(void **state)
{
    (void)state;
    check_splice("{\n  \"z\": 1e-06,\n  \"b\": \"\\u00e9\"\n}\n", value,
                 "{\n  \"z\": 1e-06,\n  \"b\": \"\\u00e9\",\n  \"quantization_config\": {\n    "
                 "\"a\": [\n      1,\n      2\n    ]\n  }\n}\n");
    check_splice("{\n\t\"z\": 1\n}", value,
                 "{\n\t\"z\": 1,\n\t\"quantization_config\": {\n\t\t\"a\": [\n\t\t\t1,\n\t\t\t2\n"
                 "\t\t]\n\t}\n}");
    check_splice("{\r\n    \"z\" : 1\r\n}\r\n", "{\n  \"a\": 1\n}",
                 "{\r\n    \"z\" : 1,\r\n    \"quantization_config\" : {\r\n        \"a\": 1\r\n"
                 "    }\r\n}\r\n");
    check_splice("{\"x\": 1, \"z\": 2}", value,
                 "{\"x\": 1, \"z\": 2, \"quantization_config\": {\"a\": [1, 2]}}");
    check_splice("{\"x\":1,\"z\":2}", "{\n  \"a\": 1,\n  \"b\": 2\n}",
                 "{\"x\":1,\"z\":2,\"quantization_config\":{\"a\": 1,\"b\": 2}}");
    check_splice("{}", "{}", "{\n  \"quantization_config\": {}\n}");
    check_splice(" {  } ", "{}", " {\n  \"quantization_config\": {}\n} ");
}

static void members_are_replaced(void **state)
{
    (void)state;
    check_splice("{\n  \"a\": 1,\n  \"quantization_config\": {\"old\": [1,2]},\n  \"z\": 2\n}",
                 "{\n  \"n\": 1\n}",
                 "{\n  \"a\": 1,\n  \"quantization_config\": {\n    \"n\": 1\n  },\n  \"z\": 2\n}");
    check_splice("{\"quantization_config\": null}", "{}", "{\"quantization_config\": {}}");
    check_splice("{\n  \"compression_config\": {},\n  \"text_config\": {\n    "
                 "\"quantization_config\": {},\n    \"h\": 1\n  }\n}",
                 "{}",
                 "{\n  \"text_config\": {\n    \"h\": 1\n  },\n  \"quantization_config\": {}\n}");
}

static void members_are_removed(void **state)
{
    (void)state;
    const char *clean = "{\n  \"a\": 1.0,\n  \"z\": 2\n}\n";
    check_splice(clean, NULL, clean);
    check_splice("{\n  \"a\": 1.0,\n  \"quantization_config\": {\"q\": {}},\n  \"z\": 2\n}\n", NULL,
                 clean);
    check_splice("{\n  \"a\": 1.0,\n  \"z\": 2,\n  \"quantization_config\": {\"q\": {}}\n}\n", NULL,
                 clean);
    check_splice("{\n  \"quantization_config\": {\"q\": {}},\n  \"a\": 1.0,\n  \"z\": 2\n}\n", NULL,
                 clean);
    check_splice("{ \"quantization_config\": {} }", NULL, "{}");
    check_splice("{\"compression_config\": 1, \"quantization_config\": 2}", NULL, "{}");
    check_splice("{\"llm_config\": {\"quantization_config\": 2, \"k\": \"quantization_config\"}}",
                 NULL, "{\"llm_config\": {\"k\": \"quantization_config\"}}");
}

static void what_is_spliced_comes_out_again(void **state)
{
    (void)state;
    const char *text = "{\n  \"a\": 1e-06,\n  \"list\": [\n    1\n  ]\n}\n";
    char *with, *without;
    uint64_t with_bytes, bytes;
    assert_int_equal(fp8_config_splice(ctx, text, strlen(text), value, &with, &with_bytes, NULL),
                     FP8_OK);
    assert_int_equal(fp8_config_splice(ctx, with, with_bytes, NULL, &without, &bytes, NULL),
                     FP8_OK);
    assert_string_equal(without, text);
    fp8_release(ctx, with);
    fp8_release(ctx, without);
}

static void broken_texts_are_not_spliced(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "", "[]", "{\"a\": }", "{\"quantization_config\": 1, \"quantization_config\": 2}",
        "{\"text_config\": {\"quantization_config\": 1, \"quantization_config\": 2}}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char *out;
        uint64_t bytes;
        fp8_error err;
        assert_int_equal(
            fp8_config_splice(ctx, broken[i], strlen(broken[i]), value, &out, &bytes, &err),
            FP8_E_FORMAT);
        assert_null(out);
        assert_memory_equal(err.msg, "config.json: ", 13);
    }
}

/* ---- announcements ---- */

static fp8_quant_config read_back(const char *text)
{
    fp8_quant_config q;
    fp8_error err = {0};
    fp8_span none = {NULL, 0}, span = {text, strlen(text)};
    fp8_status status = fp8_quant_config_read(ctx, span, none, &q, &err);
    if (status != FP8_OK)
        print_error("%s\n%s\n", err.msg, text);
    assert_int_equal(status, FP8_OK);
    return q;
}

static const char *const kept[] = {"lm_head", "model.layers.0.mlp.gate", "odd\"name"};

static void check_kept(const fp8_quant_config *q)
{
    assert_int_equal(q->ignored.count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(q->ignored.names[i], kept[i]);
}

static void every_scheme_is_read_back(void **state)
{
    (void)state;
    const fp8_dialect *d;
    int written = 0;
    for (int64_t i = 0; (d = fp8_dialect_at(i)) != NULL; i++) {
        if (!d->writable || d->config == FP8_CONFIG_COMFY)
            continue;
        char *text;
        fp8_config_group group = {d, NULL, 0};
        assert_int_equal(fp8_announce_config(ctx, &group, 1, kept, 3, &text, NULL), FP8_OK);
        fp8_quant_config q = read_back(text);
        const fp8_quant_group *g;
        assert_int_equal(fp8_quant_config_group(&q, "model.layers.1.up", 17, &g, NULL), FP8_OK);
        assert_non_null(g);
        assert_true(g->known && g->dialect);
        assert_string_equal(g->dialect->name, d->name);
        assert_true(g->grid.rows == d->grid.rows && g->grid.cols == d->grid.cols);
        assert_int_equal(g->mx, d->scale == FP8_E8M0FNU);
        check_kept(&q);
        fp8_quant_config_free(ctx, &q);
        fp8_release(ctx, text);
        written++;
    }
    assert_true(written >= 14);
}

static void comfy_has_no_config(void **state)
{
    (void)state;
    char *text = "";
    fp8_config_group group = {fp8_dialect_find("comfy", NULL), NULL, 0};
    assert_int_equal(fp8_announce_config(ctx, &group, 1, kept, 3, &text, NULL), FP8_OK);
    assert_null(text);
}

static void groups_can_be_mixed_in_one_dialect_only(void **state)
{
    (void)state;
    const char *const up[] = {"l.0.up", "l.1.up"}, *const down[] = {"l.0.down"};
    fp8_config_group groups[] = {{fp8_dialect_find("ct-channel", NULL), up, 2},
                                 {fp8_dialect_find("ct-mxfp8", NULL), down, 1}};
    char *text;
    fp8_error err;
    assert_int_equal(fp8_announce_config(ctx, groups, 2, kept, 3, &text, &err), FP8_OK);
    assert_non_null(strstr(text, "\"format\": \"mixed-precision\""));
    fp8_quant_config q = read_back(text);
    const fp8_quant_group *g;
    assert_int_equal(q.group_count, 2);
    assert_int_equal(fp8_quant_config_group(&q, "l.1.up", 6, &g, NULL), FP8_OK);
    assert_string_equal(g->dialect->name, "ct-channel");
    assert_int_equal(fp8_quant_config_group(&q, "l.0.down", 8, &g, NULL), FP8_OK);
    assert_string_equal(g->dialect->name, "ct-mxfp8");
    assert_int_equal(fp8_quant_config_group(&q, "l.1.down", 8, &g, NULL), FP8_OK);
    assert_null(g);
    fp8_quant_config_free(ctx, &q);
    fp8_release(ctx, text);

    groups[1].dialect = fp8_dialect_find("hf-block", NULL);
    assert_int_equal(fp8_announce_config(ctx, groups, 2, kept, 3, &text, &err), FP8_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "hf-block"));
    assert_null(text);
}

static void modelopt_has_a_file_of_its_own(void **state)
{
    (void)state;
    char *text;
    const fp8_dialect *d = fp8_dialect_find("modelopt-mxfp8", NULL);
    assert_int_equal(fp8_announce_modelopt(ctx, d, kept, 3, &text, NULL), FP8_OK);
    fp8_quant_config q;
    fp8_span none = {NULL, 0}, span = {text, strlen(text)};
    assert_int_equal(fp8_quant_config_read(ctx, none, span, &q, NULL), FP8_OK);
    assert_ptr_equal(q.groups[0].dialect, d);
    check_kept(&q);
    fp8_quant_config_free(ctx, &q);
    fp8_release(ctx, text);
    d = fp8_dialect_find("hf-block", NULL);
    assert_int_equal(fp8_announce_modelopt(ctx, d, kept, 3, &text, NULL), FP8_OK);
    assert_null(text);
}

/* ---- what others write ---- */

static void others_configs_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *dialect;
    } cases[] = {
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", \"weight_block_size\": "
         "[128, 128], \"scale_fmt\": \"ue8m0\"}",
         "hf-block-ue8m0"},
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\", \"ignored_layers\": []}",
         "hf-tensor-static"},
        {"{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\"}", "hf-tensor"},
        {"{\"quant_method\": \"fp8\", \"weight_block_size\": [64, 64]}", NULL},
        {"{\"quant_method\": \"fbgemm_fp8\", \"activation_scale_ub\": 1200.0}", "fbgemm"},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"fp8_pb_wo\"}", "modelopt-pb-wo"},
        {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}", NULL},
        {"{\"quant_algo\": \"FP8\"}", "modelopt"},
        {"{\"quant_method\": \"quark\", \"global_quant_config\": {\"weight\": {\"dtype\": "
         "\"fp8_e4m3\", \"qscheme\": \"per_tensor\"}, \"input_tensors\": {\"is_dynamic\": "
         "false}}}",
         "quark-tensor"},
        {"{\"quant_method\": \"quark\", \"global_quant_config\": {\"weight\": {\"dtype\": "
         "\"fp8_e4m3\", \"qscheme\": \"per_channel\"}, \"input_tensors\": {\"is_dynamic\": "
         "true}}}",
         "quark-channel"},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"targets\": "
         "[\"Linear\"], \"weights\": {\"type\": \"int\", \"num_bits\": 8, \"strategy\": "
         "\"channel\"}}}}",
         NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fp8_quant_config q = read_back(cases[i].text);
        assert_int_equal(q.group_count, 1);
        const char *name = q.groups[0].dialect ? q.groups[0].dialect->name : NULL;
        assert_true(name == cases[i].dialect || (name && !strcmp(name, cases[i].dialect)));
        fp8_quant_config_free(ctx, &q);
    }
}

static void unknown_methods_are_no_error(void **state)
{
    (void)state;
    fp8_quant_config q = read_back("{\"quant_method\": \"awq\", \"bits\": 4}");
    assert_int_equal(q.kind, FP8_CONFIG_UNKNOWN);
    assert_string_equal(q.method, "awq");
    assert_int_equal(q.group_count, 0);
    fp8_quant_config_free(ctx, &q);
}

static void mixed_modelopt_has_a_group_for_each_algorithm(void **state)
{
    (void)state;
    fp8_quant_config q = read_back(
        "{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", "
        "\"quantized_layers\": {\"a.b\": {\"quant_algo\": \"FP8\"}, \"a.c\": {\"quant_algo\": "
        "\"NVFP4\"}, \"a.d\": {\"quant_algo\": \"fp8\"}}}");
    const fp8_quant_group *g;
    assert_int_equal(q.group_count, 2);
    assert_int_equal(fp8_quant_config_group(&q, "a.d", 3, &g, NULL), FP8_OK);
    assert_string_equal(g->dialect->name, "modelopt");
    assert_int_equal(fp8_quant_config_group(&q, "a.c", 3, &g, NULL), FP8_OK);
    assert_false(g->known);
    fp8_quant_config_free(ctx, &q);
}

static void broken_announcements_are_refused(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "{\"quant_method\": \"fp8\", \"quant_method\": \"fp8\"}",
        "{\"quant_method\": \"compressed-tensors\", \"ignore\": [\"re:(\"]}",
        "{\"quant_method\": \"fp8\", \"ignored_layers\": [\"a\\u0000b\"]}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        fp8_quant_config q;
        fp8_error err;
        fp8_span none = {NULL, 0}, span = {broken[i], strlen(broken[i])};
        assert_int_equal(fp8_quant_config_read(ctx, span, none, &q, &err), FP8_E_FORMAT);
        assert_int_equal(err.code, FP8_E_FORMAT);
        assert_memory_equal(err.msg, "config.json: quantization_config: ", 34);
    }
}

/* ---- memory ---- */

static fp8_status write_splice_and_read(const fp8_context *metered, void *arg)
{
    (void)arg;
    const char *const modules[] = {"a.b"};
    fp8_config_group groups[] = {{fp8_dialect_find("ct-block", NULL), modules, 1},
                                 {fp8_dialect_find("ct-w8a16", NULL), modules, 1}};
    char *text = NULL, *config = NULL;
    uint64_t bytes;
    fp8_quant_config q = {.kind = FP8_CONFIG_NONE};
    fp8_config c;
    fp8_span none = {NULL, 0};
    fp8_status status = fp8_announce_config(metered, groups, 2, kept, 3, &text, NULL);
    if (status == FP8_OK)
        status = fp8_config_splice(metered, "{\"a\": 1}", 8, text, &config, &bytes, NULL);
    if (status == FP8_OK)
        status = fp8_config_read(config, bytes, &c, NULL);
    if (status == FP8_OK)
        status = fp8_quant_config_read(metered, c.quantization, none, &q, NULL);
    fp8_quant_config_free(metered, &q);
    fp8_release(metered, config);
    fp8_release(metered, text);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(meter_try(write_splice_and_read, NULL) > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_read),
        cmocka_unit_test(facts_have_several_spellings),
        cmocka_unit_test(language_models_may_be_nested),
        cmocka_unit_test(odd_facts_are_absent),
        cmocka_unit_test(broken_configs_are_refused),
        cmocka_unit_test(members_are_inserted),
        cmocka_unit_test(members_are_replaced),
        cmocka_unit_test(members_are_removed),
        cmocka_unit_test(what_is_spliced_comes_out_again),
        cmocka_unit_test(broken_texts_are_not_spliced),
        cmocka_unit_test(every_scheme_is_read_back),
        cmocka_unit_test(comfy_has_no_config),
        cmocka_unit_test(groups_can_be_mixed_in_one_dialect_only),
        cmocka_unit_test(modelopt_has_a_file_of_its_own),
        cmocka_unit_test(others_configs_are_read),
        cmocka_unit_test(unknown_methods_are_no_error),
        cmocka_unit_test(mixed_modelopt_has_a_group_for_each_algorithm),
        cmocka_unit_test(broken_announcements_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_context, free_context);
}
