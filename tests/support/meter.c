/* SPDX-License-Identifier: Apache-2.0
 *
 * meter.c - memory that runs out. */
#include "support/meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* cmocka.h needs the three above. */
#include <cmocka.h>

/* Single-threaded: the work must not allocate from several threads. */
typedef struct meter {
    long left, live;
} meter;

static void *metered_alloc(void *user, size_t bytes)
{
    meter *m = user;
    if (m->left-- == 0)
        return NULL;
    m->live++;
    return malloc(bytes ? bytes : 1);
}

static void metered_free(void *user, void *ptr)
{
    meter *m = user;
    m->live -= ptr != NULL;
    free(ptr);
}

static fp8_status run_with(meter_work work, void *arg, long allocations)
{
    meter m = {-1, 0};
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.allocator = (fp8_allocator){metered_alloc, metered_free, &m};
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(&desc, &ctx, NULL), FP8_OK);
    long before = m.live;
    m.left = allocations;
    fp8_status status = work(ctx, arg);
    assert_true(status == FP8_OK || status == FP8_E_NO_MEMORY);
    assert_int_equal(m.live, before);
    fp8_context_free(ctx);
    assert_int_equal(m.live, 0);
    return status;
}

long meter_try(meter_work work, void *arg)
{
    long tried = 0;
    while (run_with(work, arg, tried) != FP8_OK)
        tried++;
    return tried + 1;
}
