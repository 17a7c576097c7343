/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h - memory whose end (or start) is the end of a readable page: a kernel that touches one
 * byte too many faults. */
#ifndef FP8_TESTS_GUARD_H
#define FP8_TESTS_GUARD_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct guard {
    unsigned char *map;
    size_t map_bytes, room; /* room: usable bytes between the two pages that fault */
} guard;

static inline guard guard_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (bytes + page - 1) / page * page + page;
    guard g = {NULL, room + 2 * page, room};
    void *map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        abort();
    g.map = map;
    if (mprotect(g.map, page, PROT_NONE) || mprotect(g.map + page + room, page, PROT_NONE))
        abort();
    return g;
}

/* `bytes` bytes that end where the readable page ends. */
static inline void *guard_at_end(const guard *g, size_t bytes)
{
    return g->map + (g->map_bytes - g->room) / 2 + g->room - bytes;
}

/* The first byte of the readable pages. */
static inline void *guard_at_start(const guard *g)
{
    return g->map + (g->map_bytes - g->room) / 2;
}

static inline void guard_free(guard *g)
{
    munmap(g->map, g->map_bytes);
}

#endif
