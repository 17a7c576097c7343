/* SPDX-License-Identifier: Apache-2.0
 *
 * counted_alloc.c - malloc with its size kept in front. */
#include "support/counted_alloc.h"

#include <stdalign.h>
#include <stdlib.h>

enum { FRONT = 2 * alignof(max_align_t) };

static void *counting_alloc(void *user, size_t bytes)
{
    counted_alloc *a = user;
    if (a->started && ++a->calls == a->fail_at)
        return NULL;
    char *block = malloc(FRONT + bytes);
    if (!block)
        return NULL;
    *(size_t *)(void *)block = a->started ? bytes : SIZE_MAX;
    if (a->started) {
        a->live++;
        a->bytes += bytes;
        if (a->bytes > a->peak_bytes)
            a->peak_bytes = a->bytes;
    }
    return block + FRONT;
}

static void counting_free(void *user, void *ptr)
{
    counted_alloc *a = user;
    if (!ptr)
        return;
    char *block = (char *)ptr - FRONT;
    size_t bytes = *(size_t *)(void *)block;
    if (bytes != SIZE_MAX) {
        a->live--;
        a->bytes -= bytes;
    }
    free(block);
}

fp8_context *counted_context(counted_alloc *a)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx = NULL;
    desc.allocator = (fp8_allocator){counting_alloc, counting_free, a};
    if (fp8_context_create(&desc, &ctx, NULL) == FP8_OK)
        a->started = 1;
    return ctx;
}
