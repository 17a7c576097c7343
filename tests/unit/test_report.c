/* SPDX-License-Identifier: Apache-2.0
 *
 * test_report.c - the report of a conversion, as a page and as JSON: complete, self-contained,
 * escaped, and of the same numbers as fp8_verify finds; and a page whose writing fails. */
#include "ckpt/json.h"
#include "convert/page.h"
#include "support/checkpoint_edit.h"
#include "support/context_fixture.h"
#include "support/meter.h"
#include "support/sandbox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

#define SOURCE "tests/golden/checkpoints/llama_untied_bf16"

static const char evil[] = "model.<script>alert('1')</script>&\"é.weight";

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

static fp8_status convert(const fp8_context *ctx, const char *src, const char *dst,
                          const char *report, fp8_error *err)
{
    fp8_convert_desc desc = FP8_CONVERT_DESC_INIT;
    fp8_convert *conv;
    desc.src = src;
    desc.dst = dst;
    desc.report = report;
    desc.scheme = "ct-channel";
    fp8_status status = fp8_convert_plan(ctx, &desc, &conv, err);
    if (status != FP8_OK)
        return status;
    status = fp8_convert_run(conv, NULL, NULL, err);
    fp8_convert_free(conv);
    return status;
}

/* Converts a checkpoint with a tensor of a wicked name and returns the report's text. */
static char *report_text(const fp8_context *ctx, const char *file)
{
    fp8_error err = {.msg = ""};
    edit_model *model = edit_load(ctx, SOURCE, 1);
    strcpy(edit_copy(model, "model.norm.weight", "x")->name, evil);
    sandbox_make();
    assert_int_equal(mkdir(sandbox_path("src"), 0777), 0);
    edit_save(ctx, model, sandbox_path("src"));
    edit_free(model);
    if (convert(ctx, sandbox_path("src"), sandbox_path("dst"), sandbox_path(file), &err) != FP8_OK)
        fail_msg("%s", err.msg);
    return read_text(sandbox_path(file));
}

static int occurrences(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

static void page_is_whole_and_escaped(void **state)
{
    static const char *const outside[] = {"http", "src=", "href", "@import", "url("};
    char *text = report_text(*state, "report.html");
    assert_int_equal(strncmp(text, "<!doctype html>", 15), 0);
    assert_non_null(strstr(text, "</html>"));
    assert_int_equal(occurrences(text, "<tr>"), 1 + 22);
    assert_int_equal(occurrences(text, "<svg"), 2);
    assert_int_equal(occurrences(text, "</svg>"), 2);
    assert_int_equal(occurrences(text, "<script"), 0);
    assert_int_equal(occurrences(text, "model.&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;"
                                       "&quot;é.weight"),
                     1);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_int_equal(occurrences(text, outside[i]), 0);
    assert_int_equal(occurrences(text, "nan"), 0);
    assert_int_equal(occurrences(text, "in 1 file<"), 1);
    free(text);
    sandbox_remove();
}

/* The number after the first "key": in the text. */
static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return atof(at + strlen(key));
}

static void json_has_the_same_facts(void **state)
{
    fp8_json j;
    fp8_span all;
    fp8_error err;
    fp8_verify_summary sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    char *text = report_text(*state, "report.json");
    fp8_json_open(&j, text, strlen(text));
    assert_int_equal(fp8_json_skip(&j, &all, &err), FP8_OK);
    assert_int_equal(fp8_json_end(&j, &err), FP8_OK);
    assert_int_equal(occurrences(text, "{\"name\": "), 22);
    assert_int_equal(occurrences(text, "\"model.<script>alert('1')</script>&\\\"é.weight\""), 1);
    desc.path = sandbox_path("dst");
    desc.against = sandbox_path("src");
    assert_int_equal(fp8_verify(*state, &desc, NULL, NULL, &sum, &err), FP8_OK);
    assert_int_equal(sum.errors, 0);
    assert_true(fabs(number_after(text, "\"sqnr_db_min\": ") - sum.worst_sqnr_db) < 1e-6);
    assert_true(fabs(number_after(text, "\"sqnr_db_median\": ") - sum.median_sqnr_db) < 1e-6);
    assert_int_equal(number_after(text, "\"encoded_tensors\": "), sum.quantized);
    assert_int_equal(number_after(text, "\"encoded_elements\": "), 245760);
    free(text);
    sandbox_remove();
}

/* Text as both forms of the report show it, on a line each. */
static void shows(const fp8_context *ctx, const char *text, const char *wanted)
{
    fp8_page page;
    fp8_page_open(&page, ctx, sandbox_path("page"));
    fp8_page_html(&page, text);
    fp8_page_put(&page, "\n");
    fp8_page_json(&page, text);
    assert_int_equal(fp8_page_close(&page, NULL), FP8_OK);
    char *found = read_text(sandbox_path("page"));
    assert_string_equal(found, wanted);
    free(found);
}

static void any_bytes_make_a_legal_page(void **state)
{
    sandbox_make();
    shows(*state, "a<b>&'\"", "a&lt;b&gt;&amp;&#39;&quot;\n\"a<b>&'\\\"\"");
    shows(*state, "\t\x01\x7f", "\\x09\\x01\\x7F\n\"\\t\\u0001\x7f\"");
    shows(*state, "é日😀", "é日😀\n\"é日😀\"");
    shows(*state, "\xc2\x85\xe2\x80\xae\xef\xbf\xbe\xf0\x9f\xbf\xbf",
          "\\u{0085}\\u{202E}\\u{FFFE}\\u{1FFFF}\n"
          "\"\xc2\x85\xe2\x80\xae\xef\xbf\xbe\xf0\x9f\xbf\xbf\"");
    shows(*state, "a\xff\xc3", "a\\xFF\\xC3\n\"a\\ufffd\\ufffd\""); /* cut short at the end */
    shows(*state, "\xed\xa0\x80\xc0\xaf",
          "\\xED\\xA0\\x80\\xC0\\xAF\n"
          "\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\"");
    sandbox_remove();
}

static void names_and_folders_are_checked(void **state)
{
    fp8_error err;
    sandbox_make();
    assert_int_equal(convert(*state, SOURCE, sandbox_path("dst"), "report.txt", &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(
        convert(*state, SOURCE, sandbox_path("dst"), sandbox_path("none/report.html"), &err),
        FP8_E_IO);
    assert_int_not_equal(access(sandbox_path("dst"), F_OK), 0);
    sandbox_remove();
}

/* A page of more than one buffer, written where `arg` says. */
static fp8_status write_page(const fp8_context *ctx, void *arg)
{
    fp8_page page;
    fp8_page_open(&page, ctx, arg);
    for (int i = 0; i < 20000; i++)
        fp8_page_print(&page, "%d %.1f\n", i, 0.5);
    fp8_page_json_number(&page, NAN);
    return fp8_page_close(&page, NULL);
}

static void pages_may_fail(void **state)
{
    sandbox_make();
    char *path = strdup(sandbox_path("page"));
    assert_int_equal(meter_try(write_page, path), 2);
    char *text = read_text(path);
    assert_non_null(strstr(text, "19999 0.5\nnull"));
    assert_int_equal(write_page(*state, (void *)(uintptr_t) "/dev/full"), FP8_E_NO_SPACE);
    free(text);
    free(path);
    sandbox_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_is_whole_and_escaped),
        cmocka_unit_test(json_has_the_same_facts),
        cmocka_unit_test(any_bytes_make_a_legal_page),
        cmocka_unit_test(names_and_folders_are_checked),
        cmocka_unit_test(pages_may_fail),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
