/* SPDX-License-Identifier: Apache-2.0
 *
 * escape.c - UTF-8 one character at a time, and the two ways to escape it. */
#include "cli/escape.h"

#include <stdbool.h>
#include <string.h>

#define BAD_BYTE UINT32_MAX

/* The character at text[0], bytes >= 1, and in *used its length; BAD_BYTE and 1 if it is no UTF-8
 * (overlong forms, surrogates and values above U+10FFFF are none). */
static uint32_t decode(const unsigned char *text, size_t bytes, size_t *used)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = text[0];
    size_t length = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;
    *used = 1;
    if (length == 1)
        return c;
    if (length == 0 || length > bytes)
        return BAD_BYTE;
    c &= 0x7Fu >> length;
    for (size_t i = 1; i < length; i++) {
        if (text[i] >> 6 != 2)
            return BAD_BYTE;
        c = c << 6 | (text[i] & 0x3Fu);
    }
    if (c < least[length] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return BAD_BYTE;
    *used = length;
    return c;
}

/* Characters that a terminal acts on, or that change the order or the lines of the text. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x200B && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF;
}

/* One character of text, shown in out[16]; returns its columns. */
static size_t show(char out[16], const char *text, size_t bytes, size_t *used)
{
    const unsigned char *p = (const unsigned char *)text;
    uint32_t c = decode(p, bytes, used);
    if (c == BAD_BYTE || (c < 0x80 && is_unsafe(c)))
        return (size_t)snprintf(out, 16, "\\x%02X", p[0]);
    if (is_unsafe(c))
        return (size_t)snprintf(out, 16, "\\u{%04X}", (unsigned)c);
    memcpy(out, text, *used);
    out[*used] = 0;
    return 1;
}

void cli_text_print(FILE *out, const char *text, size_t bytes)
{
    char shown[16];
    for (size_t i = 0, used; i < bytes; i += used) {
        show(shown, text + i, bytes - i, &used);
        fputs(shown, out);
    }
}

size_t cli_text_width(const char *text, size_t bytes)
{
    char shown[16];
    size_t width = 0;
    for (size_t i = 0, used; i < bytes; i += used)
        width += show(shown, text + i, bytes - i, &used);
    return width;
}

/* Appends the characters of `text` whose columns lie in [first, last) to out[size]. */
static void append_columns(char *out, size_t size, const char *text, size_t bytes, size_t first,
                           size_t last)
{
    char shown[16];
    size_t column = 0, end = strlen(out);
    for (size_t i = 0, used; i < bytes; i += used) {
        size_t width = show(shown, text + i, bytes - i, &used), length = strlen(shown);
        if (column >= first && column + width <= last && end + length < size) {
            memcpy(out + end, shown, length + 1);
            end += length;
        }
        column += width;
    }
}

void cli_text_fit(char *out, size_t size, const char *text, size_t bytes, size_t width)
{
    size_t whole = cli_text_width(text, bytes);
    out[0] = 0;
    if (whole <= width) {
        append_columns(out, size, text, bytes, 0, whole);
        return;
    }
    if (width < 5 || size < 8)
        return;
    size_t head = (width - 2) / 2, tail = width - 2 - head;
    append_columns(out, size - 3, text, bytes, 0, head);
    append_columns(out, size, "..", 2, 0, 2);
    append_columns(out, size, text, bytes, whole - tail, whole);
}

/* Bytes at the start of text that JSON takes as they are: printable ASCII. */
static size_t plain_run(const char *text, size_t bytes)
{
    size_t n = 0;
    while (n < bytes && text[n] >= ' ' && text[n] < 0x7F && text[n] != '"' && text[n] != '\\')
        n++;
    return n;
}

void cli_text_json(FILE *out, const char *text, size_t bytes)
{
    static const char letters[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    fputc('"', out);
    for (size_t i = 0, used; i < bytes; i += used) {
        used = plain_run(text + i, bytes - i);
        if (used > 0) {
            fwrite(text + i, 1, used, out);
            continue;
        }
        uint32_t c = decode((const unsigned char *)text + i, bytes - i, &used);
        if (c == BAD_BYTE)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (char)c);
        else if (c < 32 && letters[c])
            fprintf(out, "\\%c", letters[c]);
        else if (c < 0x10000 && is_unsafe(c))
            fprintf(out, "\\u%04x", (unsigned)c);
        else
            fwrite(text + i, 1, used, out);
    }
    fputc('"', out);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Edit distance (insert, delete, replace) of a and b, whatever their case; 99 if one is longer than
 * 31 bytes. */
static size_t distance(const char *a, const char *b)
{
    size_t row[32], rows = strlen(a), columns = strlen(b);
    if (rows > 31 || columns > 31)
        return 99;
    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t replaced = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
            size_t shorter = row[j] < row[j - 1] ? row[j] : row[j - 1];
            diagonal = row[j];
            row[j] = replaced < shorter + 1 ? replaced : shorter + 1;
        }
    }
    return row[columns];
}

const char *cli_text_nearest(const char *word, const char *(*next)(int64_t i))
{
    const char *best = NULL, *candidate;
    size_t least = strlen(word) / 3 < 2 ? strlen(word) / 3 : 2;
    for (int64_t i = 0; (candidate = next(i)) != NULL; i++) {
        size_t edits = distance(word, candidate);
        if (edits <= least && (best == NULL || edits < least)) {
            best = candidate;
            least = edits;
        }
    }
    return best;
}
