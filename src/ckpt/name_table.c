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
    *out = (fp8_name_table){fp8_alloc_zeroed(ctx, slots, sizeof(uint32_t)), slots - 1, name, owner};
    FP8_FAIL_IF(!out->slots, err, FP8_E_NO_MEMORY, "no memory for a table of %" PRId64 " names",
                count);
    return FP8_OK;
}

void fp8_name_table_free(const fp8_context *ctx, fp8_name_table *table)
{
    fp8_release(ctx, table->slots);
    table->slots = NULL;
}

/* The slot that holds the name, or the empty one where it belongs. */
static uint32_t *slot_of(const fp8_name_table *table, const char *name, uint64_t bytes)
{
    for (uint64_t at = XXH3_64bits(name, bytes);; at++) {
        uint32_t *slot = &table->slots[at & table->mask];
        if (!*slot)
            return slot;
        fp8_span other = table->name(table->owner, (int64_t)*slot - 1);
        if (other.bytes == bytes && !memcmp(other.text, name, bytes))
            return slot;
    }
}

int64_t fp8_name_table_add(fp8_name_table *table, int64_t i)
{
    fp8_span name = table->name(table->owner, i);
    uint32_t *slot = slot_of(table, name.text, name.bytes);
    if (*slot)
        return (int64_t)*slot - 1;
    *slot = (uint32_t)i + 1;
    return -1;
}

int64_t fp8_name_table_find(const fp8_name_table *table, const char *name, uint64_t bytes)
{
    return (int64_t)*slot_of(table, name, bytes) - 1;
}
