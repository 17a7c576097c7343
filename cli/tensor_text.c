/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_text.c - small words that several verbs print. */
#include "cli/tensor_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *cli_shape_text(char out[CLI_SHAPE_TEXT], int32_t ndim, const int64_t *shape)
{
    size_t end = 1;
    out[0] = '[';
    for (int32_t i = 0; i < ndim; i++) {
        if (CLI_SHAPE_TEXT - end < 28) { /* room for this, a comma and "..]" */
            memcpy(out + end, "..", 2);
            end += 2;
            break;
        }
        end += (size_t)snprintf(out + end, CLI_SHAPE_TEXT - end, "%s%" PRId64, i > 0 ? "," : "",
                                shape[i]);
    }
    memcpy(out + end, "]", 2);
    return out;
}

const char *cli_dtype_text(fp8_dtype dtype)
{
    const char *name = fp8_dtype_name(dtype);
    return name != NULL ? name : "-";
}

void cli_json_counts(cli_json *json, const fp8_plan_summary *sum)
{
    cli_json_int(json, "tensors", sum->tensors);
    cli_json_int(json, "changed", sum->changed);
    cli_json_int(json, "kept", sum->kept);
    cli_json_size(json, "bytes_in", sum->bytes_in);
    cli_json_size(json, "bytes_out", sum->bytes_out);
    cli_json_int(json, "files_out", sum->shards_out);
}

void cli_json_warnings(cli_json *json, const fp8_convert *conv)
{
    const char *warning;
    cli_json_begin(json, "warnings", '[');
    for (int64_t i = 0; (warning = fp8_convert_warning(conv, i)) != NULL; i++)
        cli_json_text(json, NULL, warning);
    cli_json_end(json, ']');
}
