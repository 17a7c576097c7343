/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h - a text that grows, for the json that we write. A failed allocation is remembered and
 * reported once, at the end. */
#ifndef FP8_CKPT_TEXT_H
#define FP8_CKPT_TEXT_H

#include "base/context.h"

#include <stdbool.h>

typedef struct fp8_text {
    const fp8_context *ctx;
    char *text; /* NUL-terminated once something was put */
    uint64_t bytes, room;
    bool failed;
} fp8_text;

/* A new text is {.ctx = ctx}. */
void fp8_text_put(fp8_text *t, const char *text);
void fp8_text_put_bytes(fp8_text *t, const char *text, uint64_t bytes);
/* As a JSON string with quotes. */
void fp8_text_put_quoted(fp8_text *t, const char *text, uint64_t bytes);
/* A line break and two spaces for each level. */
void fp8_text_put_line(fp8_text *t, int level);
/* Hands the text over (the caller releases it), or frees it and fails with NO_MEMORY. */
fp8_status fp8_text_finish(fp8_text *t, char **text, uint64_t *bytes, fp8_error *err);

#endif
