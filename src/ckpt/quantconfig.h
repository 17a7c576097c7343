/* SPDX-License-Identifier: Apache-2.0
 *
 * quantconfig.h - what config.json's quantization_config and hf_quant_config.json say of a
 * quantized checkpoint, whoever wrote it, in one form. Writing them is announce.h. */
#ifndef FP8_CKPT_QUANTCONFIG_H
#define FP8_CKPT_QUANTCONFIG_H

#include "ckpt/config.h"
#include "ckpt/dialect.h"
#include "ckpt/nameset.h"

/* One group of weights quantized alike. */
typedef struct fp8_quant_group {
    const fp8_dialect *dialect; /* the row of the table; NULL if no row has these facts */
    bool known;                 /* it is an FP8 scheme, and what follows is said */
    fp8_grid grid;
    bool mx; /* e8m0 scales per 32 */
    fp8_activations activations;
    char algorithm[64];  /* ModelOpt's quant_algo in upper case, for messages */
    fp8_nameset targets; /* CT, and ModelOpt's mixed precision; else there is one group for all */
} fp8_quant_group;

typedef struct fp8_quant_config {
    fp8_config_kind kind;    /* NONE: nothing is announced */
    char method[64];         /* quant_method as written, for messages */
    bool mixed;              /* groups hold their targets only; else the one group holds all */
    fp8_quant_group *groups; /* [group_count] */
    int64_t group_count;
    fp8_nameset ignored; /* modules that are not quantized, in the config's own spelling */
} fp8_quant_config;

/* Reads the value of quantization_config (text NULL: none) and, for ModelOpt, the text of
 * hf_quant_config.json (text NULL: none). A method or scheme that is not FP8 gives kind UNKNOWN or
 * a group that is not known, no error. Errors: FORMAT (also a broken expression in a list),
 * NO_MEMORY. *out is empty after an error. */
fp8_status fp8_quant_config_read(const fp8_context *ctx, fp8_span config, fp8_span modelopt,
                                 fp8_quant_config *out, fp8_error *err);
/* The group of a module, NULL if no group holds it. Does not look at the ignore list. */
fp8_status fp8_quant_config_group(fp8_quant_config *config, const char *module, uint64_t bytes,
                                  const fp8_quant_group **out, fp8_error *err);
/* An empty, zeroed config is fine. */
void fp8_quant_config_free(const fp8_context *ctx, fp8_quant_config *config);

#endif
