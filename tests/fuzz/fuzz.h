/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz.h - what the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput; libFuzzer
 * drives it in the fuzz preset, fuzz_main.c over the corpus in every other build. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A property that no input may break; a crash is what the fuzzer reports. */
#define FUZZ_CHECK(condition) \
    do {                      \
        if (!(condition))     \
            __builtin_trap(); \
    } while (0)

#endif
