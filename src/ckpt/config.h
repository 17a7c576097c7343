/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h - config.json: the facts that conversion and verification need, and the text again with
 * `quantization_config` spliced in or cut out, every other byte kept. */
#ifndef FP8_CKPT_CONFIG_H
#define FP8_CKPT_CONFIG_H

#include "base/context.h"
#include "ckpt/json.h"

/* The facts. Spans point into the text. Models that nest a language model's config (text_config)
 * are read from there for what the top level does not say. */
typedef struct fp8_config {
    char architecture[128]; /* architectures[0], "" if absent */
    char model_type[64];
    fp8_dtype dtype; /* of weights that are not quantized: torch_dtype; NONE = not said */
    bool tied;       /* tie_word_embeddings */
    bool multimodal; /* has a vision_config or an audio_config */
    int64_t hidden, heads, kv_heads, experts, layers, mtp_layers; /* 0 = not said */
    fp8_span quantization; /* value of quantization_config, text NULL if absent or null */
} fp8_config;

/* The members under which a model of several parts nests its language model's config. */
enum { FP8_CONFIG_PARTS = 4 };
extern const char *const fp8_config_parts[FP8_CONFIG_PARTS];

/* Reads config.json's text (NULL, 0: all defaults). Error FORMAT. */
fp8_status fp8_config_read(const char *text, uint64_t bytes, fp8_config *out, fp8_error *err);

/* config.json with its quantization_config replaced by `value` (inserted before the closing brace
 * if there is none; value NULL: removed; also one nested in text_config). `value` is a JSON text
 * indented by two spaces a level and takes on the file's own indentation. Every other byte stays.
 * *out is from fp8_alloc, NUL-terminated. Errors: FORMAT, NO_MEMORY. */
fp8_status fp8_config_splice(const fp8_context *ctx, const char *text, uint64_t bytes,
                             const char *value, char **out, uint64_t *out_bytes, fp8_error *err);

#endif
