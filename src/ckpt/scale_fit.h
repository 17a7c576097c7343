/* SPDX-License-Identifier: Apache-2.0
 *
 * scale_fit.h - whether one scale tensor fits one weight, and how its bytes are read. */
#ifndef FP8_CKPT_SCALE_FIT_H
#define FP8_CKPT_SCALE_FIT_H

#include "ckpt/roles.h"

/* Fills role->grid and role->scale for the weight and its scale, from what the config says (group
 * NULL or not known: from the shape, and only if the kind has no config that could say more).
 * Returns what is wrong, NULL if they fit. */
const fp8_problem *fp8_scale_fit(fp8_config_kind kind, const fp8_quant_group *group,
                                 const fp8_tensor_info *weight, const fp8_tensor_info *scale,
                                 fp8_role_info *role);

/* What is wrong with the name and the form of a readable scale, to readers of that kind of config;
 * NULL if nothing is, or if no row of the table has such scales. */
const fp8_problem *fp8_scale_spelling(fp8_config_kind kind, const fp8_tensor_info *weight,
                                      const fp8_tensor_info *scale, const fp8_role_info *role);

/* An input scale is one floating-point number, or one for each matrix of a stack. */
bool fp8_input_scale_fits(const fp8_tensor_info *weight, const fp8_tensor_info *input);

#endif
