/* SPDX-License-Identifier: Apache-2.0
 *
 * damage.c - the table of damages, and what each does to the model or its files. */
#include "support/damage.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

#define GOLDEN "tests/golden/checkpoints/"
#define LAYER  "model.layers.0."
#define Q      LAYER "self_attn.q_proj.weight"
#define GATE   LAYER "mlp.gate_proj.weight"
#define UP     LAYER "mlp.up_proj.weight"
#define NORM   LAYER "input_layernorm.weight"

static const good block = {GOLDEN "llama_tied_hf_block", GOLDEN "llama_tied_bf16", 1};
static const good channel = {GOLDEN "llama_untied_ct_channel_token", GOLDEN "llama_untied_bf16", 3};
static const good fixed = {GOLDEN "llama_untied_ct_tensor_static", GOLDEN "llama_untied_bf16", 1};
static const good mx = {GOLDEN "llama_untied_ct_mxfp8", GOLDEN "llama_untied_bf16", 1};
static const good tensor = {GOLDEN "llama_untied_hf_tensor", GOLDEN "llama_untied_bf16", 1};

static float *floats(edit_tensor *t)
{
    assert_int_equal(t->dtype, FP8_F32);
    return (float *)(void *)t->data;
}

static void config_without_quantization(edit_model *m);

/* ---- Damage to the model ---- */

static void nothing(edit_model *m)
{
    (void)m;
}

static void scale_doubled(edit_model *m)
{
    floats(edit_find(m, GATE "_scale_inv"))[3] *= 2;
}

static void scale_off_by_a_percent(edit_model *m)
{
    floats(edit_find(m, GATE "_scale_inv"))[3] *= 1.01f;
}

static void mx_scale_doubled(edit_model *m)
{
    edit_find(m, GATE "_scale")->data[100]++;
}

static void weights_swapped(edit_model *m)
{
    edit_swap(m, GATE, UP);
    edit_swap(m, GATE "_scale_inv", UP "_scale_inv");
}

static void codes_swapped(edit_model *m)
{
    edit_swap(m, GATE, UP);
}

static void scales_swapped(edit_model *m)
{
    edit_swap(m, GATE "_scale", UP "_scale");
}

/* The lowest bit of a code in the middle. */
static void code_flipped(edit_model *m)
{
    edit_find(m, GATE)->data[12345] ^= 1;
}

static void sign_flipped(edit_model *m)
{
    edit_tensor *t = edit_find(m, GATE);
    uint64_t i = 777;
    while (!(t->data[i] & 0x7f))
        i++;
    t->data[i] ^= 0x80;
}

static void code_nan(edit_model *m)
{
    edit_find(m, GATE)->data[5] = 0x7f;
}

static void scale_missing(edit_model *m)
{
    edit_remove(m, GATE "_scale_inv");
}

static void scale_nan(edit_model *m)
{
    floats(edit_find(m, GATE "_scale_inv"))[2] = NAN;
}

static void scale_zero(edit_model *m)
{
    floats(edit_find(m, GATE "_scale_inv"))[2] = 0;
}

static void scale_negative(edit_model *m)
{
    floats(edit_find(m, GATE "_scale_inv"))[2] *= -1;
}

static void scale_infinite(edit_model *m)
{
    floats(edit_find(m, GATE "_scale_inv"))[2] = INFINITY;
}

static void mx_scale_nan(edit_model *m)
{
    edit_find(m, GATE "_scale")->data[7] = 0xff;
}

static void scale_transposed(edit_model *m)
{
    edit_tensor *t = edit_find(m, GATE "_scale_inv");
    int64_t rows = t->shape[0];
    assert_true(rows != t->shape[1]);
    t->shape[0] = t->shape[1];
    t->shape[1] = rows;
}

static void scale_renamed(edit_model *m)
{
    strcpy(edit_find(m, GATE "_scale_inv")->name, GATE "_scale");
}

