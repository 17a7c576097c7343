/* SPDX-License-Identifier: Apache-2.0
 *
 * shim_alloc.c - an LD_PRELOAD library in which allocation number FP8_ALLOC_AT, from 1, finds no
 * memory; those before and after it do. Only the calls of the program itself count, not those of
 * the libraries that it loads: some of them (OpenMP) end the process when they get no memory. Not
 * for programs with sanitizers. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The C library's own, under the names that it keeps for such use. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

static atomic_long counted;
static long at;                              /* 0 = none */
static uintptr_t program_begin, program_end; /* of its code */

/* The first object is the program. */
static int note_program(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X)) {
            program_begin = info->dlpi_addr + part->p_vaddr;
            program_end = program_begin + part->p_memsz;
        }
    }
    return 1;
}

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("FP8_ALLOC_AT");
    dl_iterate_phdr(note_program, NULL);
    at = text ? atol(text) : 0;
}

/* FP8_ALLOC_LOG gets the number of allocations that counted. */
__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("FP8_ALLOC_LOG");
    FILE *log = path ? fopen(path, "w") : NULL;
    if (log) {
        fprintf(log, "%ld\n", (long)counted);
        fclose(log);
    }
}

static int fails_for(const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    if (from < program_begin || from >= program_end || ++counted != at)
        return 0;
    errno = ENOMEM;
    return 1;
}
#define fails() fails_for(__builtin_return_address(0))

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    if (fails())
        return ENOMEM;
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}
