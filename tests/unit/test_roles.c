/* SPDX-License-Identifier: Apache-2.0
 *
 * test_roles.c - weights and scales in every dialect's spelling, found and judged; what is wrong
 * with them, named. Each case is a small checkpoint: tensors as "name dtype shape" and a config. */
#include "ckpt/roles.h"
#include "support/meter.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

/* Text of a growing JSON header. */
typedef struct header {
    char text[8192];
    size_t bytes, data;
} header;

static void add_tensor(header *h, const char *line)
{
    char name[128], dtype[16], shape[64];
    shape[0] = 0;
    assert_true(sscanf(line, "%127s %15s %63s", name, dtype, shape) >= 2);
    size_t size = (size_t)fp8_dtype_bits(fp8_dtype_parse(dtype)) / 8;
    for (const char *p = shape; *p; p += strcspn(p, ",") + (strchr(p, ',') != NULL))
        size *= (size_t)atol(p);
    int n = snprintf(h->text + h->bytes, sizeof h->text - h->bytes,
                     "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                     h->bytes ? "," : "{", name, dtype, shape, h->data, h->data + size);
    h->bytes += (size_t)n;
    h->data += size;
}

/* A checkpoint of these tensors ("name dtype 1,2" lines, NULL after the last), its roles. */
typedef struct opened {
    fp8_context *ctx;
    fp8_checkpoint *ckpt;
    fp8_roles roles;
} opened;

static void write_checkpoint(const char *const *lines, const char *config)
{
    header h = {"", 0, 0};
    sandbox_make();
    for (; *lines; lines++)
        add_tensor(&h, *lines);
    snprintf(h.text + h.bytes, sizeof h.text - h.bytes, "}");
    sandbox_safetensors("model.safetensors", h.text, h.data);
    char text[2048];
    snprintf(text, sizeof text, "{\"model_type\": \"llama\"%s%s}",
             config ? ", \"quantization_config\": " : "", config ? config : "");
    sandbox_text("config.json", text);
}

static opened open_roles(const char *const *lines, const char *config)
{
    opened o;
    fp8_error err = {0};
    write_checkpoint(lines, config);
    assert_int_equal(fp8_context_create(NULL, &o.ctx, NULL), FP8_OK);
    fp8_status status = fp8_checkpoint_open(o.ctx, sandbox_path(""), &o.ckpt, &err);
    if (status == FP8_OK)
        status = fp8_roles_assign(o.ctx, o.ckpt, &o.roles, &err);
    if (status != FP8_OK)
        print_error("%s\n", err.msg);
    assert_int_equal(status, FP8_OK);
    return o;
}

static void close_roles(opened *o)
{
    fp8_roles_free(o->ctx, &o->roles);
    fp8_checkpoint_close(o->ckpt);
    fp8_context_free(o->ctx);
    sandbox_remove();
}

static const fp8_role_info *role_of(const opened *o, const char *name)
{
    int64_t i = fp8_checkpoint_index(o->ckpt, name, strlen(name));
    assert_true(i >= 0);
    return &o->roles.tensors[i];
}

static const char *rule_of(const opened *o, const char *name)
{
    const fp8_role_info *role = role_of(o, name);
    return role->problem ? role->problem->rule : "";
}

/* ---- spellings ---- */

#define CT(weights, input)                                                                 \
    "{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"g\": {\"targets\": " \
    "[\"Linear\"], \"weights\": {\"type\": \"float\", \"num_bits\": 8, " weights           \
    "}, \"input_activations\": " input "}}}"
#define DYNAMIC "{\"dynamic\": true, \"strategy\": \"token\"}"
#define STATIC  "{\"dynamic\": false, \"strategy\": \"tensor\"}"
#define HF_BLOCK                                                                              \
    "{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", \"weight_block_size\": " \
    "[128, 128]}"
#define HF_STATIC           "{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\"}"
#define HF_TENSOR           "{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\"}"
#define MODELOPT(algorithm) "{\"quant_method\": \"modelopt\", \"quant_algo\": \"" algorithm "\"}"

static void every_spelling_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *dialect, *config, *scale, *input;
        fp8_grid grid;
        fp8_dtype as;
    } cases[] = {
        {"hf-block", HF_BLOCK, "a.weight_scale_inv F32 3,2", NULL, {128, 128}, FP8_F32},
        {"hf-block", HF_BLOCK, "a.weight_scale_inv BF16 3,2", NULL, {128, 128}, FP8_BF16},
        {"hf-tensor", HF_TENSOR, "a.weight_scale F32", NULL, {0, 0}, FP8_F32},
        {"hf-tensor", HF_TENSOR, "a.weight_scale_inv F32 1,1", NULL, {0, 0}, FP8_F32},
        {"hf-tensor-static",
         HF_STATIC,
         "a.weight_scale F32 1",
         "a.input_scale F32",
         {0, 0},
         FP8_F32},
        {"mistral-static",
         HF_STATIC,
         "a.weight_scale_inv BF16",
         "a.activation_scale BF16",
         {0, 0},
         FP8_BF16},
        {"ct-channel",
         CT("\"strategy\": \"channel\"", DYNAMIC),
         "a.weight_scale BF16 320,1",
         NULL,
         {1, 0},
         FP8_BF16},
        {"ct-channel",
         CT("\"strategy\": \"channel\"", DYNAMIC),
         "a.weight_scale F32 1,256",
         NULL,
         {0, 1},
         FP8_F32},
        {"ct-w8a16",
         CT("\"strategy\": \"channel\"", "null"),
         "a.weight_scale F32 320,1",
         NULL,
         {1, 0},
         FP8_F32},
        {"ct-tensor",
         CT("\"strategy\": \"tensor\"", DYNAMIC),
         "a.weight_scale F32 1",
         NULL,
         {0, 0},
         FP8_F32},
        {"ct-tensor-static",
         CT("\"strategy\": \"tensor\"", STATIC),
         "a.weight_scale F32 1",
         "a.input_scale F32 1",
         {0, 0},
         FP8_F32},
        {"ct-block",
         CT("\"strategy\": \"block\", \"block_structure\": [128, 128]", DYNAMIC),
         "a.weight_scale F32 3,2",
         NULL,
         {128, 128},
         FP8_F32},
        {"unknown",
         CT("\"strategy\": \"group\", \"group_size\": 64", DYNAMIC),
         "a.weight_scale F32 320,4",
         NULL,
         {1, 64},
         FP8_F32},
        {"ct-mxfp8",
         CT("\"strategy\": \"group\", \"group_size\": 32, \"scale_dtype\": \"torch.uint8\"",
            DYNAMIC),
         "a.weight_scale U8 320,8",
         NULL,
         {1, 32},
         FP8_E8M0FNU},
        {"modelopt", MODELOPT("FP8"), "a.weight_scale F32", "a.input_scale F32", {0, 0}, FP8_F32},
        {"modelopt-pcpt",
         MODELOPT("FP8_PER_CHANNEL_PER_TOKEN"),
         "a.weight_scale F32 320",
         NULL,
         {1, 0},
         FP8_F32},
        {"modelopt-pb-wo",
         MODELOPT("fp8_pb_wo"),
         "a.weight_scale F32 3,1,2,1",
         NULL,
         {128, 128},
         FP8_F32},
        {"modelopt-mxfp8",
         MODELOPT("MXFP8"),
         "a.weight_scale U8 320,8",
         NULL,
         {1, 32},
         FP8_E8M0FNU},
        {"mxfp8",
         "{\"quant_method\": \"mxfp8\"}",
         "a.weight_scale_inv U8 320,8",
         NULL,
         {1, 32},
         FP8_E8M0FNU},
        {"fbgemm",
         "{\"quant_method\": \"fbgemm_fp8\"}",
         "a.weight_scale F32 320,1",
         NULL,
         {1, 0},
         FP8_F32},
        {"unknown", NULL, "a.weight_scale_inv F32 3,2", NULL, {128, 128}, FP8_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *lines[] = {"a.weight F8_E4M3 320,256", cases[i].scale, cases[i].input, NULL};
        opened o = open_roles(lines, cases[i].config);
        const fp8_role_info *w = role_of(&o, "a.weight");
        assert_string_equal(rule_of(&o, "a.weight"), "");
        assert_int_equal(w->role, FP8_ROLE_WEIGHT);
        assert_true(w->grid.rows == cases[i].grid.rows && w->grid.cols == cases[i].grid.cols);
        assert_int_equal(w->scale, cases[i].as);
        assert_int_equal(o.roles.tensors[w->partner].role, FP8_ROLE_SCALE);
        assert_int_equal(o.roles.tensors[w->partner].partner,
                         fp8_checkpoint_index(o.ckpt, "a.weight", 8));
        assert_int_equal(w->input >= 0, cases[i].input != NULL);
        if (w->input >= 0)
            assert_int_equal(o.roles.tensors[w->input].role, FP8_ROLE_INPUT_SCALE);
        assert_string_equal(fp8_checkpoint_dialect(o.ckpt), cases[i].dialect);
        close_roles(&o);
    }
}

static void comfy_is_known_by_its_markers(void **state)
{
    (void)state;
    const char *new_lines[] = {"a.weight F8_E4M3 8,8", "a.weight_scale F32", "a.comfy_quant U8 27",
                               "b.weight F16 8,8", NULL};
    opened o = open_roles(new_lines, NULL);
    assert_string_equal(fp8_checkpoint_dialect(o.ckpt), "comfy");
    assert_int_equal(role_of(&o, "a.comfy_quant")->role, FP8_ROLE_MARKER);
    assert_int_equal(role_of(&o, "a.weight")->role, FP8_ROLE_WEIGHT);
    close_roles(&o);

    const char *old_lines[] = {"a.weight F8_E4M3 8,8", "a.scale_weight F32", "a.scale_input F32",
                               "scaled_fp8 F8_E4M3 0", NULL};
    o = open_roles(old_lines, NULL);
    assert_string_equal(fp8_checkpoint_dialect(o.ckpt), "comfy-scaled");
    assert_int_equal(role_of(&o, "scaled_fp8")->role, FP8_ROLE_MARKER);
    assert_int_equal(role_of(&o, "a.scale_input")->role, FP8_ROLE_INPUT_SCALE);
    close_roles(&o);

    const char *mx_lines[] = {"a.weight F8_E4M3 128,128", "a.weight_scale U8 128,4",
                              "a.comfy_quant U8 20", NULL};
    o = open_roles(mx_lines, NULL);
    assert_string_equal(rule_of(&o, "a.weight"), "scale-layout");
    close_roles(&o);
}

static void plain_casts_have_no_scale(void **state)
{
    (void)state;
    const char *lines[] = {"a.weight F8_E4M3 8,8", "b.weight F8_E5M2 8,8", "c.bias F8_E4M3 8",
                           NULL};
    opened o = open_roles(lines, NULL);
    assert_int_equal(role_of(&o, "a.weight")->role, FP8_ROLE_BARE_CODES);
    assert_int_equal(role_of(&o, "b.weight")->role, FP8_ROLE_BARE_CODES);
    assert_string_equal(rule_of(&o, "c.bias"), "");
    assert_string_equal(fp8_checkpoint_dialect(o.ckpt), "unknown");
    close_roles(&o);
}

static void nothing_quantized_is_plain(void **state)
{
    (void)state;
    const char *lines[] = {"a.weight BF16 8,8", "a.bias F32 8", "ids I64 4", NULL};
    opened o = open_roles(lines, NULL);
    for (int64_t i = 0; i < fp8_checkpoint_count(o.ckpt); i++)
        assert_int_equal(o.roles.tensors[i].role, FP8_ROLE_PLAIN);
    assert_false(o.roles.quantized);
    assert_null(o.roles.dialect);
    assert_string_equal(fp8_checkpoint_dialect(o.ckpt), "none");
    close_roles(&o);
}

static void stacked_experts_have_stacked_scales(void **state)
{
    (void)state;
    const char *lines[] = {
        "m.experts.gate_up_proj F8_E4M3 4,256,384", "m.experts.gate_up_proj_scale_inv F32 4,2,3",
        "m.experts.down_proj F8_E4M3 4,384,256", "m.experts.down_proj_scale_inv F32 4,2,3", NULL};
    opened o = open_roles(lines, HF_BLOCK);
    const fp8_role_info *w = role_of(&o, "m.experts.gate_up_proj");
    assert_int_equal(w->role, FP8_ROLE_WEIGHT);
    assert_null(w->problem);
    assert_string_equal(rule_of(&o, "m.experts.down_proj"), "scale-shape");
    close_roles(&o);
}

/* ---- what can be wrong ---- */

static void problems_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *config, *lines[4], *tensor, *rule;
        bool unreadable;
    } cases[] = {
        {HF_BLOCK, {"a.weight F8_E4M3 256,256"}, "a.weight", "scale-missing", true},
        {HF_BLOCK,
         {"a.weight F8_E4M3 256,384", "a.weight_scale_inv F32 3,2"},
         "a.weight",
         "scale-shape",
         true},
        {HF_BLOCK,
         {"a.weight F8_E4M3 256,384", "a.weight_scale_inv F32 6"},
         "a.weight",
         "scale-shape",
         true},
        {HF_BLOCK,
         {"a.weight F8_E4M3 256,384", "a.weight_scale_inv F32"},
         "a.weight",
         "scale-shape",
         true},
        {HF_BLOCK,
         {"a.weight F8_E4M3 256,384", "a.weight_scale_inv U8 2,3"},
         "a.weight",
         "scale-dtype",
         true},
        {MODELOPT("MXFP8"),
         {"a.weight F8_E4M3 256,64", "a.weight_scale F32 256,2"},
         "a.weight",
         "scale-dtype",
         true},
        {MODELOPT("NVFP4"),
         {"a.weight F8_E4M3 256,64", "a.weight_scale F32"},
         "a.weight",
         "scheme-unknown",
         true},
        {NULL,
         {"a.weight F8_E4M3 256,64", "a.weight_scale F32 7,7"},
         "a.weight",
         "granularity-unknown",
         true},
        {HF_BLOCK,
         {"a.weight BF16 256,384", "a.weight_scale_inv F32 2,3"},
         "a.weight_scale_inv",
         "scale-unquantized",
         false},
        {HF_BLOCK, {"a.weight_scale_inv F32 2,3"}, "a.weight_scale_inv", "scale-orphan", false},
        {HF_BLOCK,
         {"l.experts.0.up_proj.weight BF16 8,8", "l.experts.gate_up_proj_scale_inv F32 4,1,1"},
         "l.experts.gate_up_proj_scale_inv",
         "scale-fused",
         false},
        {HF_TENSOR,
         {"a.weight F8_E4M3 8,8", "a.weight_scale F32", "a.weight_scale_inv F32 1"},
         "a.weight_scale",
         "scale-twice",
         false},
        {HF_STATIC,
         {"a.weight F8_E4M3 8,8", "a.weight_scale F32"},
         "a.weight",
         "input-scale-missing",
         false},
        {HF_STATIC,
         {"a.weight F8_E4M3 8,8", "a.weight_scale F32", "a.input_scale F32 8"},
         "a.input_scale",
         "input-scale-shape",
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        opened o = open_roles(cases[i].lines, cases[i].config);
        assert_string_equal(rule_of(&o, cases[i].tensor), cases[i].rule);
        assert_int_equal(role_of(&o, cases[i].tensor)->problem->unreadable, cases[i].unreadable);
        close_roles(&o);
    }
}

