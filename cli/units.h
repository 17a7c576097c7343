/* SPDX-License-Identifier: Apache-2.0
 *
 * units.h - sizes, counts and times as people write and read them. */
#ifndef FP8_CLI_UNITS_H
#define FP8_CLI_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* *bytes of "64MiB", "5GB", "1.5g", "4096": a decimal number and a unit. kB MB GB TB are powers of
 * 1000, KiB MiB GiB TiB of 1024; any case, the B may be left out, one space may stand between; a
 * fraction of a byte is dropped. false if it is anything else, zero, or 2^63 and more. */
bool cli_parse_size(const char *text, uint64_t *bytes);

/* *value of a decimal integer in [least, most], no sign, no space. */
bool cli_parse_int(const char *text, int32_t least, int32_t most, int32_t *value);

/* *index and *count of "I/N", 1 <= I <= N <= 65535. */
bool cli_parse_part(const char *text, int32_t *index, int32_t *count);

/* *device and *index of "cpu", "cuda" or "cuda:N". */
bool cli_parse_device(const char *text, int32_t *device, int32_t *index);

/* *value of a decimal number of seconds above 0 and up to 3600, such as "0.5". */
bool cli_parse_seconds(const char *text, double *value);

#define CLI_UNIT_TEXT 32

/* "90.9 MB": three digits and a decimal unit. */
const char *cli_format_bytes(char out[CLI_UNIT_TEXT], uint64_t bytes);
/* "201 MiB": of memory, rounded up. */
const char *cli_format_memory(char out[CLI_UNIT_TEXT], uint64_t bytes);
/* "0:06", "1:02:03"; "-:--" if it is not finite or above 99 hours. */
const char *cli_format_time(char out[CLI_UNIT_TEXT], double seconds);

#endif
