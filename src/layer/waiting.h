/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.h - where elements in high precision wait for the rest of their scale's block: memory up
 * to a bound, then a file without a name in a directory that the caller gave, else nowhere.
 * One thread. */
#ifndef FP8_LAYER_WAITING_H
#define FP8_LAYER_WAITING_H

#include "base/context.h"

/* Shared by all layers of a load. */
typedef struct fp8_wait_room {
    const fp8_context *ctx;
    uint64_t max;      /* bytes in memory; 0 = no bound */
    const char *spill; /* directory, NULL = none */
    int fd;            /* of the spill file, -1 until there is one */
    uint64_t end;      /* of what is used of it; 0 again when nothing is */
    uint64_t used, peak, spilled;
} fp8_wait_room;

void fp8_wait_open(fp8_wait_room *room, const fp8_context *ctx, const fp8_load_desc *desc);
/* Nothing waits there any more. */
void fp8_wait_close(fp8_wait_room *room);

/* Some bytes of the room. */
typedef struct fp8_wait_block {
    uint64_t bytes;
    uint8_t *data;   /* NULL: in the file .. */
    uint64_t offset; /* .. from here */
} fp8_wait_block;

/* Errors: NO_SPACE (the bound and no file, or a full file system), NO_MEMORY, IO, NOT_FOUND. */
fp8_status fp8_wait_take(fp8_wait_room *room, uint64_t bytes, fp8_wait_block *out, fp8_error *err);
void fp8_wait_give(fp8_wait_room *room, fp8_wait_block *block);
/* Bytes [at, at + bytes) of a block. Errors: IO, NO_SPACE. */
fp8_status fp8_wait_put(fp8_wait_room *room, const fp8_wait_block *block, uint64_t at,
                        const void *src, uint64_t bytes, fp8_error *err);
fp8_status fp8_wait_get(fp8_wait_room *room, const fp8_wait_block *block, uint64_t at, void *dst,
                        uint64_t bytes, fp8_error *err);

#endif
