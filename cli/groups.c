/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.c - a hash table (FNV-1a, open addressing) from name pattern and cells to groups. */
#include "cli/groups.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MARK       '\1'
#define MAX_DIGITS 9

/* Length of a number at name[i] that stands alone between dots, 0 if there is none. A leading zero
 * is none: the number could not be written back. */
static size_t number_at(const char *name, size_t bytes, size_t i)
{
    size_t n = 0;
    if (i > 0 && name[i - 1] != '.')
        return 0;
    while (i + n < bytes && name[i + n] >= '0' && name[i + n] <= '9')
        n++;
    bool ends = i + n == bytes || name[i + n] == '.';
    return ends && n <= MAX_DIGITS && !(n > 1 && name[i] == '0') ? n : 0;
}

/* key = name with \1 for numbers; the numbers go to values[]. Returns the bytes of the key. */
static size_t fold(char *key, const char *name, size_t bytes, int64_t values[CLI_GROUP_SLOTS],
                   int *slots)
{
    size_t end = 0;
    *slots = 0;
    for (size_t i = 0; i < bytes;) {
        size_t digits = *slots < CLI_GROUP_SLOTS ? number_at(name, bytes, i) : 0;
        if (digits == 0) {
            key[end++] = name[i++];
            continue;
        }
        int64_t value = 0;
        for (size_t n = 0; n < digits; n++)
            value = value * 10 + (name[i + n] - '0');
        values[(*slots)++] = value;
        key[end++] = MARK;
        i += digits;
    }
    key[end++] = 0;
    return end;
}

static uint64_t hash(const char *key, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)key[i]) * 0x100000001b3u;
    return h;
}

/* The bucket of a key: that of its group, or the free one where it belongs. */
static size_t *bucket_of(const cli_groups *groups, const char *key, size_t bytes)
{
    size_t mask = groups->bucket_count - 1;
    for (size_t at = hash(key, bytes) & mask;; at = (at + 1) & mask) {
        size_t *bucket = &groups->buckets[at];
        if (*bucket == 0)
            return bucket;
        const cli_group *group = &groups->items[*bucket - 1];
        if (group->key_bytes == bytes && memcmp(group->key, key, bytes) == 0)
            return bucket;
    }
}

/* Room for one group more. */
static bool reserve(cli_groups *groups)
{
    if (groups->count < groups->capacity)
        return true;
    size_t capacity = groups->capacity > 0 ? 2 * groups->capacity : 64;
    cli_group *items = realloc(groups->items, capacity * sizeof *items);
    if (items == NULL)
        return false;
    groups->items = items;
    size_t *buckets = calloc(2 * capacity, sizeof *buckets);
    if (buckets == NULL)
        return false;
    free(groups->buckets);
    groups->buckets = buckets;
    groups->bucket_count = 2 * capacity;
    groups->capacity = capacity;
    for (size_t i = 0; i < groups->count; i++)
        *bucket_of(groups, items[i].key, items[i].key_bytes) = i + 1;
    return true;
}

static void widen(cli_group *group, const int64_t values[CLI_GROUP_SLOTS])
{
    for (int i = 0; i < group->slots; i++) {
        if (values[i] < group->least[i])
            group->least[i] = values[i];
        if (values[i] > group->most[i])
            group->most[i] = values[i];
    }
}

/* Makes a group of `key`, which it takes over; `name_bytes` of it are the name. */
static void start(cli_groups *groups, char *key, size_t bytes, size_t name_bytes, int slots,
                  const int64_t values[CLI_GROUP_SLOTS], size_t *bucket)
{
    cli_group *group = &groups->items[groups->count++];
    *group = (cli_group){.key = key, .key_bytes = bytes, .slots = slots};
    const char *cell = key + name_bytes;
    for (int i = 0; i < CLI_GROUP_CELLS; i++) {
        group->cells[i] = cell;
        cell += strlen(cell) + 1;
    }
    for (int i = 0; i < slots; i++)
        group->least[i] = group->most[i] = values[i];
    *bucket = groups->count;
}

bool cli_groups_add(cli_groups *groups, const char *name, size_t name_bytes,
                    const char *const cells[CLI_GROUP_CELLS], uint64_t bytes_in, uint64_t bytes_out)
{
    size_t room = name_bytes + 1;
    for (int i = 0; i < CLI_GROUP_CELLS; i++)
        room += strlen(cells[i]) + 1;
    char *key = malloc(room);
    if (key == NULL || !reserve(groups)) {
        free(key);
        return false;
    }
    int64_t values[CLI_GROUP_SLOTS];
    int slots;
    size_t folded = fold(key, name, name_bytes, values, &slots), bytes = folded;
    for (int i = 0; i < CLI_GROUP_CELLS; i++) {
        size_t length = strlen(cells[i]) + 1;
        memcpy(key + bytes, cells[i], length);
        bytes += length;
    }
    size_t *bucket = bucket_of(groups, key, bytes);
    if (*bucket == 0)
        start(groups, key, bytes, folded, slots, values, bucket);
    else
        free(key);
    cli_group *group = &groups->items[*bucket - 1];
    widen(group, values);
    group->count++;
    group->bytes_in += bytes_in;
    group->bytes_out += bytes_out;
    return true;
}

static int compare(const void *a, const void *b)
{
    const cli_group *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    for (int i = 0; order == 0 && i < x->slots; i++)
        order = (x->least[i] > y->least[i]) - (x->least[i] < y->least[i]);
    return order;
}

/* How many names the ranges of a group stand for; INT64_MAX if that does not fit. */
static int64_t span(const cli_group *group)
{
    int64_t product = 1;
    for (int i = 0; i < group->slots; i++) {
        if (__builtin_mul_overflow(product, group->most[i] - group->least[i] + 1, &product))
            return INT64_MAX;
    }
    return product;
}

/* The name of a group, from malloc; NULL if there is no memory. */
static char *name_of(const cli_group *group)
{
    size_t bytes = (size_t)(group->cells[0] - group->key) - 1, end = 0;
    size_t room = bytes + (size_t)group->slots * 24 + 64;
    char *name = malloc(room);
    if (name == NULL)
        return NULL;
    int slot = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (group->key[i] != MARK || slot == group->slots)
            name[end++] = group->key[i];
        else if (group->least[slot] == group->most[slot])
            end += (size_t)snprintf(name + end, room - end, "%" PRId64, group->least[slot++]);
        else {
            end += (size_t)snprintf(name + end, room - end, "{%" PRId64 "..%" PRId64 "}",
                                    group->least[slot], group->most[slot]);
            slot++;
        }
    }
    name[end] = 0;
    if (span(group) != group->count)
        snprintf(name + end, room - end, " (%" PRId64 " of %" PRId64 ")", group->count,
                 span(group));
    return name;
}

bool cli_groups_finish(cli_groups *groups)
{
    if (groups->count > 0)
        qsort(groups->items, groups->count, sizeof *groups->items, compare);
    for (size_t i = 0; i < groups->count; i++) {
        groups->items[i].name = name_of(&groups->items[i]);
        if (groups->items[i].name == NULL)
            return false;
    }
    return true;
}

void cli_groups_free(cli_groups *groups)
{
    for (size_t i = 0; i < groups->count; i++) {
        free(groups->items[i].key);
        free(groups->items[i].name);
    }
    free(groups->items);
    free(groups->buckets);
    *groups = (cli_groups){0};
}
