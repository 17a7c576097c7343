/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fault_verify.c - every open and every read of fp8_verify and fp8_diff fails, is cut short or
 * interrupted, one after the other: never a verdict that was not come by. */
#include "fault/fault.h"
#include "support/checkpoint_edit.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

#define GOLDEN "tests/golden/checkpoints/"

enum { FOUND_BAD = 99, NO_CONTEXT = 98 };

static fp8_context *one_thread(void)
{
    fp8_context *ctx;
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = 1;
    return fp8_context_create(&desc, &ctx, NULL) ? NULL : ctx;
}

static void ignore_row(void *user, const fp8_diff_row *row)
{
    (void)row;
    ++*(int *)user;
}

/* The programs that are run under the shim exit with the status, or FOUND_BAD. */
static int verifier(const char *path, const char *source)
{
    fp8_verify_summary sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    fp8_context *ctx = one_thread();
    if (!ctx)
        return NO_CONTEXT;
    desc.path = path;
    desc.against = source;
    fp8_status status = fp8_verify(ctx, &desc, NULL, NULL, &sum, NULL);
    fp8_context_free(ctx);
    return status == FP8_OK && sum.errors ? FOUND_BAD : (int)status;
}

static int differ(const char *path, const char *source)
{
    int rows = 0;
    fp8_context *ctx = one_thread();
    if (!ctx)
        return NO_CONTEXT;
    fp8_status status = fp8_diff(ctx, source, path, ignore_row, &rows, NULL);
    fp8_context_free(ctx);
    return status == FP8_OK && rows != 11 ? FOUND_BAD : (int)status;
}

static const struct {
    const char *call, *deed;
    fp8_status expected;
    bool or_bad; /* or it is found bad: the file ends too early */
} faults[] = {
    {"pread", "EIO", FP8_E_IO, false},   {"pread", "EINTR", FP8_OK, false},
    {"pread", "short", FP8_OK, false},   {"pread", "eof", FP8_E_TRUNCATED, true},
    {"open", "EMFILE", FP8_E_IO, false}, {"open", "EACCES", FP8_E_IO, false},
};

static void every_call_fails(const char *verb)
{
    char *argv[] = {"/proc/self/exe", (char *)(uintptr_t)verb, (char *)sandbox_path("model"),
                    GOLDEN "llama_tied_bf16", NULL};
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        fault_plan plan = {faults[f].call, 0, faults[f].deed, "/model/", false};
        long calls;
        assert_int_equal(fault_run(&plan, argv, &calls), FP8_OK);
        assert_true(calls >= 3);
        for (plan.at = 1; plan.at <= calls; plan.at++) {
            int status = fault_run(&plan, argv, NULL);
            bool fine =
                status == (int)faults[f].expected || (faults[f].or_bad && status == FOUND_BAD);
            if (!fine)
                fail_msg("%s: %s %s at call %ld of %ld: %d", verb, plan.call, plan.deed, plan.at,
                         calls, status);
        }
    }
}

static void verify_meets_every_failure(void **state)
{
    (void)state;
    every_call_fails("--verify");
}

static void diff_meets_every_failure(void **state)
{
    (void)state;
    every_call_fails("--diff");
}

static int make_model(void **state)
{
    (void)state;
    fp8_context *ctx = one_thread();
    sandbox_make();
    assert_int_equal(mkdir(sandbox_path("model"), 0777), 0);
    edit_model *model = edit_load(ctx, GOLDEN "llama_tied_hf_block", 3);
    edit_save(ctx, model, sandbox_path("model"));
    edit_free(model);
    fp8_context_free(ctx);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    sandbox_remove();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--verify"))
        return verifier(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "--diff"))
        return differ(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verify_meets_every_failure),
        cmocka_unit_test(diff_meets_every_failure),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
