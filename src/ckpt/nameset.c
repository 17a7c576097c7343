/* SPDX-License-Identifier: Apache-2.0
 *
 * nameset.c - names hashed, patterns kept as matchers. A plain entry is found by hashing the parts
 * of the module's name that its syntax lets it equal, never by walking the list. */
#include "ckpt/nameset.h"

#include <string.h>
#include <xxhash.h>

void fp8_nameset_init(fp8_nameset *set, const fp8_context *ctx, fp8_name_syntax syntax)
{
    *set = (fp8_nameset){.ctx = ctx, .syntax = syntax};
}

void fp8_nameset_free(fp8_nameset *set)
{
    for (int64_t i = 0; i < set->count; i++)
        fp8_release(set->ctx, set->names[i]);
    for (int64_t i = 0; i < set->pattern_count; i++)
        fp8_matcher_free(set->patterns[i]);
    if (set->ctx) {
        fp8_release(set->ctx, set->names);
        fp8_release(set->ctx, set->patterns);
        fp8_release(set->ctx, set->buckets);
    }
    fp8_nameset_init(set, set->ctx, set->syntax);
}

uint64_t fp8_module_bytes(const char *tensor, uint64_t bytes)
{
    static const char tail[] = ".weight";
    enum { TAIL = sizeof tail - 1 };
    bool has = bytes > TAIL && memcmp(tensor + bytes - TAIL, tail, TAIL) == 0;
    return has ? bytes - TAIL : bytes;
}

static fp8_status no_memory(fp8_error *err)
{
    return fp8_fail(err, FP8_E_NO_MEMORY, "out of memory for a list of names");
}

/* The bucket where name[0..bytes) is or would be; the table is never full. */
static uint64_t bucket_of(const fp8_nameset *set, const char *name, uint64_t bytes)
{
    uint64_t at = XXH3_64bits(name, bytes) & (set->bucket_count - 1);
    while (set->buckets[at]) {
        const char *other = set->names[set->buckets[at] - 1];
        if (strlen(other) == bytes && memcmp(other, name, bytes) == 0)
            break;
        at = (at + 1) & (set->bucket_count - 1);
    }
    return at;
}

static bool holds(const fp8_nameset *set, const char *name, uint64_t bytes)
{
    return set->bucket_count > 0 && set->buckets[bucket_of(set, name, bytes)] != 0;
}

/* A pattern of the set's syntax, as pattern.h spells it; false: the entry is a plain name. */
static bool is_pattern(fp8_name_syntax syntax, const char *text)
{
    switch (syntax) {
    case FP8_NAMES_CT:
        return strncmp(text, "re:", 3) == 0;
    case FP8_NAMES_HF:
        return strpbrk(text, "*+?[](){}|^$\\") != NULL;
    case FP8_NAMES_GLOB:
        return strpbrk(text, "*?[") != NULL;
    default:
        return false;
    }
}

/* Room for one more name, and for it in a table that is at most half full. */
static fp8_status grow(fp8_nameset *set, fp8_error *err)
{
    if (set->count < set->room)
        return FP8_OK;
    int64_t room = set->room ? 2 * set->room : 16;
    char **names = fp8_alloc_zeroed(set->ctx, (uint64_t)room, sizeof *names);
    fp8_matcher **patterns = fp8_alloc_zeroed(set->ctx, (uint64_t)room, sizeof(fp8_matcher *));
    uint32_t *buckets = fp8_alloc_zeroed(set->ctx, 2 * (uint64_t)room, sizeof *buckets);
    if (!names || !buckets || !patterns) {
        fp8_release(set->ctx, names);
        fp8_release(set->ctx, (void *)patterns);
        fp8_release(set->ctx, buckets);
        return no_memory(err);
    }
    for (int64_t i = 0; i < set->count; i++)
        names[i] = set->names[i];
    for (int64_t i = 0; i < set->pattern_count; i++)
        patterns[i] = set->patterns[i];
    fp8_release(set->ctx, set->names);
    fp8_release(set->ctx, set->patterns);
    fp8_release(set->ctx, set->buckets);
    set->names = names;
    set->patterns = patterns;
    set->buckets = buckets;
    set->room = room;
    set->bucket_count = 2 * (uint64_t)room;
    for (int64_t i = 0; i < set->count; i++)
        if (!is_pattern(set->syntax, names[i]))
            buckets[bucket_of(set, names[i], strlen(names[i]))] = (uint32_t)(i + 1);
    return FP8_OK;
}

