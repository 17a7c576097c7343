/* SPDX-License-Identifier: Apache-2.0
 *
 * test_st_layout.c - what the writer of safetensors headers lays out reads back; what is impossible
 * is refused; memory that runs out at every place. */
#include "ckpt/safetensors.h"
#include "support/context_fixture.h"
#include "support/counted_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

/* Parses a copy of json, which the header keeps. */
static fp8_status parse(const fp8_context *ctx, const char *json, uint64_t bytes,
                        uint64_t data_bytes, fp8_st_header *out, fp8_error *err)
{
    char *copy = ctx->allocator.alloc(ctx->allocator.user, bytes);
    assert_non_null(copy);
    memcpy(copy, json, bytes);
    return fp8_st_parse(ctx, copy, bytes, data_bytes, "f", out, err);
}

/* Tensors of an array, and the places that they got. */
typedef struct array {
    const fp8_st_tensor *tensors;
    uint64_t begin[40], bytes[40];
} array;

static fp8_st_tensor array_tensor(void *owner, int64_t i)
{
    return ((const array *)owner)->tensors[i];
}

static void array_place(void *owner, int64_t i, uint64_t begin, uint64_t bytes)
{
    ((array *)owner)->begin[i] = begin;
    ((array *)owner)->bytes[i] = bytes;
}

/* Lays out and makes the head, which fp8_release frees; NULL after an error. */
static fp8_status lay_out(const fp8_context *c, array *a, int64_t n, const char *metadata,
                          char **head, uint64_t *head_bytes, uint64_t *data_bytes, fp8_error *err)
{
    fp8_st_list list = {n, array_tensor, array_place, a, metadata};
    fp8_text text = {.ctx = c};
    uint64_t bytes;
    *head = NULL;
    fp8_status status = fp8_st_layout(c, &list, head_bytes, data_bytes, err);
    if (status != FP8_OK)
        return status;
    fp8_st_put_head(&list, *head_bytes, &text);
    status = fp8_text_finish(&text, head, &bytes, err);
    if (status == FP8_OK)
        assert_int_equal(bytes, *head_bytes);
    return status;
}

static const int64_t shape_2x3[] = {2, 3}, shape_0[] = {0}, shape_huge[] = {INT64_MAX, 2};
static const int64_t shape_negative[] = {-1}, shape_5[] = {5};

