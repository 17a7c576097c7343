/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_doctor.c - fp8 doctor: the library's lines "key: value" about build and machine. */
#include "cli/exit_code.h"
#include "cli/json_out.h"
#include "cli/start.h"
#include "cli/verbs.h"

#include <string.h>

static void print_text(const fp8_context *ctx)
{
    const char *line;
    for (int64_t i = 0; (line = fp8_doctor(ctx, i)) != NULL; i++)
        puts(line);
}

static void print_json(const fp8_context *ctx)
{
    cli_json json = {.out = stdout};
    const char *line;
    cli_json_begin(&json, NULL, '{');
    for (int64_t i = 0; (line = fp8_doctor(ctx, i)) != NULL; i++) {
        char key[64] = "";
        const char *colon = strstr(line, ": ");
        if (colon == NULL || (size_t)(colon - line) >= sizeof key)
            continue;
        memcpy(key, line, (size_t)(colon - line));
        cli_json_text(&json, key, colon + 2);
    }
    cli_json_end(&json, '}');
}

int cli_run_doctor(const cli_args *args)
{
    fp8_context *ctx;
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE && args->json)
        print_json(ctx);
    else if (code == CLI_DONE)
        print_text(ctx);
    fp8_context_free(ctx);
    return code;
}
