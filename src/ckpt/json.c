/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - the pull scanner: RFC 8259 and nothing else, one byte of look-ahead, no allocation.
 * Strings are checked in one pass, eight plain bytes at a time; escapes are decoded only when a
 * caller asks. */
#define _GNU_SOURCE
#include "ckpt/json.h"

#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

static fp8_status bad(const fp8_json *j, const char *what, fp8_error *err)
{
    return fp8_fail_at(err, FP8_E_FORMAT, (int64_t)j->pos, "JSON byte %" PRIu64 ": %s", j->pos,
                       what);
}

void fp8_json_open(fp8_json *j, const char *text, uint64_t bytes)
{
    j->text = text;
    j->bytes = bytes;
    j->pos = 0;
    j->depth = 0;
}

/* The byte at the scanner's position, -1 at the end. */
static int look(const fp8_json *j)
{
    return j->pos < j->bytes ? (unsigned char)j->text[j->pos] : -1;
}

static int look_past_space(fp8_json *j)
{
    int c = look(j);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        j->pos++;
        c = look(j);
    }
    return c;
}

/* ---- values ---- */

/* The type of the next value; white space before it is consumed. */
static fp8_status peek(fp8_json *j, fp8_json_type *out, fp8_error *err)
{
    int c = look_past_space(j);
    switch (c) {
    case '{':
        *out = FP8_JSON_OBJECT;
        return FP8_OK;
    case '[':
        *out = FP8_JSON_ARRAY;
        return FP8_OK;
    case '"':
        *out = FP8_JSON_STRING;
        return FP8_OK;
    case 't':
        *out = FP8_JSON_TRUE;
        return FP8_OK;
    case 'f':
        *out = FP8_JSON_FALSE;
        return FP8_OK;
    case 'n':
        *out = FP8_JSON_NULL;
        return FP8_OK;
    case -1:
        return bad(j, "the text ends where a value must stand", err);
    case 0xef:
        return bad(j, "a byte order mark or other text where a value must stand", err);
    default:
        if (c != '-' && (c < '0' || c > '9'))
            return bad(j, "no value starts with this character", err);
        *out = FP8_JSON_NUMBER;
        return FP8_OK;
    }
}

static const char *type_names[] = {"an object", "an array", "a string", "a number",
                                   "true",      "false",    "null"};

/* Fails unless the next value is of the type. */
static fp8_status expect(fp8_json *j, fp8_json_type wanted, fp8_error *err)
{
    fp8_json_type found;
    FP8_TRY(peek(j, &found, err));
    if (found == wanted)
        return FP8_OK;
    return fp8_fail_at(err, FP8_E_FORMAT, (int64_t)j->pos, "JSON byte %" PRIu64 ": %s, must be %s",
                       j->pos, type_names[found], type_names[wanted]);
}

/* ---- containers ---- */

static fp8_status enter(fp8_json *j, fp8_json_type type, fp8_error *err)
{
    FP8_TRY(expect(j, type, err));
    if (j->depth == FP8_JSON_DEPTH)
        return bad(j, "nested deeper than 128", err);
    j->first[j->depth] = true;
    j->object[j->depth] = type == FP8_JSON_OBJECT;
    j->depth++;
    j->pos++;
    return FP8_OK;
}

fp8_status fp8_json_enter_object(fp8_json *j, fp8_error *err)
{
    return enter(j, FP8_JSON_OBJECT, err);
}

fp8_status fp8_json_enter_array(fp8_json *j, fp8_error *err)
{
    return enter(j, FP8_JSON_ARRAY, err);
}

/* Passes the comma before the next member, or the closing bracket. */
static fp8_status next(fp8_json *j, bool *more, fp8_error *err)
{
    bool *first = &j->first[j->depth - 1];
    bool object = j->object[j->depth - 1];
    int c = look_past_space(j);
    if (c == (object ? '}' : ']')) {
        j->pos++;
        j->depth--;
        *more = false;
        return FP8_OK;
    }
    *more = true;
    if (*first) {
        *first = false;
        return FP8_OK;
    }
    if (c == -1)
        return bad(j, object ? "the text ends inside an object" : "the text ends inside an array",
                   err);
    if (c != ',')
        return bad(j, object ? "must be ',' or '}'" : "must be ',' or ']'", err);
    j->pos++;
    c = look_past_space(j);
    if (c == '}' || c == ']')
        return bad(j, "a comma before the closing bracket", err);
    return FP8_OK;
}

