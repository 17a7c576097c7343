/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.c - fork, environment, exec. FP8_SHIM_PATH is the built shim. */
#include "fault/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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
