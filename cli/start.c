/* SPDX-License-Identifier: Apache-2.0
 *
 * start.c - the context of a verb. */
#include "cli/start.h"

#include "cli/exit_code.h"

int cli_context(const cli_args *args, fp8_context **ctx)
{
    fp8_error err = {0};
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = args->threads;
    desc.device = (fp8_device)args->device;
    desc.device_index = args->device_index;
    *ctx = NULL;
    if (fp8_context_create(&desc, ctx, &err) == FP8_OK)
        return CLI_DONE;
    return cli_fail(&err, args->json, "");
}
