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

void fp8_page_html(fp8_page *page, const char *text)
{
    static const char *const entities[256] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    for (; *text; text++) {
        const char *entity = entities[(unsigned char)*text];
        if (entity)
            fp8_page_put(page, entity);
        else
            put_bytes(page, text, 1);
    }
}

void fp8_page_json(fp8_page *page, const char *text)
{
    /* Character by character into a small buffer: a name has no length limit. An escape takes at
     * most 6 bytes. */
    char quoted[16];
    fp8_page_put(page, "\"");
    for (; *text; text++) {
        uint64_t n = (unsigned char)*text < 0x80 ? fp8_json_quote(text, 1, quoted) : 0;
        if (n > 2)
            put_bytes(page, quoted + 1, n - 2);
        else
            put_bytes(page, text, 1);
    }
    fp8_page_put(page, "\"");
}
