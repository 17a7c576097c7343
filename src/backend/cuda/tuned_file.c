/* SPDX-License-Identifier: Apache-2.0
 *
 * tuned_file.c - reading the file of tuned.h. What breaks one of its rules is refused with the line
 * and the rule; only a version that this library has not, from an older or newer one, is passed
 * over and counted. */
#define _GNU_SOURCE
#include "backend/cuda/tuned.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 22, LINE = 256, FORMAT_VERSION = 1 };

/* The text of a file, and where its next line begins. */
typedef struct text {
    const char *path;
    char *bytes;
    size_t count, at;
    int32_t line;
} text;

static fp8_status read_bytes(int fd, text *t, fp8_error *err)
{
    while (t->at < t->count) {
        const ssize_t n = read(fd, t->bytes + t->at, t->count - t->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fp8_fail_os(err, errno, "read %s at byte %zu", t->path, t->at);
        if (n == 0)
            return fp8_fail_at(err, FP8_E_TRUNCATED, (int64_t)t->at, "%s: ends at byte %zu of %zu",
                               t->path, t->at, t->count);
        t->at += (size_t)n;
    }
    t->at = 0;
    return FP8_OK;
}

static fp8_status read_open(const fp8_context *ctx, int fd, text *t, fp8_error *err)
{
    struct stat info;
    if (fstat(fd, &info))
        return fp8_fail_os(err, errno, "stat %s", t->path);
    FP8_FAIL_IF(!S_ISREG(info.st_mode), err, FP8_E_FORMAT, "%s: must be a regular file", t->path);
    FP8_FAIL_IF(info.st_size > MOST_BYTES, err, FP8_E_FORMAT, "%s: has %lld bytes, at most %d",
                t->path, (long long)info.st_size, MOST_BYTES);
    t->count = (size_t)info.st_size;
    t->bytes = fp8_alloc(ctx, t->count);
    FP8_FAIL_IF(!t->bytes, err, FP8_E_NO_MEMORY, "%s: no memory for %zu bytes", t->path, t->count);
    return read_bytes(fd, t, err);
}

static fp8_status read_file(const fp8_context *ctx, text *t, fp8_error *err)
{
    /* Not blocking: open(2) on a FIFO without a writer would wait for ever. */
    const int fd = open(t->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return fp8_fail_os(err, errno, "open %s", t->path);
    const fp8_status status = read_open(ctx, fd, t, err);
    close(fd);
    return status;
}

/* ---- lines ---- */

#define BREAKS(t, err, cond, ...)                                                                 \
    do {                                                                                          \
        if (cond) {                                                                               \
            char rule_[LINE];                                                                     \
            snprintf(rule_, sizeof rule_, __VA_ARGS__);                                           \
            return fp8_fail_at(err, FP8_E_FORMAT, (int64_t)(t)->at, "%s, line %d: %s", (t)->path, \
                               (t)->line, rule_);                                                 \
        }                                                                                         \
    } while (0)

static bool has_more(const text *t)
{
    return t->at < t->count;
}

/* The next line without its end; there is one. */
static fp8_status take_line(text *t, char line[LINE], fp8_error *err)
{
    t->line++;
    const char *from = t->bytes + t->at, *end = memchr(from, '\n', t->count - t->at);
    if (!end)
        return fp8_fail_at(err, FP8_E_TRUNCATED, (int64_t)t->count,
                           "%s, line %d: the file ends within the line", t->path, t->line);
    const size_t bytes = (size_t)(end - from);
    BREAKS(t, err, bytes >= LINE, "has %zu bytes, at most %d", bytes, LINE - 1);
    BREAKS(t, err, memchr(from, 0, bytes), "has a NUL in it");
    memcpy(line, from, bytes);
    line[bytes] = 0;
    t->at += bytes + 1;
    return FP8_OK;
}

/* *number of the digits at *at, at most INT32_MAX; moves behind them. */
static bool take_number(const char **at, int32_t *number)
{
    int64_t value = 0;
    const char *from = *at;
    for (; **at >= '0' && **at <= '9' && value <= INT32_MAX; ++*at)
        value = 10 * value + (**at - '0');
    *number = (int32_t)value;
    return *at > from && value <= INT32_MAX;
}

static bool take_space(const char **at)
{
    return *(*at)++ == ' ';
}

/* The line begins with a word, a space and more, at which *rest points. */
static bool begins(const char *line, const char *word, const char **rest)
{
    const size_t bytes = strlen(word);
    *rest = line + bytes + 1;
    return !strncmp(line, word, bytes) && line[bytes] == ' ' && **rest;
}

static fp8_status take_header(text *t, const char *device, fp8_error *err)
{
    char line[LINE];
    const char *rest;
    int32_t number;
    BREAKS(t, err, !has_more(t), "is empty, must begin with fp8-tuned %d", FORMAT_VERSION);
    FP8_TRY(take_line(t, line, err));
    BREAKS(t, err, !begins(line, "fp8-tuned", &rest) || !take_number(&rest, &number) || *rest,
           "must be fp8-tuned %d", FORMAT_VERSION);
    FP8_FAIL_IF(number != FORMAT_VERSION, err, FP8_E_UNSUPPORTED,
                "%s: format %d, this library reads %d", t->path, number, FORMAT_VERSION);
    BREAKS(t, err, !has_more(t), "must be followed by the device");
    FP8_TRY(take_line(t, line, err));
    BREAKS(t, err, !begins(line, "device", &rest), "must be device and its name");
    FP8_FAIL_IF(strcmp(rest, device), err, FP8_E_MISMATCH,
                "%s, line %d: measured on %s, the context's device is %s", t->path, t->line, rest,
                device);
    BREAKS(t, err, !has_more(t), "must be followed by the driver");
    FP8_TRY(take_line(t, line, err));
    BREAKS(t, err, !begins(line, "driver", &rest) || !take_number(&rest, &number) || *rest,
           "must be driver and its version, such as 13000");
    return FP8_OK;
}

static bool take_kind(const char **at, fp8_tuned_kind *kind)
{
    for (int i = 0; i < FP8_TUNED_KINDS; i++) {
        const char *rest;
        if (!begins(*at, fp8_tuned_kind_names[i], &rest))
            continue;
        *kind = (fp8_tuned_kind)i;
        *at = rest;
        return true;
    }
    return false;
}

/* "channel 4096 4096 16 gemm_small_channel_64x16_3_2 4510"; *version as fp8_tuned_version. */
static fp8_status parse_row(const text *t, char *line, fp8_tuned_row *row, fp8_error *err)
{
    enum { MOST = 1 << 27 };
    const char *at = line;
    fp8_tuned_kind kind;
    int32_t *const numbers[] = {&row->n, &row->k, &row->m};
    BREAKS(
        t, err, !take_kind(&at, &kind),
        "must begin with channel, block, fast, whole_ and channel or block, or wide_ and channel, "
        "mx or block");
    for (int i = 0; i < 3; i++)
        BREAKS(t, err,
               !take_number(&at, numbers[i]) || *numbers[i] < 1 || *numbers[i] > MOST ||
                   !take_space(&at),
               "%s must be a number from 1 to %d",
               i == 0   ? "N"
               : i == 1 ? "K"
                        : "M",
               MOST);
    char *end = strchr(line + (at - line), ' ');
    BREAKS(t, err, !end || end == at, "needs a kernel and its time in ns");
    *end = 0;
    row->version = fp8_tuned_version(at, kind);
    BREAKS(t, err, row->version == -2, "%.64s is no kernel for kind %s", at,
           fp8_tuned_kind_names[kind]);
    at = end + 1;
    BREAKS(t, err, !take_number(&at, &row->ns) || row->ns < 1 || *at,
           "the time must be a number of ns from 1 on, and the last word");
    row->kind = (int32_t)kind;
    row->line = t->line;
    return FP8_OK;
}

static fp8_status parse(const fp8_context *ctx, const char *device, text *t, fp8_tuned *tuned,
                        fp8_error *err)
{
    char line[LINE];
    FP8_TRY(take_header(t, device, err));
    while (has_more(t)) {
        fp8_tuned_row row;
        FP8_TRY(take_line(t, line, err));
        if (line[0] == '#')
            continue;
        FP8_TRY(parse_row(t, line, &row, err));
        if (row.version < 0) {
            tuned->unknown++;
            continue;
        }
        fp8_tuned_row *place = fp8_tuned_add(ctx, tuned);
        FP8_FAIL_IF(!place, err, FP8_E_NO_MEMORY, "%s: no memory for its lines", t->path);
        *place = row;
    }
    return FP8_OK;
}

fp8_status fp8_tuned_read(const fp8_context *ctx, const char *device, const char *path,
                          fp8_tuned *tuned, fp8_error *err)
{
    text t = {.path = path};
    fp8_status status = read_file(ctx, &t, err);
    if (status == FP8_OK)
        status = parse(ctx, device, &t, tuned, err);
    fp8_release(ctx, t.bytes);
    return status;
}