static void other_quantizations_are_left_alone(void **state)
{
    (void)state;
    const char *lines[] = {"a.weight I8 8,8", "a.weight_scale F32 8,1", "b.k_proj.k_scale F32",
                           "logit_scale F32", NULL};
    opened o = open_roles(lines, "{\"quant_method\": \"awq\"}");
    assert_int_equal(role_of(&o, "a.weight_scale")->role, FP8_ROLE_PLAIN);
    assert_int_equal(role_of(&o, "b.k_proj.k_scale")->role, FP8_ROLE_KV_SCALE);
    assert_int_equal(role_of(&o, "logit_scale")->role, FP8_ROLE_PLAIN);
    assert_string_equal(fp8_checkpoint_dialect(o.ckpt), "unknown");
    close_roles(&o);
}

static void modelopt_may_have_its_own_file_only(void **state)
{
    (void)state;
    const char *lines[] = {"a.weight F8_E4M3 8,8", "a.weight_scale F32 8", NULL};
    opened o = open_roles(lines, NULL);
    fp8_roles again;
    sandbox_text("hf_quant_config.json",
                 "{\"quantization\": {\"quant_algo\": \"FP8_PER_CHANNEL_PER_TOKEN\", "
                 "\"exclude_modules\": [\"lm_head\"]}}");
    assert_int_equal(fp8_roles_assign(o.ctx, o.ckpt, &again, NULL), FP8_OK);
    assert_string_equal(again.dialect->name, "modelopt-pcpt");
    assert_int_equal(again.config.ignored.count, 1);
    fp8_roles_free(o.ctx, &again);
    sandbox_text("hf_quant_config.json", "{\"quantization\": ");
    fp8_error err;
    assert_int_equal(fp8_roles_assign(o.ctx, o.ckpt, &again, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "hf_quant_config.json"));
    close_roles(&o);
}

