/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h - an open checkpoint as the rest of the library sees it: all shards' headers,
 * checked against the index. The public fp8_checkpoint_* functions are in checkpoint.c.
 * No file stays open: a model may have more shards than a process may have files. Whoever reads
 * opens the shard (fp8_shard_open) and is told if it is no longer the file whose header was read.
 */
#ifndef FP8_CKPT_CHECKPOINT_H
#define FP8_CKPT_CHECKPOINT_H

#include "ckpt/file.h"
#include "ckpt/name_table.h"
#include "ckpt/safetensors.h"

#include <stdbool.h>

typedef struct fp8_shard {
    char *path;       /* to open it */
    const char *file; /* its name inside the directory */
    uint64_t bytes;
    struct stat identity; /* of the file whose header was read */
    fp8_st_header header;
    int64_t first; /* index of its first tensor in the checkpoint */
} fp8_shard;

struct fp8_checkpoint {
    const fp8_context *ctx;
    char *directory;   /* of the files, without a trailing slash */
    bool single_file;  /* opened as one .safetensors file */
    char *index_file;  /* name of the index in the directory, NULL if there is none */
    fp8_shard *shards; /* ordered by file name */
    int64_t shard_count;
    int64_t tensor_count;
    fp8_name_table names; /* of all tensors */
    char *config;         /* text of config.json, NULL if there is none */
    uint64_t config_bytes;
    char **warnings;
    int64_t warning_count;
};

/* Shard of tensor i. */
int64_t fp8_checkpoint_shard(const fp8_checkpoint *ckpt, int64_t i);
/* Index of the tensor called name, -1 if there is none. */
int64_t fp8_checkpoint_index(const fp8_checkpoint *ckpt, const char *name, uint64_t bytes);

/* Opens a shard to read tensor data; the caller closes *fd. Errors: those of fp8_open_regular,
 * TRUNCATED (it has become shorter), MISMATCH (it is another file, or was written to, since its
 * header was read). */
fp8_status fp8_shard_open(const fp8_shard *shard, int *fd, fp8_error *err);

/* `count` ranges of so many bytes of a tensor, each beginning `step` bytes after the one before. */
typedef struct fp8_read_ranges {
    uint64_t begin, bytes, step, count;
} fp8_read_ranges;

/* dst[count][bytes] = them, from a file that is opened once. Errors: as fp8_checkpoint_read. */
fp8_status fp8_checkpoint_read_ranges(const fp8_checkpoint *ckpt, const fp8_tensor_info *info,
                                      const fp8_read_ranges *ranges, void *dst, fp8_error *err);

/* Adds the text of *warning (made by fp8_error_set, so that it is one line). Error NO_MEMORY. */
fp8_status fp8_checkpoint_warn(fp8_checkpoint *ckpt, const fp8_error *warning, fp8_error *err);

#endif
