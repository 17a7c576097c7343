/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h - a text that we write, json mostly: one that grows and is handed over at the end, or one
 * of any length that is passed on through a small buffer. The first failure is remembered and
 * reported once, at the end. */
#ifndef FP8_CKPT_TEXT_H
#define FP8_CKPT_TEXT_H

#include "base/context.h"

#include <stdbool.h>

/* Takes the next bytes of a text. */
typedef fp8_status (*fp8_text_drain)(void *user, const char *text, uint64_t bytes, fp8_error *err);

typedef struct fp8_text {
    const fp8_context *ctx;
    fp8_text_drain drain; /* NULL: the text grows */
    void *user;           /* of drain */
    char *text;           /* NUL-terminated once something was put */
    uint64_t bytes, room; /* of text */
    uint64_t drained;     /* bytes passed on before those */
    fp8_status status;
    fp8_error why;
} fp8_text;

/* A new text is {.ctx = ctx}, or {.ctx = ctx, .drain = .., .user = ..}. */
void fp8_text_put(fp8_text *t, const char *text);
void fp8_text_put_bytes(fp8_text *t, const char *text, uint64_t bytes);
/* In decimal digits. */
void fp8_text_put_number(fp8_text *t, uint64_t value);
/* As a JSON string with quotes. */
void fp8_text_put_quoted(fp8_text *t, const char *text, uint64_t bytes);
/* A line break and two spaces for each level. */
void fp8_text_put_line(fp8_text *t, int level);
/* Hands a text that grows over (the caller releases it), or frees it and fails. Errors: NO_MEMORY.
 */
fp8_status fp8_text_finish(fp8_text *t, char **text, uint64_t *bytes, fp8_error *err);
/* Passes on what is left of a text with a drain, and frees its buffer. Errors: the drain's,
 * NO_MEMORY. */
fp8_status fp8_text_close(fp8_text *t, fp8_error *err);
/* A drain that takes nothing, to count the bytes of a text. */
fp8_status fp8_text_count(void *user, const char *text, uint64_t bytes, fp8_error *err);

#endif
