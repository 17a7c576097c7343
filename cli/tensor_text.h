/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_text.h - shapes and dtypes in words, and the counts and warnings of a conversion as JSON.
 */
#ifndef FP8_CLI_TENSOR_TEXT_H
#define FP8_CLI_TENSOR_TEXT_H

#include "cli/json_out.h"
#include "fp8.h"

#define CLI_SHAPE_TEXT 96

/* "[576,1536]"; a shape that does not fit ends in "..]". */
const char *cli_shape_text(char out[CLI_SHAPE_TEXT], int32_t ndim, const int64_t *shape);
/* "BF16", "-" for none. */
const char *cli_dtype_text(fp8_dtype dtype);
/* The members "tensors" to "files_out" of a conversion. */
void cli_json_counts(cli_json *json, const fp8_plan_summary *sum);
/* "warnings": [..] of a conversion. */
void cli_json_warnings(cli_json *json, const fp8_convert *conv);

#endif
