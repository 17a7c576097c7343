/* SPDX-License-Identifier: Apache-2.0
 *
 * test_safetensors.c - each rule of the header with its message and position; memory that runs out
 * at every place; the largest header. */
#include "ckpt/safetensors.h"
#include "support/counted_alloc.h"
#include "support/sandbox.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static fp8_context *ctx;

static int make_context(void **state)
{
    (void)state;
    sandbox_make();
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static int free_context(void **state)
{
    (void)state;
    sandbox_remove();
    fp8_context_free(ctx);
    return 0;
}

/* Parses a copy of json, which ends where its block ends. */
static fp8_status parse_with(const fp8_context *c, const char *json, uint64_t bytes,
                             uint64_t data_bytes, fp8_st_header *out, fp8_error *err)
{
    *out = (fp8_st_header){0};
    fp8_allocator a = c->allocator;
    char *copy = a.alloc(a.user, bytes ? bytes : 1);
    if (!copy)
        return FP8_E_NO_MEMORY;
    memcpy(copy, json, bytes);
    return fp8_st_parse(c, copy, bytes, data_bytes, "f", out, err);
}

#define ENTRY(dtype, shape, offsets) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define F32_4 ENTRY("F32", "[4]", "[0,16]")

static void rules_have_messages_and_positions(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        uint64_t data;
        fp8_status status;
        int64_t pos; /* in the file */
        const char *message;
    } rules[] = {
        {"", 0, FP8_E_FORMAT, -1, "f: the header is empty"},
        {" {}", 0, FP8_E_FORMAT, 8, "first byte is 0x20, must be '{'"},
        {"{}x", 0, FP8_E_FORMAT, 10, "text after the end"},
        {"{\"a\":1}", 0, FP8_E_FORMAT, 13, "tensor 'a': JSON byte 5: a number, must be an object"},
        {"{\"a\":{}}", 0, FP8_E_FORMAT, 10, "tensor 'a': dtype is missing"},
        {"{\"a\":{\"dtype\":\"F32\"}}", 0, FP8_E_FORMAT, 10, "tensor 'a': shape is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, FP8_E_FORMAT, 10,
         "tensor 'a': data_offsets is missing"},
        {"{\"a\":" ENTRY("F31", "[4]", "[0,16]") "}", 16, FP8_E_FORMAT, 10,
         "dtype: 'F31' is no dtype of the format"},
        {"{\"a\":" ENTRY("F32\\u0000", "[4]", "[0,16]") "}", 16, FP8_E_FORMAT, 10, "is no dtype"},
        {"{\"a\":" ENTRY("a long name that is no dtype at all", "[4]", "[0,16]") "}", 16,
         FP8_E_FORMAT, 10, "is no dtype"},
        {"{\"a\":" ENTRY("F32", "[-4]", "[0,16]") "}", 16, FP8_E_FORMAT, 37,
         "shape: JSON byte 29: -4, must be an integer"},
        {"{\"a\":" ENTRY("F32", "4", "[0,16]") "}", 16, FP8_E_FORMAT, 36,
         "shape: JSON byte 28: a number, must be an array"},
        {"{\"a\":" ENTRY("F32", "[4]", "[0]") "}", 16, FP8_E_FORMAT, 10,
         "data_offsets: 1 of two offsets"},
        {"{\"a\":" ENTRY("F32", "[4]", "[]") "}", 16, FP8_E_FORMAT, 10,
         "data_offsets: 0 of two offsets"},
        {"{\"a\":" ENTRY("F32", "[4]", "[0,16,16]") "}", 16, FP8_E_FORMAT, 10,
         "data_offsets: more than two offsets"},
        {"{\"a\":" ENTRY("F32", "[4]", "[16,0]") "}", 16, FP8_E_FORMAT, 10,
         "begin 16 lies after end 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, FP8_E_FORMAT, 10,
         "dtype is given twice"},
        {"{\"a\":" ENTRY("F32", "[4294967296,4294967296]", "[0,16]") "}", 16, FP8_E_FORMAT, 10,
         "overflows 64 bits at size 4294967296"},
        {"{\"a\":" ENTRY("F4", "[3]", "[0,1]") "}", 1, FP8_E_FORMAT, 10,
         "12 bits of F4 do not end on a byte"},
        {"{\"a\":" ENTRY("BF16", "[4]", "[0,16]") "}", 16, FP8_E_FORMAT, 10,
         "shape and BF16 make 8 bytes, data_offsets hold 16"},
        {"{\"a\":" F32_4 ",\"\\u0061\":" ENTRY("F32", "[4]", "[16,32]") "}", 32, FP8_E_FORMAT, -1,
         "tensor 'a' is there twice"},
        {"{\"a\":" ENTRY("F32", "[4]", "[8,24]") "}", 24, FP8_E_FORMAT, 63,
         "tensor 'a' begins at byte 8 of the data, leaving a hole from 0"},
        {"{\"a\":" F32_4 ",\"b\":" ENTRY("F32", "[4]", "[8,24]") "}", 24, FP8_E_FORMAT, 125,
         "tensor 'b' begins at byte 8 of the data, overlapping the one that ends at 16"},
        {"{\"a\":" F32_4 "}", 15, FP8_E_TRUNCATED, 78, "need 16 bytes of data, the file has 15"},
        {"{\"a\":" F32_4 "}", 19, FP8_E_FORMAT, 79, "3 bytes after the last tensor"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, FP8_E_FORMAT, 28,
         "f: __metadata__: it is given twice"},
        {"{\"__metadata__\":[]}", 0, FP8_E_FORMAT, 24, "__metadata__: JSON byte 16: an array"},
        {"{\"__metadata__\":{\"k\":1}}", 0, FP8_E_FORMAT, 29,
         "__metadata__: key 'k': JSON byte 21: a number, must be a string"},
        {"{\"__metadata__\":{\"k\":\"\",\"\\u006b\":\"\"}}", 0, FP8_E_FORMAT, -1,
         "__metadata__: key 'k' is given twice"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        fp8_error err = {0};
        fp8_st_header h;
        fp8_status status =
            parse_with(ctx, rules[i].json, strlen(rules[i].json), rules[i].data, &h, &err);
        if (status != rules[i].status || err.pos != rules[i].pos ||
            !strstr(err.msg, rules[i].message))
            fail_msg("%s: %s at %lld: %s; must be at %lld: %s", rules[i].json,
                     fp8_status_name(status), (long long)err.pos, err.msg, (long long)rules[i].pos,
                     rules[i].message);
        assert_null(h.entries);
    }
}

static void a_header_is_read(void **state)
{
    (void)state;
    static const char json[] = "{\"b\":" ENTRY("F32", "[2,2]", "[4,20]") ",\"z\":" ENTRY(
        "F32", "[0,7]",
        "[4,4]") ",\"__metadata__\":{\"format\":\"pt\"},\"\\u0061\\u0000c\":{\"data_offsets\":[0,4]"
                 ","
                 "\"unknown\":[{\"x\":1}],\"shape\":[],\"dtype\":\"F\\u00332\"}}   ";
    fp8_st_header h;
    fp8_error err;
    if (parse_with(ctx, json, sizeof json - 1, 20, &h, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(h.count, 3);
    assert_int_equal(h.data_offset, 8 + sizeof json - 1);
    assert_string_equal(h.metadata, "{\"format\":\"pt\"}");
    assert_int_equal(h.entries[0].ndim, 0);
    assert_int_equal(h.entries[0].name_bytes, 3);
    assert_memory_equal(h.names + h.entries[0].name, "a\0c", 4);
    assert_string_equal(h.names + h.entries[1].name, "z");
    assert_int_equal(h.entries[1].end, 4);
    assert_string_equal(h.names + h.entries[2].name, "b");
    assert_int_equal(h.entries[2].dtype, FP8_F32);
    assert_int_equal(h.shapes[h.entries[2].shape + 1], 2);
    fp8_st_free(ctx, &h);
    fp8_st_free(ctx, &h);
}

/* Tensors in any order in the header come out in the order of the data. */
static void entries_are_sorted(void **state)
{
    (void)state;
    enum { N = 500 };
    static char json[64 * N];
    char *end = json + sprintf(json, "{");
    for (int i = 0; i < N; i++) {
        int at = i * 271 % N;
        end += sprintf(end, "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
                       i ? "," : "", at, at, at + 1);
    }
    end += sprintf(end, "}");
    fp8_st_header h;
    fp8_error err;
    if (parse_with(ctx, json, (uint64_t)(end - json), N, &h, &err))
        fail_msg("%s", err.msg);
    for (int i = 0; i < N; i++) {
        assert_int_equal(h.entries[i].begin, i);
        assert_int_equal(atoi(h.names + h.entries[i].name), i);
    }
    fp8_st_free(ctx, &h);
}

static void too_many_dimensions_are_unsupported(void **state)
{
    (void)state;
    enum { DIMS = 65536 };
    char *json = malloc(2 * DIMS + 200), *end = json;
    assert_non_null(json);
    end += sprintf(end, "{\"a\":{\"dtype\":\"U8\",\"shape\":[");
    for (int i = 0; i < DIMS; i++)
        end += sprintf(end, "1,");
    end += sprintf(end - 1, "],\"data_offsets\":[0,1]}}") - 1;
    fp8_st_header h;
    fp8_error err;
    assert_int_equal(parse_with(ctx, json, (uint64_t)(end - json), 1, &h, &err), FP8_E_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "more than 65535 sizes"));
    free(json);
}

/* ---- files ---- */

static fp8_status read_file(const char *name, fp8_st_header *h, fp8_error *err)
{
    int fd = open(sandbox_path(name), O_RDONLY);
    assert_true(fd >= 0);
    fp8_status status = fp8_st_read(ctx, fd, name, h, err);
    close(fd);
    return status;
}

static void other_formats_are_called_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *start, *word;
    } formats[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "Git LFS pointer"},
        {"PK\3\4 and so on", "zip archive"},
        {"\x80\2}q\1 and so on", "Python pickle"},
        {"\x80\4\x95 and so on", "Python pickle"},
        {"GGUF\3 and so on", "GGUF"},
        {"<!doctype html><title>404</title>", "HTML page"},
        {"<html><body>", "HTML page"},
        {"\x89HDF\r\n\x1a\n", "HDF5"},
        {"\x93NUMPY\1 and so on", "NumPy"},
        {"\x1f\x8b\x08 and so on", "gzip"},
        {"{\"weight_map\": {}}", "JSON text"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        fp8_st_header h;
        fp8_error err;
        sandbox_text("foreign", formats[i].start);
        assert_int_equal(read_file("foreign", &h, &err), FP8_E_FORMAT);
        if (!strstr(err.msg, "not a safetensors file, but") || !strstr(err.msg, formats[i].word))
            fail_msg("%s", err.msg);
    }
}

