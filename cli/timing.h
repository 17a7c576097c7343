/* SPDX-License-Identifier: Apache-2.0
 *
 * timing.h - several things timed side by side: a round times each once, in turn, so that what
 * disturbs the machine disturbs all. Things with threads of their own disturb each other: threads
 * that wait for more work spin for a while, on the cores of whoever comes next. */
#ifndef FP8_CLI_TIMING_H
#define FP8_CLI_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_LEAST_ROUNDS 5
#define CLI_MOST_ROUNDS  500

/* One of them. Calls that are short are timed many at once. */
typedef struct cli_timed {
    void (*call)(void *arg);
    void *arg;
    bool settles;        /* is called until other things' threads sleep, each time */
    double median, best; /* seconds a call; set */
    int64_t calls;       /* in a round; set */
    double samples[CLI_MOST_ROUNDS];
} cli_timed;

/* Seconds of a clock that only goes forward. */
double cli_now(void);

/* Times items[0..count) for about `seconds` in all; returns the number of rounds. */
int cli_time(cli_timed *items, int count, double seconds);

#endif
