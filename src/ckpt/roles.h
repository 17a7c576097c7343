/* SPDX-License-Identifier: Apache-2.0
 *
 * roles.h - which tensor of a checkpoint is what: FP8 weights, their scales, what is neither, and
 * what is wrong. The granularity comes from the config and is checked against the scale's shape;
 * only a checkpoint without any config is read by shape. Reads headers and json; of tensor data
 * only ComfyUI's markers. */
#ifndef FP8_CKPT_ROLES_H
#define FP8_CKPT_ROLES_H

#include "ckpt/checkpoint.h"
#include "ckpt/quantconfig.h"

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

/* Something wrong with one tensor. Static. */
typedef struct fp8_problem {
    const char *rule; /* "scale-missing": a short name for findings */
    const char *text; /* one clause: "the config says static activations, but there is no .." */
    bool unreadable;  /* the weight's real values cannot be told */
} fp8_problem;

/* There may be two million of them. */
typedef struct fp8_role_info {
    fp8_role role;
    fp8_dtype scale;            /* how the scale's bytes are to be read (E8M0FNU for U8 of MX) */
    int64_t partner;            /* tensor index: of a weight its scale, of a scale its weight (also
                                   of a stray one, if there is such a tensor); -1 none */
    int64_t input;              /* of a weight: its input scale; -1 none */
    fp8_grid grid;              /* of a weight, from config and shapes, checked to fit */
    const fp8_problem *problem; /* NULL = fine */
} fp8_role_info;

/* The roles of all tensors of a checkpoint, and what its config says. */
typedef struct fp8_roles {
    fp8_role_info *tensors; /* [fp8_checkpoint_count] */
    int64_t weights;        /* how many have the role WEIGHT */
    fp8_quant_config config;
    const fp8_dialect *dialect; /* of the first weight group; NULL: not quantized, or unknown */
    bool quantized;             /* config says so, or FP8 weights are there */
} fp8_roles;

/* Assigns them, in time linear in the number of tensors. A weight whose scale does not fit has a
 * problem, which is no error here. Errors: FORMAT (config.json is broken), IO, NO_MEMORY. */
fp8_status fp8_roles_assign(const fp8_context *ctx, const fp8_checkpoint *ckpt, fp8_roles *out,
                            fp8_error *err);
/* Empty and zeroed roles are fine. */
void fp8_roles_free(const fp8_context *ctx, fp8_roles *roles);

#endif
