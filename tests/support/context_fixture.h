/* SPDX-License-Identifier: Apache-2.0
 *
 * context_fixture.h - for groups of cmocka tests whose *state is a context of the defaults. */
#ifndef CONTEXT_FIXTURE_H
#define CONTEXT_FIXTURE_H

#include "fp8.h"

static inline int context_set_up(void **state)
{
    return fp8_context_create(NULL, (fp8_context **)state, NULL) != FP8_OK;
}

static inline int context_tear_down(void **state)
{
    fp8_context_free(*state);
    return 0;
}

#endif
