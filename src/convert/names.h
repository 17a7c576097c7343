/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h - which tensors are linear weights: by name, shape and architecture, each answer with its
 * reason. docs/formats.md lists the rules. */
#ifndef FP8_CONVERT_NAMES_H
#define FP8_CONVERT_NAMES_H

#include "ckpt/config.h"

typedef enum fp8_kind {
    FP8_KIND_LINEAR,         /* [out, in] */
    FP8_KIND_CONV1D,         /* GPT-2 style [in, out] */
    FP8_KIND_EXPERTS,        /* [experts, out, in]: each expert a matrix of its own */
    FP8_KIND_EXPERTS_IN_OUT, /* [experts, in, out] */
    FP8_KIND_EMBEDDING,
    FP8_KIND_HEAD,
    FP8_KIND_NORM,
    FP8_KIND_ROUTER,
    FP8_KIND_CONV,
    FP8_KIND_POSITION,
    FP8_KIND_OTHER, /* biases, states, tables, integers: never quantized */
} fp8_kind;

/* The kind of a tensor and, in *reason (static text), the rule that decided. */
fp8_kind fp8_name_kind(const fp8_config *config, const char *name, uint64_t name_bytes,
                       fp8_dtype dtype, int32_t ndim, const int64_t *shape, const char **reason);

#endif
