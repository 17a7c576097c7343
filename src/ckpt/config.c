/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - the facts of config.json. A fact of an unexpected type is as good as absent: configs
 * differ, and only what we use is judged. */
#include "ckpt/config.h"

#include "ckpt/json_pick.h"

#include <string.h>

/* The members that are read; several spellings of one fact follow each other. */
enum {
    ARCHITECTURES,
    MODEL_TYPE,
    TIED,
    VISION,
    AUDIO,
    QUANTIZATION,
    COMPRESSION,
    HIDDEN,
    HEADS = HIDDEN + 3,
    KV_HEADS = HEADS + 3,
    EXPERTS = KV_HEADS + 1,
    LAYERS = EXPERTS + 4,
    MTP_LAYERS = LAYERS + 3,
    DTYPE = MTP_LAYERS + 3,
    MEMBERS = DTYPE + 2,
};

static const char *const keys[MEMBERS] = {
    [ARCHITECTURES] = "architectures",
    [MODEL_TYPE] = "model_type",
    [TIED] = "tie_word_embeddings",
    [VISION] = "vision_config",
    [AUDIO] = "audio_config",
    [QUANTIZATION] = "quantization_config",
    [COMPRESSION] = "compression_config", /* compressed-tensors before 0.8 */
    [HIDDEN] = "hidden_size",
    [HIDDEN + 1] = "n_embd",
    [HIDDEN + 2] = "d_model",
    [HEADS] = "num_attention_heads",
    [HEADS + 1] = "n_head",
    [HEADS + 2] = "num_heads",
    [KV_HEADS] = "num_key_value_heads",
    [EXPERTS] = "num_experts",
    [EXPERTS + 1] = "n_routed_experts",
    [EXPERTS + 2] = "num_local_experts",
    [EXPERTS + 3] = "moe_num_experts",
    [LAYERS] = "num_hidden_layers",
    [LAYERS + 1] = "n_layer",
    [LAYERS + 2] = "num_layers",
    [MTP_LAYERS] = "num_nextn_predict_layers",
    [MTP_LAYERS + 1] = "mtp_num_hidden_layers",
    [MTP_LAYERS + 2] = "num_mtp_modules",
    [DTYPE] = "torch_dtype",
    [DTYPE + 1] = "dtype",
};

const char *const fp8_config_parts[FP8_CONFIG_PARTS] = {"text_config", "llm_config",
                                                        "language_config", "thinker_config"};

static fp8_status pick_all(fp8_span object, const char *const *names, int n, fp8_pick *picks,
                           fp8_error *err)
{
    for (int i = 0; i < n; i++)
        picks[i].key = names[i];
    return fp8_json_pick(object, picks, n, err);
}

/* The first of the spellings [first, end) that is a number; 0 if none is. */
static int64_t number(const fp8_pick *picks, int first, int end)
{
    for (int i = first; i < end; i++) {
        int64_t n = fp8_pick_int(picks[i].value, 0);
        if (n)
            return n;
    }
    return 0;
}

/* The first of the spellings [first, end) that names a high-precision dtype as PyTorch does. */
static fp8_dtype dtype_of(const fp8_pick *picks, int first, int end)
{
    static const struct {
        const char *name;
        fp8_dtype dtype;
    } names[] = {{"bfloat16", FP8_BF16}, {"float16", FP8_F16}, {"float32", FP8_F32}};
    for (int i = first; i < end; i++) {
        char text[32] = "";
        fp8_pick_text(picks[i].value, text, sizeof text);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strcmp(names[k].name, text) == 0)
                return names[k].dtype;
    }
    return FP8_DTYPE_NONE;
}

static fp8_status first_text(void *arg, fp8_span key, fp8_span value, fp8_error *err)
{
    (void)key;
    (void)err;
    fp8_config *out = arg;
    if (!out->architecture[0])
        fp8_pick_text(value, out->architecture, sizeof out->architecture);
    return FP8_OK;
}

/* Facts of one object; does not look into nested ones. */
static fp8_status read_level(fp8_span object, fp8_config *out, bool *tied_said, fp8_error *err)
{
    fp8_pick p[MEMBERS];
    *out = (fp8_config){.tied = false};
    FP8_TRY(pick_all(object, keys, MEMBERS, p, err));
    FP8_TRY(fp8_json_each(p[ARCHITECTURES].value, first_text, out, err));
    fp8_pick_text(p[MODEL_TYPE].value, out->model_type, sizeof out->model_type);
    *tied_said = p[TIED].value.text != NULL;
    out->tied = fp8_pick_true(p[TIED].value);
    out->multimodal = fp8_pick_starts(p[VISION].value, '{') || fp8_pick_starts(p[AUDIO].value, '{');
    out->hidden = number(p, HIDDEN, HEADS);
    out->heads = number(p, HEADS, KV_HEADS);
    out->kv_heads = number(p, KV_HEADS, EXPERTS);
    out->experts = number(p, EXPERTS, LAYERS);
    out->layers = number(p, LAYERS, MTP_LAYERS);
    out->mtp_layers = number(p, MTP_LAYERS, DTYPE);
    out->dtype = dtype_of(p, DTYPE, MEMBERS);
    out->quantization = p[QUANTIZATION].value.text ? p[QUANTIZATION].value : p[COMPRESSION].value;
    return FP8_OK;
}

/* Fills what *out does not say from the nested config. */
static void merge(fp8_config *out, const fp8_config *nested)
{
    int64_t *to[] = {&out->hidden,  &out->heads,  &out->kv_heads,
                     &out->experts, &out->layers, &out->mtp_layers};
    const int64_t from[] = {nested->hidden,  nested->heads,  nested->kv_heads,
                            nested->experts, nested->layers, nested->mtp_layers};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        if (*to[i] == 0)
            *to[i] = from[i];
    if (out->dtype == FP8_DTYPE_NONE)
        out->dtype = nested->dtype;
    out->multimodal |= nested->multimodal;
    if (!out->quantization.text)
        out->quantization = nested->quantization;
    if (!out->model_type[0])
        memcpy(out->model_type, nested->model_type, sizeof out->model_type);
    if (!out->architecture[0])
        memcpy(out->architecture, nested->architecture, sizeof out->architecture);
}

static fp8_status read_facts(const char *text, uint64_t bytes, fp8_config *out, fp8_error *err)
{
    fp8_span object;
    bool tied_said, nested_said;
    fp8_pick nested[FP8_CONFIG_PARTS];
    FP8_TRY(fp8_json_whole_object(text, bytes, &object, err));
    FP8_TRY(read_level(object, out, &tied_said, err));
    FP8_TRY(pick_all(object, fp8_config_parts, FP8_CONFIG_PARTS, nested, err));
    for (int i = 0; i < FP8_CONFIG_PARTS; i++) {
        fp8_config inner;
        FP8_TRY(read_level(nested[i].value, &inner, &nested_said, err));
        merge(out, &inner);
        if (!tied_said && nested_said) {
            out->tied = inner.tied;
            tied_said = true;
        }
    }
    return FP8_OK;
}

fp8_status fp8_config_read(const char *text, uint64_t bytes, fp8_config *out, fp8_error *err)
{
    *out = (fp8_config){.tied = false};
    if (!text)
        return FP8_OK;
    fp8_status status = read_facts(text, bytes, out, err);
    if (status != FP8_OK) {
        fp8_error_prefix(err, "config.json");
        *out = (fp8_config){.tied = false};
    }
    return status;
}
