/* SPDX-License-Identifier: Apache-2.0
 *
 * start.c - the context of a verb, and the shapes that it is asked about. */
#include "cli/start.h"

#include "cli/exit_code.h"

int cli_context(const cli_args *args, fp8_context **ctx)
{
    fp8_error err = {0};
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = args->threads;
    desc.device = (fp8_device)args->device;
    desc.device_index = args->device_index;
    desc.tuned = args->tuned;
    *ctx = NULL;
    if (fp8_context_create(&desc, ctx, &err) == FP8_OK)
        return CLI_DONE;
    return cli_fail(&err, args->json, "");
}

int cli_collect_shapes(const cli_args *args, cli_shapes *shapes)
{
    int code = CLI_DONE;
    for (size_t i = 0; code == CLI_DONE && i < args->shapes.count; i++)
        code = cli_shapes_add(shapes, args->shapes.items[i]);
    if (code == CLI_DONE && args->shape_file != NULL)
        code = cli_shapes_read(shapes, args->shape_file);
    static const cli_shape usual[] = {{1, 4096, 4096}, {16, 4096, 4096}, {256, 4096, 4096}};
    const bool none = shapes->count == 0;
    for (size_t i = 0; code == CLI_DONE && none && i < 3; i++)
        code = cli_shapes_add(shapes, usual[i]);
    if (code == CLI_DONE && args->m_list != NULL)
        code = cli_shapes_set_m(shapes, args->m_list);
    return code;
}
