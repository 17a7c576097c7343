/* SPDX-License-Identifier: Apache-2.0
 *
 * units.c - sizes are parsed in integers: 0.1GB is exactly 100000000 bytes, and no number wraps. */
#include "cli/units.h"

#include "fp8.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    uint64_t bytes;
} units[] = {
    {"", 1},
    {"B", 1},
    {"k", 1000},
    {"kB", 1000},
    {"M", 1000000},
    {"MB", 1000000},
    {"G", 1000000000},
    {"GB", 1000000000},
    {"T", 1000000000000},
    {"TB", 1000000000000},
    {"Ki", 1ull << 10},
    {"KiB", 1ull << 10},
    {"Mi", 1ull << 20},
    {"MiB", 1ull << 20},
    {"Gi", 1ull << 30},
    {"GiB", 1ull << 30},
    {"Ti", 1ull << 40},
    {"TiB", 1ull << 40},
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits with at most one point: *digits / *divisor is the number. */
static bool parse_decimal(const char **text, uint64_t *digits, uint64_t *divisor)
{
    const char *p = *text;
    bool point = false;
    *digits = 0;
    *divisor = 1;
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p) || (*p == '.' && !point && is_digit(p[1])); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        if (__builtin_mul_overflow(*digits, 10u, digits) ||
            __builtin_add_overflow(*digits, (uint64_t)(*p - '0'), digits) ||
            (point && __builtin_mul_overflow(*divisor, 10u, divisor)))
            return false;
    }
    *text = p;
    return true;
}

bool cli_parse_seconds(const char *text, double *value)
{
    uint64_t digits, divisor;
    if (!parse_decimal(&text, &digits, &divisor) || *text != 0)
        return false;
    *value = (double)digits / (double)divisor;
    return *value > 0 && *value <= 3600;
}

bool cli_parse_size(const char *text, uint64_t *bytes)
{
    uint64_t digits, divisor;
    if (!parse_decimal(&text, &digits, &divisor))
        return false;
    if (*text == ' ')
        text++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(text, units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow(digits, units[i].bytes, bytes))
            return false;
        *bytes /= divisor;
        return *bytes > 0 && *bytes <= INT64_MAX;
    }
    return false;
}

bool cli_parse_int(const char *text, int32_t least, int32_t most, int32_t *value)
{
    int64_t number = 0;
    if (!is_digit(*text))
        return false;
    for (; is_digit(*text); text++) {
        number = number * 10 + (*text - '0');
        if (number > most)
            return false;
    }
    *value = (int32_t)number;
    return *text == 0 && number >= least;
}

bool cli_parse_part(const char *text, int32_t *index, int32_t *count)
{
    char first[8];
    const char *slash = strchr(text, '/');
    if (slash == NULL || (size_t)(slash - text) >= sizeof first)
        return false;
    memcpy(first, text, (size_t)(slash - text));
    first[slash - text] = 0;
    return cli_parse_int(slash + 1, 1, 65535, count) && cli_parse_int(first, 1, *count, index);
}

bool cli_parse_device(const char *text, int32_t *device, int32_t *index)
{
    const bool cuda = strncmp(text, "cuda", 4) == 0;
    *device = cuda ? FP8_DEVICE_CUDA : FP8_DEVICE_CPU;
    *index = 0;
    if (strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0)
        return true;
    return cuda && text[4] == ':' && cli_parse_int(text + 5, 0, 4096, index);
}

const char *cli_format_bytes(char out[CLI_UNIT_TEXT], uint64_t bytes)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < sizeof names / sizeof names[0]) {
        value /= 1000;
        unit++;
    }
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, CLI_UNIT_TEXT, "%.*f %s", decimals, value, names[unit]);
    return out;
}

const char *cli_format_memory(char out[CLI_UNIT_TEXT], uint64_t bytes)
{
    uint64_t mib = bytes / (1u << 20) + (bytes % (1u << 20) != 0);
    snprintf(out, CLI_UNIT_TEXT, "%llu MiB", (unsigned long long)mib);
    return out;
}

const char *cli_format_time(char out[CLI_UNIT_TEXT], double seconds)
{
    if (!(seconds >= 0 && seconds < 99 * 3600.0)) {
        snprintf(out, CLI_UNIT_TEXT, "-:--");
        return out;
    }
    int whole = (int)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(out, CLI_UNIT_TEXT, "%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(out, CLI_UNIT_TEXT, "%d:%02d", whole / 60, whole % 60);
    return out;
}
