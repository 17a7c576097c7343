/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c - a text that doubles its room. */
#include "ckpt/text.h"

#include "ckpt/json.h"

#include <string.h>

/* Room for `more` bytes and a NUL; false if there is none. */
static bool reserve(fp8_text *t, uint64_t more)
{
    if (t->failed)
        return false;
    if (t->bytes + more < t->room)
        return true;
    uint64_t room = 2 * (t->bytes + more) + 256;
    char *text = fp8_alloc(t->ctx, room);
    if (!text) {
        t->failed = true;
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

fp8_status fp8_text_finish(fp8_text *t, char **text, uint64_t *bytes, fp8_error *err)
{
    if (!reserve(t, 0)) {
        fp8_release(t->ctx, t->text);
        *text = NULL;
        return fp8_fail(err, FP8_E_NO_MEMORY, "out of memory for a text of %llu bytes",
                        (unsigned long long)t->bytes);
    }
    t->text[t->bytes] = 0;
    *text = t->text;
    if (bytes)
        *bytes = t->bytes;
    return FP8_OK;
}
