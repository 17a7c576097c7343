/* SPDX-License-Identifier: Apache-2.0
 *
 * sandbox_fixture.h - for groups of tests with one context and a sandbox: what they set up, and how
 * it ends. */
#ifndef SANDBOX_FIXTURE_H
#define SANDBOX_FIXTURE_H

#include "support/sandbox.h"

static fp8_context *ctx;

static inline int tear_down(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    sandbox_remove();
    return 0;
}

#endif
