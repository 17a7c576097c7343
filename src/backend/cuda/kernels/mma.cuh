/* SPDX-License-Identifier: Apache-2.0
 *
 * mma.cuh - what gemm_mma.cu and gemm_dx.cu share: a tile of 128 x 128 of a product is computed by
 * 8 warps, 64 x 32 of it each, 32 columns of both operands at a time, in 16 bits in shared memory;
 * and what becomes of the sums: segments of scales, epilogue, store. */
#ifndef FP8_KERNELS_MMA_CUH
#define FP8_KERNELS_MMA_CUH

#include "backend/cuda/kernels/epilogue.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace
{

enum { TILE = FP8_MMA_TILE, THREADS = FP8_MMA_THREADS, DEPTH = FP8_MMA_DEPTH };
enum { ROW = DEPTH + 8 };      /* of shared memory, in 16 bits: no conflicts between rows */
enum { DOWN = 4, ACROSS = 4 }; /* products of 16 x 8 that a warp makes */
enum { HALF = DEPTH / 2 };     /* columns that a thread brings of a row */

/* Two codes as two of what is multiplied; BF16 or fp16. */
template <bool BF16> __device__ uint32_t convert_two(uint32_t codes, int dtype)
{
    const __nv_fp8x2_storage_t two = (__nv_fp8x2_storage_t)codes;
    const __half2_raw raw = dtype == FP8_E5M2 ? __nv_cvt_fp8x2_to_halfraw2(two, __NV_E5M2)
                                              : __nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3);
    if (!BF16)
        return (uint32_t)raw.x | (uint32_t)raw.y << 16;
    const float2 f = __half22float2(__half2(raw));
    const __nv_bfloat162 b = __floats2bfloat162_rn(f.x, f.y);
    return *reinterpret_cast<const uint32_t *>(&b);
}

/* to[16] = 16 codes in 16 bits. */
template <bool BF16> __device__ void put_codes(const uint4 &packed, int dtype, uint16_t *to)
{
    const uint32_t codes[4] = {packed.x, packed.y, packed.z, packed.w};
    uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        words[i] = convert_two<BF16>(codes[i / 2] >> 16 * (i % 2) & 0xFFFF, dtype);
    uint4 *out = reinterpret_cast<uint4 *>(to);
    out[0] = make_uint4(words[0], words[1], words[2], words[3]);
    out[1] = make_uint4(words[4], words[5], words[6], words[7]);
}

__device__ void load_matrices(uint32_t (&r)[4], const uint16_t *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* d[16 x 8] += a[16 x 16] b[8 x 16]^T */
template <bool BF16>
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Sums of a warp: of rows 16 i + lane / 4 (+ 8), columns 8 j + 2 (lane % 4) (+ 1). */
typedef float sums[DOWN][ACROSS][4];

/* Not inlined: 64 of them, for all dtypes, would be most of the kernel. */
__device__ __noinline__ void store_one(const fp8_gemm_args &a, int64_t row, int64_t col, float c)
{
    if (row < a.m && col < a.n)
        store_element(
            a.y, row, col,
            one_nan(finish(a, c, row_scale(a.x, row, a.k), row_scale(a.w, col, a.k), col)), false);
}

__device__ __noinline__ float segment_scale(const fp8_gemm_operand &o, int64_t i, int64_t rows,
                                            int64_t k)
{
    return o.along_k && i < rows ? scale_of(o, i, k) : 1.0f;
}

/* c += d times the scales of the segment with column k, and d = 0; m and n: of the first sum. */
__device__ void promote(const fp8_gemm_args &a, int64_t m, int64_t n, int64_t k, sums &c, sums &d)
{
    float sw[ACROSS][2];
#pragma unroll
    for (int j = 0; j < ACROSS; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            sw[j][e] = segment_scale(a.w, n + 8 * j + e, a.n, k);
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t row = m + 16 * i + 8 * h;
            const float sx = segment_scale(a.x, row, a.m, k);
#pragma unroll
            for (int j = 0; j < ACROSS; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &sum = d[i][j][2 * h + e];
                    c[i][j][2 * h + e] = fmaf(sum, sx * sw[j][e], c[i][j][2 * h + e]);
                    sum = 0;
                }
        }
}

__device__ void store(const fp8_gemm_args &a, int64_t m, int64_t n, const sums &c)
{
#pragma unroll
    for (int i = 0; i < DOWN; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < ACROSS; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    store_one(a, m + 16 * i + 8 * h, n + 8 * j + e, c[i][j][2 * h + e]);
}

/* Whether a segment of scales ends before column k. */
__device__ bool ends_before(const fp8_gemm_operand &o, int64_t k)
{
    return o.along_k && (k + o.origin[1]) % o.unit[1] == 0;
}

} // namespace

#endif
