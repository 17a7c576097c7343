/* SPDX-License-Identifier: Apache-2.0
 *
 * source.h - the source's shards, opened when they are needed: two at a time, because a weight and
 * its scales may stand in different files. One thread each. */
#ifndef FP8_CONVERT_SOURCE_H
#define FP8_CONVERT_SOURCE_H

#include "convert/convert.h"

enum { FP8_SOURCE_FILES = 2 };

typedef struct fp8_source {
    const fp8_convert *conv;
    int64_t shard[FP8_SOURCE_FILES]; /* -1 = none */
    int fd[FP8_SOURCE_FILES];
    int next; /* to be replaced */
} fp8_source;

void fp8_source_init(fp8_source *source, const fp8_convert *conv);
void fp8_source_close(fp8_source *source);
/* The open file that holds a tensor. Errors: those of fp8_shard_open. */
fp8_status fp8_source_fd(fp8_source *source, int64_t tensor, int *fd, fp8_error *err);
/* dst = bytes [begin, begin + bytes) of a tensor. */
fp8_status fp8_source_read(fp8_source *source, int64_t tensor, uint64_t begin, uint64_t bytes,
                           char *dst, fp8_error *err);
/* Advice to the kernel (POSIX_FADV_*) about these bytes. */
void fp8_source_advise(fp8_source *source, int64_t tensor, uint64_t begin, uint64_t bytes,
                       int advice);

#endif
