/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_convert.c - fp8 convert: the walk of job.h. A scheme must be named: there is none that every
 * user of an FP8 checkpoint would expect. */
#include "cli/exit_code.h"
#include "cli/job.h"
#include "cli/verbs.h"

int cli_run_convert(const cli_args *args)
{
    if (args->scheme == NULL)
        return cli_usage_error("convert: into which scheme? (--scheme; fp8 schemes lists them)");
    return cli_job(args, FP8_CONVERT);
}
