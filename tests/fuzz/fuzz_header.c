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

/* Writes the header anew and reads that. */
static void check_round_trip(const fp8_st_header *h)
{
    fp8_st_tensor *tensors = calloc((size_t)h->count + 1, sizeof *tensors);
    char *head, *json;
    uint64_t head_bytes, data_bytes;
    fp8_st_header again;
    FUZZ_CHECK(tensors);
    for (int64_t i = 0; i < h->count; i++) {
        const fp8_st_entry *e = &h->entries[i];
        tensors[i] = (fp8_st_tensor){.name = h->names + e->name,
                                     .name_bytes = e->name_bytes,
                                     .dtype = (fp8_dtype)e->dtype,
                                     .ndim = e->ndim,
                                     .shape = h->shapes + e->shape};
    }
    FUZZ_CHECK(fp8_st_layout(ctx, tensors, h->count, h->metadata, &head, &head_bytes, &data_bytes,
                             NULL) == FP8_OK);
    json = fp8_copy_text(ctx, head + 8, head_bytes - 8);
    FUZZ_CHECK(json);
    FUZZ_CHECK(fp8_st_parse(ctx, json, head_bytes - 8, data_bytes, "again", &again, NULL) ==
               FP8_OK);
    check_same(h, &again);
    fp8_st_free(ctx, &again);
    fp8_release(ctx, head);
    free(tensors);
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
