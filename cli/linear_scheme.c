/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_scheme.c - the table of those schemes. */
#include "cli/linear_scheme.h"

#include <string.h>

/* clang-format off */
static const cli_linear_scheme schemes[] = {
    {"w8a16", FP8_ACTIVATION_NONE, {1, 0}, {1, 0}, FP8_F32, FP8_ACCUMULATION_FP32,
     "bf16 X, W with a scale a channel"},
    {"tensor", FP8_ACTIVATION_DYNAMIC, {0, 0}, {0, 0}, FP8_F32, FP8_ACCUMULATION_FP32,
     "X and W with one scale each"},
    {"channel", FP8_ACTIVATION_DYNAMIC, {1, 0}, {1, 0}, FP8_F32, FP8_ACCUMULATION_FP32,
     "X with a scale a row, W with one a channel"},
    {"block", FP8_ACTIVATION_DYNAMIC, {1, 128}, {128, 128}, FP8_F32, FP8_ACCUMULATION_FP32,
     "X with scales of 1x128, W of 128x128"},
    {"mxfp8", FP8_ACTIVATION_DYNAMIC, {1, 32}, {1, 32}, FP8_E8M0FNU, FP8_ACCUMULATION_FP32,
     "X and W with e8m0 scales of 1x32"},
    {"gemm", FP8_ACTIVATION_CODES, {1, 0}, {1, 0}, FP8_F32, FP8_ACCUMULATION_FP32,
     "as channel, but X is given as codes: the multiplication alone"},
    {"fast", FP8_ACTIVATION_DYNAMIC, {1, 0}, {1, 0}, FP8_F32, FP8_ACCUMULATION_FAST,
     "as channel, with sums in 13 bits where the device has them"},
};
/* clang-format on */

const cli_linear_scheme *cli_linear_scheme_at(int64_t i)
{
    return i >= 0 && i < (int64_t)(sizeof schemes / sizeof schemes[0]) ? &schemes[i] : NULL;
}

const cli_linear_scheme *cli_linear_scheme_find(const char *name)
{
    const cli_linear_scheme *scheme;
    for (int64_t i = 0; (scheme = cli_linear_scheme_at(i)) != NULL; i++)
        if (strcmp(scheme->name, name) == 0)
            return scheme;
    return NULL;
}

const char *cli_linear_scheme_name(int64_t i)
{
    const cli_linear_scheme *scheme = cli_linear_scheme_at(i);
    return scheme != NULL ? scheme->name : NULL;
}

static const char *const activations[] = {
    [FP8_ACTIVATION_NONE] = "none",
    [FP8_ACTIVATION_DYNAMIC] = "dynamic",
    [FP8_ACTIVATION_STATIC] = "static",
    [FP8_ACTIVATION_CODES] = "codes",
};

const char *cli_activation_name(int64_t i)
{
    return i >= 0 && i <= FP8_ACTIVATION_CODES ? activations[i] : NULL;
}

fp8_activation cli_activation_of(const char *name)
{
    int i = 0;
    while (i < FP8_ACTIVATION_CODES && strcmp(activations[i], name) != 0)
        i++;
    return (fp8_activation)i;
}

fp8_linear_desc cli_linear_desc(const cli_linear_scheme *scheme, fp8_activation activation)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = activation;
    desc.x.grid = scheme->x;
    desc.w.grid = scheme->w;
    desc.x_scale = desc.w_scale = scheme->scale;
    desc.accumulation = scheme->accumulation;
    if (activation == FP8_ACTIVATION_STATIC) { /* is always one scale for the tensor */
        desc.x.grid = (fp8_grid){0, 0};
        desc.x_scale = FP8_F32;
        desc.x_static = 1;
    }
    return desc;
}

fp8_activation cli_linear_product(const cli_linear_scheme *scheme)
{
    return scheme->activation == FP8_ACTIVATION_NONE ? FP8_ACTIVATION_NONE : FP8_ACTIVATION_CODES;
}

fp8_dtype cli_linear_x_dtype(fp8_activation activation)
{
    return activation == FP8_ACTIVATION_CODES ? FP8_E4M3FN : FP8_BF16;
}
