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
    assert_int_equal(fake->libraries, 0);
    assert_int_equal(fake->confused, 0);
    assert_int_equal(fake_driver_depth(), 0);
}

#endif
