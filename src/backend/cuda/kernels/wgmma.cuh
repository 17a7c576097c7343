/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma.cuh - kblock<N>::ss(d, a, b, acc): d[64, N] = (acc: +=) A[64, 128] . B[N, 128]^T of e4m3 in
 * shared memory, the four m64nNk32 of one 128-byte block of K. a, b: low words of the matrix
 * descriptors (128-byte swizzle, K-major; their high words are the same constant); d: the registers
 * of a warpgroup, of which thread t holds rows 16 (t / 32) + t % 32 / 4 (+ 8), columns
 * 8 j + 2 (t % 4) (+ 1). Asynchronous: fence before, commit and wait after (sm90.cuh). */
#ifndef FP8_KERNELS_WGMMA_CUH
#define FP8_KERNELS_WGMMA_CUH

#include <stdint.h>

template <int N> struct kblock;

/* The registers d[0..R) as operands, and their names in the text; operands R.. follow them. */
#define D4(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i)  D4(i), D4(i + 4)
#define D16(i) D8(i), D8(i + 8)
#define D32(i) D16(i), D16(i + 16)
#define R4     "%0, %1, %2, %3"
#define R8  \
    R4 ", " \
       "%4, %5, %6, %7"
#define R16 \
    R8 ", " \
       "%8, %9, %10, %11, %12, %13, %14, %15"
#define R32  \
    R16 ", " \
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define R40  \
    R32 ", " \
        "%32, %33, %34, %35, %36, %37, %38, %39"
#define R48  \
    R32 ", " \
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define R56  \
    R48 ", " \
        "%48, %49, %50, %51, %52, %53, %54, %55"
#define R64  \
    R56 ", " \
        "%56, %57, %58, %59, %60, %61, %62, %63"
#define R68  \
    R64 ", " \
        "%64, %65, %66, %67"
#define R72  \
    R64 ", " \
        "%64, %65, %66, %67, %68, %69, %70, %71"
#define R80  \
    R64 ", " \
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define R96  \
    R80 ", " \
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

#define R112                                                                                     \
    R96 ", "                                                                                     \
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
        "%111"

/* Low words a and b, their high word, and whether to add, are operands A, B, H and P. */
#define STEP(N, REGISTERS, add)                                                            \
    "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" REGISTERS "}, x, y, " add \
    ", 1, 1;\n"
#define NEXT "add.s64 x, x, 2;\nadd.s64 y, y, 2;\n" /* 32 bytes on */
#define KBLOCK(N, R, REGISTERS, A, B, H, P, ...)                                                  \
    template <> struct kblock<N> {                                                                \
        static __device__ __forceinline__ void ss(float (&d)[R], uint32_t a, uint32_t b, int acc) \
        {                                                                                         \
            asm volatile("{\n.reg .b64 x, y;\n.reg .pred p;\n"                                    \
                         "mov.b64 x, {" A ", " H "};\nmov.b64 y, {" B ", " H "};\n"               \
                         "setp.ne.b32 p, " P ", 0;\n" STEP(N, REGISTERS, "p")                     \
                             NEXT STEP(N, REGISTERS, "1") NEXT STEP(N, REGISTERS, "1")            \
                                 NEXT STEP(N, REGISTERS, "1") "}"                                 \
                         : __VA_ARGS__                                                            \
                         : "r"(a), "r"(b), "n"(0x40000040), "r"(acc));                            \
        }                                                                                         \
    }

KBLOCK(8, 4, R4, "%4", "%5", "%6", "%7", D4(0));
KBLOCK(16, 8, R8, "%8", "%9", "%10", "%11", D8(0));
KBLOCK(32, 16, R16, "%16", "%17", "%18", "%19", D16(0));
KBLOCK(64, 32, R32, "%32", "%33", "%34", "%35", D32(0));
KBLOCK(80, 40, R40, "%40", "%41", "%42", "%43", D32(0), D8(32));
KBLOCK(96, 48, R48, "%48", "%49", "%50", "%51", D32(0), D16(32));
KBLOCK(112, 56, R56, "%56", "%57", "%58", "%59", D32(0), D16(32), D8(48));
KBLOCK(128, 64, R64, "%64", "%65", "%66", "%67", D32(0), D32(32));
KBLOCK(136, 68, R68, "%68", "%69", "%70", "%71", D32(0), D32(32), D4(64));
KBLOCK(144, 72, R72, "%72", "%73", "%74", "%75", D32(0), D32(32), D8(64));
KBLOCK(160, 80, R80, "%80", "%81", "%82", "%83", D32(0), D32(32), D16(64));
KBLOCK(192, 96, R96, "%96", "%97", "%98", "%99", D32(0), D32(32), D32(64));
KBLOCK(224, 112, R112, "%112", "%113", "%114", "%115", D32(0), D32(32), D32(64), D16(96));

#endif
