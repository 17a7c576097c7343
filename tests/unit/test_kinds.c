/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kinds.c - kinds of tensors where the name alone does not decide: the config, the shape or
 * the dtype does. Names of whole models are in the golden tests. */
#include "convert/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static fp8_config config_of(const char *architecture, const char *type, int64_t hidden)
{
    fp8_config c = {.hidden = hidden};
    strcpy(c.architecture, architecture);
    strcpy(c.model_type, type);
    return c;
}

static fp8_kind kind(const fp8_config *c, const char *name, int32_t ndim, const int64_t *shape)
{
    const char *reason = NULL;
    fp8_kind k = fp8_name_kind(c, name, strlen(name), FP8_BF16, ndim, shape, &reason);
    assert_non_null(reason);
    assert_true(strlen(reason) > 3);
    return k;
}

static void orientation_comes_from_the_model(void **state)
{
    (void)state;
    const int64_t shape[] = {256, 256};
    fp8_config gpt2 = config_of("GPT2LMHeadModel", "gpt2", 256);
    fp8_config only_name = config_of("GPT2Model", "", 256);
    fp8_config qwen = config_of("QWenLMHeadModel", "qwen", 256), none = config_of("", "", 0);
    const char *name = "h.0.attn.c_proj.weight";
    assert_int_equal(kind(&gpt2, name, 2, shape), FP8_KIND_CONV1D);
    assert_int_equal(kind(&only_name, name, 2, shape), FP8_KIND_CONV1D);
    assert_int_equal(kind(&qwen, name, 2, shape), FP8_KIND_LINEAR);
    assert_int_equal(kind(&none, name, 2, shape), FP8_KIND_OTHER);
}

static void stacks_are_oriented(void **state)
{
    (void)state;
    fp8_config mixtral = config_of("MixtralForCausalLM", "mixtral", 64);
    fp8_config oss = config_of("GptOssForCausalLM", "gpt_oss", 64);
    fp8_config unknown = config_of("NewForCausalLM", "new", 64);
    const char *up = "l.0.mlp.experts.gate_up_proj", *down = "l.0.mlp.experts.down_proj";
    const int64_t out_in[] = {8, 192, 64}, in_out[] = {8, 64, 192}, square[] = {8, 64, 64};
    assert_int_equal(kind(&unknown, up, 3, out_in), FP8_KIND_EXPERTS);
    assert_int_equal(kind(&unknown, up, 3, in_out), FP8_KIND_EXPERTS_IN_OUT);
    assert_int_equal(kind(&unknown, down, 3, in_out), FP8_KIND_EXPERTS);
    assert_int_equal(kind(&unknown, down, 3, out_in), FP8_KIND_EXPERTS_IN_OUT);
    assert_int_equal(kind(&unknown, down, 3, square), FP8_KIND_OTHER);
    assert_int_equal(kind(&mixtral, down, 3, square), FP8_KIND_EXPERTS);
    assert_int_equal(kind(&oss, down, 3, square), FP8_KIND_EXPERTS_IN_OUT);
    assert_int_equal(kind(&mixtral, "l.0.conv.weight", 3, out_in), FP8_KIND_CONV);
}

static void towers_belong_to_language_models(void **state)
{
    (void)state;
    const int64_t shape[] = {64, 64};
    fp8_config vl = config_of("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", 64);
    fp8_config clip = config_of("CLIPModel", "clip", 64);
    vl.multimodal = clip.multimodal = true;
    assert_int_equal(kind(&vl, "visual.blocks.0.attn.qkv.weight", 2, shape), FP8_KIND_OTHER);
    assert_int_equal(kind(&vl, "model.layers.0.mlp.up_proj.weight", 2, shape), FP8_KIND_LINEAR);
    assert_int_equal(kind(&clip, "vision_model.l.0.fc1.weight", 2, shape), FP8_KIND_LINEAR);
    vl.multimodal = false;
    assert_int_equal(kind(&vl, "visual.blocks.0.attn.qkv.weight", 2, shape), FP8_KIND_LINEAR);
}

static void some_tensors_are_never_weights(void **state)
{
    (void)state;
    fp8_config c = config_of("LlamaForCausalLM", "llama", 64);
    const char *reason;
    const int64_t shape[] = {64, 64}, empty[] = {0, 64};
    const char *name = "model.layers.0.mlp.up_proj.weight";
    assert_int_equal(fp8_name_kind(&c, name, strlen(name), FP8_I8, 2, shape, &reason),
                     FP8_KIND_OTHER);
    assert_int_equal(fp8_name_kind(&c, name, strlen(name), FP8_E4M3FN, 2, shape, &reason),
                     FP8_KIND_LINEAR);
    assert_int_equal(kind(&c, name, 2, empty), FP8_KIND_OTHER);
    assert_int_equal(kind(&c, "weight", 2, shape), FP8_KIND_OTHER);
    assert_int_equal(kind(&c, "", 0, NULL), FP8_KIND_OTHER);
    assert_int_equal(kind(&c, "a.lora_A.default.weight", 2, shape), FP8_KIND_OTHER);
    assert_int_equal(kind(&c, "model.output.weight", 2, shape), FP8_KIND_HEAD);
    assert_int_equal(kind(&c, "a.output.weight", 2, shape), FP8_KIND_LINEAR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orientation_comes_from_the_model),
        cmocka_unit_test(stacks_are_oriented),
        cmocka_unit_test(towers_belong_to_language_models),
        cmocka_unit_test(some_tensors_are_never_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
