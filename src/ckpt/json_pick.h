/* SPDX-License-Identifier: Apache-2.0
 *
 * json_pick.h - a few named members of a JSON object, as spans: what config files are read with. */
#ifndef FP8_CKPT_JSON_PICK_H
#define FP8_CKPT_JSON_PICK_H

#include "ckpt/json.h"

/* One member that is wanted. value: its text; text NULL if it is absent or null. */
typedef struct fp8_pick {
    const char *key;
    fp8_span value;
} fp8_pick;

/* Fills picks[n] from the object and checks its syntax to the end. An object that is no object
 * (text NULL included) has no members. Errors: FORMAT (also a wanted key that comes twice). */
fp8_status fp8_json_pick(fp8_span object, fp8_pick *picks, int n, fp8_error *err);

/* The object that is all of a text, white space around it aside. Error FORMAT. */
fp8_status fp8_json_whole_object(const char *text, uint64_t bytes, fp8_span *out, fp8_error *err);

/* The string, unescaped and NUL-terminated; "" if the value is no string or does not fit. */
void fp8_pick_text(fp8_span value, char *dst, uint64_t room);
/* The integer; `otherwise` if the value is no integer of 0..10^18-1. */
int64_t fp8_pick_int(fp8_span value, int64_t otherwise);
/* The value is the string `text`. */
bool fp8_pick_is(fp8_span value, const char *text);
bool fp8_pick_true(fp8_span value);
/* The value is an object (or array, or string): its first byte. */
bool fp8_pick_starts(fp8_span value, char first);

/* Calls fn(arg, item) for each item of the array, or each member (key, value) of the object; a
 * value that is neither has none. An array's items have an empty key. */
typedef fp8_status (*fp8_item_fn)(void *arg, fp8_span key, fp8_span value, fp8_error *err);
fp8_status fp8_json_each(fp8_span container, fp8_item_fn fn, void *arg, fp8_error *err);

#endif
