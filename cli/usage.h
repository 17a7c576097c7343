/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.h - the help texts, made from the tables of verbs and options. */
#ifndef FP8_CLI_USAGE_H
#define FP8_CLI_USAGE_H

#include "cli/verbs.h"

#include <stdio.h>

/* What `fp8 --help` prints. */
void cli_usage(FILE *out);
/* What `fp8 VERB --help` prints. */
void cli_usage_verb(FILE *out, const cli_verb *verb);

#endif
