/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.c - fork, environment, exec. FP8_SHIM_PATH is the built shim. */
#include "fault/fault.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void become(const fault_plan *plan, char *const argv[], const char *log)
{
    char at[32];
    snprintf(at, sizeof at, "%ld", plan->at);
    set("LD_PRELOAD", FP8_SHIM_PATH);
    set("FP8_FAULT_CALL", plan->call);
    set("FP8_FAULT_AT", at);
    set("FP8_FAULT_DO", plan->deed);
    set("FP8_FAULT_PATH", plan->path);
    set("FP8_FAULT_STICKY", plan->sticky ? "1" : NULL);
    set("FP8_FAULT_LOG", log);
    /* A sanitizer wants to be loaded first; behind the shim is as good. */
    set("ASAN_OPTIONS", "verify_asan_link_order=0");
    execv(argv[0], argv);
    _exit(127);
}

static long read_log(const char *log)
{
    long counted = -1;
    FILE *file = fopen(log, "r");
    if (!file)
        return -1;
    if (fscanf(file, "%ld", &counted) != 1)
        counted = -1;
    fclose(file);
    return counted;
}

int fault_run(const fault_plan *plan, char *const argv[], long *counted)
{
    char log[] = "/tmp/fp8_fault_XXXXXX";
    int fd = mkstemp(log), status = 0;
    if (fd >= 0)
        close(fd);
    pid_t child = fork();
    if (child == 0)
        become(plan, argv, log);
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("fault_run");
        exit(2);
    }
    if (counted)
        *counted = read_log(log);
    unlink(log);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void run_case(const fault_table *table, const fault_case *c, char *const argv[])
{
    fault_plan plan = {c->call, 0, c->deed, table->path, false};
    long calls;
    assert_int_equal(fault_run(&plan, argv, &calls), FP8_OK);
    calls /= table->turns ? table->turns : 1;
    assert_true(calls >= table->least);
    const long step = table->most ? 1 + calls / table->most : 1;
    for (plan.at = 1; plan.at <= calls; plan.at += step) {
        const int status = fault_run(&plan, argv, NULL);
        if (status != (int)c->expected && (!c->or_else || status != c->or_else))
            fail_msg("%s %s: %s %s at call %ld of %ld: %d", argv[1], argv[3] ? argv[3] : "",
                     plan.call, plan.deed, plan.at, calls, status);
    }
}

void fault_table_run(const fault_table *table, char *const argv[])
{
    for (size_t i = 0; i < table->count; i++)
        run_case(table, &table->cases[i], argv);
}

int fault_tear_down(void **state)
{
    (void)state;
    sandbox_remove();
    return 0;
}
