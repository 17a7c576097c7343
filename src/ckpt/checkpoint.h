/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h - an open checkpoint as the rest of the library sees it: all shards' headers,
 * checked against the index. The public fp8_checkpoint_* functions are in checkpoint.c. */
#ifndef FP8_CKPT_CHECKPOINT_H
#define FP8_CKPT_CHECKPOINT_H

#include "ckpt/safetensors.h"

#include <stdbool.h>

typedef struct fp8_shard {
    char *path;       /* to open it */
    const char *file; /* its name inside the directory */
    int fd;
    uint64_t bytes;
    fp8_st_header header;
    int64_t first; /* index of its first tensor in the checkpoint */
} fp8_shard;

struct fp8_checkpoint {
    const fp8_context *ctx;
    char *directory;  /* of the files, without a trailing slash */
    bool single_file; /* opened as one .safetensors file */
    char *index_file; /* name of the index in the directory, NULL if there is none */
    fp8_shard *shards;
    int64_t shard_count;
    int64_t tensor_count;
    uint32_t *buckets; /* name -> tensor index + 1, open addressing */
    uint64_t bucket_count;
    char *config; /* text of config.json, NULL if there is none */
    uint64_t config_bytes;
    char **warnings;
    int64_t warning_count;
};

/* Shard of tensor i. */
int64_t fp8_checkpoint_shard(const fp8_checkpoint *ckpt, int64_t i);

/* A whole file of at most max_bytes from the directory (config.json, hf_quant_config.json),
 * NUL-terminated, from fp8_alloc. Error NOT_FOUND if it is not there. */
fp8_status fp8_read_text(const fp8_context *ctx, const char *directory, const char *file,
                         uint64_t max_bytes, char **text, uint64_t *bytes, fp8_error *err);

#endif