static void what_is_laid_out_reads_back(void **state)
{
    const fp8_context *ctx = *state;
    fp8_st_tensor tensors[] = {
        {"a.weight", 8, FP8_F32, 2, shape_2x3},
        {"quote\" and \n and \0 nul", 22, FP8_E4M3FN, 1, shape_5},
        {"", 0, FP8_BF16, 0, NULL},
        {"empty", 5, FP8_I64, 1, shape_0},
    };
    array a = {.tensors = tensors};
    char *head;
    uint64_t head_bytes, data_bytes;
    fp8_error err;
    fp8_st_header h;
    assert_int_equal(lay_out(ctx, &a, 4, NULL, &head, &head_bytes, &data_bytes, &err), FP8_OK);
    assert_int_equal(data_bytes, 24 + 5 + 2);
    assert_int_equal(head_bytes % 8, 0);
    assert_int_equal(a.begin[1], 24);
    assert_int_equal(a.bytes[2], 2);
    uint64_t length = 0;
    for (int i = 8; i-- > 0;)
        length = length << 8 | (unsigned char)head[i];
    assert_int_equal(length, head_bytes - 8);
    if (parse(ctx, head + 8, length, data_bytes, &h, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(h.count, 4);
    assert_int_equal(h.data_offset, head_bytes);
    assert_string_equal(h.metadata, "{\"format\":\"pt\"}");
    for (int i = 0; i < 4; i++) {
        const fp8_st_entry *e = &h.entries[i];
        const fp8_st_tensor *t = &tensors[i];
        assert_int_equal(e->name_bytes, t->name_bytes);
        assert_memory_equal(h.names + e->name, t->name, t->name_bytes);
        assert_int_equal(e->dtype, t->dtype);
        assert_int_equal(e->ndim, t->ndim);
        assert_int_equal(e->begin, a.begin[i]);
        assert_int_equal(e->end, a.begin[i] + a.bytes[i]);
    }
    fp8_st_free(ctx, &h);
    fp8_release(ctx, head);
}

static void metadata_is_written_as_given(void **state)
{
    const fp8_context *ctx = *state;
    array a = {.tensors = NULL};
    char *head;
    uint64_t head_bytes, data_bytes;
    fp8_st_header h;
    assert_int_equal(lay_out(ctx, &a, 0, "{\"a\":\"b\"}", &head, &head_bytes, &data_bytes, NULL),
                     FP8_OK);
    assert_int_equal(parse(ctx, head + 8, head_bytes - 8, 0, &h, NULL), FP8_OK);
    assert_string_equal(h.metadata, "{\"a\":\"b\"}");
    fp8_st_free(ctx, &h);
    fp8_release(ctx, head);
}

static void impossible_layouts_are_refused(void **state)
{
    const fp8_context *ctx = *state;
    static const struct {
        fp8_st_tensor tensors[2];
        const char *message;
    } cases[] = {
        {{{"a", 1, FP8_U8, 0, NULL}, {"a", 1, FP8_U8, 0, NULL}}, "tensor 'a' would be there twice"},
        {{{"__metadata__", 12, FP8_U8, 0, NULL}, {"a", 1, FP8_U8, 0, NULL}},
         "must not be called __metadata__"},
        {{{"a", 1, FP8_F32, 2, shape_huge}, {"b", 1, FP8_U8, 0, NULL}},
         "tensor 'a': size 9223372036854775807 of the shape is negative or overflows"},
        {{{"a", 1, FP8_F32, 1, shape_negative}, {"b", 1, FP8_U8, 0, NULL}}, "size -1 of the shape"},
        {{{"a", 1, FP8_F4, 1, shape_5}, {"b", 1, FP8_U8, 0, NULL}},
         "20 bits of F4 do not end on a byte"},
        {{{"a", 1, FP8_DTYPE_NONE, 0, NULL}, {"b", 1, FP8_U8, 0, NULL}}, "dtype 0 is none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        array a = {.tensors = cases[i].tensors};
        char *head;
        uint64_t head_bytes, data_bytes;
        fp8_error err;
        assert_int_equal(lay_out(ctx, &a, 2, NULL, &head, &head_bytes, &data_bytes, &err),
                         FP8_E_ARGUMENT);
        if (!strstr(err.msg, cases[i].message))
            fail_msg("%s; must be %s", err.msg, cases[i].message);
    }
}

/* Together the tensors would end past 2^63 bytes; each of them is 2^58 bytes or so. */
static void data_past_all_files_is_refused(void **state)
{
    const fp8_context *ctx = *state;
    enum { N = 33 };
    static const int64_t shape[] = {(INT64_C(1) << 60)};
    fp8_st_tensor tensors[N];
    array a = {.tensors = tensors};
    char names[N];
    for (int i = 0; i < N; i++) {
        names[i] = (char)('A' + i);
        tensors[i] = (fp8_st_tensor){&names[i], 1, FP8_U8, 1, shape};
    }
    char *head;
    uint64_t head_bytes, data_bytes;
    fp8_error err;
    assert_int_equal(lay_out(ctx, &a, N, NULL, &head, &head_bytes, &data_bytes, &err),
                     FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "past byte 2^63"));
}

static void a_header_over_the_limit_is_not_written(void **state)
{
    const fp8_context *ctx = *state;
    enum { LENGTH = 60000000 };
    char *name = malloc(LENGTH);
    assert_non_null(name);
    memset(name, '"', LENGTH); /* two bytes each in JSON */
    fp8_st_tensor tensor = {name, LENGTH, FP8_U8, 0, NULL};
    array a = {.tensors = &tensor};
    char *head;
    uint64_t head_bytes, data_bytes;
    fp8_error err;
    assert_int_equal(lay_out(ctx, &a, 1, NULL, &head, &head_bytes, &data_bytes, &err),
                     FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "must be at most 100000000: use more shards"));
    free(name);
}

/* Takes a text into memory, and fails once it has `room` bytes. */
typedef struct tank {
    char *text;
    uint64_t bytes, room, pieces;
} tank;

static fp8_status to_tank(void *user, const char *text, uint64_t bytes, fp8_error *err)
{
    tank *t = user;
    if (bytes > t->room - t->bytes)
        return fp8_fail(err, FP8_E_NO_SPACE, "full at byte %d", (int)t->bytes);
    memcpy(t->text + t->bytes, text, bytes);
    t->bytes += bytes;
    t->pieces++;
    return FP8_OK;
}

/* A header that goes through the buffer in pieces, one of them a name longer than the buffer. */
static void a_header_may_be_passed_on_in_pieces(void **state)
{
    const fp8_context *ctx = *state;
    enum { N = 40, LENGTH = 20000 };
    char *name = malloc(N * LENGTH), *whole;
    fp8_st_tensor tensors[N];
    array a = {.tensors = tensors};
    uint64_t head_bytes, data_bytes;
    fp8_error err;
    assert_non_null(name);
    memset(name, 'n', N * LENGTH);
    for (int i = 0; i < N; i++)
        tensors[i] = (fp8_st_tensor){name, i < N - 1 ? LENGTH - (uint64_t)i : N * LENGTH, FP8_F32,
                                     2, shape_2x3};
    assert_int_equal(lay_out(ctx, &a, N, NULL, &whole, &head_bytes, &data_bytes, &err), FP8_OK);
    fp8_st_list list = {N, array_tensor, array_place, &a, NULL};
    for (int fits = 1; fits >= 0; fits--) {
        tank t = {malloc(head_bytes), 0, head_bytes - !fits, 0};
        fp8_text text = {.ctx = ctx, .drain = to_tank, .user = &t};
        assert_non_null(t.text);
        fp8_st_put_head(&list, head_bytes, &text);
        assert_int_equal(fp8_text_close(&text, &err), fits ? FP8_OK : FP8_E_NO_SPACE);
        assert_memory_equal(t.text, whole, t.bytes);
        assert_true(t.pieces > 5);
        if (fits)
            assert_int_equal(t.bytes, head_bytes);
        else
            assert_non_null(strstr(err.msg, "full at byte"));
        free(t.text);
    }
    fp8_release(ctx, whole);
    free(name);
}

static fp8_status lay_out_and_free(const fp8_context *c)
{
    fp8_st_tensor tensors[] = {{"a", 1, FP8_U8, 0, NULL}, {"b", 1, FP8_U8, 0, NULL}};
    array a = {.tensors = tensors};
    char *head = NULL;
    uint64_t head_bytes, data_bytes;
    fp8_error err;
    fp8_status status = lay_out(c, &a, 2, NULL, &head, &head_bytes, &data_bytes, &err);
    fp8_release(c, head);
    return status;
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    for (int64_t n = 1;; n++) {
        counted_alloc a = {.fail_at = n};
        fp8_context *c = counted_context(&a);
        const fp8_status status = lay_out_and_free(c);
        fp8_context_free(c);
        assert_int_equal(a.live, 0);
        if (a.calls < n) {
            assert_int_equal(status, FP8_OK);
            assert_true(n > 2);
            return;
        }
        assert_int_equal(status, FP8_E_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_laid_out_reads_back),
        cmocka_unit_test(metadata_is_written_as_given),
        cmocka_unit_test(impossible_layouts_are_refused),
        cmocka_unit_test(data_past_all_files_is_refused),
        cmocka_unit_test(a_header_over_the_limit_is_not_written),
        cmocka_unit_test(a_header_may_be_passed_on_in_pieces),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
