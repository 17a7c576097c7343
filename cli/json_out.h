/* SPDX-License-Identifier: Apache-2.0
 *
 * json_out.h - writes one JSON document to a stream, in order, holding none of it. The two outer
 * levels take a line an item, what is inside them shares it. Write errors stay in the stream. */
#ifndef FP8_CLI_JSON_OUT_H
#define FP8_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_json {
    FILE *out;
    int depth;
    bool fresh;    /* nothing yet inside the innermost bracket */
    bool one_line; /* all of it on one line */
} cli_json;

/* `key` is NULL for the document itself and for items of an array. */
void cli_json_begin(cli_json *json, const char *key, char bracket);
/* The innermost bracket ends; the outermost with a newline. */
void cli_json_end(cli_json *json, char bracket);
void cli_json_text(cli_json *json, const char *key, const char *text);
void cli_json_text_n(cli_json *json, const char *key, const char *text, size_t bytes);
void cli_json_int(cli_json *json, const char *key, int64_t value);
void cli_json_size(cli_json *json, const char *key, uint64_t value);
/* null if it is not finite. */
void cli_json_real(cli_json *json, const char *key, double value);
void cli_json_bool(cli_json *json, const char *key, bool value);
/* An array of integers. */
void cli_json_shape(cli_json *json, const char *key, int32_t ndim, const int64_t *shape);

#endif
