/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_handle.c - a table of layers. A number is slot + 2^32 * ticket, the ticket never used
 * twice and begun at a place of its own in each process. */
#include "torch_handle.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct entry {
    fp8_layer *layer; /* NULL: free */
    uint32_t ticket;
    uint32_t users;
    int removed;
    int32_t device;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *entries;
static size_t count, first_free;
static uint32_t next_ticket;

static entry *find(int64_t number)
{
    const uint64_t slot = (uint64_t)number & UINT32_MAX;
    if (slot >= count || !entries[slot].layer || entries[slot].ticket != (uint64_t)number >> 32)
        return NULL;
    return &entries[slot];
}

/* A place for one more, or count if there is no memory. */
static size_t place(void)
{
    while (first_free < count && entries[first_free].layer)
        first_free++;
    if (first_free < count)
        return first_free;
    const size_t more = count ? 2 * count : 64;
    entry *grown = more < UINT32_MAX ? realloc(entries, more * sizeof *grown) : NULL;
    if (!grown)
        return count;
    for (size_t i = count; i < more; i++)
        grown[i] = (entry){0};
    entries = grown;
    count = more;
    return first_free;
}

/* Never 0, nor negative as a number. */
static uint32_t take_ticket(void)
{
    if (!next_ticket)
        next_ticket = (uint32_t)time(NULL) * 2654435761U ^ (uint32_t)getpid() << 8;
    do
        next_ticket = (next_ticket + 1) & INT32_MAX;
    while (!next_ticket);
    return next_ticket;
}

int64_t fp8_torch_handle_add(fp8_layer *layer, int32_t device)
{
    pthread_mutex_lock(&lock);
    const size_t slot = place();
    int64_t number = 0;
    if (layer && slot < count) {
        entries[slot] = (entry){layer, take_ticket(), 0, 0, device};
        number = (int64_t)entries[slot].ticket << 32 | (int64_t)slot;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

/* The layer if this was its last use. */
static fp8_layer *settle(entry *e)
{
    if (!e || !e->removed || e->users)
        return NULL;
    fp8_layer *layer = e->layer;
    e->layer = NULL;
    if ((size_t)(e - entries) < first_free)
        first_free = (size_t)(e - entries);
    return layer;
}

void fp8_torch_handle_remove(int64_t number)
{
    pthread_mutex_lock(&lock);
    entry *e = find(number);
    if (e)
        e->removed = 1;
    fp8_layer *layer = settle(e);
    pthread_mutex_unlock(&lock);
    fp8_layer_free(layer);
}

fp8_layer *fp8_torch_handle_acquire(int64_t number, int32_t *device)
{
    pthread_mutex_lock(&lock);
    entry *e = find(number);
    fp8_layer *layer = e && !e->removed ? e->layer : NULL;
    if (layer) {
        e->users++;
        *device = e->device;
    }
    pthread_mutex_unlock(&lock);
    return layer;
}

void fp8_torch_handle_release(int64_t number)
{
    pthread_mutex_lock(&lock);
    entry *e = find(number);
    if (e)
        e->users--;
    fp8_layer *layer = settle(e);
    pthread_mutex_unlock(&lock);
    fp8_layer_free(layer);
}
