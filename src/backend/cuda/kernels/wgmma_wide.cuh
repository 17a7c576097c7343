/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma_wide.cuh - kstep<N, BF16>::rs(d, a, b, add): d[64, N] = (add: +=) A[64, 16] . B[N, 16]^T of
 * bf16 or fp16, one m64nNk16. A in registers: thread t of a warpgroup holds of the rows
 * 16 (t / 32) + t % 32 / 4 (a[0], a[2]) and 8 more (a[1], a[3]) the columns 2 (t % 4) (+ 1) and,
 * in a[2] and a[3], 8 more. b: low word of the matrix descriptor of B in shared memory; d and the
 * rest as in wgmma.cuh. */
#ifndef FP8_KERNELS_WGMMA_WIDE_CUH
#define FP8_KERNELS_WGMMA_WIDE_CUH

#include "backend/cuda/kernels/wgmma.cuh"

template <int N, bool BF16> struct kstep;

#define D64(i) D32(i), D32(i + 32)
#define R128                                                                                    \
    R112 ", "                                                                                   \
         "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, " \
         "%126, %127"
/* Operands after the registers of d: A's four, b, its high word, whether to add. */
#define KSTEP(N, R, REGISTERS, TYPE, is_bf16, A0, A1, A2, A3, B, H, P, ...)                      \
    template <> struct kstep<N, is_bf16> {                                                       \
        static __device__ __forceinline__ void rs(float (&d)[R], const uint32_t (&a)[4],         \
                                                  uint32_t b, int add)                           \
        {                                                                                        \
            asm volatile("{\n.reg .b64 y;\n.reg .pred p;\nmov.b64 y, {" B ", " H "};\n"          \
                         "setp.ne.b32 p, " P ", 0;\n"                                            \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE         \
                         " {" REGISTERS "}, {" A0 ", " A1 ", " A2 ", " A3 "}, y, p, 1, 1, 0;\n}" \
                         : __VA_ARGS__                                                           \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(0x40000040),  \
                           "r"(add));                                                            \
        }                                                                                        \
    }
#define KSTEP_BOTH(N, R, REGISTERS, A0, A1, A2, A3, B, H, P, ...)               \
    KSTEP(N, R, REGISTERS, "bf16", true, A0, A1, A2, A3, B, H, P, __VA_ARGS__); \
    KSTEP(N, R, REGISTERS, "f16", false, A0, A1, A2, A3, B, H, P, __VA_ARGS__)

KSTEP_BOTH(16, 8, R8, "%8", "%9", "%10", "%11", "%12", "%13", "%14", D8(0));
KSTEP_BOTH(32, 16, R16, "%16", "%17", "%18", "%19", "%20", "%21", "%22", D16(0));
KSTEP_BOTH(64, 32, R32, "%32", "%33", "%34", "%35", "%36", "%37", "%38", D32(0));
KSTEP_BOTH(128, 64, R64, "%64", "%65", "%66", "%67", "%68", "%69", "%70", D64(0));
KSTEP_BOTH(256, 128, R128, "%128", "%129", "%130", "%131", "%132", "%133", "%134", D64(0), D64(64));

#endif
