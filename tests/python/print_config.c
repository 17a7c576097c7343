/* SPDX-License-Identifier: Apache-2.0
 *
 * print_config.c - for check_config.py: what we announce, as text.
 *
 *     print_config SCHEME ENGINE [KEPT ..]     quantization_config of one scheme
 *     print_config mixed                       of three compressed-tensors schemes with their
 * targets */
#include "ckpt/announce.h"

#include <stdio.h>
#include <string.h>

static int print_groups(const fp8_context *ctx, const fp8_config_group *groups, int64_t count,
                        const char *const *kept, int64_t kept_count)
{
    char *text;
    fp8_error err;
    if (fp8_announce_config(ctx, groups, count, kept, kept_count, &text, &err) != FP8_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    puts(text ? text : "null");
    fp8_release(ctx, text);
    return 0;
}

static int print_mixed(const fp8_context *ctx)
{
    const char *const up[] = {"model.layers.0.mlp.up_proj"};
    const char *const down[] = {"model.layers.0.mlp.down_proj"};
    const char *const kept[] = {"lm_head"};
    const fp8_config_group groups[] = {{fp8_dialect_find("ct-channel", NULL), up, 1},
                                       {fp8_dialect_find("ct-w8a16", NULL), down, 1}};
    return print_groups(ctx, groups, 2, kept, 1);
}

int main(int argc, char **argv)
{
    fp8_context *ctx;
    if (argc < 2 || fp8_context_create(NULL, &ctx, NULL) != FP8_OK)
        return 2;
    int status;
    if (argc == 2 && strcmp(argv[1], "mixed") == 0) {
        status = print_mixed(ctx);
    } else {
        const fp8_dialect *dialect = fp8_dialect_find(argv[1], argc > 2 ? argv[2] : NULL);
        const fp8_config_group group = {dialect, NULL, 0};
        status = dialect ? print_groups(ctx, &group, 1, (const char *const *)argv + 3,
                                        argc > 3 ? argc - 3 : 0)
                         : 2;
    }
    fp8_context_free(ctx);
    return status;
}
