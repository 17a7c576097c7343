/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c - a text that doubles its room, or empties it when it is full. */
#include "ckpt/text.h"

#include "ckpt/json.h"

#include <string.h>

enum { DRAIN_ROOM = 1 << 16 };

static void pass_on(fp8_text *t, const char *text, uint64_t bytes)
{
    if (t->status == FP8_OK && bytes)
        t->status = t->drain(t->user, text, bytes, &t->why);
    t->drained += bytes;
}

static void pass_on_buffer(fp8_text *t)
{
    pass_on(t, t->text, t->bytes);
    t->bytes = 0;
}

/* Room for `more` bytes and a NUL; false if there is none. */
static bool reserve(fp8_text *t, uint64_t more)
{
    if (t->drain && t->bytes + more >= t->room)
        pass_on_buffer(t);
    if (t->status != FP8_OK)
        return false;
    if (t->bytes + more < t->room)
        return true;
    uint64_t room = 2 * (t->bytes + more) + (t->drain ? DRAIN_ROOM : 256);
    char *text = fp8_alloc(t->ctx, room);
    if (!text) {
        t->status = fp8_fail(&t->why, FP8_E_NO_MEMORY, "out of memory for a text of %llu bytes",
                             (unsigned long long)room);
        return false;
    }
    if (t->bytes)
        memcpy(text, t->text, t->bytes);
    fp8_release(t->ctx, t->text);
    t->text = text;
    t->room = room;
    return true;
}

void fp8_text_put_bytes(fp8_text *t, const char *text, uint64_t bytes)
{
    if (t->drain && bytes >= DRAIN_ROOM) {
        pass_on_buffer(t);
        pass_on(t, text, bytes);
        return;
    }
    if (!reserve(t, bytes))
        return;
    memcpy(t->text + t->bytes, text, bytes);
    t->bytes += bytes;
    t->text[t->bytes] = 0;
}

void fp8_text_put(fp8_text *t, const char *text)
{
    fp8_text_put_bytes(t, text, strlen(text));
}

void fp8_text_put_number(fp8_text *t, uint64_t value)
{
    char digits[24], *end = digits + sizeof digits, *first = end;
    do
        *--first = (char)('0' + value % 10);
    while (value /= 10);
    fp8_text_put_bytes(t, first, (uint64_t)(end - first));
}

void fp8_text_put_quoted(fp8_text *t, const char *text, uint64_t bytes)
{
    if (!reserve(t, fp8_json_quote(text, bytes, NULL)))
        return;
    t->bytes += fp8_json_quote(text, bytes, t->text + t->bytes);
    t->text[t->bytes] = 0;
}

void fp8_text_put_line(fp8_text *t, int level)
{
    fp8_text_put(t, "\n");
    for (int i = 0; i < level; i++)
        fp8_text_put(t, "  ");
}

static fp8_status end(fp8_text *t, fp8_error *err)
{
    if (t->status != FP8_OK && err)
        *err = t->why;
    if (t->status != FP8_OK || t->drain) {
        fp8_release(t->ctx, t->text);
        t->text = NULL;
    }
    return t->status;
}

fp8_status fp8_text_finish(fp8_text *t, char **text, uint64_t *bytes, fp8_error *err)
{
    if (reserve(t, 0))
        t->text[t->bytes] = 0;
    fp8_status status = end(t, err);
    *text = t->text;
    if (bytes)
        *bytes = t->bytes;
    return status;
}

fp8_status fp8_text_close(fp8_text *t, fp8_error *err)
{
    pass_on_buffer(t);
    return end(t, err);
}

fp8_status fp8_text_count(void *user, const char *text, uint64_t bytes, fp8_error *err)
{
    (void)user;
    (void)text;
    (void)bytes;
    (void)err;
    return FP8_OK;
}
