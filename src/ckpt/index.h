/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h - the index of a sharded checkpoint, and what it promises about the shards:
 *
 *     {"metadata": {"total_size": bytes}, "weight_map": {tensor name: file name, ..}}
 */
#ifndef FP8_CKPT_INDEX_H
#define FP8_CKPT_INDEX_H

#include "ckpt/locate.h"

/* Longest text that is read. The format knows no limit; this is one of ours, so that a wrong file
 * is refused before it is read: ten times the longest header, for some ten million tensors. */
enum { FP8_MAX_INDEX_BYTES = 1000000000 };

typedef struct fp8_index_entry {
    uint32_t name, name_bytes; /* in fp8_index.text */
    uint32_t file;             /* in fp8_index.files */
} fp8_index_entry;

typedef struct fp8_index {
    char *text; /* of the file, names decoded in place and ended by NUL */
    fp8_index_entry *entries;
    int64_t count;
    fp8_file_list files; /* those that are named, sorted */
    fp8_name_table names;
    double total_size; /* as metadata says; negative = it does not */
} fp8_index;

/* Reads the index `text` (taken over, from fp8_alloc). File names must be plain names: they cannot
 * lead out of the directory. Errors: FORMAT (with the position), NO_MEMORY. On failure *out is
 * empty. */
fp8_status fp8_index_parse(const fp8_context *ctx, char *text, uint64_t bytes, fp8_index *out,
                           fp8_error *err);
void fp8_index_free(const fp8_context *ctx, fp8_index *index);

/* Holds the index against the shards of the checkpoint, which are those of index->files in that
 * order. Errors: FORMAT (a tensor is in no shard, or in another one than the index says),
 * NO_MEMORY. Warnings: tensors that it does not list; a tensor that is in the shard it names and in
 * another, whose copy is taken out of the header. */
fp8_status fp8_index_check(const fp8_index *index, fp8_checkpoint *ckpt, fp8_error *err);

#endif
