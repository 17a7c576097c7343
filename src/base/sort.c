/* SPDX-License-Identifier: Apache-2.0
 *
 * sort.c - halves are sorted, then merged: the left one is set aside, and the smaller of the two
 * first elements is moved to the front until none is left there. */
#include "base/sort.h"

#include <stdbool.h>
#include <string.h>

typedef struct sorter {
    uint64_t size;
    fp8_compare compare;
    void *owner;
    char *aside; /* half of the elements */
} sorter;

static char *at(const sorter *s, char *elements, int64_t i)
{
    return elements + (uint64_t)i * s->size;
}

/* elements[0..middle) and [middle..n) are each in order. */
static void merge(const sorter *s, char *elements, int64_t middle, int64_t n)
{
    memcpy(s->aside, elements, (uint64_t)middle * s->size);
    for (int64_t left = 0, right = middle, to = 0; left < middle; to++) {
        const char *next = at(s, s->aside, left);
        if (right < n && s->compare(at(s, elements, right), next, s->owner) < 0)
            next = at(s, elements, right++);
        else
            left++;
        memcpy(at(s, elements, to), next, s->size);
    }
}

static void sort_run(const sorter *s, char *elements, int64_t n)
{
    if (n < 2)
        return;
    int64_t middle = n / 2;
    char *right = at(s, elements, middle);
    sort_run(s, elements, middle);
    sort_run(s, right, n - middle);
    if (s->compare(at(s, elements, middle - 1), right, s->owner) > 0)
        merge(s, elements, middle, n);
}

static bool in_order(const sorter *s, char *elements, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (s->compare(at(s, elements, i - 1), at(s, elements, i), s->owner) > 0)
            return false;
    return true;
}

fp8_status fp8_sort(const fp8_context *ctx, void *elements, int64_t n, uint64_t size,
                    fp8_compare compare, void *owner, fp8_error *err)
{
    sorter s = {.size = size, .compare = compare, .owner = owner};
    if (in_order(&s, elements, n))
        return FP8_OK;
    s.aside = fp8_alloc(ctx, (uint64_t)(n / 2) * size);
    FP8_FAIL_IF(!s.aside, err, FP8_E_NO_MEMORY, "no memory to sort %lld elements", (long long)n);
    sort_run(&s, elements, n);
    fp8_release(ctx, s.aside);
    return FP8_OK;
}
