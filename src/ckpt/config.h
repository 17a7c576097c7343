/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h - config.json and its relatives: what they say, and new text with `quantization_config`
 * spliced in, every other byte kept. */
#ifndef FP8_CKPT_CONFIG_H
#define FP8_CKPT_CONFIG_H

#include "ckpt/dialect.h"
#include "ckpt/json.h"

/* The facts of config.json that conversion and verification need. Spans point into the text. */
typedef struct fp8_config {
    char architecture[128]; /* architectures[0], "" if absent */
    char model_type[64];
    bool tied;                                                    /* tie_word_embeddings */
    int64_t hidden, heads, kv_heads, experts, layers, mtp_layers; /* 0 = not said */
    fp8_span quantization; /* value of quantization_config, text NULL if absent */
} fp8_config;

/* Reads config.json's text (NULL, 0: all defaults). Error FORMAT. */
fp8_status fp8_config_read(const char *text, uint64_t bytes, fp8_config *out, fp8_error *err);

/* One group of weights written alike; a checkpoint with --set has several. */
typedef struct fp8_config_group {
    const fp8_dialect *dialect;
    const char *const
        *modules; /* names that the group holds; used if there is more than one group */
    int64_t module_count;
} fp8_config_group;

/* The value of quantization_config for these groups and the modules kept (the ignore list, in the
 * dialect's spelling: exact names). *text from fp8_alloc, indented by two spaces as config.json
 * usually is. UNSUPPORTED if the dialect cannot express the groups. engine: see fp8_convert_desc.
 */
fp8_status fp8_config_quantization(const fp8_context *ctx, const fp8_config_group *groups,
                                   int64_t group_count, const char *const *kept, int64_t kept_count,
                                   const char *engine, char **text, fp8_error *err);

/* config.json with its quantization_config replaced by `value` (inserted before the closing brace
 * if there is none; value NULL: removed). Every other byte stays. */
fp8_status fp8_config_splice(const fp8_context *ctx, const char *text, uint64_t bytes,
                             const char *value, char **out, uint64_t *out_bytes, fp8_error *err);

#endif