fp8_status fp8_json_next_item(fp8_json *j, bool *more, fp8_error *err)
{
    return next(j, more, err);
}

fp8_status fp8_json_next_key(fp8_json *j, fp8_span *key, bool *more, fp8_error *err)
{
    FP8_TRY(next(j, more, err));
    if (!*more)
        return FP8_OK;
    int c = look_past_space(j);
    if (c == -1)
        return bad(j, "the text ends inside an object", err);
    if (c != '"')
        return bad(j, "a key must be a string", err);
    FP8_TRY(fp8_json_string(j, key, err));
    if (look_past_space(j) != ':')
        return bad(j, "must be ':'", err);
    j->pos++;
    return FP8_OK;
}

/* ---- strings ---- */

/* True if one of 8 bytes is a quote, a backslash, a control character or not ASCII. */
static bool has_special_byte(uint64_t w)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = w ^ (ones * '"'), backslash = w ^ (ones * '\\');
    uint64_t below_space = w - ones * 0x20;
    return ((w | below_space | (quote - ones) | (backslash - ones)) & high) != 0;
}

uint64_t fp8_utf8_length(const unsigned char *text, uint64_t n)
{
    unsigned char c = text[0], low = 0x80, high = 0xbf; /* range of the second byte */
    uint64_t length;
    if (c >= 0xc2 && c <= 0xdf)
        length = 2;
    else if (c >= 0xe0 && c <= 0xef)
        length = 3;
    else if (c >= 0xf0 && c <= 0xf4)
        length = 4;
    else
        return 0;
    if (c == 0xe0)
        low = 0xa0;
    if (c == 0xed)
        high = 0x9f;
    if (c == 0xf0)
        low = 0x90;
    if (c == 0xf4)
        high = 0x8f;
    if (n < length || text[1] < low || text[1] > high)
        return 0;
    for (uint64_t i = 2; i < length; i++)
        if (text[i] < 0x80 || text[i] > 0xbf)
            return 0;
    return length;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The value of 4 hexadecimal digits at text, -1 if the n bytes do not start with them. */
static int32_t hex4(const char *text, uint64_t n)
{
    int32_t value = 0;
    if (n < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static bool is_high_surrogate(int32_t unit)
{
    return unit >= 0xd800 && unit <= 0xdbff;
}

static bool is_low_surrogate(int32_t unit)
{
    return unit >= 0xdc00 && unit <= 0xdfff;
}

/* Passes \uXXXX or a pair of them; pos is at the backslash. */
static fp8_status pass_unicode_escape(fp8_json *j, fp8_error *err)
{
    const char *at = j->text + j->pos;
    uint64_t left = j->bytes - j->pos;
    int32_t unit = hex4(at + 2, left - 2);
    if (unit < 0)
        return bad(j, "\\u must be followed by 4 hexadecimal digits", err);
    if (is_low_surrogate(unit))
        return bad(j, "a lone low surrogate", err);
    uint64_t length = 6;
    if (is_high_surrogate(unit)) {
        bool pair =
            left >= 12 && at[6] == '\\' && at[7] == 'u' && is_low_surrogate(hex4(at + 8, left - 8));
        if (!pair)
            return bad(j, "a lone high surrogate", err);
        length = 12;
    }
    j->pos += length;
    return FP8_OK;
}

/* Passes one escape, one UTF-8 sequence or one plain character. */
static fp8_status pass_character(fp8_json *j, fp8_error *err)
{
    int c = look(j);
    if (c < 0x20)
        return bad(j, "a control character inside a string", err);
    if (c >= 0x80) {
        uint64_t n = fp8_utf8_length((const unsigned char *)j->text + j->pos, j->bytes - j->pos);
        if (n == 0)
            return bad(j, "not UTF-8", err);
        j->pos += n;
        return FP8_OK;
    }
    if (c != '\\') {
        j->pos++;
        return FP8_OK;
    }
    if (j->pos + 1 == j->bytes)
        return bad(j, "the text ends inside a string", err);
    char kind = j->text[j->pos + 1];
    if (kind == 'u')
        return pass_unicode_escape(j, err);
    if (!kind || !strchr("\"\\/bfnrt", kind))
        return bad(j, "no such escape", err);
    j->pos += 2;
    return FP8_OK;
}

fp8_status fp8_json_string(fp8_json *j, fp8_span *out, fp8_error *err)
{
    FP8_TRY(expect(j, FP8_JSON_STRING, err));
    uint64_t begin = ++j->pos;
    for (;;) {
        uint64_t word;
        while (j->bytes - j->pos >= sizeof word) {
            memcpy(&word, j->text + j->pos, sizeof word);
            if (has_special_byte(word))
                break;
            j->pos += sizeof word;
        }
        int c = look(j);
        if (c == '"')
            break;
        if (c == -1)
            return bad(j, "the text ends inside a string", err);
        FP8_TRY(pass_character(j, err));
    }
    *out = (fp8_span){j->text + begin, j->pos - begin};
    j->pos++;
    return FP8_OK;
}

/* Writes code point c as UTF-8; returns its length. */
static uint64_t put_utf8(int32_t c, char *dst)
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (char)(0xc0 | c >> 6);
        dst[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (char)(0xe0 | c >> 12);
        dst[1] = (char)(0x80 | (c >> 6 & 63));
        dst[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    dst[0] = (char)(0xf0 | c >> 18);
    dst[1] = (char)(0x80 | (c >> 12 & 63));
    dst[2] = (char)(0x80 | (c >> 6 & 63));
    dst[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* Decodes what stands at *at (one byte, or one escape of a checked string) into dst[4], moves *at
 * behind it and returns the number of bytes written. */
static uint64_t decode(const char **at, char *dst)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *p = *at;
    if (p[0] != '\\') {
        dst[0] = p[0];
        *at = p + 1;
        return 1;
    }
    *at = p + 2;
    if (p[1] != 'u') {
        const char *found = strchr(from, p[1]);
        dst[0] = found ? to[found - from] : p[1];
        return 1;
    }
    int32_t c = hex4(p + 2, 4);
    *at = p + 6;
    if (is_high_surrogate(c)) {
        c = 0x10000 + ((c - 0xd800) << 10) + (hex4(p + 8, 4) - 0xdc00);
        *at = p + 12;
    }
    return put_utf8(c, dst);
}

uint64_t fp8_json_unescape(fp8_span span, char *dst)
{
    const char *at = span.text, *end = span.text + span.bytes;
    uint64_t n = 0;
    if (!memchr(span.text, '\\', span.bytes)) {
        memmove(dst, span.text, span.bytes);
        return span.bytes;
    }
    while (at < end) {
        char piece[4];
        uint64_t bytes = decode(&at, piece);
        memcpy(dst + n, piece, bytes);
        n += bytes;
    }
    return n;
}

bool fp8_json_equals(fp8_span span, const char *text)
{
    const char *at = span.text, *end = span.text + span.bytes;
    uint64_t left = strlen(text);
    if (span.bytes < left) /* escapes only ever shrink */
        return false;
    if (!memchr(span.text, '\\', span.bytes))
        return span.bytes == left && !memcmp(span.text, text, left);
    while (at < end) {
        char piece[4];
        uint64_t bytes = decode(&at, piece);
        if (bytes > left || memcmp(piece, text, bytes))
            return false;
        text += bytes;
        left -= bytes;
    }
    return left == 0;
}

int fp8_span_shown(fp8_span span)
{
    uint64_t n = span.bytes < 160 ? span.bytes : 160;
    while (n > 0 && n < span.bytes && ((unsigned char)span.text[n] & 0xc0) == 0x80)
        n--; /* the cut would fall inside a character */
    return (int)n;
}

uint64_t fp8_json_quote(const char *text, uint64_t bytes, char *dst)
{
    static const char hex[] = "0123456789abcdef";
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    uint64_t n = 0;
    if (dst)
        dst[n] = '"';
    n++;
    for (uint64_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        bool escaped = c < 0x20 || c == '"' || c == '\\';
        const char *found = escaped && c ? strchr(plain, c) : NULL;
        char piece[6] = {(char)c};
        uint64_t length = 1;
        if (found) {
            memcpy(piece, (char[]){'\\', letters[found - plain]}, length = 2);
        } else if (c < 0x20) {
            memcpy(piece, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, length = 6);
        }
        if (dst)
            memcpy(dst + n, piece, length);
        n += length;
    }
    if (dst)
        dst[n] = '"';
    return n + 1;
}

/* ---- numbers and literals ---- */

/* Passes decimal digits; false if there is none. */
static bool pass_digits(fp8_json *j)
{
    uint64_t begin = j->pos;
    while (look(j) >= '0' && look(j) <= '9')
        j->pos++;
    return j->pos > begin;
}

static fp8_status number(fp8_json *j, fp8_span *out, fp8_error *err)
{
    FP8_TRY(expect(j, FP8_JSON_NUMBER, err));
    uint64_t begin = j->pos;
    if (look(j) == '-')
        j->pos++;
    uint64_t first = j->pos;
    if (!pass_digits(j))
        return bad(j, "a minus sign without a digit", err);
    if (j->text[first] == '0' && j->pos > first + 1)
        return bad(j, "a number with a leading zero", err);
    if (look(j) == '.') {
        j->pos++;
        if (!pass_digits(j))
            return bad(j, "a decimal point without a digit after it", err);
    }
    if (look(j) == 'e' || look(j) == 'E') {
        j->pos++;
        if (look(j) == '+' || look(j) == '-')
            j->pos++;
        if (!pass_digits(j))
            return bad(j, "an exponent without a digit", err);
    }
    *out = (fp8_span){j->text + begin, j->pos - begin};
    return FP8_OK;
}

fp8_status fp8_json_u63(fp8_json *j, int64_t *out, fp8_error *err)
{
    fp8_span span;
    FP8_TRY(number(j, &span, err));
    int64_t value = 0;
    for (uint64_t i = 0; i < span.bytes; i++) {
        bool digit = span.text[i] >= '0' && span.text[i] <= '9';
        if (!digit || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, span.text[i] - '0', &value)) {
            uint64_t at = (uint64_t)(span.text - j->text);
            return fp8_fail_at(err, FP8_E_FORMAT, (int64_t)at,
                               "JSON byte %" PRIu64 ": %.*s, must be an integer of 0..2^63-1", at,
                               fp8_span_shown(span), span.text);
        }
    }
    *out = value;
    return FP8_OK;
}

fp8_status fp8_json_double(fp8_json *j, double *out, fp8_error *err)
{
    char text[1024]; /* strtod needs an end, and the scanned text has none */
    fp8_span span;
    FP8_TRY(number(j, &span, err));
    if (span.bytes >= sizeof text)
        return bad(j, "a number of more than 1023 characters", err);
    memcpy(text, span.text, span.bytes);
    text[span.bytes] = 0;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* static in the C library */
    FP8_FAIL_IF(!c, err, FP8_E_NO_MEMORY, "no memory for the C locale");
    *out = strtod_l(text, NULL, c);
    freelocale(c);
    return FP8_OK;
}

static fp8_status literal(fp8_json *j, const char *word, fp8_error *err)
{
    uint64_t n = strlen(word);
    if (j->bytes - j->pos < n || memcmp(j->text + j->pos, word, n))
        return bad(j, "must be true, false or null", err);
    j->pos += n;
    return FP8_OK;
}

/* Passes one scalar, or the opening bracket of a container. */
static fp8_status pass_start(fp8_json *j, fp8_error *err)
{
    fp8_json_type type;
    fp8_span span;
    FP8_TRY(peek(j, &type, err));
    switch (type) {
    case FP8_JSON_OBJECT:
    case FP8_JSON_ARRAY:
        return enter(j, type, err);
    case FP8_JSON_STRING:
        return fp8_json_string(j, &span, err);
    case FP8_JSON_NUMBER:
        return number(j, &span, err);
    default:
        return literal(j, type_names[type], err);
    }
}

fp8_status fp8_json_skip(fp8_json *j, fp8_span *out, fp8_error *err)
{
    int depth = j->depth;
    look_past_space(j);
    uint64_t begin = j->pos;
    FP8_TRY(pass_start(j, err));
    while (j->depth > depth) {
        fp8_span key;
        bool more;
        if (j->object[j->depth - 1])
            FP8_TRY(fp8_json_next_key(j, &key, &more, err));
        else
            FP8_TRY(fp8_json_next_item(j, &more, err));
        if (more)
            FP8_TRY(pass_start(j, err));
    }
    if (out)
        *out = (fp8_span){j->text + begin, j->pos - begin};
    return FP8_OK;
}

fp8_status fp8_json_end(fp8_json *j, fp8_error *err)
{
    if (look_past_space(j) != -1)
        return bad(j, "text after the end of the value", err);
    return FP8_OK;
}
