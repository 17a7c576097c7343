/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_header.c - any bytes as a safetensors file. What is accepted covers its data without hole or
 * overlap, and can be laid out again and read back the same. */
#include "ckpt/safetensors.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static fp8_context *ctx;

static void check_cover(const fp8_st_header *h, size_t file_bytes)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < h->count; i++) {
        FUZZ_CHECK(h->entries[i].begin == end && h->entries[i].end >= end);
        end = h->entries[i].end;
    }
    FUZZ_CHECK(end == h->data_bytes && h->data_offset + end == file_bytes);
}

static void check_same(const fp8_st_header *a, const fp8_st_header *b)
{
    FUZZ_CHECK(a->count == b->count && a->data_bytes == b->data_bytes);
    for (int64_t i = 0; i < a->count; i++) {
        const fp8_st_entry *x = &a->entries[i], *y = &b->entries[i];
        FUZZ_CHECK(x->begin == y->begin && x->end == y->end && x->dtype == y->dtype);
        FUZZ_CHECK(x->ndim == y->ndim && x->name_bytes == y->name_bytes);
        FUZZ_CHECK(!memcmp(a->names + x->name, b->names + y->name, x->name_bytes));
        FUZZ_CHECK(
            !memcmp(a->shapes + x->shape, b->shapes + y->shape, x->ndim * sizeof *a->shapes));
    }
}

static fp8_st_tensor header_tensor(void *owner, int64_t i)
{
    const fp8_st_header *h = *(const fp8_st_header **)owner;
    const fp8_st_entry *e = &h->entries[i];
    return (fp8_st_tensor){h->names + e->name, e->name_bytes, (fp8_dtype)e->dtype, e->ndim,
                           h->shapes + e->shape};
}

static void check_place(void *owner, int64_t i, uint64_t begin, uint64_t bytes)
{
    const fp8_st_entry *e = &(*(const fp8_st_header **)owner)->entries[i];
    FUZZ_CHECK(e->begin == begin && e->end == begin + bytes);
}

/* Writes the header anew and reads that. */
static void check_round_trip(const fp8_st_header *h)
{
    fp8_st_list list = {h->count, header_tensor, check_place, &h, h->metadata};
    fp8_text text = {.ctx = ctx};
    char *head, *json;
    uint64_t head_bytes, data_bytes, bytes;
    fp8_st_header again;
    FUZZ_CHECK(fp8_st_layout(ctx, &list, &head_bytes, &data_bytes, NULL) == FP8_OK);
    fp8_st_put_head(&list, head_bytes, &text);
    FUZZ_CHECK(fp8_text_finish(&text, &head, &bytes, NULL) == FP8_OK && bytes == head_bytes);
    json = fp8_copy_text(ctx, head + 8, head_bytes - 8);
    FUZZ_CHECK(json);
    FUZZ_CHECK(fp8_st_parse(ctx, json, head_bytes - 8, data_bytes, "again", &again, NULL) ==
               FP8_OK);
    check_same(h, &again);
    fp8_st_free(ctx, &again);
    fp8_release(ctx, head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fp8_st_header header;
    fp8_error err;
    if (!ctx)
        FUZZ_CHECK(fp8_context_create(NULL, &ctx, NULL) == FP8_OK);
    int fd = memfd_create("header", 0);
    FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    if (fp8_st_read(ctx, fd, "header", &header, &err) == FP8_OK) {
        check_cover(&header, bytes);
        check_round_trip(&header);
        fp8_st_free(ctx, &header);
    } else {
        FUZZ_CHECK(err.msg[0] && err.pos >= -1); /* of data, it may lie past a truncated file */
    }
    close(fd);
    return 0;
}
