/* SPDX-License-Identifier: Apache-2.0
 *
 * name_table.h - finds names in an array that its owner keeps: name -> index, by hashing, 16 to 32
 * bytes a name. The owner tells what name i is. */
#ifndef FP8_CKPT_NAME_TABLE_H
#define FP8_CKPT_NAME_TABLE_H

#include "base/context.h"
#include "ckpt/json.h"

/* Name i of the owner's array; may hold NUL. */
typedef fp8_span (*fp8_name_fn)(const void *owner, int64_t i);

typedef struct fp8_name_table {
    uint64_t *slots; /* high half: of the hash, so that few names are compared in vain; low half:
                        index + 1, 0 = empty. Open addressing, at most half full. */
    uint64_t mask;   /* slots - 1, a power of two less one */
    fp8_name_fn name;
    const void *owner;
} fp8_name_table;

/* An empty table with room for `count` names (< 2^31). Error NO_MEMORY. */
fp8_status fp8_name_table_create(const fp8_context *ctx, int64_t count, fp8_name_fn name,
                                 const void *owner, fp8_name_table *out, fp8_error *err);
/* A zeroed table is a no-op. */
void fp8_name_table_free(const fp8_context *ctx, fp8_name_table *table);
/* Adds name i of the owner; returns -1, or the index of the same name if it is there already (then
 * nothing is added). */
int64_t fp8_name_table_add(fp8_name_table *table, int64_t i);
/* Index of the name, -1 if it is not there. */
int64_t fp8_name_table_find(const fp8_name_table *table, const char *name, uint64_t bytes);

#endif
