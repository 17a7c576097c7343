/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h - a validating pull scanner over a text in memory: no tree, no copies, no allocation.
 *
 *     fp8_json_open(&j, text, bytes);
 *     FP8_TRY(fp8_json_enter_object(&j, err));
 *     for (;;) {
 *         FP8_TRY(fp8_json_next_key(&j, &key, &more, err));
 *         if (!more)
 *             break;
 *         FP8_TRY(fp8_json_skip(&j, &value, err)); // or any other reader of a value
 *     }
 *     FP8_TRY(fp8_json_end(&j, err));
 *
 * Checks all of RFC 8259 (UTF-8, escapes, numbers, commas, no text after the end) and a nesting
 * limit of 128. Numbers keep their text; integers are exact. Duplicate keys are for the caller to
 * find. */
#ifndef FP8_CKPT_JSON_H
#define FP8_CKPT_JSON_H

#include "base/status.h"

#include <stdbool.h>

enum { FP8_JSON_DEPTH = 128 };

/* A string between its quotes, escapes and all, or any value's text. Points into what was
 * scanned. */
typedef struct fp8_span {
    const char *text;
    uint64_t bytes;
} fp8_span;

typedef enum fp8_json_type {
    FP8_JSON_OBJECT,
    FP8_JSON_ARRAY,
    FP8_JSON_STRING,
    FP8_JSON_NUMBER,
    FP8_JSON_TRUE,
    FP8_JSON_FALSE,
    FP8_JSON_NULL,
} fp8_json_type;

typedef struct fp8_json {
    const char *text;
    uint64_t bytes, pos;
    int depth;
    bool first[FP8_JSON_DEPTH];  /* nothing read yet in this container */
    bool object[FP8_JSON_DEPTH]; /* it is an object */
} fp8_json;

/* All functions below: error FORMAT with err->pos = byte in the text and a message that names the
 * rule; the caller puts the file's name in front (fp8_error_prefix). Afterwards the scanner must
 * not be used again. */
void fp8_json_open(fp8_json *j, const char *text, uint64_t bytes);
fp8_status fp8_json_enter_object(fp8_json *j, fp8_error *err);
fp8_status fp8_json_enter_array(fp8_json *j, fp8_error *err);
/* *more = false at the closing brace, which is consumed; else *key is the key's raw span. */
fp8_status fp8_json_next_key(fp8_json *j, fp8_span *key, bool *more, fp8_error *err);
/* *more = false at the closing bracket, which is consumed. */
fp8_status fp8_json_next_item(fp8_json *j, bool *more, fp8_error *err);
fp8_status fp8_json_string(fp8_json *j, fp8_span *out, fp8_error *err);
/* An integer of 0..2^63-1 written without sign, fraction or exponent. */
fp8_status fp8_json_u63(fp8_json *j, int64_t *out, fp8_error *err);
/* Any number, as a double. */
fp8_status fp8_json_double(fp8_json *j, double *out, fp8_error *err);
/* Checks and passes over one value of any type; *out (may be NULL) = its text. */
fp8_status fp8_json_skip(fp8_json *j, fp8_span *out, fp8_error *err);
/* Only white space may be left. */
fp8_status fp8_json_end(fp8_json *j, fp8_error *err);

/* Decodes the escapes of a checked string span into dst (room for span.bytes; may be span.text
 * itself); returns the length. The result may hold NUL. */
uint64_t fp8_json_unescape(fp8_span span, char *dst);
/* The decoded span equals the NUL-terminated text. */
bool fp8_json_equals(fp8_span span, const char *text);
/* How many of the span's bytes to print in a message: at most 160, and whole characters. */
int fp8_span_shown(fp8_span span);
/* Writes text[0..bytes) as a JSON string with quotes; dst may be NULL to measure. Returns its
 * length. */
uint64_t fp8_json_quote(const char *text, uint64_t bytes, char *dst);

/* Bytes of the UTF-8 sequence of two or more that starts at text (up to n bytes, n >= 1), 0 if it
 * is none: overlong forms, surrogates and code points above U+10FFFF are none. */
uint64_t fp8_utf8_length(const unsigned char *text, uint64_t n);

#endif
