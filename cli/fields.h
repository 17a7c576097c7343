/* SPDX-License-Identifier: Apache-2.0
 *
 * fields.h - one record in two forms: a line of " name=value" after some words, or a JSON object.
 */
#ifndef FP8_CLI_FIELDS_H
#define FP8_CLI_FIELDS_H

#include "cli/json_out.h"

/* json NULL: a line. `key` of the object, NULL in an array; `words` begin the line. */
void cli_fields_begin(cli_json *json, const char *key, const char *words);
/* Ends the record and writes it out. */
void cli_fields_end(cli_json *json);
void cli_field_text(cli_json *json, const char *key, const char *value);
void cli_field_int(cli_json *json, const char *key, int64_t value);
/* "-" or null if there is no such number. */
void cli_field_real(cli_json *json, const char *key, double value);

#endif
