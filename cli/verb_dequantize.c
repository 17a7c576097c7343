/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_dequantize.c - fp8 dequantize: the walk of job.h. */
#include "cli/job.h"
#include "cli/verbs.h"

int cli_run_dequantize(const cli_args *args)
{
    return cli_job(args, FP8_DEQUANTIZE);
}
