/* SPDX-License-Identifier: Apache-2.0
 *
 * test_json.c - the scanner: what it gives, and for each rule a text that breaks it, with the
 * position of the bad byte. */
#include "ckpt/json.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static fp8_status scan_all(const char *text, uint64_t bytes, fp8_error *err)
{
    fp8_json j;
    fp8_json_open(&j, text, bytes);
    FP8_TRY(fp8_json_skip(&j, NULL, err));
    return fp8_json_end(&j, err);
}

static void good_texts_pass(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "-0",
        "-0.0e-0",
        "1E+400",
        "123456789012345678901234567890",
        "\"\"",
        "null",
        " [ ] ",
        "{}",
        "[1,[2,{\"a\":[]}],\"\\ud83d\\ude00\"]\n",
        "\t{\"a\" : true ,\r\n\"b\":false, \"\":{}}",
        "\"\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\"",
        "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf plain text of more than eight bytes\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uABCD\\uabcd\"",
        "\"eight by\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fp8_error err;
        if (scan_all(texts[i], strlen(texts[i]), &err) != FP8_OK)
            fail_msg("%s: %s", texts[i], err.msg);
    }
}

typedef struct bad_text {
    const char *text;
    int64_t pos;
    const char *rule;
} bad_text;

static void check_bad(const bad_text *t, uint64_t bytes)
{
    fp8_error err = {0};
    fp8_status status = scan_all(t->text, bytes, &err);
    if (status != FP8_E_FORMAT || err.pos != t->pos || !strstr(err.msg, t->rule))
        fail_msg("'%s': %s at %lld: %s; must be '%s' at %lld", t->text, fp8_status_name(status),
                 (long long)err.pos, err.msg, t->rule, (long long)t->pos);
}

