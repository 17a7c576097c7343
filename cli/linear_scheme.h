/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_scheme.h - the ways to compute a linear that `explain` and `bench` know by name. */
#ifndef FP8_CLI_LINEAR_SCHEME_H
#define FP8_CLI_LINEAR_SCHEME_H

#include "fp8.h"

#include <stdbool.h>

typedef struct cli_linear_scheme {
    const char *name;
    fp8_activation activation;
    fp8_grid x, w;   /* grids of scales */
    fp8_dtype scale; /* of both */
    fp8_accumulation accumulation;
    const char *words; /* what is multiplied with what */
} cli_linear_scheme;

/* Scheme i, NULL past the last; its name. */
const cli_linear_scheme *cli_linear_scheme_at(int64_t i);
/* The scheme of that name; NULL if there is none. */
const cli_linear_scheme *cli_linear_scheme_find(const char *name);
const char *cli_linear_scheme_name(int64_t i);

/* Name i of the activations "none", "dynamic", "static", "codes"; NULL past the last. */
const char *cli_activation_name(int64_t i);
/* The activation of that name. */
fp8_activation cli_activation_of(const char *name);

fp8_linear_desc cli_linear_desc(const cli_linear_scheme *scheme, fp8_activation activation);
/* The activation of the multiplication alone: codes, or none where X is not quantized. */
fp8_activation cli_linear_product(const cli_linear_scheme *scheme);
/* What X is: codes, or BF16. */
fp8_dtype cli_linear_x_dtype(fp8_activation activation);

#endif
