/* SPDX-License-Identifier: Apache-2.0
 *
 * exit_code.c - the table from statuses to exit codes, and the printing of errors. */
#include "cli/exit_code.h"

#include "cli/escape.h"
#include "cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    fp8_status status;
    int code;
} codes[] = {
    {FP8_OK, CLI_DONE},
    {FP8_E_ARGUMENT, CLI_USAGE},
    {FP8_E_EXISTS, CLI_USAGE},
    {FP8_E_SHAPE, CLI_INPUT},
    {FP8_E_STRIDE, CLI_INPUT},
    {FP8_E_DTYPE, CLI_INPUT},
    {FP8_E_SCALE, CLI_INPUT},
    {FP8_E_NAN, CLI_INPUT},
    {FP8_E_FORMAT, CLI_INPUT},
    {FP8_E_TRUNCATED, CLI_INPUT},
    {FP8_E_NOT_FOUND, CLI_INPUT},
    {FP8_E_MISMATCH, CLI_INPUT},
    {FP8_E_UNSUPPORTED, CLI_UNSUPPORTED},
    {FP8_E_NO_DEVICE, CLI_UNSUPPORTED},
    {FP8_E_NO_KERNEL, CLI_UNSUPPORTED},
    {FP8_E_DEVICE, CLI_IO},
    {FP8_E_IO, CLI_IO},
    {FP8_E_STATE, CLI_IO}, /* another process is at work on it */
    {FP8_E_NO_SPACE, CLI_IO},
    {FP8_E_NO_MEMORY, CLI_MEMORY},
};

int cli_exit_code(fp8_status status)
{
    int caught = cli_signals_caught();
    if (status == FP8_E_STOPPED)
        return CLI_SIGNAL + (caught != 0 ? caught : SIGINT);
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i].status == status)
            return codes[i].code;
    }
    return CLI_UNSUPPORTED;
}

static void say(const char *kind, const char *message)
{
    fprintf(stderr, "fp8: %s", kind);
    cli_text_print(stderr, message, strlen(message));
    fputc('\n', stderr);
}

static void say_formatted(const char *format, va_list arguments)
{
    char message[4096];
    vsnprintf(message, sizeof message, format, arguments);
    say("", message);
}

void cli_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_formatted(format, arguments);
    va_end(arguments);
}

void cli_warning(const char *message)
{
    say("warning: ", message);
}

int cli_usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_formatted(format, arguments);
    va_end(arguments);
    return CLI_USAGE;
}

int cli_flush(void)
{
    static int failed;
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && failed == 0)
        failed = errno != 0 ? errno : EIO;
    return failed;
}

void cli_json_error(cli_json *json, const fp8_error *err)
{
    cli_json_begin(json, "error", '{');
    cli_json_text(json, "status", fp8_status_name(err->code));
    cli_json_int(json, "exit", cli_exit_code(err->code));
    cli_json_text(json, "message", err->msg);
    cli_json_end(json, '}');
}

int cli_fail(const fp8_error *err, int json, const char *hint)
{
    cli_error("%s%s", err->msg, hint);
    if (json) {
        cli_json out = {.out = stdout};
        cli_json_begin(&out, NULL, '{');
        cli_json_error(&out, err);
        cli_json_end(&out, '}');
    }
    return cli_exit_code(err->code);
}
