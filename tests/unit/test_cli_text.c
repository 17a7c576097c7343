/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cli_text.c - text made safe for terminals and JSON, the JSON writer, tables, folded names
 * and the progress line. Each writes into memory and is compared whole. */
#include "cli/columns.h"
#include "cli/escape.h"
#include "cli/groups.h"
#include "cli/json_out.h"
#include "cli/progress_line.h"
#include "cli/tensor_text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static char *text; /* what was written to `out` */
static size_t text_bytes;
static FILE *out;

static void open_out(void)
{
    out = open_memstream(&text, &text_bytes);
    assert_non_null(out);
}

/* Compares what was written since open_out. */
static void expect(const char *expected)
{
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void test_terminal(void **state)
{
    static const struct {
        const char *in;
        size_t bytes;
        const char *shown;
    } cases[] = {
        {"a.b", 3, "a.b"},
        {"a\x1b[31m", 6, "a\\x1B[31m"},
        {"a\0b\n", 4, "a\\x00b\\x0A"},
        {"\x7f", 1, "\\x7F"},
        {"\xc2\x9b", 2, "\\u{009B}"},                        /* C1: a terminal's CSI */
        {"\xe2\x80\xae", 3, "\\u{202E}"},                    /* right-to-left override */
        {"\xc3\xa9\xe4\xb8\xad", 5, "\xc3\xa9\xe4\xb8\xad"}, /* accents and Chinese stay */
        {"\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80"},
        {"\xff\xfe", 2, "\\xFF\\xFE"},
        {"\xc0\x80", 2, "\\xC0\\x80"},          /* overlong */
        {"\xed\xa0\x80", 3, "\\xED\\xA0\\x80"}, /* surrogate */
        {"\xe4\xb8", 2, "\\xE4\\xB8"},          /* cut */
        {"\xf4\x90\x80\x80", 4, "\\xF4\\x90\\x80\\x80"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_out();
        cli_text_print(out, cases[i].in, cases[i].bytes);
        expect(cases[i].shown);
    }
    assert_int_equal(cli_text_width("a\x1b", 2), 5);
    assert_int_equal(cli_text_width("\xe4\xb8\xad", 3), 1);
}

static void test_json_text(void **state)
{
    static const struct {
        const char *in;
        size_t bytes;
        const char *json;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\b\t\n\f\r", 5, "\"\\b\\t\\n\\f\\r\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"\x1f\x7f", 2, "\"\\u001f\\u007f\""},
        {"\xe2\x80\xa8", 3, "\"\\u2028\""},
        {"\xff"
         "a",
         2, "\"\\ufffda\""},
        {"\xf0\x9f\x98\x80", 4, "\"\xf0\x9f\x98\x80\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_out();
        cli_text_json(out, cases[i].in, cases[i].bytes);
        expect(cases[i].json);
    }
}

static void test_json_document(void **state)
{
    static const int64_t shape[] = {2, -3};
    (void)state;
    open_out();
    cli_json json = {.out = out};
    cli_json_begin(&json, NULL, '{');
    cli_json_int(&json, "i", INT64_MIN);
    cli_json_size(&json, "u", UINT64_MAX);
    cli_json_real(&json, "inf", INFINITY);
    cli_json_real(&json, "nan", NAN);
    cli_json_bool(&json, "b", true);
    cli_json_begin(&json, "none", '[');
    cli_json_end(&json, ']');
    cli_json_begin(&json, "rows", '[');
    for (int i = 0; i < 2; i++) {
        cli_json_begin(&json, NULL, '{');
        cli_json_shape(&json, "shape", 2 * i, shape);
        cli_json_real(&json, "r", 0.5);
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, ']');
    cli_json_end(&json, '}');
    expect("{\n \"i\": -9223372036854775808,\n \"u\": 18446744073709551615,\n \"inf\": null,\n"
           " \"nan\": null,\n \"b\": true,\n \"none\": [],\n \"rows\": [\n"
           "  {\"shape\": [], \"r\": 0.5},\n  {\"shape\": [2, -3], \"r\": 0.5}\n ]\n}\n");
    open_out();
    json = (cli_json){.out = out, .one_line = true};
    cli_json_begin(&json, NULL, '{');
    cli_json_int(&json, "a", 1);
    cli_json_text(&json, "b", "x");
    cli_json_end(&json, '}');
    expect("{\"a\": 1, \"b\": \"x\"}\n");
}

static void test_fit(void **state)
{
    char line[64];
    (void)state;
    cli_text_fit(line, sizeof line, "model.layers.0", 14, 14);
    assert_string_equal(line, "model.layers.0");
    cli_text_fit(line, sizeof line, "model.layers.0", 14, 10);
    assert_string_equal(line, "mode..rs.0");
    cli_text_fit(line, sizeof line, "model.layers.0", 14, 4);
    assert_string_equal(line, "");
    cli_text_fit(line, 10, "model.layers.0", 14, 14); /* the buffer is what is short */
    assert_true(strlen(line) < 10);
}

static const char *word(int64_t i)
{
    static const char *const words[] = {"quantize", "dequantize", "hf-block", NULL};
    return words[i];
}

static void test_nearest(void **state)
{
    (void)state;
    assert_string_equal(cli_text_nearest("qantize", word), "quantize");
    assert_string_equal(cli_text_nearest("quantise", word), "quantize");
    assert_string_equal(cli_text_nearest("hfblock", word), "hf-block");
    assert_null(cli_text_nearest("inspect", word));
    assert_null(cli_text_nearest("", word));
    assert_null(cli_text_nearest("q", word));
    assert_null(cli_text_nearest("a word that is far longer than any of them is", word));
}

/* ---- folded names ---- */

static void add(cli_groups *groups, const char *name, const char *cell)
{
    const char *const cells[CLI_GROUP_CELLS] = {cell, "BF16", "", "x"};
    assert_true(cli_groups_add(groups, name, strlen(name), cells, 10, 5));
}

static void expect_group(const cli_groups *groups, size_t i, const char *name, int64_t count)
{
    assert_string_equal(groups->items[i].name, name);
    assert_int_equal(groups->items[i].count, count);
    assert_int_equal(groups->items[i].bytes_in, 10 * count);
    assert_int_equal(groups->items[i].bytes_out, 5 * count);
}

static void test_groups(void **state)
{
    cli_groups groups = {0};
    (void)state;
    add(&groups, "layers.5", "[2]");
    for (int layer = 0; layer < 61; layer++) {
        for (int expert = 0; expert < 4; expert++) {
            char name[64];
            snprintf(name, sizeof name, "layers.%d.experts.%d.w", layer, expert);
            add(&groups, name, layer == 7 ? "[3]" : "[2]");
        }
    }
    add(&groups, "head.weight", "[2]");
    add(&groups, "layers.05", "[2]"); /* a leading zero is no number */
    add(&groups, "layers5.1234567890", "[2]");
    add(&groups, "layers.6", "[2]");
    assert_int_equal(groups.count, 6);
    assert_true(cli_groups_finish(&groups));
    expect_group(&groups, 0, "head.weight", 1);
    expect_group(&groups, 1, "layers.{5..6}", 2);
    expect_group(&groups, 2, "layers.{0..60}.experts.{0..3}.w (240 of 244)", 240);
    expect_group(&groups, 3, "layers.7.experts.{0..3}.w", 4);
    expect_group(&groups, 4, "layers.05", 1);
    expect_group(&groups, 5, "layers5.1234567890", 1);
    assert_string_equal(groups.items[3].cells[0], "[3]");
    assert_string_equal(groups.items[3].cells[3], "x");
    cli_groups_free(&groups);
}

static void test_many_groups(void **state)
{
    cli_groups groups = {0};
    (void)state;
    for (int i = 0; i < 5000; i++) {
        char name[64];
        snprintf(name, sizeof name, "layer%04d.1.2.3.4.5.6.7.8", i);
        add(&groups, name, "[2]");
    }
    assert_int_equal(groups.count, 5000);
    assert_true(cli_groups_finish(&groups));
    expect_group(&groups, 4999, "layer4999.1.2.3.4.5.6.7.8", 1);
    cli_groups_free(&groups);
}

/* A name that holds the mark itself, as a file may contain, and one that is empty. */
static void test_hostile_group_names(void **state)
{
    cli_groups groups = {0};
    (void)state;
    add(&groups, "\1.\1.3.\1", "[2]");
    add(&groups, "", "[2]");
    assert_true(cli_groups_finish(&groups));
    assert_int_equal(groups.count, 2);
    expect_group(&groups, 0, "", 1);
    cli_groups_free(&groups);
}

/* ---- tables ---- */

static void table_row(void *user, int64_t i, const char *cells[CLI_MAX_COLUMNS])
{
    static const char *const rows[2][3] = {{"a", "10", "x"}, {"long\n", "7", "yy"}};
    (void)user;
    memcpy(cells, rows[i], sizeof rows[i]);
}

static void test_columns(void **state)
{
    cli_columns columns = {3, {"NAME", "N", "WHY"}, "lrl", table_row, NULL};
    (void)state;
    open_out();
    cli_columns_print(out, &columns, 2);
    expect("NAME       N  WHY\na         10  x\nlong\\x0A   7  yy\n");
}

static void test_shapes(void **state)
{
    char shown[CLI_SHAPE_TEXT];
    static const int64_t shape[100] = {INT64_MAX, 0, 3, INT64_MAX, INT64_MAX, INT64_MAX};
    (void)state;
    assert_string_equal(cli_shape_text(shown, 0, shape), "[]");
    assert_string_equal(cli_shape_text(shown, 3, shape), "[9223372036854775807,0,3]");
    cli_shape_text(shown, 100, shape);
    assert_true(strlen(shown) < sizeof shown);
    assert_string_equal(shown + strlen(shown) - 3, "..]");
}

/* ---- progress ---- */

static void test_meter_line(void **state)
{
    static const fp8_progress base = {.bytes_done = 500, .bytes_total = 4000000, .seconds = 1};
    static const fp8_progress now = {.bytes_done = 2000500,
                                     .bytes_total = 4000500,
                                     .seconds = 3,
                                     .tensor = "model.layers.3.mlp.up_proj.weight",
                                     .tensor_bytes = 33};
    char line[256];
    size_t name;
    (void)state;
    cli_meter_line(line, sizeof line, 200, &base, &now, &name);
    assert_string_equal(
        line, " 50%  2.00 MB of 4.00 MB  1.00 MB/s  0:02 left  model.layers.3.mlp.up_proj.weight");
    assert_string_equal(line + name, "model.layers.3.mlp.up_proj.weight");
    for (size_t width = 0; width < 100; width++) {
        cli_meter_line(line, sizeof line, width, &base, &now, &name);
        assert_true(strlen(line) <= width);
        assert_true(name <= strlen(line));
    }
}

static void test_meter_edges(void **state)
{
    static const fp8_progress zero = {0};
    char line[256];
    size_t name;
    (void)state;
    cli_meter_line(line, sizeof line, 200, &zero, &zero, &name);
    assert_string_equal(line, "100%  0 B of 0 B  0 B/s  -:-- left  ");
    fp8_progress now = {.bytes_done = 1,
                        .bytes_total = UINT64_MAX,
                        .seconds = 1e-9,
                        .tensor = "\x1b\0z",
                        .tensor_bytes = 3};
    cli_meter_line(line, sizeof line, 200, &zero, &now, &name);
    assert_non_null(strstr(line, "\\x1B\\x00z")); /* a NUL does not end a name */
    assert_null(strchr(line, 0x1b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal),      cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_json_document), cmocka_unit_test(test_fit),
        cmocka_unit_test(test_nearest),       cmocka_unit_test(test_groups),
        cmocka_unit_test(test_many_groups),   cmocka_unit_test(test_hostile_group_names),
        cmocka_unit_test(test_columns),       cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_meter_line),    cmocka_unit_test(test_meter_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
