/* SPDX-License-Identifier: Apache-2.0
 *
 * isa.c - which instruction set this processor has. Compiled without any -m flag, so that asking
 * cannot fault. */
#include "base/context.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* CPUID leaf 1, ECX bit 29; clang 14's __builtin_cpu_supports does not know the name. */
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
#endif

fp8_isa fp8_isa_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vbmi");
    if (avx512)
        return FP8_ISA_AVX512;
    if (avx2)
        return FP8_ISA_AVX2;
#endif
    return FP8_ISA_SCALAR;
}

const char *fp8_isa_name(fp8_isa isa)
{
    static const char *const names[] = {"scalar", "avx2", "avx512"};
    return names[isa];
}
