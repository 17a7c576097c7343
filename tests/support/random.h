/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h - numbers that look random, the same in each run. */
#ifndef FP8_TESTS_RANDOM_H
#define FP8_TESTS_RANDOM_H

#include <stdint.h>

/* The next of the sequence that *state, any number at first, stands for. */
static inline uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state ^ *state >> 15;
}

#endif
