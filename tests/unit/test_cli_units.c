/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cli_units.c - sizes, counts and times of the command line. */
#include "cli/units.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1", 1},
        {"4096", 4096},
        {"64MiB", 64ull << 20},
        {"64mib", 64ull << 20},
        {"64Mi", 64ull << 20},
        {"5GB", 5000000000ull},
        {"5g", 5000000000ull},
        {"5 GB", 5000000000ull},
        {"0.1GB", 100000000ull},
        {"1.5TiB", 1649267441664ull},
        {"1.1GiB", 1181116006ull},
        {"100B", 100},
        {"9223372036854775807", INT64_MAX},
        {"8388607TiB", 8388607ull << 40},
        {"000000000000000000000000001kB", 1000},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 0;
        if (!cli_parse_size(cases[i].text, &bytes) || bytes != cases[i].bytes)
            fail_msg("%s: %llu, not %llu", cases[i].text, (unsigned long long)bytes,
                     (unsigned long long)cases[i].bytes);
    }
}

static void test_bad_sizes(void **state)
{
    static const char *const cases[] = {
        "",
        "0",
        "0MiB",
        "MiB",
        "-1",
        "+1",
        "1e3",
        "1.GB",
        ".5GB",
        "1..5GB",
        "1.5.5k",
        "5 GB ",
        "5  GB",
        " 5GB",
        "5GBs",
        "5PB",
        "0x10",
        "nan",
        "inf",
        "0.5",
        "1,5GB",
        "9223372036854775808",
        "8388608TiB",
        "18446744073709551616",
        "99999999999999999999999999999999",
        "1.00000000000000000000000001GB",
        "18446744073709551615TB",
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes;
        if (cli_parse_size(cases[i], &bytes))
            fail_msg("'%s' was taken for %llu bytes", cases[i], (unsigned long long)bytes);
    }
}

static void test_integers(void **state)
{
    int32_t value = 0;
    (void)state;
    assert_true(cli_parse_int("1", 1, 4096, &value) && value == 1);
    assert_true(cli_parse_int("4096", 1, 4096, &value) && value == 4096);
    assert_true(cli_parse_int("2147483647", 0, INT32_MAX, &value) && value == INT32_MAX);
    static const char *const bad[] = {"",   "0",  "4097", "-1", "+1",
                                      " 1", "1 ", "1.0",  "x",  "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (cli_parse_int(bad[i], 1, 4096, &value))
            fail_msg("'%s' was taken for %d", bad[i], value);
    }
}

static void test_parts(void **state)
{
    int32_t index, count;
    (void)state;
    assert_true(cli_parse_part("2/8", &index, &count) && index == 2 && count == 8);
    assert_true(cli_parse_part("1/1", &index, &count) && index == 1 && count == 1);
    assert_true(cli_parse_part("65535/65535", &index, &count) && index == 65535);
    static const char *const bad[] = {"",    "1",    "/",       "1/",         "/2",
                                      "0/2", "3/2",  "1/0",     "1/2/3",      "a/2",
                                      "1/b", "-1/2", "1/65536", "00000001/2", "1 / 2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (cli_parse_part(bad[i], &index, &count))
            fail_msg("'%s' was taken for a part", bad[i]);
    }
}

static void test_formats(void **state)
{
    char out[CLI_UNIT_TEXT];
    (void)state;
    assert_string_equal(cli_format_bytes(out, 0), "0 B");
    assert_string_equal(cli_format_bytes(out, 999), "999 B");
    assert_string_equal(cli_format_bytes(out, 1000), "1.00 kB");
    assert_string_equal(cli_format_bytes(out, 9996), "10.0 kB");
    assert_string_equal(cli_format_bytes(out, 99960), "100 kB");
    assert_string_equal(cli_format_bytes(out, 999499), "999 kB");
    assert_string_equal(cli_format_bytes(out, 999500), "1.00 MB");
    assert_string_equal(cli_format_bytes(out, 90868376), "90.9 MB");
    assert_string_equal(cli_format_bytes(out, UINT64_MAX), "18.4 EB");
    assert_string_equal(cli_format_memory(out, 1), "1 MiB");
    assert_string_equal(cli_format_memory(out, 256u << 20), "256 MiB");
    assert_string_equal(cli_format_time(out, 6.4), "0:06");
    assert_string_equal(cli_format_time(out, 3599.6), "1:00:00");
    assert_string_equal(cli_format_time(out, -1), "-:--");
    assert_string_equal(cli_format_time(out, NAN), "-:--");
    assert_string_equal(cli_format_time(out, INFINITY), "-:--");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),    cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_integers), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
