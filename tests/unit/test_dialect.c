/* SPDX-License-Identifier: Apache-2.0
 *
 * test_dialect.c - the table of dialects: its rows are sound, the names and shapes that follow from
 * them, and what engines make of a weight. */
#include "ckpt/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static void rows_are_sound(void **state)
{
    (void)state;
    int64_t n = 0;
    for (const fp8_dialect *d; (d = fp8_dialect_at(n)) != NULL; n++) {
        assert_non_null(d->name);
        assert_non_null(d->scale_suffix);
        assert_non_null(d->loaders);
        assert_non_null(d->summary);
        assert_int_not_equal(d->config, FP8_CONFIG_NONE);
        assert_int_equal(fp8_dtype_bits(d->scale), fp8_dtype_bits(d->scale_on_disk));
        assert_int_equal(d->input_suffix != NULL, d->activations == FP8_ACTIVATIONS_STATIC);
        assert_true(!d->needs_activation_scales || d->input_suffix);
        bool one = d->scale_shape == FP8_SCALES_SCALAR || d->scale_shape == FP8_SCALES_ONE;
        assert_true(!one || (d->grid.rows == 0 && d->grid.cols == 0));
        if (d->writable)
            assert_ptr_equal(fp8_dialect_find(d->name, d->engine), d);
        else
            assert_null(fp8_dialect_find(d->name, NULL));
    }
    assert_true(n > 20);
    assert_null(fp8_dialect_at(-1));
    assert_null(fp8_dialect_find("hf-blocks", NULL));
    assert_null(fp8_dialect_find(NULL, NULL));
}

static void schemes_are_the_writable_rows(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "hf-block",       "hf-tensor",      "ct-channel", "ct-tensor", "ct-tensor-static",
        "ct-block",       "ct-w8a16",       "ct-mxfp8",   "modelopt",  "modelopt-pcpt",
        "modelopt-pb-wo", "modelopt-mxfp8", "mxfp8",      "comfy",
    };
    fp8_scheme_info info;
    int64_t n = 0;
    for (; fp8_scheme(n, &info) == FP8_OK; n++) {
        assert_true(n < (int64_t)(sizeof wanted / sizeof *wanted));
        assert_string_equal(info.name, wanted[n]);
        assert_string_not_equal(info.grid, "other");
        assert_non_null(info.activations);
        assert_non_null(info.scale_dtype);
    }
    assert_int_equal(n, sizeof wanted / sizeof *wanted);
    assert_int_equal(fp8_scheme(n, &info), FP8_E_NOT_FOUND);
    assert_int_equal(fp8_scheme(0, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_scheme(-1, &info), FP8_E_ARGUMENT);
}

static void one_name_may_have_two_spellings(void **state)
{
    (void)state;
    assert_string_equal(fp8_dialect_find("hf-tensor", NULL)->scale_suffix, "weight_scale");
    assert_string_equal(fp8_dialect_find("hf-tensor", "vllm")->scale_suffix, "weight_scale");
    assert_string_equal(fp8_dialect_find("hf-tensor", "transformers")->scale_suffix,
                        "weight_scale_inv");
    assert_string_equal(fp8_dialect_find("hf-block", "transformers")->name, "hf-block");
}

static void companions_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name, *suffix, *wanted;
    } cases[] = {
        {"model.layers.0.q_proj.weight", "weight_scale_inv",
         "model.layers.0.q_proj.weight_scale_inv"},
        {"a.weight", "input_scale", "a.input_scale"},
        {"a.weight", "comfy_quant", "a.comfy_quant"},
        {"weight", "scale_weight", "scale_weight"},
        {"m.experts.gate_up_proj", "weight_scale_inv", "m.experts.gate_up_proj_scale_inv"},
        {"m.experts.down_proj", "input_scale", "m.experts.down_proj_input_scale"},
        {"a.preweight", "weight_scale", "a.preweight_scale"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[128];
        uint64_t n = strlen(cases[i].name);
        uint64_t length = fp8_companion_name(cases[i].name, n, cases[i].suffix, NULL);
        assert_int_equal(length, strlen(cases[i].wanted));
        assert_int_equal(fp8_companion_name(cases[i].name, n, cases[i].suffix, name), length);
        assert_string_equal(name, cases[i].wanted);
    }
}

