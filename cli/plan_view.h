/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_view.h - what --dry-run prints. */
#ifndef FP8_CLI_PLAN_VIEW_H
#define FP8_CLI_PLAN_VIEW_H

#include "cli/options.h"

/* Prints a row for every tensor, and the totals. */
void cli_plan_print_rows(const fp8_convert *conv);

/* Prints the plan as args ask: JSON, every tensor, or a line for layers that are alike. Returns
 * CLI_DONE or CLI_MEMORY. */
int cli_plan_print(const cli_args *args, const fp8_convert *conv);

#endif
