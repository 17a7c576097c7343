/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_data.c - numbers, and how many weights it takes to keep them out of the caches. */
#define _GNU_SOURCE
#include "cli/bench_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLD_ROWS 64 /* up to so many rows of X the speed of memory may count */

int64_t cli_last_cache(void)
{
    /* Of the first processor. The C library's answer is wrong on some virtual machines. */
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    long long kib = 0;
    if (file != NULL && fscanf(file, "%lldK", &kib) != 1)
        kib = 0;
    if (file != NULL)
        fclose(file);
    const int64_t bytes = kib > 0 && kib < 1 << 22 ? kib * 1024 : sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? bytes : 32 << 20;
}

/* What is set, and what may vary, in 64 bits of each dtype. */
typedef struct bits {
    uint64_t set, vary;
} bits;

static bits bits_of(fp8_dtype dtype)
{
    switch (dtype) {
    case FP8_BF16:
        return (bits){0x3F003F003F003F00, 0x807F807F807F807F};
    case FP8_F16:
        return (bits){0x3800380038003800, 0x83FF83FF83FF83FF};
    case FP8_F32:
        return (bits){0x3F0000003F000000, 0x807FFFFF807FFFFF};
    default:
        return (bits){0, 0xBFBFBFBFBFBFBFBF};
    }
}

static void fill(uint64_t *words, size_t count, bits b)
{
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words[i] = b.set | (state & b.vary);
    }
}

fp8_tensor cli_bench_matrix(fp8_dtype dtype, int64_t rows, int64_t cols)
{
    const size_t bytes = (size_t)(rows * cols) * (size_t)fp8_dtype_bits(dtype) / 8;
    const size_t words = bytes / 8 + 1;
    uint64_t *data = malloc(words * 8);
    if (data != NULL && dtype == FP8_E8M0FNU)
        memset(data, 127 - 6, words * 8);
    else if (data != NULL)
        fill(data, words, bits_of(dtype));
    return fp8_matrix(data, dtype, rows, cols);
}

int cli_bench_copies(int64_t m, double weight_bytes, bool *cold)
{
    const double wanted = 2.0 * (double)cli_last_cache();
    int copies = 1;
    while (m <= COLD_ROWS && copies < CLI_MOST_COPIES && copies * weight_bytes < wanted)
        copies++;
    *cold = copies * weight_bytes >= wanted;
    return copies;
}