static void channel_scale_renamed(edit_model *m)
{
    strcpy(edit_find(m, GATE "_scale")->name, GATE "_scale_inv");
}

static void channel_scale_flattened(edit_model *m)
{
    edit_find(m, GATE "_scale")->ndim = 1;
}

static void codes_called_integers(edit_model *m)
{
    edit_find(m, GATE)->dtype = FP8_U8;
}

static void format_of_packed_integers(edit_model *m)
{
    edit_config(m, "\"format\": \"float-quantized\",\n    \"g",
                "\"format\": \"pack-quantized\",\n    \"g");
}

static void fmt_of_another_format(edit_model *m)
{
    edit_config(m, "\"quant_method\": \"fp8\"", "\"fmt\": \"e5m2\", \"quant_method\": \"fp8\"");
}

static void scales_and_config_removed(edit_model *m)
{
    config_without_quantization(m);
    for (int i = m->count - 1; i >= 0; i--)
        if (strstr(m->tensors[i].name, "_scale_inv"))
            edit_remove(m, m->tensors[i].name);
}

static void scale_of_integers(edit_model *m)
{
    edit_find(m, GATE "_scale_inv")->dtype = FP8_I32;
}

static void block_size_changed(edit_model *m)
{
    edit_config(m, "128,\n      128", "64,\n      64");
}

static void dynamic_became_static(edit_model *m)
{
    edit_config(m, "\"activation_scheme\": \"dynamic\"", "\"activation_scheme\": \"static\"");
}

static void scheme_misspelt(edit_model *m)
{
    edit_config(m, "\"activation_scheme\": \"dynamic\"", "\"activation_scheme\": \"dynamik\"");
}

static void static_became_dynamic(edit_model *m)
{
    edit_config(m, "\"dynamic\": false", "\"dynamic\": true");
}

static void input_scale_missing(edit_model *m)
{
    edit_remove(m, LAYER "mlp.gate_proj.input_scale");
}

static void input_scale_zero(edit_model *m)
{
    edit_tensor *t = edit_find(m, LAYER "mlp.gate_proj.input_scale");
    memset(t->data, 0, t->bytes);
}

static void ignore_entry_removed(edit_model *m)
{
    edit_config(m, "\"k_proj\",", "");
}

static void head_no_longer_ignored(edit_model *m)
{
    edit_config(m, "\"lm_head\"", "");
}

