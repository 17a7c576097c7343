/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_pattern.c - a first line as a pattern and as an entry of each kind of list, the rest as the
 * name that it is tried on. No pattern may hang, and a plain name matches itself. */
#include "ckpt/nameset.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static fp8_context *ctx;

static void try_matcher(const char *pattern, const char *name, size_t bytes)
{
    fp8_matcher *matcher;
    fp8_error err;
    bool matched;
    if (fp8_matcher_create(ctx, pattern, &matcher, &err) != FP8_OK) {
        FUZZ_CHECK(err.code == FP8_E_ARGUMENT && err.msg[0] && !matcher);
        return;
    }
    (void)fp8_matcher_test(matcher, name, bytes, &matched, &err);
    if (strncmp(pattern, "re:", 3) != 0 && !strpbrk(pattern, "*?[\\")) {
        FUZZ_CHECK(fp8_matcher_test(matcher, pattern, strlen(pattern), &matched, &err) == FP8_OK);
        FUZZ_CHECK(matched);
    }
    fp8_matcher_free(matcher);
}

static void try_list(fp8_name_syntax syntax, const char *entry, const char *name, size_t bytes)
{
    fp8_nameset set;
    fp8_name_match match;
    fp8_error err;
    fp8_nameset_init(&set, ctx, syntax);
    if (fp8_nameset_add(&set, entry, strlen(entry), &err) == FP8_OK) {
        (void)fp8_nameset_match(&set, name, bytes, &match, &err);
        if (set.pattern_count == 0) {
            FUZZ_CHECK(fp8_nameset_match(&set, entry, strlen(entry), &match, &err) == FP8_OK);
            FUZZ_CHECK(match != FP8_NAME_NONE || !entry[0]);
        }
    }
    fp8_nameset_free(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!ctx)
        FUZZ_CHECK(fp8_context_create(NULL, &ctx, NULL) == FP8_OK);
    const uint8_t *line = bytes ? memchr(data, '\n', bytes) : NULL;
    size_t n = line ? (size_t)(line - data) : bytes;
    size_t rest = line ? bytes - n - 1 : 0;
    char *pattern = malloc(n + 1), *name = malloc(rest + 1);
    FUZZ_CHECK(pattern && name);
    if (n)
        memcpy(pattern, data, n);
    pattern[n] = 0;
    if (rest)
        memcpy(name, data + n + 1, rest);
    try_matcher(pattern, name, rest);
    for (int syntax = FP8_NAMES_EXACT; syntax <= FP8_NAMES_GLOB; syntax++)
        try_list((fp8_name_syntax)syntax, pattern, name, rest);
    free(pattern);
    free(name);
    return 0;
}
