/* SPDX-License-Identifier: Apache-2.0
 *
 * source.c - reading tensors slab by slab. */
#define _GNU_SOURCE
#include "convert/source.h"

#include <fcntl.h>
#include <unistd.h>

enum { LEAST_ADVICE = 1 << 16 }; /* advice about fewer bytes costs more than it gains */

void fp8_source_init(fp8_source *source, const fp8_convert *conv)
{
    *source = (fp8_source){.conv = conv};
    for (int i = 0; i < FP8_SOURCE_FILES; i++) {
        source->shard[i] = -1;
        source->fd[i] = -1;
    }
}

void fp8_source_close(fp8_source *source)
{
    for (int i = 0; i < FP8_SOURCE_FILES; i++)
        if (source->fd[i] >= 0)
            close(source->fd[i]);
    fp8_source_init(source, source->conv);
}

fp8_status fp8_source_fd(fp8_source *source, int64_t tensor, int *fd, fp8_error *err)
{
    int64_t shard = fp8_checkpoint_shard(source->conv->ckpt, tensor);
    for (int i = 0; i < FP8_SOURCE_FILES; i++)
        if (source->shard[i] == shard) {
            *fd = source->fd[i];
            source->next = (i + 1) % FP8_SOURCE_FILES;
            return FP8_OK;
        }
    int i = source->next;
    if (source->fd[i] >= 0)
        close(source->fd[i]);
    source->fd[i] = -1;
    source->shard[i] = -1;
    FP8_TRY(fp8_shard_open(&source->conv->ckpt->shards[shard], &source->fd[i], err));
    (void)posix_fadvise(source->fd[i], 0, 0, POSIX_FADV_SEQUENTIAL);
    source->shard[i] = shard;
    source->next = (i + 1) % FP8_SOURCE_FILES;
    *fd = source->fd[i];
    return FP8_OK;
}

fp8_status fp8_source_read(fp8_source *source, int64_t tensor, uint64_t begin, uint64_t bytes,
                           char *dst, fp8_error *err)
{
    int fd;
    if (!bytes)
        return FP8_OK;
    FP8_TRY(fp8_source_fd(source, tensor, &fd, err));
    fp8_tensor_info info = fp8_item_info(source->conv, tensor);
    return fp8_pread_all(fd, dst, bytes, info.offset + begin, info.file, err);
}

void fp8_source_advise(fp8_source *source, int64_t tensor, uint64_t begin, uint64_t bytes,
                       int advice)
{
    int fd;
    if (bytes < LEAST_ADVICE)
        return;
    uint64_t offset = fp8_item_info(source->conv, tensor).offset + begin;
    if (fp8_source_fd(source, tensor, &fd, NULL) == FP8_OK)
        (void)posix_fadvise(fd, (off_t)offset, (off_t)bytes, advice);
}