static void fp8_head_no_longer_ignored(edit_model *m)
{
    edit_config(m, "\"lm_head\",", "");
    edit_config(m, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    edit_copy(m, "model.embed_tokens.weight", "lm_head.weight");
}

static void ignore_entry_added(edit_model *m)
{
    edit_config(m, "\"k_proj\",", "\"k_proj\", \"gate_proj\",");
}

static void ignore_entry_without_module(edit_model *m)
{
    edit_config(m, "\"lm_head\"", "\"lm_head\", \"model.layers.7.mlp.gate_proj\"");
}

static void config_without_quantization(edit_model *m)
{
    edit_config(m, "\"quantization_config\"", "\"no_quantization_config\"");
}

static void config_of_another_method(edit_model *m)
{
    edit_config(m, "\"quant_method\": \"fp8\"", "\"quant_method\": \"awq\"");
}

static void config_key_removed(edit_model *m)
{
    edit_config(m, "\"eos_token_id\": 2,", "");
}

static void config_value_changed(edit_model *m)
{
    edit_config(m, "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e-05");
}

static void index_entry_removed(edit_model *m)
{
    edit_find(m, GATE)->unlisted = true;
}

static void total_size_wrong(edit_model *m)
{
    m->total_size_off_by = -1;
}

static void kept_bit_flipped(edit_model *m)
{
    edit_find(m, NORM)->data[11] ^= 1;
}

static void kept_tensors_swapped(edit_model *m)
{
    edit_swap(m, "model.layers.0.self_attn.k_proj.weight",
              "model.layers.0.self_attn.v_proj.weight");
}

static void tensor_missing(edit_model *m)
{
    edit_remove(m, NORM);
}

static void tensor_added(edit_model *m)
{
    edit_copy(m, NORM, "model.layers.9.input_layernorm.weight");
}

static void tensor_reshaped(edit_model *m)
{
    edit_tensor *t = edit_find(m, NORM);
    t->shape[0] /= 2;
    t->shape[1] = 2;
    t->ndim = 2;
}

/* A quantized weight in bf16, its scale still beside it. */
static void weight_not_quantized(edit_model *m)
{
    edit_tensor *t = edit_find(m, GATE);
    free(t->data);
    t->bytes *= 2;
    t->dtype = FP8_BF16;
    t->data = calloc(1, t->bytes);
    assert_non_null(t->data);
}

/* Scales of several experts in one tensor. */
static void scales_fused(edit_model *m)
{
    edit_tensor *t = edit_copy(m, GATE "_scale_inv", LAYER "mlp.experts.gate_up_proj_scale_inv");
    edit_copy(m, GATE, LAYER "mlp.experts.0.gate_proj.weight");
    t->ndim = 3;
    t->shape[2] = 1;
}

static void scale_without_weight(edit_model *m)
{
    edit_copy(m, GATE "_scale_inv", "model.layers.9.mlp.gate_proj.weight_scale_inv");
}

static void scale_twice(edit_model *m)
{
    edit_copy(m, GATE "_scale_inv", GATE "_scale");
}

static void head_quantized_though_tied(edit_model *m)
{
    edit_copy(m, GATE, "lm_head.weight");
    edit_copy(m, GATE "_scale_inv", "lm_head.weight_scale_inv");
}

static void scale_much_too_large(edit_model *m)
{
    floats(edit_find(m, GATE "_scale_inv"))[0] = 1e6f;
}

/* ---- Damage to the files ---- */

static void in_folder(const char *folder, const char *file, char path[600])
{
    snprintf(path, 600, "%s/%s", folder, file);
}

static void shard_truncated(const char *folder)
{
    char path[600];
    in_folder(folder, "model-00002-of-00003.safetensors", path);
    assert_int_equal(truncate(path, 20000), 0);
}

static void shards_permuted(const char *folder)
{
    char a[600], b[600], c[600];
    in_folder(folder, "model-00001-of-00003.safetensors", a);
    in_folder(folder, "model-00002-of-00003.safetensors", b);
    in_folder(folder, "x", c);
    assert_int_equal(rename(a, c) | rename(b, a) | rename(c, b), 0);
}

static void shard_missing(const char *folder)
{
    char path[600];
    in_folder(folder, "model-00003-of-00003.safetensors", path);
    assert_int_equal(unlink(path), 0);
}

static void pickle_left_over(const char *folder)
{
    char path[600];
    in_folder(folder, "pytorch_model.bin", path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

/* ---- The table ---- */

#define AS_IT_IS nothing, NULL
#define SRC      true
#define ALONE    false

const damage damages[] = {
    {"nothing, block", &block, AS_IT_IS, SRC, NULL, "", false, NULL},
    {"nothing, channel", &channel, AS_IT_IS, SRC, NULL, "", false, NULL},
    {"nothing, static", &fixed, AS_IT_IS, SRC, NULL, "", false, NULL},
    {"nothing, mx", &mx, AS_IT_IS, SRC, NULL, "", false, NULL},
    {"nothing, tensor", &tensor, AS_IT_IS, SRC, NULL, "", false, NULL},

    {"scale doubled", &block, scale_doubled, NULL, SRC, "scale-changed", GATE, false, "2 times"},
    {"scale off by 1 %", &block, scale_off_by_a_percent, NULL, SRC, "code-changed", GATE, false,
     NULL},
    {"mx scale doubled", &mx, mx_scale_doubled, NULL, SRC, "scale-changed", GATE, false,
     "element 3200 "},
    {"weights swapped", &block, weights_swapped, NULL, SRC, "swapped", GATE, false,
     "codes and scale are those of " UP},
    {"codes swapped", &block, codes_swapped, NULL, SRC, "swapped", UP, false,
     "the codes are those of " GATE},
    {"scales swapped", &channel, scales_swapped, NULL, SRC, "swapped", GATE, false,
     "the scale is that of " UP},
    {"code flipped", &block, code_flipped, NULL, SRC, "code-changed", GATE, false,
     "element 12345 "},
    {"code flipped, channel", &channel, code_flipped, NULL, SRC, "code-changed", GATE, false,
     "element 12345 "},
    {"code flipped, mx", &mx, code_flipped, NULL, SRC, "code-changed", GATE, false,
     "element 12345 "},
    {"code flipped, tensor", &tensor, code_flipped, NULL, SRC, "code-changed", GATE, false,
     "element 12345 "},
    {"sign flipped", &block, sign_flipped, NULL, SRC, "code-changed", GATE, false, NULL},
    {"kept bit flipped", &block, kept_bit_flipped, NULL, SRC, "kept-changed", NORM, false,
     "1 of 256 elements"},
    {"kept tensors swapped", &block, kept_tensors_swapped, NULL, SRC, "kept-changed",
     LAYER "self_attn.k_proj.weight", false, "those of " LAYER "self_attn.v_proj.weight"},
    {"tensor missing", &block, tensor_missing, NULL, SRC, "tensor-missing", NORM, false, NULL},
    {"tensor added", &block, tensor_added, NULL, SRC, "tensor-extra",
     "model.layers.9.input_layernorm.weight", false, NULL},
    {"tensor reshaped", &block, tensor_reshaped, NULL, SRC, "tensor-shape", NORM, false, "[128,2]"},
    {"config key removed", &block, config_key_removed, NULL, SRC, "config-changed", "", false,
     "eos_token_id"},
    {"config value changed", &block, config_value_changed, NULL, SRC, "config-changed", "", false,
     "rms_norm_eps"},

    {"NaN code", &block, code_nan, NULL, ALONE, "code-not-finite", GATE, false, "element 5"},
    {"scale missing", &block, scale_missing, NULL, ALONE, "scale-missing", GATE, false, NULL},
    {"scale NaN", &block, scale_nan, NULL, ALONE, "scale-value", GATE "_scale_inv", false,
     "element 2"},
    {"scale zero", &block, scale_zero, NULL, ALONE, "scale-value", GATE "_scale_inv", false, NULL},
    {"scale negative", &block, scale_negative, NULL, ALONE, "scale-value", GATE "_scale_inv", false,
     NULL},
    {"scale infinite", &block, scale_infinite, NULL, ALONE, "scale-value", GATE "_scale_inv", false,
     NULL},
    {"mx scale NaN", &mx, mx_scale_nan, NULL, ALONE, "scale-value", GATE "_scale", false,
     "element 7"},
    {"scale too large", &block, scale_much_too_large, NULL, ALONE, "scale-implausible",
     GATE "_scale_inv", true, NULL},
    {"scale transposed", &block, scale_transposed, NULL, ALONE, "scale-shape", GATE, false, NULL},
    {"scale dtype", &block, scale_of_integers, NULL, ALONE, "scale-dtype", GATE, false, NULL},
    {"block size", &block, block_size_changed, NULL, ALONE, "scale-shape", GATE, false, NULL},
    {"dynamic to static", &block, dynamic_became_static, NULL, ALONE, "activation-scheme", "",
     false, NULL},
    {"scheme misspelt", &block, scheme_misspelt, NULL, ALONE, "activation-scheme", "", false,
     "dynamik"},
    {"static to dynamic", &fixed, static_became_dynamic, NULL, ALONE, "input-scale",
     LAYER "mlp.gate_proj.input_scale", false, NULL},
    {"input scale missing", &fixed, input_scale_missing, NULL, ALONE, "input-scale-missing", GATE,
     false, NULL},
    {"input scale zero", &fixed, input_scale_zero, NULL, ALONE, "scale-value",
     LAYER "mlp.gate_proj.input_scale", false, NULL},
    {"ignore entry removed", &block, ignore_entry_removed, NULL, ALONE, "ignore-missing",
     LAYER "self_attn.k_proj.weight", false, NULL},
    {"head not ignored", &channel, head_no_longer_ignored, NULL, ALONE, "ignore-missing",
     "lm_head.weight", false, NULL},
    {"head not ignored, fp8", &block, fp8_head_no_longer_ignored, NULL, ALONE, "ignore-missing",
     "lm_head.weight", false, NULL},
    {"scale renamed", &block, scale_renamed, NULL, ALONE, "scale-name", GATE "_scale", false, NULL},
    {"scale renamed, channel", &channel, channel_scale_renamed, NULL, ALONE, "scale-name",
     GATE "_scale_inv", false, NULL},
    {"scale flattened", &channel, channel_scale_flattened, NULL, ALONE, "scale-form", GATE "_scale",
     false, NULL},
    {"codes as integers", &block, codes_called_integers, NULL, ALONE, "weight-dtype",
     GATE "_scale_inv", false, NULL},
    {"codes as integers, channel", &channel, codes_called_integers, NULL, ALONE, "weight-dtype",
     GATE "_scale", false, NULL},
    {"packed format", &channel, format_of_packed_integers, NULL, ALONE, "config-format", "", false,
     "pack-quantized"},
    {"fmt", &block, fmt_of_another_format, NULL, ALONE, "config-format", "", false, "e5m2"},
    {"scales and config removed", &block, scales_and_config_removed, NULL, ALONE, "plain-cast",
     LAYER "mlp.down_proj.weight", true, NULL},
    {"ignore entry added", &block, ignore_entry_added, NULL, ALONE, "ignore-quantized", GATE, false,
     NULL},
    {"ignore entry of nothing", &channel, ignore_entry_without_module, NULL, ALONE,
     "ignore-unmatched", "model.layers.7.mlp.gate_proj", true, NULL},
    {"not announced", &block, config_without_quantization, NULL, ALONE, "config-missing", "", false,
     NULL},
    {"another method", &block, config_of_another_method, NULL, ALONE, "config-unknown", "", false,
     "awq"},
    {"weight not quantized", &block, weight_not_quantized, NULL, ALONE, "scale-unquantized",
     GATE "_scale_inv", false, NULL},
    {"scales fused", &block, scales_fused, NULL, ALONE, "scale-fused",
     LAYER "mlp.experts.gate_up_proj_scale_inv", false, NULL},
    {"scale without weight", &block, scale_without_weight, NULL, ALONE, "scale-orphan",
     "model.layers.9.mlp.gate_proj.weight_scale_inv", false, NULL},
    {"scale twice", &block, scale_twice, NULL, ALONE, "scale-twice", GATE "_scale", false, NULL},
    {"head quantized", &block, head_quantized_though_tied, NULL, ALONE, "tied-head",
     "lm_head.weight", false, NULL},
    {"index entry removed", &channel, index_entry_removed, NULL, ALONE, "index-unlisted", GATE,
     false, NULL},
    {"total_size wrong", &channel, total_size_wrong, NULL, ALONE, "index", "", true, NULL},
    {"shard truncated", &channel, nothing, shard_truncated, ALONE, "truncated", "", false,
     "model-00002-of-00003"},
    {"shards permuted", &channel, nothing, shards_permuted, ALONE, "container", "", false, NULL},
    {"shard missing", &channel, nothing, shard_missing, ALONE, "container", "", false,
     "model-00003-of-00003"},
    {"pickle left over", &channel, nothing, pickle_left_over, ALONE, "leftover-file", "", true,
     "pytorch_model.bin"},
};

const size_t damage_count = sizeof damages / sizeof *damages;
