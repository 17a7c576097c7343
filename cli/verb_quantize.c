/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_quantize.c - fp8 quantize: the walk of job.h. */
#include "cli/job.h"
#include "cli/verbs.h"

int cli_run_quantize(const cli_args *args)
{
    return cli_job(args, FP8_QUANTIZE);
}