static void broken_texts_are_refused_where_they_break(void **state)
{
    (void)state;
    static const bad_text texts[] = {
        {"", 0, "the text ends where a value must stand"},
        {"  ", 2, "the text ends where a value must stand"},
        {"[1,", 3, "the text ends where a value must stand"},
        {"\xef\xbb\xbf{}", 0, "byte order mark"},
        {"?", 0, "no value starts with this character"},
        {"+1", 0, "no value starts"},
        {".5", 0, "no value starts"},
        {"NaN", 0, "no value starts"},
        {"-", 1, "a minus sign without a digit"},
        {"-a", 1, "a minus sign without a digit"},
        {"01", 2, "a leading zero"},
        {"-00", 3, "a leading zero"},
        {"1.", 2, "a decimal point without a digit"},
        {"1.e5", 2, "a decimal point without a digit"},
        {"1e", 2, "an exponent without a digit"},
        {"1e+", 3, "an exponent without a digit"},
        {"1 2", 2, "text after the end"},
        {"{}}", 2, "text after the end"},
        {"nul", 0, "must be true, false or null"},
        {"trug", 0, "must be true, false or null"},
        {"fals", 0, "must be true, false or null"},
        {"[1 2]", 3, "must be ',' or ']'"},
        {"[1}", 2, "must be ',' or ']'"},
        {"[1", 2, "the text ends inside an array"},
        {"[1,]", 3, "a comma before the closing bracket"},
        {"{\"a\":1,}", 7, "a comma before the closing bracket"},
        {"{\"a\":1", 6, "the text ends inside an object"},
        {"{", 1, "the text ends inside an object"},
        {"{\"a\":1 \"b\":2}", 7, "must be ',' or '}'"},
        {"{1:2}", 1, "a key must be a string"},
        {"{\"a\",1}", 4, "must be ':'"},
        {"{\"a\"", 4, "must be ':'"},
        {"\"abc", 4, "the text ends inside a string"},
        {"\"\\", 1, "the text ends inside a string"},
        {"\"a\nb\"", 2, "a control character"},
        {"\"eight bytes then \x01\"", 18, "a control character"},
        {"\"\\x\"", 1, "no such escape"},
        {"\"\\u12g4\"", 1, "4 hexadecimal digits"},
        {"\"\\u12", 1, "4 hexadecimal digits"},
        {"\"\\udc00\"", 1, "a lone low surrogate"},
        {"\"\\ud800\"", 1, "a lone high surrogate"},
        {"\"\\ud800\\u0041\"", 1, "a lone high surrogate"},
        {"\"\\ud800\\n00000\"", 1, "a lone high surrogate"},
        {"\"\x80\"", 1, "not UTF-8"},             /* a continuation alone */
        {"\"\xc0\xaf\"", 1, "not UTF-8"},         /* overlong */
        {"\"\xe0\x9f\xbf\"", 1, "not UTF-8"},     /* overlong */
        {"\"\xf0\x8f\xbf\xbf\"", 1, "not UTF-8"}, /* overlong */
        {"\"\xed\xa0\x80\"", 1, "not UTF-8"},     /* a surrogate */
        {"\"\xf4\x90\x80\x80\"", 1, "not UTF-8"}, /* above U+10FFFF */
        {"\"\xf5\x80\x80\x80\"", 1, "not UTF-8"},
        {"\"\xe2\x82\"", 1, "not UTF-8"}, /* cut short */
        {"\"\xe2\x82\x41\"", 1, "not UTF-8"},
        {"\"\xe2\x82", 1, "not UTF-8"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_bad(&texts[i], strlen(texts[i].text));
    static const bad_text nul = {"\"\\\0\"", 1, "no such escape"};
    check_bad(&nul, 4);
    static const bad_text raw_nul = {"\"\0\"", 1, "a control character"};
    check_bad(&raw_nul, 3);
}

/* Every prefix of a good text is refused, none is read past its end (the copy ends there). */
static void prefixes_are_refused(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\\u00e9\":[1.5e3,true,null,\"\xc3\xa9\\ud83d\\ude00\"],\"b\":{}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n + (n == 0));
        assert_non_null(copy);
        memcpy(copy, text, n);
        assert_int_equal(scan_all(copy, n, NULL), FP8_E_FORMAT);
        free(copy);
    }
    assert_int_equal(scan_all(text, sizeof text - 1, NULL), FP8_OK);
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    char text[2 * FP8_JSON_DEPTH + 2];
    memset(text, '[', sizeof text);
    memset(text + FP8_JSON_DEPTH, ']', FP8_JSON_DEPTH);
    assert_int_equal(scan_all(text, 2 * FP8_JSON_DEPTH, NULL), FP8_OK);
    memset(text, '[', sizeof text);
    fp8_error err;
    assert_int_equal(scan_all(text, sizeof text, &err), FP8_E_FORMAT);
    assert_int_equal(err.pos, FP8_JSON_DEPTH);
    assert_non_null(strstr(err.msg, "nested deeper than 128"));
}

static void containers_are_pulled(void **state)
{
    (void)state;
    static const char text[] = " {\"n\": [10, 20], \"t\": true, \"x\": -1.25e2, \"s\" : \"v\" }";
    fp8_json j;
    fp8_span key, value;
    int64_t n;
    double x;
    bool more;
    fp8_json_open(&j, text, sizeof text - 1);
    assert_int_equal(fp8_json_enter_object(&j, NULL), FP8_OK);
    assert_int_equal(fp8_json_next_key(&j, &key, &more, NULL), FP8_OK);
    assert_true(more && fp8_json_equals(key, "n"));
    assert_int_equal(fp8_json_enter_array(&j, NULL), FP8_OK);
    for (int64_t wanted = 10; wanted <= 20; wanted += 10) {
        assert_int_equal(fp8_json_next_item(&j, &more, NULL), FP8_OK);
        assert_true(more);
        assert_int_equal(fp8_json_u63(&j, &n, NULL), FP8_OK);
        assert_int_equal(n, wanted);
    }
    assert_int_equal(fp8_json_next_item(&j, &more, NULL), FP8_OK);
    assert_false(more);
    assert_int_equal(fp8_json_next_key(&j, &key, &more, NULL), FP8_OK);
    assert_int_equal(fp8_json_skip(&j, &value, NULL), FP8_OK);
    assert_true(fp8_json_equals(value, "true"));
    assert_int_equal(fp8_json_next_key(&j, &key, &more, NULL), FP8_OK);
    assert_int_equal(fp8_json_double(&j, &x, NULL), FP8_OK);
    assert_true(x == -125.0);
    assert_int_equal(fp8_json_next_key(&j, &key, &more, NULL), FP8_OK);
    assert_int_equal(fp8_json_skip(&j, &value, NULL), FP8_OK);
    assert_int_equal(value.bytes, 3);
    assert_memory_equal(value.text, "\"v\"", 3);
    assert_int_equal(fp8_json_next_key(&j, &key, &more, NULL), FP8_OK);
    assert_false(more);
    assert_int_equal(fp8_json_end(&j, NULL), FP8_OK);
}

static void types_must_be_as_asked(void **state)
{
    (void)state;
    fp8_json j;
    fp8_error err;
    fp8_span span;
    double x;
    fp8_json_open(&j, "[", 1);
    assert_int_equal(fp8_json_enter_object(&j, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "an array, must be an object"));
    fp8_json_open(&j, "null", 4);
    assert_int_equal(fp8_json_string(&j, &span, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "null, must be a string"));
    fp8_json_open(&j, "\"1\"", 3);
    assert_int_equal(fp8_json_double(&j, &x, &err), FP8_E_FORMAT);
    fp8_json_open(&j, "", 0);
    assert_int_equal(fp8_json_double(&j, &x, &err), FP8_E_FORMAT);
}

static void integers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value; /* -1: refused */
    } numbers[] = {
        {"0", 0},
        {"9007199254740993", 9007199254740993},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", -1},
        {"92233720368547758070", -1},
        {"-1", -1},
        {"-0", -1},
        {"1.0", -1},
        {"1e2", -1},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        fp8_json j;
        fp8_error err;
        int64_t value = -1;
        fp8_json_open(&j, numbers[i].text, strlen(numbers[i].text));
        fp8_status status = fp8_json_u63(&j, &value, &err);
        assert_int_equal(status, numbers[i].value < 0 ? FP8_E_FORMAT : FP8_OK);
        if (status == FP8_OK)
            assert_int_equal(value, numbers[i].value);
        else
            assert_non_null(strstr(err.msg, numbers[i].text));
    }
}

