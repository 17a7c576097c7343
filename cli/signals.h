/* SPDX-License-Identifier: Apache-2.0
 *
 * signals.h - SIGINT, SIGTERM and SIGHUP ask a conversion to stop; the second one ends the program.
 * Signals that the caller ignores (nohup, a shell's background jobs) stay ignored. */
#ifndef FP8_CLI_SIGNALS_H
#define FP8_CLI_SIGNALS_H

#include "fp8.h"

/* From now on signals stop `conv`. Call once. */
void cli_signals_stop(fp8_convert *conv);
/* `conv` will be freed: signals are as they were at the start of the program. */
void cli_signals_release(void);
/* The signal that was caught, 0 if none. */
int cli_signals_caught(void);

#endif
