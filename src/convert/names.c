/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c - the rules, as one table in the order in which they are tried; then by dimensions. A
 * rule sees the module's name (the tensor's without ".weight"), never values. What no rule knows is
 * kept: quantizing too little costs bytes, too much costs the model. */
#include "convert/names.h"

#include "ckpt/nameset.h"

#include <string.h>
#include <strings.h>

/* What a rule's text is compared with. */
typedef enum rule_where {
    WHOLE,    /* the module's whole name, a leading "model." aside */
    LEAF,     /* its last part */
    LEAF_HAS, /* somewhere in its last part, in either case */
    LEAF_END, /* the end of its last part */
    PART,     /* any whole part */
    PART_HAS, /* somewhere in any part: "lora_A" */
} rule_where;

/* A condition beside the name. */
typedef enum rule_when {
    ALWAYS,
    MULTIMODAL, /* a language model with a vision or audio part */
} rule_when;

static const char norm[] = "normalization weight";
static const char position[] = "positional table";
static const char patch[] = "patch embedding of a vision tower";
static const char embedding[] = "embedding table";
static const char head[] = "output head";
static const char router[] = "router: its errors change which experts run";
static const char ssm[] = "state-space or linear-attention parameter";
static const char adapter[] = "adapter (LoRA), meant to be trained or merged";
static const char mtp[] = "input projection of a multi-token-prediction layer: engines load it "
                          "unquantized";
static const char tower[] = "vision or audio tower: engines load it unquantized";
static const char diffusion[] = "input, time or output projection of a diffusion model";