static void doubles_do_not_depend_on_the_locale(void **state)
{
    (void)state;
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    fp8_json j;
    double x;
    for (size_t i = 0; i < sizeof locales / sizeof *locales; i++)
        if (setlocale(LC_NUMERIC, locales[i]))
            break;
    fp8_json_open(&j, "0.1", 3);
    assert_int_equal(fp8_json_double(&j, &x, NULL), FP8_OK);
    setlocale(LC_NUMERIC, "C");
    assert_true(x == 0.1);
    fp8_json_open(&j, "1e999", 5);
    assert_int_equal(fp8_json_double(&j, &x, NULL), FP8_OK);
    assert_true(isinf(x));
    char longer[1100];
    memset(longer, '1', sizeof longer);
    fp8_error err;
    fp8_json_open(&j, longer, sizeof longer);
    assert_int_equal(fp8_json_double(&j, &x, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "more than 1023 characters"));
}

static fp8_span string_of(const char *text)
{
    fp8_json j;
    fp8_span span = {0};
    fp8_json_open(&j, text, strlen(text));
    assert_int_equal(fp8_json_string(&j, &span, NULL), FP8_OK);
    return span;
}

static void escapes_are_decoded(void **state)
{
    (void)state;
    static const char text[] =
        "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\u0000z\"";
    static const char wanted[] = "a\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0z";
    char decoded[sizeof text];
    assert_int_equal(fp8_json_unescape(string_of(text), decoded), sizeof wanted - 1);
    assert_memory_equal(decoded, wanted, sizeof wanted - 1);
    assert_true(fp8_json_equals(string_of("\"d\\u0074\\u0079pe\""), "dtype"));
    assert_true(fp8_json_equals(string_of("\"dtype\""), "dtype"));
    assert_true(fp8_json_equals(string_of("\"\\u20ac\""), "\xe2\x82\xac"));
    assert_false(fp8_json_equals(string_of("\"dtypes\""), "dtype"));
    assert_false(fp8_json_equals(string_of("\"dtyp\""), "dtype"));
    assert_false(fp8_json_equals(string_of("\"\\u0064typeX\""), "dtype"));
    assert_false(fp8_json_equals(string_of("\"\\u0064\""), "dtype"));
    assert_false(fp8_json_equals(string_of("\"a\\u0000\""), "a"));
}

static void what_is_quoted_reads_back(void **state)
{
    (void)state;
    char text[256 + 3], quoted[6 * sizeof text], back[sizeof quoted];
    for (int i = 0; i < 128; i++)
        text[i] = (char)i;
    memcpy(text + 128, "\xe2\x82\xac", 3);
    uint64_t bytes = fp8_json_quote(text, 131, NULL);
    assert_int_equal(fp8_json_quote(text, 131, quoted), bytes);
    assert_int_equal(scan_all(quoted, bytes, NULL), FP8_OK);
    fp8_span span = {quoted + 1, bytes - 2};
    assert_int_equal(fp8_json_unescape(span, back), 131);
    assert_memory_equal(back, text, 131);
}

static void long_names_are_cut_between_characters(void **state)
{
    (void)state;
    char name[300];
    memset(name, 'x', sizeof name);
    assert_int_equal(fp8_span_shown((fp8_span){name, 5}), 5);
    assert_int_equal(fp8_span_shown((fp8_span){name, sizeof name}), 160);
    memcpy(name + 158, "\xe2\x82\xac", 3);
    assert_int_equal(fp8_span_shown((fp8_span){name, sizeof name}), 158);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_pass),
        cmocka_unit_test(broken_texts_are_refused_where_they_break),
        cmocka_unit_test(prefixes_are_refused),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(containers_are_pulled),
        cmocka_unit_test(types_must_be_as_asked),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(doubles_do_not_depend_on_the_locale),
        cmocka_unit_test(escapes_are_decoded),
        cmocka_unit_test(what_is_quoted_reads_back),
        cmocka_unit_test(long_names_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
