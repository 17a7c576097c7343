/* SPDX-License-Identifier: Apache-2.0
 *
 * splice.c - config.json with one member replaced, added or cut out. Works on the bytes between
 * two places of the text, so that numbers, key order and layout of all else stay as they were. */
#include "ckpt/config.h"

#include "ckpt/json_pick.h"
#include "ckpt/text.h"

#include <string.h>

static const char name[] = "quantization_config";
static const char old_name[] = "compression_config";
/* A member of the object: offsets in the text. */
typedef struct member {
    uint64_t key;        /* of the opening quote */
    uint64_t value, end; /* of the value */
    bool found;
} member;

/* An object and, of its members, the wanted one, its neighbours and the last. */
typedef struct object {
    uint64_t open, close; /* of the braces */
    member wanted, before, after, last;
} object;

static fp8_status scan(const char *text, fp8_span span, const char *key, object *out,
                       fp8_error *err)
{
    fp8_json j;
    fp8_span k, value;
    bool more;
    *out = (object){.open = (uint64_t)(span.text - text)};
    out->close = out->open + span.bytes - 1;
    fp8_json_open(&j, span.text, span.bytes);
    FP8_TRY(fp8_json_enter_object(&j, err));
    for (;;) {
        FP8_TRY(fp8_json_next_key(&j, &k, &more, err));
        if (!more)
            return fp8_json_end(&j, err);
        FP8_TRY(fp8_json_skip(&j, &value, err));
        member m = {(uint64_t)(k.text - text) - 1, (uint64_t)(value.text - text),
                    (uint64_t)(value.text - text) + value.bytes, true};
        if (fp8_json_equals(k, key)) {
            FP8_FAIL_IF(out->wanted.found, err, FP8_E_FORMAT, "the key \"%s\" comes twice", key);
            out->wanted = m;
            out->before = out->last;
        } else if (out->wanted.found && !out->after.found) {
            out->after = m;
        }
        out->last = m;
    }
}

