/* SPDX-License-Identifier: Apache-2.0
 *
 * announce.h - the json by which a checkpoint announces its dialect: the value of
 * quantization_config, and ModelOpt's hf_quant_config.json. Reading them is quantconfig.h. */
#ifndef FP8_CKPT_ANNOUNCE_H
#define FP8_CKPT_ANNOUNCE_H

#include "ckpt/dialect.h"

/* One group of weights written alike; a checkpoint with --set has several. */
typedef struct fp8_config_group {
    const fp8_dialect *dialect;
    const char *const *modules; /* names that the group holds; used if there are several groups */
    int64_t module_count;
} fp8_config_group;

/* The value of quantization_config for these groups and the modules kept (the ignore list: exact
 * names of the modules that hold a kept weight of two or more dimensions). *text is from fp8_alloc,
 * NUL-terminated, indented by two spaces a level, without a newline at the end; NULL if the dialect
 * is announced by tensors only (comfy). Only compressed-tensors can express several groups.
 * Errors: UNSUPPORTED, NO_MEMORY. */
fp8_status fp8_announce_config(const fp8_context *ctx, const fp8_config_group *groups,
                               int64_t group_count, const char *const *kept, int64_t kept_count,
                               char **text, fp8_error *err);

/* The text of hf_quant_config.json, with a newline at the end; *text = NULL if the dialect has no
 * such file. */
fp8_status fp8_announce_modelopt(const fp8_context *ctx, const fp8_dialect *dialect,
                                 const char *const *kept, int64_t kept_count, char **text,
                                 fp8_error *err);

#endif
