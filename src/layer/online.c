/* SPDX-License-Identifier: Apache-2.0
 *
 * online.c - the schemes by which a weight is quantized when it is loaded, the first four those of
 * vLLM (online/fp8.py):
 *
 *     tensor       W one scale           X a scale a row
 *     channel      W a scale a row       X a scale a row ("PTPC")
 *     block        W 128 x 128           X 1 x 128
 *     mxfp8        W 1 x 32, e8m0        X 1 x 32, e8m0
 *     weight-only  W a scale a row       X is not quantized
 *
 * Batch-invariant: tensor and channel multiply X, as it is, with W rounded to 16 bits. */
#include "base/status.h"

#include <string.h>

static const struct scheme {
    const char *name;
    fp8_activation activation;
    fp8_grid x, w;
    fp8_dtype scale;
    int rounded; /* what the batch-invariant mode does */
} schemes[] = {
    {"tensor", FP8_ACTIVATION_DYNAMIC, {1, 0}, {0, 0}, FP8_F32, 1},
    {"channel", FP8_ACTIVATION_DYNAMIC, {1, 0}, {1, 0}, FP8_F32, 1},
    {"block", FP8_ACTIVATION_DYNAMIC, {1, 128}, {128, 128}, FP8_F32, 0},
    {"mxfp8", FP8_ACTIVATION_DYNAMIC, {1, 32}, {1, 32}, FP8_E8M0FNU, 0},
    {"weight-only", FP8_ACTIVATION_NONE, {1, 0}, {1, 0}, FP8_F32, 0},
};

static const struct scheme *find(const char *name)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (!strcmp(schemes[i].name, name))
            return &schemes[i];
    return NULL;
}

fp8_status fp8_online_linear(const char *scheme, int batch_invariant, fp8_linear_desc *linear,
                             fp8_error *err)
{
    static const fp8_linear_desc defaults = FP8_LINEAR_DESC_INIT;
    FP8_FAIL_IF(!scheme || !linear, err, FP8_E_ARGUMENT, "online: %s is NULL",
                scheme ? "linear" : "the scheme");
    const struct scheme *s = find(scheme);
    FP8_FAIL_IF(!s, err, FP8_E_NOT_FOUND,
                "there is no scheme '%s'; there are tensor, channel, block, mxfp8 and weight-only",
                scheme);
    *linear = defaults;
    linear->w.rule = FP8_RULE_VLLM;
    linear->w.grid = s->w;
    linear->w_scale = s->scale;
    if (batch_invariant && s->rounded) {
        linear->weight_math = FP8_WEIGHT_ROUNDED;
        return FP8_OK;
    }
    linear->activation = s->activation;
    linear->x.rule = FP8_RULE_VLLM;
    linear->x.grid = s->x;
    linear->x_scale = s->scale;
    return FP8_OK;
}