static void check_scale_shape(const char *scheme, fp8_grid grid, int32_t ndim, const int64_t *shape,
                              int32_t wanted_ndim, const int64_t *wanted)
{
    fp8_matrices m;
    int64_t out[5];
    assert_true(fp8_weight_matrices(ndim, shape, &m));
    const fp8_dialect *d = fp8_dialect_find(scheme, NULL);
    assert_int_equal(fp8_scale_tensor_shape(d, grid, ndim, m, out), wanted_ndim);
    for (int32_t i = 0; i < wanted_ndim; i++)
        assert_int_equal(out[i], wanted[i]);
}

static void scales_are_shaped(void **state)
{
    (void)state;
    const int64_t flat[] = {576, 1536}, stacked[] = {8, 256, 320};
    const fp8_grid block = {128, 128}, channel = {1, 0}, column = {0, 1}, tensor = {0, 0},
                   mx = {1, 32};
    check_scale_shape("hf-block", block, 2, flat, 2, (int64_t[]){5, 12});
    check_scale_shape("hf-block", block, 3, stacked, 3, (int64_t[]){8, 2, 3});
    check_scale_shape("ct-channel", channel, 2, flat, 2, (int64_t[]){576, 1});
    check_scale_shape("ct-channel", column, 2, flat, 2, (int64_t[]){1, 1536});
    check_scale_shape("modelopt-pcpt", channel, 2, flat, 1, (int64_t[]){576});
    check_scale_shape("modelopt-pb-wo", block, 2, flat, 4, (int64_t[]){5, 1, 12, 1});
    check_scale_shape("modelopt-pb-wo", block, 3, stacked, 5, (int64_t[]){8, 2, 1, 3, 1});
    check_scale_shape("ct-mxfp8", mx, 2, flat, 2, (int64_t[]){576, 48});
    check_scale_shape("ct-tensor", tensor, 2, flat, 1, (int64_t[]){1});
    check_scale_shape("ct-tensor", tensor, 3, stacked, 1, (int64_t[]){8});
    check_scale_shape("modelopt", tensor, 2, flat, 0, NULL);
    check_scale_shape("modelopt", tensor, 3, stacked, 1, (int64_t[]){8});
}

static void weights_are_matrices(void **state)
{
    (void)state;
    fp8_matrices m;
    assert_true(fp8_weight_matrices(0, NULL, &m));
    assert_true(m.experts == 1 && m.rows == 1 && m.cols == 1);
    assert_true(fp8_weight_matrices(1, (int64_t[]){7}, &m));
    assert_true(m.rows == 1 && m.cols == 7);
    assert_true(fp8_weight_matrices(4, (int64_t[]){8, 3, 2, 2}, &m));
    assert_true(m.experts == 1 && m.rows == 8 && m.cols == 12);
    assert_false(fp8_weight_matrices(4, (int64_t[]){8, INT64_MAX, 2, 2}, &m));
}

static fp8_verdict verdict(const char *engine, const char *scheme, const char *name, int64_t rows,
                           int64_t cols, bool conv1d)
{
    const char *reason;
    fp8_matrices m = {1, rows, cols};
    fp8_verdict v = fp8_engine_weight(engine, fp8_dialect_find(scheme, engine), name, strlen(name),
                                      m, conv1d, &reason);
    assert_int_equal(v == FP8_LOADS, reason == NULL);
    return v;
}

