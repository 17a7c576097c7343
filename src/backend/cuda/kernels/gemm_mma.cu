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
#include "backend/cuda/kernels/mma.cuh"

namespace
{

struct stage {
    alignas(16) uint16_t x[TILE][ROW], w[TILE][ROW];
};

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
    if (CODES) {
        put_codes<BF16>(p.data[0], dtype, to);
    } else {
        uint4 *out = reinterpret_cast<uint4 *>(to);
        out[0] = p.data[0];
        out[1] = p.data[CODES ? 0 : 1];
    }
}

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
