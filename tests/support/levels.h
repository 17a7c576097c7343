/* SPDX-License-Identifier: Apache-2.0
 *
 * levels.h - a context for each instruction set that this machine has, so that a test can ask each
 * for the same bytes. */
#ifndef FP8_TESTS_LEVELS_H
#define FP8_TESTS_LEVELS_H

#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEVEL_COUNT = FP8_ISA_LAST + 1 };

/* A context capped at `isa` with `threads` threads; NULL, and a line that says so, if this machine
 * does not reach it. */
static inline fp8_context *context_at_level(fp8_isa isa, int threads)
{
    if (isa > fp8_isa_detect()) {
        printf("skipped: level %s, this machine does not have it\n", fp8_isa_name(isa));
        return NULL;
    }
    fp8_context *ctx = NULL;
    fp8_error err;
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = threads;
    setenv("FP8_CPU_ISA", fp8_isa_name(isa), 1);
    if (fp8_context_create(&desc, &ctx, &err) != FP8_OK) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    unsetenv("FP8_CPU_ISA");
    return ctx;
}

#endif
