/* SPDX-License-Identifier: Apache-2.0
 *
 * json_pick.c - members of objects by name, over the pull scanner. */
#include "ckpt/json_pick.h"

/* What fp8_json_pick hands to itself for each member. */
typedef struct picking {
    fp8_pick *picks;
    bool *seen;
    int n;
} picking;

static fp8_status pick_member(void *arg, fp8_span key, fp8_span value, fp8_error *err)
{
    picking *p = arg;
    for (int i = 0; i < p->n; i++) {
        if (!fp8_json_equals(key, p->picks[i].key))
            continue;
        FP8_FAIL_IF(p->seen[i], err, FP8_E_FORMAT, "the key \"%s\" comes twice", p->picks[i].key);
        p->seen[i] = true;
        if (!fp8_pick_starts(value, 'n'))
            p->picks[i].value = value;
    }
    return FP8_OK;
}

fp8_status fp8_json_pick(fp8_span object, fp8_pick *picks, int n, fp8_error *err)
{
    enum { MOST = 32 };
    bool seen[MOST] = {false};
    FP8_FAIL_IF(n > MOST, err, FP8_E_ARGUMENT, "%d keys wanted, the limit is %d", n, MOST);
    for (int i = 0; i < n; i++)
        picks[i].value = (fp8_span){NULL, 0};
    if (!fp8_pick_starts(object, '{'))
        return FP8_OK;
    return fp8_json_each(object, pick_member, &(picking){picks, seen, n}, err);
}

static fp8_status each_member(fp8_json *j, fp8_item_fn fn, void *arg, fp8_error *err)
{
    fp8_span key, value;
    bool more;
    FP8_TRY(fp8_json_enter_object(j, err));
    for (;;) {
        FP8_TRY(fp8_json_next_key(j, &key, &more, err));
        if (!more)
            return FP8_OK;
        FP8_TRY(fp8_json_skip(j, &value, err));
        FP8_TRY(fn(arg, key, value, err));
    }
}

static fp8_status each_item(fp8_json *j, fp8_item_fn fn, void *arg, fp8_error *err)
{
    fp8_span value;
    bool more;
    FP8_TRY(fp8_json_enter_array(j, err));
    for (;;) {
        FP8_TRY(fp8_json_next_item(j, &more, err));
        if (!more)
            return FP8_OK;
        FP8_TRY(fp8_json_skip(j, &value, err));
        FP8_TRY(fn(arg, (fp8_span){"", 0}, value, err));
    }
}

fp8_status fp8_json_each(fp8_span container, fp8_item_fn fn, void *arg, fp8_error *err)
{
    fp8_json j;
    if (!fp8_pick_starts(container, '{') && !fp8_pick_starts(container, '['))
        return FP8_OK;
    fp8_json_open(&j, container.text, container.bytes);
    FP8_TRY(container.text[0] == '{' ? each_member(&j, fn, arg, err) : each_item(&j, fn, arg, err));
    return fp8_json_end(&j, err);
}

bool fp8_pick_starts(fp8_span value, char first)
{
    return value.text && value.bytes > 0 && value.text[0] == first;
}

fp8_status fp8_json_whole_object(const char *text, uint64_t bytes, fp8_span *out, fp8_error *err)
{
    fp8_json j;
    fp8_json_open(&j, text, bytes);
    FP8_TRY(fp8_json_skip(&j, out, err));
    FP8_TRY(fp8_json_end(&j, err));
    FP8_FAIL_IF(!fp8_pick_starts(*out, '{'), err, FP8_E_FORMAT, "it is not a JSON object");
    return FP8_OK;
}

/* The span between the quotes of a string value. */
static bool inside(fp8_span value, fp8_span *out)
{
    if (!fp8_pick_starts(value, '"') || value.bytes < 2)
        return false;
    *out = (fp8_span){value.text + 1, value.bytes - 2};
    return true;
}

void fp8_pick_text(fp8_span value, char *dst, uint64_t room)
{
    fp8_span text;
    dst[0] = 0;
    if (!inside(value, &text) || text.bytes >= room)
        return;
    dst[fp8_json_unescape(text, dst)] = 0;
}

int64_t fp8_pick_int(fp8_span value, int64_t otherwise)
{
    int64_t n = 0;
    if (!value.text || value.bytes == 0 || value.bytes > 18)
        return otherwise;
    for (uint64_t i = 0; i < value.bytes; i++) {
        if (value.text[i] < '0' || value.text[i] > '9')
            return otherwise;
        n = 10 * n + (value.text[i] - '0');
    }
    return n;
}

bool fp8_pick_is(fp8_span value, const char *text)
{
    fp8_span string;
    return inside(value, &string) && fp8_json_equals(string, text);
}

bool fp8_pick_true(fp8_span value)
{
    return fp8_pick_starts(value, 't');
}
