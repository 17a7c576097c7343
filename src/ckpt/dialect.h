/* SPDX-License-Identifier: Apache-2.0
 *
 * dialect.h - how the formats in use name, shape and announce the same thing: FP8 codes and the
 * scales that multiply them. One table (dialect.c) for reading and writing; docs/formats.md is its
 * prose.
 *
 *     X.weight [N,K] codes   +   X.<scale_suffix>: the scales of one grid, stored in one of the
 * shapes below */
#ifndef FP8_CKPT_DIALECT_H
#define FP8_CKPT_DIALECT_H

#include "ckpt/checkpoint.h"

/* How the grid's scales [gr, gc] are shaped in the file. */
typedef enum fp8_scale_shape {
    FP8_SCALES_GRID,   /* [gr, gc]; so [N,1] for channels, [N,K/32] for MX */
    FP8_SCALES_SCALAR, /* []: one scale */
    FP8_SCALES_ONE,    /* [1] */
    FP8_SCALES_VECTOR, /* [N] for channels */
    FP8_SCALES_GRID4,  /* [gr, 1, gc, 1] (ModelOpt blocks) */
} fp8_scale_shape;

/* Which json announces it. */
typedef enum fp8_config_kind {
    FP8_CONFIG_NONE,
    FP8_CONFIG_HF_FP8,    /* quant_method "fp8" */
    FP8_CONFIG_HF_MXFP8,  /* quant_method "mxfp8" */
    FP8_CONFIG_CT,        /* quant_method "compressed-tensors" */
    FP8_CONFIG_MODELOPT,  /* quant_method "modelopt" and hf_quant_config.json */
    FP8_CONFIG_FBGEMM,    /* quant_method "fbgemm_fp8": read only */
    FP8_CONFIG_QUARK,     /* quant_method "quark": read only */
    FP8_CONFIG_COMFY,     /* per-layer comfy_quant tensors or header metadata */
    FP8_CONFIG_COMFY_OLD, /* the scaled_fp8 marker: read only */
} fp8_config_kind;

/* One row: one on-disk spelling of one scheme. */
typedef struct fp8_dialect {
    const char *name; /* as in --scheme: "hf-block" */
    fp8_config_kind config;
    fp8_grid grid;
    fp8_dtype code;
    fp8_dtype scale;          /* dtype of the scale's values when written */
    fp8_dtype scale_on_disk;  /* U8 where e8m0 bytes are stored as U8 */
    const char *scale_suffix; /* "weight_scale_inv": replaces the last part "weight" of the name */
    fp8_scale_shape scale_shape;
    const char *input_suffix; /* "input_scale" where activations are static, else NULL */
    bool writable;            /* false: we only read it */
    bool needs_activation_scales;
    fp8_scheme_info info; /* for `fp8 schemes` */
} fp8_dialect;

/* Row i of the table, NULL past the last. */
const fp8_dialect *fp8_dialect_at(int64_t i);
/* The writable row with that name, NULL if there is none. */
const fp8_dialect *fp8_dialect_find(const char *name);

/* What a tensor of a checkpoint is. */
typedef enum fp8_role {
    FP8_ROLE_PLAIN,       /* not part of any quantized weight */
    FP8_ROLE_WEIGHT,      /* FP8 codes that have a scale */
    FP8_ROLE_SCALE,       /* of the weight `partner` */
    FP8_ROLE_INPUT_SCALE, /* static activation scale of the weight `partner` */
    FP8_ROLE_MARKER,      /* comfy_quant, scaled_fp8: carries no numbers */
    FP8_ROLE_BARE_CODES,  /* FP8 dtype without a scale: a plain cast */
    FP8_ROLE_STRAY_SCALE, /* named like a scale, but its weight is missing or not FP8 */
    FP8_ROLE_KV_SCALE,    /* k_scale, v_scale: carried */
} fp8_role;

typedef struct fp8_role_info {
    fp8_role role;
    int64_t partner;     /* tensor index: of a weight its scale, of a scale its weight; -1 none */
    int64_t input;       /* of a weight: its input scale; -1 none */
    fp8_grid grid;       /* of a weight, from config and shapes, checked to fit */
    fp8_dtype scale;     /* how the scale's bytes are to be read (E8M0FNU for U8 bytes of MX) */
    const char *problem; /* static text: why the weight cannot be read ("scale shape does not fit
                            the grid"); NULL = fine */
} fp8_role_info;

/* The roles of all tensors of a checkpoint, and the dialect they and config.json speak. */
typedef struct fp8_roles {
    fp8_role_info *tensors;     /* [fp8_checkpoint_count] */
    const fp8_dialect *dialect; /* NULL: not quantized, or unknown */
    bool quantized;             /* config.json says so, or FP8 weights are there */
    char **ignored; /* module names or patterns of config's ignore list, in its own spelling */
    int64_t ignored_count;
} fp8_roles;

/* Assigns them. Never infers a granularity from the number of scales alone where config says it; a
 * weight whose scale does not fit has a problem, which is no error here. Errors: FORMAT
 * (config.json is broken), NO_MEMORY. */
fp8_status fp8_roles_assign(const fp8_context *ctx, const fp8_checkpoint *ckpt, fp8_roles *out,
                            fp8_error *err);
void fp8_roles_free(const fp8_context *ctx, fp8_roles *roles);

/* A scale tensor of weight [N,K] as a matrix view [gr, gc] over `data`, whatever its shape on disk.
 */
fp8_status fp8_scale_view(const fp8_role_info *weight, const fp8_tensor_info *w,
                          const fp8_tensor_info *scale, void *data, fp8_tensor *out,
                          fp8_error *err);

#endif
