/* SPDX-License-Identifier: Apache-2.0
 *
 * test_golden.c - the harness of the golden tests can fail: nothing found, a failed case and, in
 * the default folder, fewer cases than expected are all failures. */
#include "golden/golden.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static int begin(void **state)
{
    (void)state;
    return setenv("FP8_GOLDEN_DIR", sandbox_make(), 1);
}

static int end(void **state)
{
    (void)state;
    unsetenv("FP8_GOLDEN_DIR");
    sandbox_remove();
    return 0;
}

static void nothing_to_run_is_a_failure(void **state)
{
    (void)state;
    assert_null(golden_load("empty", "x.safetensors"));
    assert_null(golden_read_tsv("empty", "cases.tsv"));
    assert_int_equal(golden_rows(NULL), 0);
    assert_null(golden_find(NULL, "x"));
    char **names = golden_names("empty", ".safetensors");
    assert_null(names[0]);
    golden_free_names(names);
    assert_false(golden_report("empty"));
    golden_leave_out("empty", "a mode");
    assert_false(golden_report("empty"));
}

static void one_failed_case_is_a_failure(void **state)
{
    (void)state;
    golden_check("failing", "m", 1 + 1 == 2, "unused");
    assert_true(golden_report("failing"));
    golden_check("failing", "m", 1 + 1 == 3, "that is not %d", 3);
    assert_false(golden_report("failing"));
}

static void fewer_than_expected_is_a_failure_in_the_default_folder(void **state)
{
    (void)state;
    char old[4096];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(mkdir(sandbox_path("tests"), 0777), 0);
    assert_int_equal(mkdir(sandbox_path("tests/golden"), 0777), 0);
    assert_int_equal(mkdir(sandbox_path("tests/golden/few"), 0777), 0);
    golden_pass("few", "m");
    assert_true(golden_report("few"));
    unsetenv("FP8_GOLDEN_DIR");
    assert_int_equal(chdir(sandbox_path("")), 0);
    assert_false(golden_report("few")); /* expected.tsv is missing */
    sandbox_text("tests/golden/few/expected.tsv", "mode\tpassed\nm\t1\n");
    assert_true(golden_report("few"));
    sandbox_text("tests/golden/few/expected.tsv", "mode\tpassed\nm\t2\n");
    assert_false(golden_report("few"));
    sandbox_text("tests/golden/few/expected.tsv", "mode\tpassed\nm\t1\nn\t1\n");
    assert_false(golden_report("few"));
    assert_int_equal(chdir(old), 0);
}

static void files_and_tables_are_read(void **state)
{
    (void)state;
    assert_int_equal(mkdir(sandbox_path("f"), 0777), 0);
    sandbox_safetensors("f/x.safetensors",
                        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
                        "\"m/codes\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[12,13]}}",
                        13);
    golden_file *f = golden_load("f", "x.safetensors");
    assert_int_equal(golden_count(f), 2);
    const golden_tensor *a = golden_find(f, "a");
    assert_int_equal(a->view.dtype, FP8_BF16);
    assert_int_equal(a->view.stride[0], 3);
    assert_int_equal(a->elements, 6);
    assert_int_equal(*(unsigned char *)golden_findf(f, "%s/codes", "m")->view.data, 12);
    assert_null(golden_find(f, "b"));
    golden_free(f);
    sandbox_text("f/cases.tsv", "case\tmode\tstatus\nc1\tm1\tok\nc2\t\t\nc3\n");
    golden_table *t = golden_read_tsv("f", "cases.tsv");
    assert_int_equal(golden_rows(t), 3);
    assert_string_equal(golden_cell(t, 0, "status"), "ok");
    assert_string_equal(golden_cell(t, 1, "mode"), "");
    assert_string_equal(golden_cell(t, 2, "case"), "c3");
    assert_string_equal(golden_cell(t, 2, "status"), "");
    golden_free_tsv(t);
    char **names = golden_names("f", ".safetensors");
    assert_string_equal(names[0], "x.safetensors");
    assert_null(names[1]);
    golden_free_names(names);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nothing_to_run_is_a_failure),
        CASE(one_failed_case_is_a_failure),
        CASE(fewer_than_expected_is_a_failure_in_the_default_folder),
        CASE(files_and_tables_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
