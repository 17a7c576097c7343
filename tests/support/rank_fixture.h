/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_fixture.h - for groups of tests with one context, of one thread: ranks are threads
 * themselves. */
#ifndef RANK_FIXTURE_H
#define RANK_FIXTURE_H

#include "support/ranks.h"

static fp8_context *ctx;

static inline int set_up(void **state)
{
    fp8_context_desc d = FP8_CONTEXT_DESC_INIT;
    (void)state;
    d.threads = 1;
    return fp8_context_create(&d, &ctx, NULL) != FP8_OK;
}

static inline int tear_down(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    return 0;
}

#endif
