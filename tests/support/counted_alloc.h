/* SPDX-License-Identifier: Apache-2.0
 *
 * counted_alloc.h - a context whose allocator counts, and fails when told to:
 *
 *     for (int64_t n = 1;; n++) {
 *         counted_alloc a = {.fail_at = n};
 *         fp8_context *ctx = counted_context(&a);
 *         status = the function under test, with ctx; free what it made
 *         fp8_context_free(ctx);
 *         assert_int_equal(a.live, 0);                 // nothing leaked
 *         if (a.calls < n) break;                      // every call has failed once
 *         assert_int_equal(status, FP8_E_NO_MEMORY);
 *     }
 *
 * The context's own memory is not counted. One thread. */
#ifndef COUNTED_ALLOC_H
#define COUNTED_ALLOC_H

#include "fp8.h"

typedef struct counted_alloc {
    int64_t fail_at; /* this call returns NULL, from 1; 0 = none */
    int64_t calls;
    int64_t live;               /* blocks */
    uint64_t bytes, peak_bytes; /* of live blocks */
    int32_t started;            /* the context exists */
} counted_alloc;

/* NULL if there is no memory. */
fp8_context *counted_context(counted_alloc *a);

#endif