static void engines_have_their_limits(void **state)
{
    (void)state;
    const char *q = "l.0.q_proj.weight", *v = "l.0.v_proj.weight", *o = "l.0.o_proj.weight";
    assert_int_equal(verdict("transformers", "hf-block", o, 576, 512, false), FP8_REFUSED);
    assert_int_equal(verdict("transformers", "hf-block", o, 192, 512, false), FP8_MISREAD);
    assert_int_equal(verdict("transformers", "hf-block", o, 64, 512, false), FP8_LOADS);
    assert_int_equal(verdict("transformers", "hf-block", o, 512, 512, true), FP8_LOADS);
    assert_int_equal(verdict("transformers", "ct-channel", o, 512, 512, true), FP8_MISREAD);
    assert_int_equal(verdict("transformers", "ct-block", o, 512, 576, false), FP8_REFUSED);
    assert_int_equal(verdict("vllm", "hf-block", o, 576, 512, false), FP8_LOADS);
    assert_int_equal(verdict("vllm", "hf-block", q, 576, 512, false), FP8_REFUSED);
    assert_int_equal(verdict("vllm", "hf-block", v, 576, 512, false), FP8_LOADS);
    assert_int_equal(verdict("sglang", "hf-block", v, 576, 512, false), FP8_REFUSED);
    assert_int_equal(verdict("vllm", "ct-channel", q, 576, 512, false), FP8_LOADS);
    assert_int_equal(verdict("vllm", "modelopt-mxfp8", o, 64, 512, false), FP8_REFUSED);
    assert_int_equal(verdict("vllm", "ct-channel", o, 7, 512, false), FP8_SLOW);
    assert_int_equal(verdict("vllm", "hf-block", o, 512, 512, true), FP8_REFUSED);
    assert_int_equal(verdict("vllm", "hf-tensor", o, 512, 512, true), FP8_LOADS);
}

static void engines_load_some_dialects(void **state)
{
    (void)state;
    const char *reason;
    const fp8_dialect *tensor = fp8_dialect_find("ct-tensor", NULL);
    assert_int_equal(fp8_engine_dialect("vllm", tensor, &reason), FP8_LOADS);
    assert_null(reason);
    assert_int_equal(fp8_engine_dialect("tensorrt-llm", tensor, &reason), FP8_REFUSED);
    assert_non_null(reason);
    assert_string_equal(fp8_engine_find(NULL), "vllm");
    assert_string_equal(fp8_engine_find("sglang"), "sglang");
    assert_null(fp8_engine_find("VLLM"));
    assert_string_equal(fp8_engine_name(1), "transformers");
    assert_null(fp8_engine_name(4));
    assert_null(fp8_engine_name(-1));
}

static void fused_parts_are_known(void **state)
{
    (void)state;
    fp8_fused f = fp8_fused_part("model.layers.3.mlp.up_proj.weight", 33);
    assert_string_equal(f.name, "gate_up_proj");
    assert_true(f.index == 1 && f.count == 2);
    f = fp8_fused_part("x.kv_a_proj_with_mqa.weight", 27);
    assert_true(f.index == 1 && f.count == 2);
    f = fp8_fused_part("x.down_proj.weight", 18);
    assert_null(f.name);
    assert_int_equal(f.count, 1);
    assert_false(fp8_fused_part("mlp.up_proj.weight", 18).expert);
    f = fp8_fused_part("mlp.experts.3.up_proj.weight", 28);
    assert_string_equal(f.name, "w13");
    assert_true(f.expert && f.index == 1 && f.count == 2);
    f = fp8_fused_part("moe.experts.3.w1.weight", 23);
    assert_true(f.expert && f.index == 0 && f.count == 2);
    assert_null(fp8_fused_part("mlp.experts.3.q_proj.weight", 27).name);
}

static void the_document_has_every_dialect(void **state)
{
    (void)state;
    enum { MOST = 1 << 17 };
    FILE *f = fopen("docs/formats.md", "rb"); /* tests run in the root */
    assert_non_null(f);
    char *text = calloc(MOST, 1), row[128];
    assert_non_null(text);
    assert_true(fread(text, 1, MOST - 1, f) > 1000);
    fclose(f);
    const fp8_dialect *d;
    for (int64_t i = 0; (d = fp8_dialect_at(i)) != NULL; i++) {
        if (d->engine)
            continue; /* in the row of its name */
        snprintf(row, sizeof row, d->writable ? "| %s | %s" : "%s", d->name, d->scale_suffix);
        if (!strstr(text, row))
            print_error("docs/formats.md has no '%s'\n", row);
        assert_non_null(strstr(text, row));
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_sound),
        cmocka_unit_test(schemes_are_the_writable_rows),
        cmocka_unit_test(one_name_may_have_two_spellings),
        cmocka_unit_test(companions_are_named),
        cmocka_unit_test(scales_are_shaped),
        cmocka_unit_test(weights_are_matrices),
        cmocka_unit_test(engines_have_their_limits),
        cmocka_unit_test(engines_load_some_dialects),
        cmocka_unit_test(fused_parts_are_known),
        cmocka_unit_test(the_document_has_every_dialect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
