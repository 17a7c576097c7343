/* SPDX-License-Identifier: Apache-2.0
 *
 * exit_code.h - how the program ends: one exit code for every status of the library, one line
 * `fp8: message` for every error. */
#ifndef FP8_CLI_EXIT_CODE_H
#define FP8_CLI_EXIT_CODE_H

#include "cli/json_out.h"
#include "fp8.h"

/* The exit codes; scripts rely on them and man/fp8.1.scd lists them. */
typedef enum cli_exit {
    CLI_DONE = 0,
    CLI_BAD = 1,         /* verify or diff ran and found something */
    CLI_USAGE = 2,       /* the command line makes no sense */
    CLI_INPUT = 3,       /* what was read breaks a rule */
    CLI_IO = 4,          /* the system refused to read or write */
    CLI_MEMORY = 5,      /* not enough memory */
    CLI_UNSUPPORTED = 6, /* meaningful, but not defined or not built */
    CLI_SIGNAL = 128,    /* plus the number of the signal */
} cli_exit;

/* The code of a status; for STOPPED CLI_SIGNAL plus the signal that was caught. */
int cli_exit_code(fp8_status status);

/* Prints `fp8: message` on stderr, on one line and safe for a terminal. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints `fp8: warning: message` in the same way. */
void cli_warning(const char *message);
/* cli_error, and CLI_USAGE. */
int cli_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes out what was printed: 0, or the errno with which standard output first did not take it. */
int cli_flush(void);

/* "error": {status, exit, message} of a JSON document. */
void cli_json_error(cli_json *json, const fp8_error *err);

/* Ends a verb: prints err->msg followed by `hint` (may be ""), writes {"error": ..} to stdout if
 * `json` is set, and returns the exit code of err->code. */
int cli_fail(const fp8_error *err, int json, const char *hint);

#endif
