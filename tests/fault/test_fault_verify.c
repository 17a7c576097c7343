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

static void every_call_fails(const char *verb)
{
    static const fault_case cases[] = {
        {"pread", "EIO", FP8_E_IO, 0},
        {"pread", "EINTR", FP8_OK, 0},
        {"pread", "short", FP8_OK, 0},
        {"pread", "eof", FP8_E_TRUNCATED, FOUND_BAD}, /* the file ends too early */
        {"open", "EMFILE", FP8_E_IO, 0},
        {"open", "EACCES", FP8_E_IO, 0},
    };
    static const fault_table table = {
        .cases = cases, .count = sizeof cases / sizeof *cases, .path = "/model/", .least = 3};
    char *argv[] = {"/proc/self/exe", (char *)(uintptr_t)verb, (char *)sandbox_path("model"),
                    GOLDEN "llama_tied_bf16", NULL};
    fault_table_run(&table, argv);
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
    return cmocka_run_group_tests(tests, make_model, fault_tear_down);
}