static fp8_status open_and_assign(const fp8_context *ctx, void *arg)
{
    (void)arg;
    fp8_checkpoint *ckpt = NULL;
    fp8_roles roles = {.quantized = false};
    fp8_status status = fp8_checkpoint_open(ctx, sandbox_path(""), &ckpt, NULL);
    if (status == FP8_OK)
        status = fp8_roles_assign(ctx, ckpt, &roles, NULL);
    fp8_roles_free(ctx, &roles);
    fp8_checkpoint_close(ckpt);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *lines[] = {"a.weight F8_E4M3 8,8", "a.weight_scale F32 8,1",
                           "b.weight_scale F32 8,1", "b.weight BF16 8,8", NULL};
    write_checkpoint(lines, CT("\"strategy\": \"channel\"", DYNAMIC));
    assert_true(meter_try(open_and_assign, NULL) > 15);
    sandbox_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_found),
        cmocka_unit_test(comfy_is_known_by_its_markers),
        cmocka_unit_test(plain_casts_have_no_scale),
        cmocka_unit_test(nothing_quantized_is_plain),
        cmocka_unit_test(stacked_experts_have_stacked_scales),
        cmocka_unit_test(problems_are_named),
        cmocka_unit_test(other_quantizations_are_left_alone),
        cmocka_unit_test(modelopt_may_have_its_own_file_only),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
