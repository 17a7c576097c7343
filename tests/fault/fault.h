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

#endif
