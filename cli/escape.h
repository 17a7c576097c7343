/* SPDX-License-Identifier: Apache-2.0
 *
 * escape.h - text that comes from files, made safe to show: for a terminal (no control character
 * reaches it) and for JSON. Input need not be valid UTF-8. */
#ifndef FP8_CLI_ESCAPE_H
#define FP8_CLI_ESCAPE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes text[bytes] to `out`. Control characters (C0, DEL, C1), marks that reorder a line and
 * bytes that are not UTF-8 appear as \xNN or \u{NNNN}, a backslash as itself. */
void cli_text_print(FILE *out, const char *text, size_t bytes);

/* Columns that cli_text_print uses, one for a character. */
size_t cli_text_width(const char *text, size_t bytes);

/* out = text as cli_text_print writes it, shortened in the middle by ".." to at most `width`
 * columns, and to what fits out[size]; always NUL-terminated. */
void cli_text_fit(char *out, size_t size, const char *text, size_t bytes, size_t width);

/* Writes text[bytes] as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void cli_text_json(FILE *out, const char *text, size_t bytes);

/* The text next(0), next(1), .. that is nearest to `word` whatever its case, NULL if none is within
 * two edits and a third of its length. */
const char *cli_text_nearest(const char *word, const char *(*next)(int64_t i));

#endif
