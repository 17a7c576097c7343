/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fault_convert.c - a conversion dies, or a call of it fails, at every single call that
 * changes something on disk; the run that resumes it makes the same folder as one that nothing
 * befell. */
#include "fault/fault.h"
#include "support/model_maker.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

enum { ARGS = 12 };

/* One conversion: what the driver is told, and the folder that it must make. */
typedef struct scene {
    const char *name, *source;
    const char *options[6]; /* NULL after the last */
    bool replaces;          /* an old folder stands in the way */
} scene;

static const scene scenes[] = {
    {"block", "model", {"threads=2"}, false},
    {"tensor, sharded, kept NaN",
     "sick",
     {"scheme=hf-tensor", "shard=150000", "keep_nan=1"},
     false},
    {"replacing", "model", {"scheme=ct-channel", "force=1"}, true},
};

static char source[1024], expected[1024], target[1024];

static void empty_target(const scene *sc)
{
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s' '%s.partial'", target, target);
    assert_int_equal(system(command), 0);
    if (!sc->replaces)
        return;
    snprintf(command, sizeof command, "mkdir '%s' && echo old > '%s/old.txt'", target, target);
    assert_int_equal(system(command), 0);
}

static void arguments(const scene *sc, const char *dst, bool resume, char *argv[ARGS])
{
    int n = 0;
    argv[n++] = (char *)FP8_DRIVER_PATH;
    argv[n++] = (char *)"quantize";
    argv[n++] = source;
    argv[n++] = (char *)dst;
    for (int i = 0; i < 6 && sc->options[i]; i++)
        argv[n++] = (char *)sc->options[i];
    if (resume)
        argv[n++] = (char *)"resume=1";
    argv[n] = NULL;
}

/* A finished output is known again only where folders have attributes of their own. */
static bool keeps_attributes(void)
{
    return !setxattr(sandbox_path("model"), "user.fp8.test", "1", 1, 0);
}

/* Resumes and compares, also where the run died behind its very last step. */
static void must_recover(const scene *sc, const fault_plan *failed)
{
    static const fault_plan none = {.call = "none"};
    char *argv[ARGS], partial[1100];
    snprintf(partial, sizeof partial, "%s.partial", target);
    if (access(partial, F_OK) != 0 && folders_equal(expected, target) && !keeps_attributes())
        return;
    arguments(sc, target, true, argv);
    int status = fault_run(&none, argv, NULL);
    if (status != FP8_OK || !folders_equal(expected, target))
        printf("%s: %s %s at call %ld: resumed with status %d\n", sc->name, failed->call,
               failed->deed, failed->at, status);
    assert_int_equal(status, FP8_OK);
    assert_true(folders_equal(expected, target));
    assert_int_not_equal(access(partial, F_OK), 0);
}

/* Before or after the fault nobody sees a folder that is neither the old nor the whole new one. */
static void must_be_old_or_new(const scene *sc)
{
    char old[1100];
    snprintf(old, sizeof old, "%s/old.txt", target);
    if (access(target, F_OK) != 0)
        assert_false(sc->replaces);
    else if (access(old, F_OK) != 0)
        assert_true(folders_equal(expected, target));
}

static long count_calls(const scene *sc, fault_plan plan)
{
    long calls;
    char *argv[ARGS];
    empty_target(sc);
    arguments(sc, target, false, argv);
    plan.at = 0;
    assert_int_equal(fault_run(&plan, argv, &calls), FP8_OK);
    assert_true(folders_equal(expected, target));
    return calls;
}

static void prepare(const scene *sc)
{
    static const fault_plan none = {.call = "none"};
    char *argv[ARGS], command[2048];
    snprintf(source, sizeof source, "%s", sandbox_path(sc->source));
    snprintf(expected, sizeof expected, "%s", sandbox_path("expected"));
    snprintf(target, sizeof target, "%s", sandbox_path("target"));
    snprintf(command, sizeof command, "rm -rf '%s'", expected);
    assert_int_equal(system(command), 0);
    arguments(sc, expected, false, argv);
    assert_int_equal(fault_run(&none, argv, NULL), FP8_OK);
}

/* Every `step`th call of each scene; all of them in the long test. */
static long step_of(void)
{
    return getenv("FP8_TEST_EXHAUSTIVE") ? 1 : 7;
}

static void death_anywhere_can_be_resumed(void **state)
{
    (void)state;
    static const char *const deeds[] = {"kill", "torn", "killafter"};
    long deaths = 0;
    for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
        prepare(&scenes[s]);
        fault_plan plan = {.call = "change", .path = "/target"};
        long calls = count_calls(&scenes[s], plan);
        assert_true(calls > 40);
        for (size_t d = 0; d < 3; d++)
            for (plan.at = 1 + (long)(s + d) % step_of(); plan.at <= calls; plan.at += step_of()) {
                char *argv[ARGS];
                plan.deed = deeds[d];
                empty_target(&scenes[s]);
                arguments(&scenes[s], target, false, argv);
                assert_int_equal(fault_run(&plan, argv, NULL), 128 + SIGKILL);
                must_be_old_or_new(&scenes[s]);
                must_recover(&scenes[s], &plan);
                deaths++;
            }
        printf("%s: %ld calls that change something\n", scenes[s].name, calls);
    }
    printf("%ld deaths, each resumed to the same bytes\n", deaths);
}

/* A call that fails gives its status and a folder that can be resumed, or does not matter. */
static void failure_anywhere_can_be_resumed(void **state)
{
    (void)state;
    static const struct {
        const char *call, *deed;
        fp8_status expected;
    } faults[] = {
        {"change", "EIO", FP8_E_IO},          {"pwrite", "ENOSPC", FP8_E_NO_SPACE},
        {"pwrite", "short", FP8_OK},          {"pwrite", "EINTR", FP8_OK},
        {"copy_file_range", "short", FP8_OK}, {"copy_file_range", "EXDEV", FP8_OK},
        {"fsync", "EIO", FP8_E_IO},           {"rename", "EIO", FP8_E_IO},
    };
    const scene *sc = &scenes[0];
    prepare(sc);
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        fault_plan plan = {faults[f].call, 0, faults[f].deed, "/target", false};
        long calls = count_calls(sc, plan), met = 0;
        assert_true(calls > 0);
        for (plan.at = 1; plan.at <= calls; plan.at += step_of()) {
            char *argv[ARGS];
            empty_target(sc);
            arguments(sc, target, false, argv);
            int status = fault_run(&plan, argv, NULL);
            if (status != FP8_OK && status != (int)faults[f].expected)
                printf("%s %s at call %ld: status %d\n", plan.call, plan.deed, plan.at, status);
            assert_true(status == FP8_OK || status == (int)faults[f].expected);
            met += status == (int)faults[f].expected;
            must_be_old_or_new(sc);
            if (status == FP8_OK)
                assert_true(folders_equal(expected, target));
            else
                must_recover(sc, &plan);
        }
        assert_true(met > 0);
    }
}

static int make_models(void **state)
{
    (void)state;
    static const unsigned char nan_bf16[2] = {0xc0, 0x7f};
    sandbox_make();
    model_make_llama("model", 3);
    model_make_llama("sick", 2);
    model_poke("sick", "model.layers.1.mlp.down_proj.weight", 5, nan_bf16, 2);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_anywhere_can_be_resumed),
        cmocka_unit_test(failure_anywhere_can_be_resumed),
    };
    return cmocka_run_group_tests(tests, make_models, fault_tear_down);
}