/* The entry as a matcher; transformers' expressions end at a part of the name. */
static fp8_status add_pattern(fp8_nameset *set, const char *text, fp8_error *err)
{
    static const char head[] = "re:(?:", tail[] = ")(?:(?<=\\.)|(?=\\.|$))";
    fp8_matcher **slot = &set->patterns[set->pattern_count];
    if (set->syntax != FP8_NAMES_HF) {
        FP8_TRY(fp8_matcher_create(set->ctx, text, slot, err));
        set->pattern_count++;
        return FP8_OK;
    }
    uint64_t n = strlen(text);
    char *whole = fp8_alloc(set->ctx, sizeof head + n + sizeof tail);
    if (!whole)
        return no_memory(err);
    memcpy(whole, head, sizeof head - 1);
    memcpy(whole + sizeof head - 1, text, n);
    memcpy(whole + sizeof head - 1 + n, tail, sizeof tail);
    fp8_status status = fp8_matcher_create(set->ctx, whole, slot, err);
    fp8_release(set->ctx, whole);
    if (status == FP8_OK)
        set->pattern_count++;
    return status;
}

fp8_status fp8_nameset_add(fp8_nameset *set, const char *text, uint64_t bytes, fp8_error *err)
{
    FP8_FAIL_IF(memchr(text, 0, bytes), err, FP8_E_ARGUMENT, "a module name in a list holds NUL");
    FP8_TRY(grow(set, err));
    char *name = fp8_copy_text(set->ctx, text, bytes);
    if (!name)
        return no_memory(err);
    set->names[set->count++] = name;
    if (is_pattern(set->syntax, name))
        return add_pattern(set, name, err);
    if (set->syntax == FP8_NAMES_CT && strcmp(name, "Linear") == 0)
        set->all = true;
    uint64_t at = bucket_of(set, name, bytes);
    if (!set->buckets[at])
        set->buckets[at] = (uint32_t)set->count;
    return FP8_OK;
}

/* A plain entry equals the first parts of the module's name (all parts included). */
static bool holds_head(const fp8_nameset *set, const char *module, uint64_t bytes)
{
    for (uint64_t n = 1; n <= bytes; n++)
        if ((n == bytes || module[n] == '.') && holds(set, module, n))
            return true;
    return false;
}

/* A plain entry equals the end of the module's name, wherever it begins. */
static bool holds_tail(const fp8_nameset *set, const char *module, uint64_t bytes)
{
    for (uint64_t begin = 1; begin < bytes; begin++)
        if (holds(set, module + begin, bytes - begin))
            return true;
    return false;
}

static bool plain_has(const fp8_nameset *set, const char *module, uint64_t bytes)
{
    switch (set->syntax) {
    case FP8_NAMES_HF:
        return holds_head(set, module, bytes) || holds_tail(set, module, bytes);
    case FP8_NAMES_GLOB:
        return holds_head(set, module, bytes);
    default:
        return holds(set, module, bytes);
    }
}

fp8_status fp8_nameset_has(fp8_nameset *set, const char *module, uint64_t bytes, bool *found,
                           fp8_error *err)
{
    *found = set->all || plain_has(set, module, bytes);
    for (int64_t i = 0; !*found && i < set->pattern_count; i++)
        FP8_TRY(fp8_matcher_test(set->patterns[i], module, bytes, found, err));
    return FP8_OK;
}
