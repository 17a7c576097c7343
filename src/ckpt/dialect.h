/* SPDX-License-Identifier: Apache-2.0
 *
 * dialect.h - how the formats in use name, shape and announce the same thing: FP8 codes and the
 * scales that multiply them. One table (dialect.c) for reading and writing; docs/formats.md is its
 * prose.
 *
 *     X.weight [N,K] codes  +  X.<scale_suffix> scales of one grid, stored in one of the shapes
 *     below; E matrices stacked in one tensor [E,N,K] have E such shapes stacked. */
#ifndef FP8_CKPT_DIALECT_H
#define FP8_CKPT_DIALECT_H

#include "base/context.h"

#include <stdbool.h>

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
    FP8_CONFIG_UNKNOWN,   /* a quant_method that we do not read */
} fp8_config_kind;

/* What the reader is told to do with the activations. */
typedef enum fp8_activations {
    FP8_ACTIVATIONS_NONE,   /* weight only */
    FP8_ACTIVATIONS_STATIC, /* one scale from the file, per tensor */
    FP8_ACTIVATIONS_TENSOR, /* dynamic, one scale */
    FP8_ACTIVATIONS_TOKEN,  /* dynamic, one scale a row */
    FP8_ACTIVATIONS_GROUP,  /* dynamic, one scale per 128 of a row */
    FP8_ACTIVATIONS_MX,     /* dynamic, one e8m0 scale per 32 of a row */
} fp8_activations;

/* One row: one on-disk spelling of one scheme. */
typedef struct fp8_dialect {
    const char *name;   /* as in --scheme: "hf-block" */
    const char *engine; /* the only engine that reads this spelling; NULL = all that know it */
    fp8_config_kind config;
    fp8_grid grid;
    fp8_dtype code;
    fp8_dtype scale;          /* dtype of the scale's values when written */
    fp8_dtype scale_on_disk;  /* U8 where e8m0 bytes are stored as U8 */
    const char *scale_suffix; /* "weight_scale_inv": replaces the last part "weight" of the name */
    fp8_scale_shape scale_shape;
    fp8_activations activations;
    const char *input_suffix;  /* "input_scale" where activations are static, else NULL */
    const char *marker_suffix; /* "comfy_quant": a U8 tensor beside each weight, else NULL */
    const char *marker_text;   /* the bytes of that tensor */
    const char *algorithm;     /* json value that tells rows of one config kind apart */
    bool writable;             /* false: we only read it */
    bool needs_activation_scales;
    bool whole_blocks;   /* the format has no partial edge blocks: such weights must be kept */
    const char *loaders; /* engines that load it, space between */
    const char *summary; /* one clause for `fp8 schemes` */
} fp8_dialect;

/* Row i of the table, NULL past the last. Rows of one name differ in `engine`. */
const fp8_dialect *fp8_dialect_at(int64_t i);
/* The writable row of that name for that engine ("vllm" if NULL), NULL if there is none. */
const fp8_dialect *fp8_dialect_find(const char *name, const char *engine);
/* The same; UNSUPPORTED if there is none. */
fp8_status fp8_dialect_need(const char *name, const char *engine, const fp8_dialect **out,
                            fp8_error *err);

/* The scheme of fp8_online_linear that computes with weights of a grid, NULL if none does. */
const char *fp8_layer_scheme(fp8_grid grid, fp8_activations activations);

/* The name of a weight's companion: "a.weight" with "weight_scale" is "a.weight_scale"; a name
 * whose last part is not "weight" ("experts.down_proj") takes it as "experts.down_proj_scale",
 * as transformers names stacked experts. dst (NULL: measure) has room for name_bytes + the
 * suffix's length + 2 and gets a NUL. Returns the length. */
uint64_t fp8_companion_name(const char *name, uint64_t name_bytes, const char *suffix, char *dst);

/* A weight tensor as `experts` matrices [rows, cols]: [N,K] is one, [E,N,K] is E; one of four or
 * more dimensions is [N, the rest], as convolutions are quantized; false if the product overflows.
 */
typedef struct fp8_matrices {
    int64_t experts, rows, cols;
} fp8_matrices;
bool fp8_weight_matrices(int32_t ndim, const int64_t *shape, fp8_matrices *out);

/* The shape of the scales of such a weight in this dialect: shape[] (room for 5), returns ndim.
 * grid: the dialect's, or {0,1} for a row-wise dialect on a transposed weight. */
int32_t fp8_scale_tensor_shape(const fp8_dialect *dialect, fp8_grid grid, int32_t weight_ndim,
                               fp8_matrices weight, int64_t shape[5]);

#endif