static const struct rule {
    rule_where where;
    const char *text;
    fp8_kind kind;
    const char *reason;
    rule_when when;
} rules[] = {
    {LEAF, "bias", FP8_KIND_OTHER, "bias", ALWAYS},
    {PART_HAS, "lora_", FP8_KIND_OTHER, adapter, ALWAYS},
    {LEAF_HAS, "norm", FP8_KIND_NORM, norm, ALWAYS},
    {LEAF, "ln", FP8_KIND_NORM, norm, ALWAYS},
    {LEAF_HAS, "ln_", FP8_KIND_NORM, norm, ALWAYS},
    {LEAF_END, "_ln", FP8_KIND_NORM, norm, ALWAYS},
    {LEAF, "wpe", FP8_KIND_POSITION, position, ALWAYS},
    {LEAF_HAS, "position", FP8_KIND_POSITION, position, ALWAYS},
    {LEAF_HAS, "pos_emb", FP8_KIND_POSITION, position, ALWAYS},
    {LEAF_HAS, "rel_pos", FP8_KIND_POSITION, position, ALWAYS},
    {LEAF, "relative_attention_bias", FP8_KIND_POSITION, position, ALWAYS},
    {LEAF, "inv_freq", FP8_KIND_POSITION, position, ALWAYS},
    {PART, "patch_embed", FP8_KIND_EMBEDDING, patch, ALWAYS},
    {PART, "patch_embedding", FP8_KIND_EMBEDDING, patch, ALWAYS},
    {PART, "patch_embeddings", FP8_KIND_EMBEDDING, patch, ALWAYS},
    {PART, "patch_embedder", FP8_KIND_EMBEDDING, patch, ALWAYS},
    {LEAF, "wte", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {LEAF_HAS, "embed_tokens", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {LEAF, "embed_in", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {LEAF_END, "embeddings", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {LEAF_END, "embedding", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {LEAF_END, "embed", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {LEAF_END, "_emb", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {WHOLE, "shared", FP8_KIND_EMBEDDING, embedding, ALWAYS},
    {PART, "lm_head", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "embed_out", FP8_KIND_HEAD, head, ALWAYS},
    {WHOLE, "output", FP8_KIND_HEAD, head, ALWAYS},
    {WHOLE, "proj_out", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "head", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "v_head", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "value_head", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "score", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "qa_outputs", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "seq_relationship", FP8_KIND_HEAD, head, ALWAYS},
    {PART, "predictions", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "gate", FP8_KIND_ROUTER, router, ALWAYS},
    {PART, "router", FP8_KIND_ROUTER, router, ALWAYS},
    {LEAF, "shared_expert_gate", FP8_KIND_ROUTER, router, ALWAYS},
    {LEAF, "wg", FP8_KIND_ROUTER, router, ALWAYS},
    {PART, "classifier", FP8_KIND_HEAD, head, ALWAYS},
    {PART, "classification_head", FP8_KIND_HEAD, head, ALWAYS},
    {LEAF, "conv1d", FP8_KIND_CONV, "convolution", ALWAYS},
    {LEAF, "A_log", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "D", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "dt_bias", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "x_proj", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "dt_proj", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "in_proj_ba", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "in_proj_a", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "in_proj_b", FP8_KIND_OTHER, ssm, ALWAYS},
    {LEAF, "eh_proj", FP8_KIND_OTHER, mtp, ALWAYS},
    {WHOLE, "mtp.fc", FP8_KIND_OTHER, mtp, ALWAYS},
    {PART, "visual", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "vision_tower", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "vision_model", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "vision_encoder", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "audio_tower", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "audio_encoder", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "multi_modal_projector", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "embed_vision", FP8_KIND_OTHER, tower, MULTIMODAL},
    {PART, "embed_audio", FP8_KIND_OTHER, tower, MULTIMODAL},
    {LEAF, "img_in", FP8_KIND_OTHER, diffusion, ALWAYS},
    {LEAF, "txt_in", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "time_in", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "vector_in", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "guidance_in", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "time_embed", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "time_embedding", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "time_text_embed", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "label_emb", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART_HAS, "_embedder", FP8_KIND_OTHER, diffusion, ALWAYS},
    {PART, "final_layer", FP8_KIND_OTHER, diffusion, ALWAYS},
};

/* Modules that are Conv1D [in, out] in the models below and Linear elsewhere. */
static const char *const conv1d_leaves[] = {"c_attn", "c_proj", "c_fc", "q_attn", NULL};
static const char *const conv1d_models[] = {
    "gpt2", "openai-gpt", "imagegpt", "decision_transformer", "jais", "clvp", NULL};
static const char *const conv1d_architectures[] = {
    "GPT2", "OpenAIGPT", "ImageGPT", "DecisionTransformer", "JAIS", "Clvp", NULL};

/* Models whose stacked experts are [experts, in, out], where the shape cannot tell. */
static const char *const in_out_models[] = {"gpt_oss", "llama4",    "llama4_text",
                                            "aria",    "aria_text", NULL};
static const char *const out_in_models[] = {
    "mixtral",     "qwen2_moe", "qwen3_moe", "granitemoe",       "deepseek_v2",
    "deepseek_v3", "jetmoe",    "glm4_moe",  "granitemoehybrid", NULL};
/* Parts of names under which a tensor of three dimensions stacks experts. */
static const char *const stack_parts[] = {"experts", "block_sparse_moe", NULL};
/* Parts of the last part of a stacked tensor's name: its input, or its output, is the model's
 * hidden size. */
static const char *const from_hidden[] = {"gate", "up", "input_linear", "w1", "w3", "fc1", NULL};
static const char *const to_hidden[] = {"down", "output_linear", "w2", "fc2", NULL};

/* A part of a name: not NUL-terminated. */
typedef struct part {
    const char *text;
    uint64_t bytes;
} part;

static bool same(part p, const char *text)
{
    return p.bytes == strlen(text) && memcmp(p.text, text, p.bytes) == 0;
}

static bool ends(part p, const char *text)
{
    uint64_t n = strlen(text);
    return p.bytes >= n && memcmp(p.text + p.bytes - n, text, n) == 0;
}

/* `text` (in lower case) is somewhere in p, in either case. */
static bool has(part p, const char *text)
{
    uint64_t n = strlen(text);
    for (uint64_t i = 0; i + n <= p.bytes; i++)
        if (strncasecmp(p.text + i, text, n) == 0)
            return true;
    return false;
}

/* The part of `name` that begins at *at; moves *at behind it and its dot. */
static part next_part(part name, uint64_t *at)
{
    uint64_t begin = *at, end = begin;
    while (end < name.bytes && name.text[end] != '.')
        end++;
    *at = end + 1;
    return (part){name.text + begin, end - begin};
}

static part leaf_of(part name)
{
    part leaf = name;
    for (uint64_t at = 0; at <= name.bytes && name.bytes > 0;)
        leaf = next_part(name, &at);
    return leaf;
}

static bool any_part(part name, bool (*test)(part p, const char *text), const char *text)
{
    for (uint64_t at = 0; at <= name.bytes;)
        if (test(next_part(name, &at), text))
            return true;
    return false;
}

static bool whole(part name, const char *text)
{
    static const char prefix[] = "model.";
    enum { PREFIX = sizeof prefix - 1 };
    if (same(name, text))
        return true;
    return name.bytes > PREFIX && memcmp(name.text, prefix, PREFIX) == 0 &&
           same((part){name.text + PREFIX, name.bytes - PREFIX}, text);
}

/* A language model with towers, unlike CLIP, which is nothing but towers. */
static bool generates(const fp8_config *config)
{
    return strstr(config->architecture, "ForConditionalGeneration") ||
           strstr(config->architecture, "ForCausalLM");
}

static bool applies(const struct rule *rule, const fp8_config *config, part name, part leaf)
{
    if (rule->when == MULTIMODAL && !(config->multimodal && generates(config)))
        return false;
    switch (rule->where) {
    case WHOLE:
        return whole(name, rule->text);
    case LEAF:
        return same(leaf, rule->text);
    case LEAF_HAS:
        return has(leaf, rule->text);
    case LEAF_END:
        return ends(leaf, rule->text);
    case PART:
        return any_part(name, same, rule->text);
    default:
        return any_part(name, has, rule->text);
    }
}

static bool in_list(const char *const *list, part p)
{
    for (; *list; list++)
        if (same(p, *list))
            return true;
    return false;
}

/* Some text of the list is somewhere in p. */
static bool has_any(const char *const *list, part p)
{
    for (; *list; list++)
        if (has(p, *list))
            return true;
    return false;
}

static bool starts_any(const char *const *list, const char *text)
{
    for (; *list; list++)
        if (strncmp(text, *list, strlen(*list)) == 0)
            return true;
    return false;
}

static bool is_conv1d_model(const fp8_config *config)
{
    part type = {config->model_type, strlen(config->model_type)};
    return in_list(conv1d_models, type) || starts_any(conv1d_architectures, config->architecture);
}

/* A module weight [rows, cols]. */
static fp8_kind matrix_kind(const fp8_config *config, part leaf, const char **reason)
{
    *reason = "linear weight";
    if (!in_list(conv1d_leaves, leaf))
        return FP8_KIND_LINEAR;
    if (is_conv1d_model(config)) {
        *reason = "Conv1D weight of a GPT-2 model, stored [in, out]";
        return FP8_KIND_CONV1D;
    }
    if (config->architecture[0] || config->model_type[0])
        return FP8_KIND_LINEAR;
    *reason = "no config says whether this is a Linear or a GPT-2 Conv1D";
    return FP8_KIND_OTHER;
}

/* 1: [experts, out, in], -1: [experts, in, out], 0: the sizes do not tell. */
static int orientation_by_shape(const fp8_config *config, part leaf, const int64_t *shape)
{
    bool first = shape[1] == config->hidden, last = shape[2] == config->hidden;
    if (config->hidden == 0 || first == last)
        return 0;
    if (has_any(to_hidden, leaf))
        return first ? 1 : -1;
    if (has_any(from_hidden, leaf))
        return last ? 1 : -1;
    return 0;
}

/* Experts stacked in one tensor [experts, .., ..]. */
static fp8_kind stack_kind(const fp8_config *config, part leaf, const int64_t *shape,
                           const char **reason)
{
    part type = {config->model_type, strlen(config->model_type)};
    int orientation = orientation_by_shape(config, leaf, shape);
    if (orientation == 0)
        orientation = in_list(in_out_models, type) ? -1 : in_list(out_in_models, type) ? 1 : 0;
    if (orientation > 0) {
        *reason = "stacked experts [experts, out, in]";
        return FP8_KIND_EXPERTS;
    }
    if (orientation < 0) {
        *reason = "stacked experts [experts, in, out]";
        return FP8_KIND_EXPERTS_IN_OUT;
    }
    *reason = "stacked experts, but nothing says which side of the matrices is the input";
    return FP8_KIND_OTHER;
}

static bool is_number(fp8_dtype dtype)
{
    return dtype >= FP8_F32 && dtype <= FP8_E5M2FNUZ;
}

/* Why a tensor of this type and shape is no weight, whatever its name; NULL if it may be one. */
static const char *never(fp8_dtype dtype, int32_t ndim, const int64_t *shape)
{
    if (!is_number(dtype))
        return "not a floating-point tensor that can be quantized";
    for (int32_t d = 0; d < ndim; d++)
        if (shape[d] == 0)
            return "it has no elements";
    return NULL;
}

fp8_kind fp8_name_kind(const fp8_config *config, const char *name, uint64_t name_bytes,
                       fp8_dtype dtype, int32_t ndim, const int64_t *shape, const char **reason)
{
    part module = {name, fp8_module_bytes(name, name_bytes)};
    part leaf = leaf_of(module);
    bool weight = module.bytes < name_bytes;
    if ((*reason = never(dtype, ndim, shape)) != NULL)
        return FP8_KIND_OTHER;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!applies(&rules[i], config, module, leaf))
            continue;
        *reason = rules[i].reason;
        return rules[i].kind;
    }
    bool stack = false;
    for (const char *const *p = stack_parts; *p; p++)
        stack |= any_part(module, same, *p);
    if (ndim == 3 && stack)
        return stack_kind(config, leaf, shape, reason);
    *reason = "a vector or a number";
    if (ndim < 2)
        return FP8_KIND_OTHER;
    *reason = "a parameter that is no module's weight";
    if (!weight)
        return FP8_KIND_OTHER;
    *reason = "convolution";
    return ndim > 2 ? FP8_KIND_CONV : matrix_kind(config, leaf, reason);
}
