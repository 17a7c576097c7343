/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h - the walk that quantize, dequantize and convert share: plan, then print the plan or run
 * it. */
#ifndef FP8_CLI_JOB_H
#define FP8_CLI_JOB_H

#include "cli/options.h"

/* Returns the exit code. */
int cli_job(const cli_args *args, fp8_verb verb);

#endif
