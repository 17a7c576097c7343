/* SPDX-License-Identifier: Apache-2.0
 *
 * page.c - the buffer of page.h, and the escapes of HTML and JSON. */
#define _GNU_SOURCE /* locale_t */
#include "convert/page.h"

#include "ckpt/json.h"
#include "convert/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 16, PRINT_BYTES = 512 };
#define NO_CHARACTER UINT32_MAX

void fp8_page_open(fp8_page *page, const fp8_context *ctx, const char *path)
{
    *page = (fp8_page){.ctx = ctx, .path = path, .fd = -1};
    page->buffer = fp8_alloc(ctx, BUFFER_BYTES);
    if (!page->buffer) {
        page->status = fp8_fail(&page->err, FP8_E_NO_MEMORY, "%s: no memory", path);
        return;
    }
    page->status = fp8_open_output(path, O_TRUNC, &page->fd, &page->err);
    if (page->status != FP8_OK)
        page->fd = -1;
}

static void flush(fp8_page *page)
{
    if (page->status == FP8_OK)
        page->status = fp8_pwrite_all(page->fd, page->buffer, page->used, page->written, page->path,
                                      &page->err);
    page->written += page->used;
    page->used = 0;
}

/* A report may go to a pipe or a device, which must not be removed. */
static bool is_file(const char *path)
{
    struct stat info;
    return !lstat(path, &info) && S_ISREG(info.st_mode);
}

fp8_status fp8_page_close(fp8_page *page, fp8_error *err)
{
    bool created = page->fd >= 0;
    if (created)
        flush(page);
    if (created && close(page->fd) && page->status == FP8_OK)
        page->status = fp8_fail_os(&page->err, errno, "%s", page->path);
    if (created && page->status != FP8_OK && is_file(page->path))
        unlink(page->path);
    fp8_release(page->ctx, page->buffer);
    page->buffer = NULL;
    page->fd = -1;
    if (page->status != FP8_OK && err)
        *err = page->err;
    return page->status;
}

static void put_bytes(fp8_page *page, const char *text, uint64_t bytes)
{
    while (bytes > 0 && page->status == FP8_OK) {
        uint64_t n = BUFFER_BYTES - page->used;
        n = n < bytes ? n : bytes;
        memcpy(page->buffer + page->used, text, n);
        page->used += n;
        text += n;
        bytes -= n;
        if (page->used == BUFFER_BYTES)
            flush(page);
    }
}

void fp8_page_put(fp8_page *page, const char *text)
{
    put_bytes(page, text, strlen(text));
}

void fp8_page_print(fp8_page *page, const char *format, ...)
{
    char text[PRINT_BYTES];
    va_list args;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* static in the C library */
    locale_t callers = uselocale(plain);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    uselocale(callers);
    if (plain)
        freelocale(plain);
    fp8_page_put(page, text);
}

void fp8_page_json_number(fp8_page *page, double x)
{
    if (isfinite(x))
        fp8_page_print(page, "%.17g", x);
    else
        fp8_page_put(page, "null");
}

/* The character at *text, and in *bytes its length; NO_CHARACTER and 1 for a byte that is no UTF-8.
 */
static uint32_t character_at(const char *text, uint64_t *bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    uint64_t n = p[0] < 0x80 ? 1 : fp8_utf8_length(p, strnlen(text, 4));
    *bytes = n ? n : 1;
    if (n == 0)
        return NO_CHARACTER;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (uint64_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3fu);
    return c;
}

/* Controls, what changes the order of a text or has no width, and what is no character in HTML. */
static bool is_unseen(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
}

void fp8_page_html(fp8_page *page, const char *text)
{
    static const char *const entities[0x80] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    for (uint64_t n; *text; text += n) {
        uint32_t c = character_at(text, &n);
        if (c < 0x80 && entities[c])
            fp8_page_put(page, entities[c]);
        else if (c == NO_CHARACTER || (n == 1 && is_unseen(c)))
            fp8_page_print(page, "\\x%02X", (unsigned)(unsigned char)*text);
        else if (is_unseen(c))
            fp8_page_print(page, "\\u{%04X}", (unsigned)c);
        else
            put_bytes(page, text, n);
    }
}

void fp8_page_json(fp8_page *page, const char *text)
{
    /* Character by character into a small buffer: a name has no length limit. An escape takes at
     * most 6 bytes. */
    char quoted[16];
    fp8_page_put(page, "\"");
    for (uint64_t n; *text; text += n) {
        uint32_t c = character_at(text, &n);
        if (c == NO_CHARACTER)
            fp8_page_put(page, "\\ufffd");
        else if (n == 1)
            put_bytes(page, quoted + 1, fp8_json_quote(text, 1, quoted) - 2);
        else
            put_bytes(page, text, n);
    }
    fp8_page_put(page, "\"");
}
