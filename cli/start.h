/* SPDX-License-Identifier: Apache-2.0
 *
 * start.h - what every verb begins with. */
#ifndef FP8_CLI_START_H
#define FP8_CLI_START_H

#include "cli/options.h"

/* Makes a context with the threads of args. Prints an error; returns the exit code. Free with
 * fp8_context_free (NULL after an error). */
int cli_context(const cli_args *args, fp8_context **ctx);
/* The shapes of the command line: --shape, --shapes, and what --m makes of them; three usual ones
 * if there are none. CLI_DONE, or another code after a message; free them in any case. */
int cli_collect_shapes(const cli_args *args, cli_shapes *shapes);

#endif
