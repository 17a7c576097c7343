/* SPDX-License-Identifier: Apache-2.0
 *
 * fields.c - records as lines and as JSON. */
#include "cli/fields.h"

#include "cli/exit_code.h"

#include <math.h>
#include <stdio.h>

void cli_fields_begin(cli_json *json, const char *key, const char *words)
{
    if (json != NULL)
        cli_json_begin(json, key, '{');
    else
        fputs(words, stdout);
}

void cli_fields_end(cli_json *json)
{
    if (json != NULL)
        cli_json_end(json, '}');
    else
        putchar('\n');
    cli_flush();
}

void cli_field_text(cli_json *json, const char *key, const char *value)
{
    if (json != NULL)
        cli_json_text(json, key, value);
    else
        printf(" %s=%s", key, value);
}

void cli_field_int(cli_json *json, const char *key, int64_t value)
{
    if (json != NULL)
        cli_json_int(json, key, value);
    else
        printf(" %s=%lld", key, (long long)value);
}

void cli_field_real(cli_json *json, const char *key, double value)
{
    if (json != NULL)
        cli_json_real(json, key, value);
    else if (isfinite(value))
        printf(" %s=%.4g", key, value);
    else
        printf(" %s=-", key);
}