/* What goes when the wanted member goes: text[begin, end), a comma with it. */
static void cut(const object *o, uint64_t *begin, uint64_t *end)
{
    *begin = o->before.found ? o->before.end : o->open + 1;
    *end = o->wanted.end;
    if (!o->before.found && o->after.found) {
        *begin = o->wanted.key;
        *end = o->after.key;
    } else if (!o->before.found) {
        *end = o->close;
    }
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* How the file lays out its top level: the white space before a key, and ": ". */
typedef struct layout {
    fp8_span gap;    /* before the key, from the comma or brace on */
    fp8_span indent; /* the part of gap after its last line break */
    fp8_span colon;
    bool lines, crlf;
} layout;

static layout layout_of(const char *text, const member *m)
{
    layout out = {{"\n  ", 3}, {"  ", 2}, {": ", 2}, true, false};
    if (!m->found)
        return out;
    uint64_t begin = m->key;
    while (begin > 0 && is_space(text[begin - 1]))
        begin--;
    out.gap = (fp8_span){text + begin, m->key - begin};
    uint64_t line = m->key;
    while (line > begin && text[line - 1] != '\n')
        line--;
    out.lines = line > begin;
    out.crlf = out.lines && line - begin >= 2 && text[line - 2] == '\r';
    out.indent = (fp8_span){text + line, m->key - line};
    uint64_t colon = m->value;
    while (text[colon - 1] != '"')
        colon--;
    out.colon = (fp8_span){text + colon, m->value - colon};
    return out;
}

static void put_span(fp8_text *t, fp8_span span)
{
    fp8_text_put_bytes(t, span.text, span.bytes);
}

/* Our value, whose lines are indented by two spaces a level, in the file's layout. */
static void put_value(fp8_text *t, const char *value, const layout *l)
{
    while (*value) {
        size_t n = strcspn(value, "\n");
        fp8_text_put_bytes(t, value, n);
        value += n;
        if (!*value)
            return;
        size_t spaces = strspn(++value, " ");
        value += spaces;
        if (!l->lines) {
            if (t->bytes && t->status == FP8_OK && t->text[t->bytes - 1] == ',' &&
                l->colon.bytes > 1)
                fp8_text_put(t, " ");
            continue;
        }
        fp8_text_put(t, l->crlf ? "\r\n" : "\n");
        for (size_t level = 0; level <= spaces / 2; level++)
            put_span(t, l->indent);
    }
}

/* The member with our value in place of the old one, or after the last member. */
static fp8_status put_member(const fp8_context *ctx, const char *text, uint64_t bytes,
                             const char *value, char **out, uint64_t *out_bytes, fp8_error *err)
{
    fp8_span top;
    object o;
    fp8_text t = {.ctx = ctx};
    FP8_TRY(fp8_json_whole_object(text, bytes, &top, err));
    FP8_TRY(scan(text, top, name, &o, err));
    layout l = layout_of(text, o.wanted.found ? &o.wanted : &o.last);
    uint64_t begin = o.wanted.value, end = o.wanted.end;
    if (!o.wanted.found)
        begin = end = o.last.found ? o.last.end : o.open + 1;
    fp8_text_put_bytes(&t, text, begin);
    if (!o.wanted.found) {
        fp8_text_put(&t, o.last.found ? "," : "");
        put_span(&t, l.gap);
        fp8_text_put_quoted(&t, name, sizeof name - 1);
        put_span(&t, l.colon);
    }
    put_value(&t, value, &l);
    if (!o.last.found) {
        fp8_text_put(&t, "\n");
        end = o.close;
    }
    fp8_text_put_bytes(&t, text + end, bytes - end);
    return fp8_text_finish(&t, out, out_bytes, err);
}

/* The member `key` of the object: where to cut it out; *found = false if it is not there. */
static fp8_status find_cut(const char *text, fp8_span span, const char *key, uint64_t *begin,
                           uint64_t *end, bool *found, fp8_error *err)
{
    object o;
    FP8_TRY(scan(text, span, key, &o, err));
    *found = o.wanted.found;
    if (*found)
        cut(&o, begin, end);
    return FP8_OK;
}

/* The next thing to cut: the old name at the top, either name in a nested config, and, if `all`,
 * the new name at the top. */
static fp8_status next_cut(const char *text, uint64_t bytes, bool all, uint64_t *begin,
                           uint64_t *end, bool *found, fp8_error *err)
{
    fp8_span top;
    FP8_TRY(fp8_json_whole_object(text, bytes, &top, err));
    FP8_TRY(find_cut(text, top, old_name, begin, end, found, err));
    if (!*found && all)
        FP8_TRY(find_cut(text, top, name, begin, end, found, err));
    for (int i = 0; !*found && i < FP8_CONFIG_PARTS; i++) {
        fp8_pick inner = {fp8_config_parts[i], {NULL, 0}};
        FP8_TRY(fp8_json_pick(top, &inner, 1, err));
        if (!fp8_pick_starts(inner.value, '{'))
            continue;
        FP8_TRY(find_cut(text, inner.value, name, begin, end, found, err));
        if (!*found)
            FP8_TRY(find_cut(text, inner.value, old_name, begin, end, found, err));
    }
    return FP8_OK;
}

/* Cuts in place until nothing is left to cut. */
static fp8_status cut_all(char *text, uint64_t *bytes, bool all, fp8_error *err)
{
    for (;;) {
        uint64_t begin = 0, end = 0;
        bool found;
        FP8_TRY(next_cut(text, *bytes, all, &begin, &end, &found, err));
        if (!found)
            return FP8_OK;
        memmove(text + begin, text + end, *bytes - end);
        *bytes -= end - begin;
        text[*bytes] = 0;
    }
}

fp8_status fp8_config_splice(const fp8_context *ctx, const char *text, uint64_t bytes,
                             const char *value, char **out, uint64_t *out_bytes, fp8_error *err)
{
    *out = NULL;
    fp8_status status = FP8_OK;
    if (value) {
        status = put_member(ctx, text, bytes, value, out, out_bytes, err);
    } else {
        *out = fp8_copy_text(ctx, text, bytes);
        *out_bytes = bytes;
        FP8_FAIL_IF(!*out, err, FP8_E_NO_MEMORY, "out of memory for config.json");
    }
    if (status == FP8_OK)
        status = cut_all(*out, out_bytes, !value, err);
    if (status == FP8_OK)
        return FP8_OK;
    if (status == FP8_E_FORMAT)
        fp8_error_prefix(err, "config.json");
    fp8_release(ctx, *out);
    *out = NULL;
    return status;
}
