/* SPDX-License-Identifier: Apache-2.0
 *
 * nameset.c - names hashed, patterns kept as matchers. A plain entry is found by hashing the parts
 * of the module's name that its syntax lets it equal, never by walking the list. */
#include "ckpt/nameset.h"

#include <string.h>

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
        fp8_release(set->ctx, (void *)set->names);
        fp8_release(set->ctx, (void *)set->patterns);
        fp8_name_table_free(set->ctx, &set->table);
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

static fp8_span name_at(const void *names, int64_t i)
{
    const char *name = ((char *const *)names)[i];
    return (fp8_span){name, strlen(name)};
}

static bool holds(const fp8_nameset *set, const char *name, uint64_t bytes)
{
    return set->room > 0 && fp8_name_table_find(&set->table, name, bytes) >= 0;
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

/* Room for one more name and one more pattern. */
static fp8_status grow(fp8_nameset *set, fp8_error *err)
{
    if (set->count < set->room)
        return FP8_OK;
    int64_t room = set->room ? 2 * set->room : 16;
    fp8_name_table table = {NULL, 0, NULL, NULL};
    char **names = fp8_alloc_zeroed(set->ctx, (uint64_t)room, sizeof *names);
    fp8_matcher **patterns = fp8_alloc_zeroed(set->ctx, (uint64_t)room, sizeof(fp8_matcher *));
    if (!names || !patterns ||
        fp8_name_table_create(set->ctx, room, name_at, (const void *)names, &table, err) !=
            FP8_OK) {
        fp8_release(set->ctx, (void *)names);
        fp8_release(set->ctx, (void *)patterns);
        return no_memory(err);
    }
    for (int64_t i = 0; i < set->count; i++) {
        names[i] = set->names[i];
        if (!is_pattern(set->syntax, names[i]))
            fp8_name_table_add(&table, i);
    }
    for (int64_t i = 0; i < set->pattern_count; i++)
        patterns[i] = set->patterns[i];
    fp8_release(set->ctx, (void *)set->names);
    fp8_release(set->ctx, (void *)set->patterns);
    fp8_name_table_free(set->ctx, &set->table);
    set->names = names;
    set->patterns = patterns;
    set->table = table;
    set->room = room;
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
    fp8_name_table_add(&set->table, set->count - 1);
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

fp8_status fp8_nameset_match(fp8_nameset *set, const char *module, uint64_t bytes,
                             fp8_name_match *match, fp8_error *err)
{
    bool found = false;
    *match = FP8_NAME_EXACT;
    if (plain_has(set, module, bytes))
        return FP8_OK;
    *match = FP8_NAME_BY_PATTERN;
    for (int64_t i = 0; !found && i < set->pattern_count; i++)
        FP8_TRY(fp8_matcher_test(set->patterns[i], module, bytes, &found, err));
    if (!found)
        *match = set->all ? FP8_NAME_BY_CLASS : FP8_NAME_NONE;
    return FP8_OK;
}
