/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.h - a stable merge sort. Not qsort, which may take memory behind the allocator's back and
 * tells its comparison nothing of whose elements they are. */
#ifndef FP8_BASE_SORT_H
#define FP8_BASE_SORT_H

#include "base/context.h"

/* Less than, equal to or greater than 0 as a belongs before, beside or after b. */
typedef int (*fp8_compare)(const void *a, const void *b, void *owner);

/* Sorts n elements of `size` bytes; equal ones keep their order. Takes memory for half of them, but
 * none if they are in order already. Error NO_MEMORY. */
fp8_status fp8_sort(const fp8_context *ctx, void *elements, int64_t n, uint64_t size,
                    fp8_compare compare, void *owner, fp8_error *err);

#endif
