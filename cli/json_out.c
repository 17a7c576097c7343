/* SPDX-License-Identifier: Apache-2.0
 *
 * json_out.c - commas, lines and indentation. */
#include "cli/json_out.h"

#include "cli/escape.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What stands before an item: comma, line break or space, key. */
static void lead(cli_json *json, const char *key)
{
    if (json->depth > 0 && !json->fresh)
        fputc(',', json->out);
    if (!json->one_line && (json->depth == 1 || json->depth == 2))
        fprintf(json->out, "\n%*s", json->depth, "");
    else if (json->depth > 0 && !json->fresh)
        fputc(' ', json->out);
    json->fresh = false;
    if (key != NULL) {
        cli_text_json(json->out, key, strlen(key));
        fputs(": ", json->out);
    }
}

void cli_json_begin(cli_json *json, const char *key, char bracket)
{
    lead(json, key);
    fputc(bracket, json->out);
    json->depth++;
    json->fresh = true;
}

void cli_json_end(cli_json *json, char bracket)
{
    json->depth--;
    if (!json->one_line && json->depth < 2 && !json->fresh)
        fprintf(json->out, "\n%*s", json->depth, "");
    fputc(bracket, json->out);
    if (json->depth == 0)
        fputc('\n', json->out);
    json->fresh = false;
}

void cli_json_text_n(cli_json *json, const char *key, const char *text, size_t bytes)
{
    lead(json, key);
    cli_text_json(json->out, text, bytes);
}

void cli_json_text(cli_json *json, const char *key, const char *text)
{
    cli_json_text_n(json, key, text, strlen(text));
}

void cli_json_int(cli_json *json, const char *key, int64_t value)
{
    lead(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void cli_json_size(cli_json *json, const char *key, uint64_t value)
{
    lead(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void cli_json_real(cli_json *json, const char *key, double value)
{
    lead(json, key);
    if (isfinite(value))
        fprintf(json->out, "%.9g", value);
    else
        fputs("null", json->out);
}

void cli_json_bool(cli_json *json, const char *key, bool value)
{
    lead(json, key);
    fputs(value ? "true" : "false", json->out);
}

void cli_json_shape(cli_json *json, const char *key, int32_t ndim, const int64_t *shape)
{
    cli_json_begin(json, key, '[');
    for (int32_t i = 0; i < ndim; i++)
        cli_json_int(json, NULL, shape[i]);
    cli_json_end(json, ']');
}