/* A header of 123 bytes starts with '{', the low byte of its length: still no JSON text. */
static void a_length_may_look_like_another_format(void **state)
{
    (void)state;
    char json[124];
    memset(json, ' ', 123);
    json[0] = '{';
    json[1] = '}';
    json[123] = 0;
    fp8_st_header h;
    fp8_error err;
    sandbox_safetensors("123", json, 0);
    if (read_file("123", &h, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(h.count, 0);
    assert_null(h.metadata);
    fp8_st_free(ctx, &h);
}

static void lengths_are_checked_against_the_file(void **state)
{
    (void)state;
    fp8_st_header h;
    fp8_error err;
    sandbox_write("x", "", 0);
    assert_int_equal(read_file("x", &h, &err), FP8_E_TRUNCATED);
    assert_string_equal(err.msg, "x: the file is empty");
    sandbox_write("x", "1234567", 7);
    assert_int_equal(read_file("x", &h, &err), FP8_E_TRUNCATED);
    assert_non_null(strstr(err.msg, "the file has 7 bytes, must have at least 8"));
    sandbox_write("x", "\x40\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(read_file("x", &h, &err), FP8_E_TRUNCATED);
    assert_non_null(strstr(err.msg, "the header's 64 bytes end past the file's 10"));
    sandbox_write("x", "\x01\xe1\xf5\5\0\0\0\0{}", 10);
    assert_int_equal(read_file("x", &h, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "length is 100000001, must be at most 100000000"));
    assert_int_equal(fp8_st_read(ctx, -1, "y", &h, &err), FP8_E_IO);
    assert_int_equal(err.os_errno, 9);
}

/* ---- memory ---- */

static fp8_status parse_and_free(const fp8_context *c)
{
    static const char json[] = "{\"__metadata__\":{\"a\":\"b\",\"c\":\"d\"},\"x\":" F32_4
                               ",\"y\":" ENTRY("U8", "[]", "[16,17]") "}";
    fp8_st_header h;
    fp8_error err;
    fp8_status status = parse_with(c, json, sizeof json - 1, 17, &h, &err);
    fp8_st_free(c, &h);
    return status;
}

static fp8_status read_and_free(const fp8_context *c)
{
    fp8_st_header h;
    int fd = open(sandbox_path("memory"), O_RDONLY);
    fp8_status status = fp8_st_read(c, fd, "memory", &h, NULL);
    close(fd);
    fp8_st_free(c, &h);
    return status;
}

static void fail_every_allocation(fp8_status (*f)(const fp8_context *c), int64_t at_least)
{
    for (int64_t n = 1;; n++) {
        counted_alloc a = {.fail_at = n};
        fp8_context *c = counted_context(&a);
        fp8_status status = f(c);
        fp8_context_free(c);
        assert_int_equal(a.live, 0);
        if (a.calls < n) {
            assert_int_equal(status, FP8_OK);
            assert_true(n > at_least);
            return;
        }
        assert_int_equal(status, FP8_E_NO_MEMORY);
    }
}

static void no_memory_is_an_error_everywhere(void **state)
{
    (void)state;
    sandbox_safetensors("memory", "{\"a\":" F32_4 "}", 16);
    fail_every_allocation(parse_and_free, 8);
    fail_every_allocation(read_and_free, 5);
}

/* The longest legal header, full of the shortest tensors: 1.8 million of them. All that the reader
 * ever holds stays under 200 MiB. */
static void the_largest_header_fits_in_memory(void **state)
{
    (void)state;
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    counted_alloc a = {0};
    fp8_context *c = counted_context(&a);
    char *json = c->allocator.alloc(&a, FP8_ST_MAX_HEADER), *end = json;
    assert_non_null(json);
    *end++ = '{';
    int64_t count = 0;
    for (; end - json < FP8_ST_MAX_HEADER - 64; count++) {
        char name[8], *p = name + 7;
        *p = 0;
        for (int64_t i = count + 1; i > 0; i /= 36)
            *--p = digits[i % 36];
        end = stpcpy(stpcpy(stpcpy(end, count ? ",\"" : "\""), p),
                     "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
    }
    *end++ = '}';
    memset(end, ' ', (size_t)(json + FP8_ST_MAX_HEADER - end));
    fp8_st_header h;
    fp8_error err;
    if (fp8_st_parse(c, json, FP8_ST_MAX_HEADER, 0, "largest", &h, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(h.count, count);
    printf("%lld tensors, peak %.1f MiB\n", (long long)count, (double)a.peak_bytes / 1048576);
    assert_true(a.peak_bytes < 200u << 20);
    fp8_st_free(c, &h);
    fp8_context_free(c);
    assert_int_equal(a.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_have_messages_and_positions),
        cmocka_unit_test(a_header_is_read),
        cmocka_unit_test(entries_are_sorted),
        cmocka_unit_test(too_many_dimensions_are_unsupported),
        cmocka_unit_test(other_formats_are_called_by_name),
        cmocka_unit_test(a_length_may_look_like_another_format),
        cmocka_unit_test(lengths_are_checked_against_the_file),
        cmocka_unit_test(no_memory_is_an_error_everywhere),
        cmocka_unit_test(the_largest_header_fits_in_memory),
    };
    return cmocka_run_group_tests(tests, make_context, free_context);
}
