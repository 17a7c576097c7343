/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_dx.cu - dX[M,K] = dY[M,N] . W[N,K] by the tensor cores of compute capability 8.0 and later,
 * W in codes as a linear holds it: 32 of its rows at a time are in shared memory as they lie, and
 * are transposed on their way into registers. N is a multiple of 16, rows are aligned to 16 bytes.
 * To the sums over N the operands are what gemm_mma.cu says, with x = dY and w = W^T.
 *
 * A scale for each row of W is multiplied into dY, in fp32, as the CPU does. The product, and dY in
 * fp32, is the exact sum of three numbers of bf16, 8 bits each, which are multiplied one by one. */
#include "backend/cuda/kernels/mma.cuh"

namespace
{

enum { TERMS = 3, LINE = TILE + 8 }; /* of shared memory, in 16 bits: no conflicts between lines */

/* N: numbers that an element of dY is the sum of. */
template <int N> struct stage {
    alignas(16) uint16_t x[N][TILE][ROW], w[DEPTH][LINE];
};
static_assert(2 * sizeof(stage<1>) == FP8_DX_SHARED, "both sides agree");
static_assert(2 * sizeof(stage<TERMS>) == FP8_DX_TERMS_SHARED, "both sides agree");

/* 16 columns of a row of dY on their way, with the scales of those columns. */
template <int N> struct piece {
    uint4 data[N == 1 ? 2 : 4];
    float4 scale[N == 1 ? 1 : 4];
};

/* Of row i, from column k on; zeros outside. */
template <int N> __device__ piece<N> fetch(const fp8_gemm_args &a, int64_t i, int64_t k)
{
    const fp8_cuda_matrix &x = a.x.elements;
    const bool wide = N > 1 && x.dtype == FP8_F32, inside = i < a.m && k < a.k;
    const uint4 *from = reinterpret_cast<const uint4 *>(static_cast<const uint8_t *>(x.data) +
                                                        (i * x.row + k) * (wide ? 4 : 2));
    piece<N> p;
#pragma unroll
    for (int e = 0; e < (N == 1 ? 2 : 4); e++)
        p.data[e] = inside && (e < 2 || wide) ? __ldg(from + e) : make_uint4(0, 0, 0, 0);
    if (N > 1) {
        const float4 *scale = reinterpret_cast<const float4 *>(a.x_columns + k);
#pragma unroll
        for (int e = 0; e < (N == 1 ? 1 : 4); e++)
            p.scale[e] = inside && a.x_columns ? __ldg(scale + e) : make_float4(1, 1, 1, 1);
    }
    return p;
}

__device__ float number_of(uint32_t bits, int dtype)
{
    return dtype == FP8_BF16 ? __uint_as_float(bits << 16)
                             : __half2float(__ushort_as_half((uint16_t)bits));
}

/* Takes from *rest the bits of bf16 that it begins with; infinity leaves nothing, nor does NaN. */
__device__ uint32_t take_term(float *rest)
{
    const uint32_t bits = __float_as_uint(*rest);
    if ((bits & 0x7F800000) == 0x7F800000) {
        *rest = 0;
        return (bits & 0x007FFFFF ? 0x7FC00000 : bits) >> 16;
    }
    *rest -= __uint_as_float(bits & 0xFFFF0000);
    return bits >> 16;
}

/* 16 columns of row `row` into each term. */
__device__ void put_terms(const piece<TERMS> &p, int dtype, stage<TERMS> &s, int row, int col)
{
#pragma unroll
    for (int i = 0; i < 16; i += 4) { /* four elements: 8 bytes of each term */
        const uint4 wide = p.data[i / 4], narrow = p.data[i / 8];
        const uint32_t pair[2] = {i % 8 ? narrow.z : narrow.x, i % 8 ? narrow.w : narrow.y};
        const uint32_t words[4] = {wide.x, wide.y, wide.z, wide.w};
        const float scale[4] = {p.scale[i / 4].x, p.scale[i / 4].y, p.scale[i / 4].z,
                                p.scale[i / 4].w};
        float rest[4];
#pragma unroll
        for (int e = 0; e < 4; e++)
            rest[e] = scale[e] * (dtype == FP8_F32
                                      ? __uint_as_float(words[e])
                                      : number_of(pair[e / 2] >> 16 * (e % 2) & 0xFFFF, dtype));
#pragma unroll
        for (int term = 0; term < TERMS; term++) {
            uint32_t bits[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                bits[e] = take_term(&rest[e]);
            *reinterpret_cast<uint2 *>(&s.x[term][row][col + i]) =
                make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
        }
    }
}

__device__ void put(const piece<1> &p, int, stage<1> &s, int row, int col)
{
    uint4 *out = reinterpret_cast<uint4 *>(&s.x[0][row][col]);
    out[0] = p.data[0];
    out[1] = p.data[1];
}

__device__ void put(const piece<TERMS> &p, int dtype, stage<TERMS> &s, int row, int col)
{
    put_terms(p, dtype, s, row, col);
}

/* 16 codes of row n of W from column k on; what lies beyond K up to the end of the row is zeros. */
__device__ uint4 fetch_codes(const fp8_gemm_args &a, int64_t n, int64_t k)
{
    const int64_t line = a.w.elements.col;
    const uint8_t *from = static_cast<const uint8_t *>(a.w.elements.data) + n * line + k;
    return n < a.k && k < line ? __ldg(reinterpret_cast<const uint4 *>(from))
                               : make_uint4(0, 0, 0, 0);
}

__device__ void load_transposed(uint32_t (&r)[4], const uint16_t *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* d += the products of the 32 rows of W of a stage. */
template <bool BF16, int N> __device__ void multiply(const stage<N> &s, int row, int col, sums &d)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t b[ACROSS / 2][4], a[4];
#pragma unroll
        for (int j = 0; j < ACROSS / 2; j++)
            load_transposed(b[j], &s.w[k + lane % 16][col + 16 * j + lane / 16 * 8]);
#pragma unroll
        for (int term = 0; term < N; term++)
#pragma unroll
            for (int i = 0; i < DOWN; i++) {
                load_matrices(a, &s.x[term][row + 16 * i + lane % 16][k + lane / 16 * 8]);
#pragma unroll
                for (int j = 0; j < ACROSS; j++)
                    mma<BF16>(d[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
            }
    }
}

template <bool BF16, int N>
__device__ void compute_tile(const fp8_gemm_args &a, stage<N> *s, int64_t m0, int64_t k0)
{
    const int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    const int mine = t / 2, from = t % 2 * HALF; /* what it brings of dY: row, columns .. */
    const int line = t / 8, at = t % 8 * HALF;   /* .. and of W */
    const int row = warp / 4 * 16 * DOWN, col = warp % 4 * 8 * ACROSS; /* what its warp computes */
    const int64_t m = m0 + row + lane / 4, k = k0 + col + lane % 4 * 2;
    sums c = {}, d = {};
    piece<N> x = fetch<N>(a, m0 + mine, from);
    uint4 w = fetch_codes(a, line, k0 + at);
    int turn = 0;
    for (int64_t n = 0; n < a.k; n += DEPTH, turn ^= 1) {
        put(x, a.x.elements.dtype, s[turn], mine, from);
        put_codes<BF16>(w, a.w.elements.dtype, &s[turn].w[line][at]);
        x = fetch<N>(a, m0 + mine, n + DEPTH + from);
        w = fetch_codes(a, n + DEPTH + line, k0 + at);
        __syncthreads();
        multiply<BF16, N>(s[turn], row, col, d);
        const int64_t next = n + DEPTH;
        if (next >= a.k || ends_before(a.w, next))
            promote(a, m, k, n, c, d);
    }
    store(a, m, k, c);
    __syncthreads();
}

template <bool BF16, int N> __device__ void compute(const fp8_gemm_args &a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    const int64_t across = (a.n + TILE - 1) / TILE, tiles = (a.m + TILE - 1) / TILE * across;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        compute_tile<BF16, N>(a, reinterpret_cast<stage<N> *>(shared), tile / across * TILE,
                              tile % across * TILE);
}

} // namespace

#define KERNEL(name, bf16, terms)                               \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)    \
        gemm_dx_##name(const __grid_constant__ fp8_gemm_args a) \
    {                                                           \
        compute<bf16, terms>(a);                                \
    }
KERNEL(bf16, true, 1)
KERNEL(f16, false, 1)
KERNEL(terms, true, TERMS)
