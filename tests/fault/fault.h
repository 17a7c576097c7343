/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.h - runs a program under shim_io.c, so that one of its calls fails or kills it:
 *
 *     fault_plan plan = {.call = "change", .deed = "kill", .path = "/DST"};
 *     long calls;
 *     fault_run(&plan, argv, &calls);                    // at = 0: only counts
 *     for (plan.at = 1; plan.at <= calls; plan.at++)
 *         assert_int_equal(fault_run(&plan, argv, NULL), 128 + SIGKILL);
 */
#ifndef FAULT_H
#define FAULT_H

#include "fp8.h"

#include <stdbool.h>

/* The FP8_FAULT_ variables of shim_io.c; NULL and 0 leave one unset. */
typedef struct fault_plan {
    const char *call;
    long at;
    const char *deed;
    const char *path;
    bool sticky;
} fault_plan;

/* Runs argv[0] (a path) with argv until it ends. Returns its exit code, or 128 + the signal that
 * killed it. *counted (may be NULL) = calls that counted, -1 if it did not live to tell. */
int fault_run(const fault_plan *plan, char *const argv[], long *counted);

/* A call that fails in some way, and the exit code that the program then has to have. */
typedef struct fault_case {
    const char *call, *deed;
    fp8_status expected;
    int or_else; /* or this one; 0 = expected alone */
} fault_case;

typedef struct fault_table {
    const fault_case *cases;
    size_t count;
    const char *path; /* part of the paths that count */
    long least;       /* calls there must be */
    long turns;       /* of the program, the first of which is disturbed; 0 = 1 */
    long most;        /* calls that are disturbed, about, spread evenly; 0 = all */
} fault_table;

/* Runs argv under each case at call after call; fails the test at the first other exit code. */
void fault_table_run(const fault_table *table, char *const argv[]);

/* A tear-down of cmocka: removes the sandbox. */
int fault_tear_down(void **state);

#endif
