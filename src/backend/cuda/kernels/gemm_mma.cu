/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_mma.cu - Y[M,N] = X[M,K] . W[N,K]^T + bias by the tensor cores of compute capability 8.0 and
 * later: X in bf16, fp16 or codes, W in codes (e4m3fn, e5m2), all of them exact in the 16 bits that
 * are multiplied; sums in fp32. Rows are aligned to 16 bytes, K is a multiple of 16; Y may be
 * anything. Scales that vary along K do so at multiples of 32 columns:
 *
 *     c = sum over segments of (sum over k of x[i,k] * w[j,k]) * (x's scale * w's scale)
 *
 * A block of 8 warps computes a tile of 128 x 128, a warp 64 x 32 of it; 32 columns of both
 * operands at a time are in shared memory, those after them on their way. The order of additions
 * depends on K alone. */
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

struct stage {
    alignas(16) uint16_t x[TILE][ROW], w[TILE][ROW];
};

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

/* 16 columns of a row on their way: as codes, or in 16 bits. */
template <bool CODES> struct piece {
    uint4 data[CODES ? 1 : 2];
};

/* Of row i, from column k on; zeros outside. */
template <bool CODES>
__device__ piece<CODES> fetch(const fp8_cuda_matrix &m, int64_t i, int64_t rows, int64_t k,
                              int64_t cols)
{
    piece<CODES> p;
    const uint4 *from = reinterpret_cast<const uint4 *>(static_cast<const uint8_t *>(m.data) +
                                                        (i * m.row + k) * (CODES ? 1 : 2));
    const bool inside = i < rows && k < cols;
#pragma unroll
    for (int e = 0; e < (CODES ? 1 : 2); e++)
        p.data[e] = inside ? __ldg(from + e) : make_uint4(0, 0, 0, 0);
    return p;
}

/* to[16] = a piece in 16 bits. */
template <bool CODES, bool BF16> __device__ void put(const piece<CODES> &p, int dtype, uint16_t *to)
{
    uint4 *out = reinterpret_cast<uint4 *>(to);
    if (!CODES) {
        out[0] = p.data[0];
        out[1] = p.data[CODES ? 0 : 1];
        return;
    }
    const uint32_t codes[4] = {p.data[0].x, p.data[0].y, p.data[0].z, p.data[0].w};
    uint32_t words[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        words[i] = convert_two<BF16>(codes[i / 2] >> 16 * (i % 2) & 0xFFFF, dtype);
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

/* d += the products of the 32 columns of a stage. */
template <bool BF16> __device__ void multiply(const stage &s, int row, int col, sums &d)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t b[ACROSS / 2][4], a[4];
#pragma unroll
        for (int j = 0; j < ACROSS / 2; j++)
            load_matrices(b[j],
                          &s.w[col + 16 * j + lane / 16 * 8 + lane % 8][k + lane / 8 % 2 * 8]);
#pragma unroll
        for (int i = 0; i < DOWN; i++) {
            load_matrices(a, &s.x[row + 16 * i + lane % 16][k + lane / 16 * 8]);
#pragma unroll
            for (int j = 0; j < ACROSS; j++)
                mma<BF16>(d[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

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

template <bool BF16, bool CODES, bool SEGMENTS>
__device__ void compute_tile(const fp8_gemm_args &a, stage (&s)[2], int64_t m0, int64_t n0)
{
    const int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    const int mine = t / 2, from = t % 2 * HALF; /* what it brings of a stage */
    const int row = warp / 4 * 16 * DOWN, col = warp % 4 * 8 * ACROSS; /* what its warp computes */
    const int64_t m = m0 + row + lane / 4, n = n0 + col + lane % 4 * 2;
    sums c = {}, d = {};
    piece<CODES> x = fetch<CODES>(a.x.elements, m0 + mine, a.m, from, a.k);
    piece<true> w = fetch<true>(a.w.elements, n0 + mine, a.n, from, a.k);
    int turn = 0;
    for (int64_t k = 0; k < a.k; k += DEPTH, turn ^= 1) {
        put<CODES, BF16>(x, a.x.elements.dtype, &s[turn].x[mine][from]);
        put<true, BF16>(w, a.w.elements.dtype, &s[turn].w[mine][from]);
        x = fetch<CODES>(a.x.elements, m0 + mine, a.m, k + DEPTH + from, a.k);
        w = fetch<true>(a.w.elements, n0 + mine, a.n, k + DEPTH + from, a.k);
        __syncthreads();
        multiply<BF16>(s[turn], row, col, SEGMENTS ? d : c);
        const int64_t next = k + DEPTH;
        if (SEGMENTS && (next >= a.k || ends_before(a.x, next) || ends_before(a.w, next)))
            promote(a, m, n, k, c, d);
    }
    store(a, m, n, c);
    __syncthreads();
}

template <bool BF16, bool CODES, bool SEGMENTS> __device__ void compute(const fp8_gemm_args &a)
{
    __shared__ stage s[2];
    const int64_t across = (a.n + TILE - 1) / TILE, tiles = (a.m + TILE - 1) / TILE * across;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        compute_tile<BF16, CODES, SEGMENTS>(a, s, tile / across * TILE, tile % across * TILE);
}

} // namespace

#define KERNEL(name, bf16, codes, segments)                      \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)     \
        gemm_mma_##name(const __grid_constant__ fp8_gemm_args a) \
    {                                                            \
        compute<bf16, codes, segments>(a);                       \
    }
KERNEL(bf16, true, false, false)
KERNEL(bf16_segments, true, false, true)
KERNEL(codes, false, true, false)
KERNEL(codes_segments, false, true, true)
KERNEL(f16, false, false, false)
KERNEL(f16_segments, false, false, true)
