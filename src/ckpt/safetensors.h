/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.h - one file of the safetensors format, header in and header out:
 *
 *     u64 little-endian N | N bytes of JSON, first byte '{' | tensor data to the end of the file
 *     {"__metadata__": {string: string}, name: {"dtype": .., "shape": [..], "data_offsets": [begin,
 * end]}, ..}
 *
 * Offsets count from the end of the header; sorted, the ranges cover the data without hole or
 * overlap; the file ends where the last one does; N <= 100,000,000. Tensors may be unaligned. */
#ifndef FP8_CKPT_SAFETENSORS_H
#define FP8_CKPT_SAFETENSORS_H

#include "ckpt/text.h"

enum { FP8_ST_MAX_HEADER = 100000000 };

/* One tensor, packed: a 100 MB header may have two million. */
typedef struct fp8_st_entry {
    uint64_t begin, end; /* bytes from the start of the data */
    uint32_t name;       /* offset of the decoded, NUL-terminated name in `names` */
    uint32_t name_bytes;
    uint32_t shape; /* index of the first size in `shapes` */
    uint16_t ndim;
    uint8_t dtype; /* fp8_dtype */
} fp8_st_entry;

/* A checked header. Owns its memory. */
typedef struct fp8_st_header {
    fp8_st_entry *entries; /* [count], ordered by begin, then end, then place in the header */
    int64_t count;
    char *names; /* all names, each NUL-terminated */
    int64_t *shapes;
    uint64_t data_offset; /* 8 + N */
    uint64_t data_bytes;
    char *metadata; /* text of the __metadata__ object, NULL if there is none */
} fp8_st_header;

/* Reads and checks the header of the file open as fd, whose name `path` is for messages. Errors:
 * FORMAT, TRUNCATED, IO, NO_MEMORY. On failure *out is empty. */
fp8_status fp8_st_read(const fp8_context *ctx, int fd, const char *path, fp8_st_header *out,
                       fp8_error *err);
/* The same over the N bytes of JSON in memory (taken over: from fp8_alloc), of a file with
 * data_bytes of data. */
fp8_status fp8_st_parse(const fp8_context *ctx, char *json, uint64_t json_bytes,
                        uint64_t data_bytes, const char *path, fp8_st_header *out, fp8_error *err);
void fp8_st_free(const fp8_context *ctx, fp8_st_header *header);

/* A tensor to be written. */
typedef struct fp8_st_tensor {
    const char *name;
    uint64_t name_bytes;
    fp8_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
} fp8_st_tensor;

/* The tensors of a file to be written, in its order: callers sort by descending element size, then
 * name, so that all are aligned. */
typedef struct fp8_st_list {
    int64_t count;
    /* Tensor i; its name stays valid until the next call but one, its shape until the next. */
    fp8_st_tensor (*tensor)(void *owner, int64_t i);
    /* Its bytes from the start of the data, for the owner to keep. */
    void (*place)(void *owner, int64_t i, uint64_t begin, uint64_t bytes);
    void *owner;
    const char *metadata; /* text of an object; NULL: {"format":"pt"} */
} fp8_st_list;

/* Lays the tensors out one behind the other and tells how long the file's first bytes are: the
 * length and the JSON, padded with spaces to a multiple of 8. Errors: ARGUMENT (a size overflows,
 * sub-byte elements that do not fill a byte, a name is there twice or reserved), FORMAT (header
 * over the limit), NO_MEMORY. */
fp8_status fp8_st_layout(const fp8_context *ctx, const fp8_st_list *list, uint64_t *head_bytes,
                         uint64_t *data_bytes, fp8_error *err);
/* Puts these first bytes, at the start of *out. */
void fp8_st_put_head(const fp8_st_list *list, uint64_t head_bytes, fp8_text *out);

#endif
