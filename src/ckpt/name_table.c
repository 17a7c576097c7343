/* SPDX-License-Identifier: Apache-2.0
 *
 * name_table.c - the hash table of names: XXH3, linear probing. */
#include "ckpt/name_table.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

fp8_status fp8_name_table_create(const fp8_context *ctx, int64_t count, fp8_name_fn name,
                                 const void *owner, fp8_name_table *out, fp8_error *err)
{
    uint64_t slots = 2;
    while (slots < 2 * (uint64_t)count)
        slots *= 2;
    *out = (fp8_name_table){fp8_alloc_zeroed(ctx, slots, sizeof(uint64_t)), slots - 1, name, owner};
    FP8_FAIL_IF(!out->slots, err, FP8_E_NO_MEMORY, "no memory for a table of %" PRId64 " names",
                count);
    return FP8_OK;
}

void fp8_name_table_free(const fp8_context *ctx, fp8_name_table *table)
{
    fp8_release(ctx, table->slots);
    table->slots = NULL;
}

static int64_t index_in(uint64_t slot)
{
    return (int64_t)(slot & UINT32_MAX) - 1;
}

/* The slot that holds the name, or the empty one where it belongs. */
static uint64_t *slot_of(const fp8_name_table *table, fp8_span name, uint64_t hash)
{
    for (uint64_t at = hash;; at++) {
        uint64_t *slot = &table->slots[at & table->mask];
        if (!*slot)
            return slot;
        if ((*slot ^ hash) >> 32)
            continue;
        fp8_span other = table->name(table->owner, index_in(*slot));
        if (other.bytes == name.bytes && !memcmp(other.text, name.text, name.bytes))
            return slot;
    }
}

int64_t fp8_name_table_add(fp8_name_table *table, int64_t i)
{
    fp8_span name = table->name(table->owner, i);
    uint64_t hash = XXH3_64bits(name.text, name.bytes);
    uint64_t *slot = slot_of(table, name, hash);
    if (*slot)
        return index_in(*slot);
    *slot = hash >> 32 << 32 | ((uint64_t)i + 1);
    return -1;
}

int64_t fp8_name_table_find(const fp8_name_table *table, const char *name, uint64_t bytes)
{
    return index_in(*slot_of(table, (fp8_span){name, bytes}, XXH3_64bits(name, bytes)));
}
