/* SPDX-License-Identifier: Apache-2.0
 *
 * fatbin.c - the compiled kernels as bytes of the library. The build gives the list of families,
 * which is empty without nvcc, and the folder of <family>.fatbin. */
#include "backend/cuda/module.h"

#define EMBED(family)                                                    \
    __asm__(".pushsection .rodata.fp8_fatbin, \"a\", @progbits\n"        \
            ".balign 64\n"                                               \
            ".globl fp8_fatbin_" #family "\n"                            \
            ".hidden fp8_fatbin_" #family "\n"                           \
            ".type fp8_fatbin_" #family ", @object\n"                    \
            "fp8_fatbin_" #family ":\n"                                  \
            ".incbin \"" FP8_CUDA_FATBIN_DIR "/" #family ".fatbin\"\n"   \
            ".size fp8_fatbin_" #family ", . - fp8_fatbin_" #family "\n" \
            ".popsection\n");
FP8_CUDA_FATBINS(EMBED)
