/* SPDX-License-Identifier: Apache-2.0
 *
 * convert_driver.c - one conversion through the public interface, for tests that need it in a
 * process of its own:
 *
 *     convert_driver quantize|dequantize|convert SRC DST [KEY=VALUE]..
 *
 * Keys: scheme engine numerics dtype keep only set report scales (texts), threads memory shard
 * part parts (numbers), resume force keep_nan plan verbose (0 or 1). Exit status: the fp8_status.
 */
#include "fp8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERNS = 16 };

typedef struct options {
    fp8_convert_desc desc;
    fp8_pattern patterns[PATTERNS];
    int32_t threads;
    int plan_only, verbose;
} options;

static void add_pattern(options *o, fp8_pattern_kind kind, char *text)
{
    if (o->desc.pattern_count == PATTERNS)
        exit(125);
    fp8_pattern *p = &o->patterns[o->desc.pattern_count++];
    char *equals = kind == FP8_PATTERN_SET ? strrchr(text, '=') : NULL;
    if (equals)
        *equals = 0;
    *p = (fp8_pattern){kind, text, equals ? equals + 1 : NULL};
    o->desc.patterns = o->patterns;
}

static void take(options *o, char *key, char *value)
{
    fp8_convert_desc *d = &o->desc;
    const struct {
        const char *key;
        const char **text;
    } texts[] = {{"scheme", &d->scheme},
                 {"engine", &d->engine},
                 {"numerics", &d->numerics},
                 {"report", &d->report},
                 {"scales", &d->activation_scales}};
    const struct {
        const char *key;
        int32_t *number;
    } numbers[] = {{"threads", &o->threads}, {"part", &d->part_index}, {"parts", &d->part_count},
                   {"resume", &d->resume},   {"force", &d->force},     {"keep_nan", &d->keep_nan},
                   {"plan", &o->plan_only},  {"verbose", &o->verbose}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(key, texts[i].key))
            *texts[i].text = value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key))
            *numbers[i].number = atoi(value);
    if (!strcmp(key, "memory"))
        d->max_memory_bytes = strtoull(value, NULL, 10);
    if (!strcmp(key, "shard"))
        d->max_shard_bytes = strtoull(value, NULL, 10);
    if (!strcmp(key, "dtype"))
        d->dtype = fp8_dtype_parse(value);
    if (!strcmp(key, "keep"))
        add_pattern(o, FP8_PATTERN_KEEP, value);
    if (!strcmp(key, "only"))
        add_pattern(o, FP8_PATTERN_ONLY, value);
    if (!strcmp(key, "set"))
        add_pattern(o, FP8_PATTERN_SET, value);
}

static void print_plan(const fp8_convert *conv)
{
    for (int64_t i = 0; i < fp8_convert_count(conv); i++) {
        fp8_plan_row row;
        if (fp8_convert_row(conv, i, &row) == FP8_OK)
            printf("%s\t%s\t%s\t%s\t%s\n", row.name, row.action, row.scheme,
                   row.dtype_out ? fp8_dtype_name(row.dtype_out) : "-", row.reason);
    }
    fp8_plan_summary s;
    fp8_convert_summary(conv, &s);
    printf("tensors %lld changed %lld kept %lld in %llu out %llu peak %llu shards %lld\n",
           (long long)s.tensors, (long long)s.changed, (long long)s.kept,
           (unsigned long long)s.bytes_in, (unsigned long long)s.bytes_out,
           (unsigned long long)s.peak_memory_bytes, (long long)s.shards_out);
}

static fp8_status convert(options *o, fp8_error *err)
{
    fp8_context_desc cd = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx = NULL;
    fp8_convert *conv = NULL;
    cd.threads = o->threads;
    fp8_status status = fp8_context_create(&cd, &ctx, err);
    if (status == FP8_OK)
        status = fp8_convert_plan(ctx, &o->desc, &conv, err);
    if (status == FP8_OK && o->verbose)
        print_plan(conv);
    if (status == FP8_OK && !o->plan_only)
        status = fp8_convert_run(conv, NULL, NULL, err);
    for (int64_t i = 0; o->verbose && fp8_convert_warning(conv, i); i++)
        fprintf(stderr, "warning: %s\n", fp8_convert_warning(conv, i));
    fp8_convert_free(conv);
    fp8_context_free(ctx);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const verbs[] = {"quantize", "dequantize", "convert"};
    options o = {.desc = FP8_CONVERT_DESC_INIT};
    int verb = 3;
    for (int v = 0; argc > 3 && v < 3; v++)
        verb = strcmp(argv[1], verbs[v]) ? verb : v;
    if (verb == 3)
        return 125;
    o.desc.verb = (fp8_verb)verb;
    o.desc.src = argv[2];
    o.desc.dst = argv[3];
    for (int i = 4; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            return 125;
        *equals = 0;
        take(&o, argv[i], equals + 1);
    }
    fp8_error err = {.msg = ""};
    fp8_status status = convert(&o, &err);
    if (status != FP8_OK)
        fprintf(stderr, "%s: %s\n", fp8_status_name(status), err.msg);
    return (int)status;
}
