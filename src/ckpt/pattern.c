/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern.c - globs by fnmatch, expressions by PCRE2 with limits on matching, so that no pattern
 * can hang a run. Must not use PCRE2's JIT: it takes memory outside the context's allocator. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "ckpt/pattern.h"

#include <fnmatch.h>
#include <pcre2.h>
#include <string.h>

enum {
    MAX_PATTERN_BYTES = 4096,
    MATCH_LIMIT = 200000, /* steps of backtracking for one name */
    DEPTH_LIMIT = 2000,
    HEAP_LIMIT_KIB = 4096,
};

struct fp8_matcher {
    const fp8_context *ctx;
    char *text;                     /* as given, for messages and for fnmatch */
    pcre2_general_context *general; /* all five NULL for a glob */
    pcre2_compile_context *compiler;
    pcre2_match_context *limits;
    pcre2_code *code;
    pcre2_match_data *match;
    char *name; /* scratch for fnmatch, which needs a NUL */
    uint64_t name_room;
};

static void *regex_alloc(size_t bytes, void *ctx)
{
    return fp8_alloc(ctx, bytes);
}

static void regex_free(void *ptr, void *ctx)
{
    fp8_release(ctx, ptr);
}

static fp8_status no_memory(fp8_error *err)
{
    return fp8_fail(err, FP8_E_NO_MEMORY, "out of memory for a pattern");
}

/* The expression after "re:"; UTF-8 mode unless the expression itself is no UTF-8. */
static fp8_status compile(fp8_matcher *m, const char *expression, fp8_error *err)
{
    m->general = pcre2_general_context_create(regex_alloc, regex_free, (void *)m->ctx);
    if (!m->general)
        return no_memory(err);
    m->compiler = pcre2_compile_context_create(m->general);
    m->limits = pcre2_match_context_create(m->general);
    if (!m->compiler || !m->limits)
        return no_memory(err);
    pcre2_set_match_limit(m->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(m->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(m->limits, HEAP_LIMIT_KIB);

    const uint32_t options = PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C | PCRE2_DOTALL;
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_SPTR text = (PCRE2_SPTR)expression;
    m->code = pcre2_compile(text, PCRE2_ZERO_TERMINATED,
                            options | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &code, &at, m->compiler);
    if (!m->code && code < 0)
        m->code = pcre2_compile(text, PCRE2_ZERO_TERMINATED, options, &code, &at, m->compiler);
    if (!m->code && code == PCRE2_ERROR_HEAP_FAILED)
        return no_memory(err);
    if (!m->code) {
        char words[256] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)words, sizeof words);
        return fp8_fail_at(err, FP8_E_ARGUMENT, (int64_t)at, "pattern '%s': %s at offset %zu",
                           m->text, words, at);
    }
    m->match = pcre2_match_data_create_from_pattern(m->code, m->general);
    return m->match ? FP8_OK : no_memory(err);
}

fp8_status fp8_matcher_create(const fp8_context *ctx, const char *pattern, fp8_matcher **out,
                              fp8_error *err)
{
    *out = NULL;
    uint64_t bytes = strlen(pattern);
    FP8_FAIL_IF(bytes == 0, err, FP8_E_ARGUMENT, "a pattern is empty");
    FP8_FAIL_IF(bytes > MAX_PATTERN_BYTES, err, FP8_E_ARGUMENT,
                "a pattern has %llu bytes, the limit is %d", (unsigned long long)bytes,
                MAX_PATTERN_BYTES);
    fp8_matcher *m = fp8_alloc_zeroed(ctx, 1, sizeof *m);
    if (!m)
        return no_memory(err);
    m->ctx = ctx;
    m->text = fp8_copy_text(ctx, pattern, bytes);
    fp8_status status = m->text ? FP8_OK : no_memory(err);
    if (status == FP8_OK && strncmp(pattern, "re:", 3) == 0)
        status = compile(m, pattern + 3, err);
    if (status != FP8_OK) {
        fp8_matcher_free(m);
        return status;
    }
    *out = m;
    return FP8_OK;
}

void fp8_matcher_free(fp8_matcher *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->match);
    pcre2_code_free(m->code);
    pcre2_match_context_free(m->limits);
    pcre2_compile_context_free(m->compiler);
    pcre2_general_context_free(m->general);
    fp8_release(m->ctx, m->name);
    fp8_release(m->ctx, m->text);
    fp8_release(m->ctx, m);
}

/* *matched = the expression matches at the start of name[0..bytes). */
static fp8_status regex_test(fp8_matcher *m, const char *name, uint64_t bytes, bool *matched,
                             fp8_error *err)
{
    int rc = pcre2_match(m->code, (PCRE2_SPTR)name, bytes, 0, 0, m->match, m->limits);
    *matched = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
        return FP8_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return no_memory(err);
    char words[256] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)words, sizeof words);
    return fp8_fail(err, FP8_E_ARGUMENT, "pattern '%s' on '%.*s': %s", m->text,
                    bytes < 200 ? (int)bytes : 200, name, words);
}

/* The same for a glob over all of name[0..bytes); a name that holds NUL matches none. */
static fp8_status glob_test(fp8_matcher *m, const char *name, uint64_t bytes, bool *matched,
                            fp8_error *err)
{
    *matched = false;
    if (memchr(name, 0, bytes))
        return FP8_OK;
    if (bytes >= m->name_room) {
        uint64_t room = bytes + 1 > 256 ? 2 * bytes + 1 : 256;
        fp8_release(m->ctx, m->name);
        m->name_room = 0;
        m->name = fp8_alloc(m->ctx, room);
        if (!m->name)
            return no_memory(err);
        m->name_room = room;
    }
    memcpy(m->name, name, bytes);
    m->name[bytes] = 0;
    *matched = fnmatch(m->text, m->name, 0) == 0;
    return FP8_OK;
}

fp8_status fp8_matcher_test(fp8_matcher *m, const char *name, uint64_t bytes, bool *matched,
                            fp8_error *err)
{
    static const char tail[] = ".weight";
    enum { TAIL = sizeof tail - 1 };
    fp8_status (*test)(fp8_matcher *, const char *, uint64_t, bool *, fp8_error *) =
        m->code ? regex_test : glob_test;
    FP8_TRY(test(m, name, bytes, matched, err));
    if (!*matched && bytes > TAIL && memcmp(name + bytes - TAIL, tail, TAIL) == 0)
        FP8_TRY(test(m, name, bytes - TAIL, matched, err));
    return FP8_OK;
}
