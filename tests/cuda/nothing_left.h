/* SPDX-License-Identifier: Apache-2.0
 *
 * nothing_left.h - what must hold when a test of the fake driver ends. Include it after cmocka.h.
 */
#ifndef NOTHING_LEFT_H
#define NOTHING_LEFT_H

#include "cuda/fake_driver.h"

/* All that was taken is given back, and no call made no sense. */
static inline void nothing_is_left(const fake_driver *fake)
{
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->memories, 0);
    assert_int_equal(fake->bytes, 0);
    assert_int_equal(fake->pinned, 0);
    assert_int_equal(fake->streams, 0);
    assert_int_equal(fake->libraries, 0);
    assert_int_equal(fake->objects, 0);
    assert_int_equal(fake->confused, 0);
    assert_int_equal(fake_driver_depth(), 0);
}

/* Calls that give back, and pinned memory, which there is other memory for: what failed in them
 * need not be told. Needs string.h. */
static inline int may_fail_unnoticed(const char *call)
{
    static const char *const calls[] = {"cuCtxPopCurrent", "cuMemFree", "cuMemFreeHost",
                                        "cuStreamDestroy", "cuMemHostAlloc"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i], call))
            return 1;
    return 0;
}

#endif
