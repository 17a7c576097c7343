/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_schemes.c - fp8 schemes: what --scheme, --numerics and --for take. */
#include "cli/columns.h"
#include "cli/exit_code.h"
#include "cli/json_out.h"
#include "cli/verbs.h"

#include <string.h>

#define LINE 78 /* columns of a list of names */

static void scheme_row(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS])
{
    fp8_scheme_info *info = user;
    fp8_scheme(i, info);
    cells[0] = info->name;
    cells[1] = info->summary;
    cells[2] = info->loaders;
}

static void print_names(const char *what, const char *(*choice)(int64_t i))
{
    const char *name;
    int column = printf("\n%s", what);
    for (int64_t i = 0; (name = choice(i)) != NULL; i++) {
        if (column + 1 + (int)strlen(name) > LINE)
            column = printf("\n   ") - 1;
        column += printf(" %s", name);
    }
    putchar('\n');
}

static void print_text(void)
{
    fp8_scheme_info info;
    int64_t count = 0;
    while (cli_scheme_name(count) != NULL)
        count++;
    cli_columns columns = {3, {"SCHEME", "WHAT IT IS", "LOADED BY"}, "lll", scheme_row, &info};
    cli_columns_print(stdout, &columns, count);
    print_names("--numerics", fp8_rule_name);
    print_names("--for", fp8_engine_name);
}

static void json_names(cli_json *json, const char *key, const char *(*choice)(int64_t i))
{
    const char *name;
    cli_json_begin(json, key, '[');
    for (int64_t i = 0; (name = choice(i)) != NULL; i++)
        cli_json_text(json, NULL, name);
    cli_json_end(json, ']');
}

static void print_json(void)
{
    cli_json json = {.out = stdout};
    fp8_scheme_info info;
    cli_json_begin(&json, NULL, '{');
    cli_json_begin(&json, "schemes", '[');
    for (int64_t i = 0; fp8_scheme(i, &info) == FP8_OK; i++) {
        cli_json_begin(&json, NULL, '{');
        cli_json_text(&json, "name", info.name);
        cli_json_text(&json, "grid", info.grid);
        cli_json_text(&json, "scale_name", info.scale_name);
        cli_json_text(&json, "scale_dtype", info.scale_dtype);
        cli_json_text(&json, "activations", info.activations);
        cli_json_text(&json, "loaders", info.loaders);
        cli_json_text(&json, "summary", info.summary);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
    json_names(&json, "numerics", fp8_rule_name);
    json_names(&json, "engines", fp8_engine_name);
    cli_json_end(&json, '}');
}

int cli_run_schemes(const cli_args *args)
{
    if (args->json)
        print_json();
    else
        print_text();
    return CLI_DONE;
}
