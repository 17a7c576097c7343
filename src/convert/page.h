/* SPDX-License-Identifier: Apache-2.0
 *
 * page.h - a text file written from its beginning to its end through a small buffer. The first
 * failure is remembered, later calls do nothing, and fp8_page_close tells. */
#ifndef FP8_CONVERT_PAGE_H
#define FP8_CONVERT_PAGE_H

#include "base/context.h"

typedef struct fp8_page {
    const fp8_context *ctx;
    const char *path; /* borrowed, for messages */
    int fd;           /* -1: not open */
    char *buffer;
    uint64_t used, written; /* bytes in the buffer, and in the file before them */
    fp8_status status;
    fp8_error err;
} fp8_page;

/* Creates or empties the file. */
void fp8_page_open(fp8_page *page, const fp8_context *ctx, const char *path);
/* Writes what is left and closes; a file (no device) is removed after a failure. Errors: IO,
 * NO_SPACE, NOT_FOUND (no such folder), NO_MEMORY. */
fp8_status fp8_page_close(fp8_page *page, fp8_error *err);

void fp8_page_put(fp8_page *page, const char *text);
/* printf of short texts: at most 500 bytes, in the locale "C": numbers have a
 * point whatever the process has set. */
void fp8_page_print(fp8_page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* With & < > " ' as HTML entities; \xNN for bytes that are no UTF-8 and for ASCII controls,
 * \u{NNNN} for other characters that are not seen as they are. */
void fp8_page_html(fp8_page *page, const char *text);
/* As a JSON string with quotes; a byte that is no UTF-8 becomes U+FFFD. */
void fp8_page_json(fp8_page *page, const char *text);
/* A JSON number of 17 digits, or null for NaN and infinity. */
void fp8_page_json_number(fp8_page *page, double x);

#endif
