/* SPDX-License-Identifier: Apache-2.0
 *
 * isa.c - which instruction set this processor has. Compiled without any -m flag, so that asking
 * cannot fault. */
#define _GNU_SOURCE
#include "base/context.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEAF7_EDX_AMX_BF16 = 1 << 22, LEAF7_EDX_AMX_TILE = 1 << 24 };

/* CPUID leaf 1, ECX bit 29; clang 14's __builtin_cpu_supports does not know the name. */
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

/* Tile registers that this process may use: Linux gives them on request only, for all its threads
 * at once. The system call fails where the kernel or the processor has none. */
static bool has_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d = 0;
    const unsigned wanted = LEAF7_EDX_AMX_BF16 | LEAF7_EDX_AMX_TILE;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & wanted) == wanted &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

fp8_isa fp8_isa_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return FP8_ISA_SCALAR;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return FP8_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512bf16"))
        return FP8_ISA_AVX512;
    return has_amx() ? FP8_ISA_AMX : FP8_ISA_AVX512_BF16;
#else
    return FP8_ISA_SCALAR;
#endif
}

const char *fp8_isa_name(fp8_isa isa)
{
    static const char *const names[] = {"scalar", "avx2", "avx512", "avx512_bf16", "amx"};
    return names[isa];
}
