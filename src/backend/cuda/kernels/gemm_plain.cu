/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_plain.cu - Y[M,N] = X[M,K] . W[N,K]^T + bias for all that a linear may be: any dtypes, grids
 * of scales, strides, alignments and sizes; and the oracle of the kernels that are fast.
 *
 *     c = sum over k of (x[i,k] * its scale) * (w[j,k] * its scale)     scales that vary along K
 *     y = the epilogue of c, with the scales that do not                (docs/numerics.md, 11)
 *
 * in fp32, each product rounded with its addition (fma), k ascending, begun anew every 256 columns,
 * those sums added in order: what the CPU's kernels of fp32 do. A block computes a tile of 64 x 64,
 * a thread 4 x 4 of it; 16 columns of both operands at a time are in shared memory, in fp32. */
#include "backend/cuda/kernels/epilogue.cuh"

namespace
{

enum { TILE = FP8_GEMM_TILE, THREADS = FP8_GEMM_THREADS, DEPTH = 16, AGAIN = 256, SIDE = 4 };
enum { ROW = TILE + 4 }; /* of shared memory: 16-byte aligned, and neighbours in other banks */

/* Element (i,k) in fp32; table has the numbers of all codes. */
__device__ float load(const fp8_cuda_matrix &m, int64_t i, int64_t k, const float *table)
{
    const int bytes = bytes_of(m.dtype);
    const uint32_t bits = load_bits(m.data, i * m.row + k * m.col, bytes);
    return bytes == 1 ? table[bits] : value_of_bits(bits, m.dtype);
}

/* to[DEPTH][ROW] = columns [k0, ..) of rows [i0, ..), transposed, with the scales that vary along
 * K; zeros outside of the matrix. Neighbouring threads read what lies side by side. */
__device__ void load_tile(const fp8_gemm_operand &o, const float *table, int64_t i0, int64_t rows,
                          int64_t k0, int64_t cols, float (*to)[ROW])
{
    const bool by_rows = o.elements.row == 1 && o.elements.col != 1;
    for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        const int i = by_rows ? e % TILE : e / DEPTH, k = by_rows ? e / TILE : e % DEPTH;
        float value = 0;
        if (i0 + i < rows && k0 + k < cols) {
            value = load(o.elements, i0 + i, k0 + k, table);
            if (o.along_k)
                value = round_to(o.rounded, __fmul_rn(value, scale_of(o, i0 + i, k0 + k)));
        }
        to[k][i] = value;
    }
}

struct shared_tiles {
    alignas(16) float x[DEPTH][ROW], w[DEPTH][ROW];
    float x_table[256], w_table[256];
};

/* sum[4][4] += the products of the 16 columns at hand. */
__device__ void multiply(const shared_tiles &s, int row, int col, float (&sum)[SIDE][SIDE])
{
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        const float4 x = *reinterpret_cast<const float4 *>(&s.x[k][row]);
        const float4 w = *reinterpret_cast<const float4 *>(&s.w[k][col]);
        const float xs[SIDE] = {x.x, x.y, x.z, x.w}, ws[SIDE] = {w.x, w.y, w.z, w.w};
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                sum[i][j] = __fmaf_rn(xs[i], ws[j], sum[i][j]);
    }
}

__device__ void add_and_clear(float (&to)[SIDE][SIDE], float (&sum)[SIDE][SIDE])
{
#pragma unroll
    for (int i = 0; i < SIDE; i++)
#pragma unroll
        for (int j = 0; j < SIDE; j++) {
            to[i][j] = __fadd_rn(to[i][j], sum[i][j]);
            sum[i][j] = 0;
        }
}

__device__ void compute_tile(const fp8_gemm_args &a, shared_tiles &s, int64_t m0, int64_t n0)
{
    const int row = (int)threadIdx.x / (TILE / SIDE) * SIDE,
              col = (int)threadIdx.x % (TILE / SIDE) * SIDE;
    float c[SIDE][SIDE] = {}, sum[SIDE][SIDE] = {};
    for (int64_t k = 0; k < a.k; k += DEPTH) {
        __syncthreads();
        load_tile(a.x, s.x_table, m0, a.m, k, a.k, s.x);
        load_tile(a.w, s.w_table, n0, a.n, k, a.k, s.w);
        __syncthreads();
        multiply(s, row, col, sum);
        if ((k + DEPTH) % AGAIN == 0)
            add_and_clear(c, sum);
    }
    add_and_clear(c, sum);
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        const int64_t m = m0 + row + i;
        const float sx = m < a.m ? row_scale(a.x, m, a.k) : 1.0f;
#pragma unroll
        for (int j = 0; j < SIDE; j++) {
            const int64_t n = n0 + col + j;
            if (m < a.m && n < a.n)
                store_element(a.y, m, n, one_nan(finish(a, c[i][j], sx, row_scale(a.w, n, a.k), n)),
                              false);
        }
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    gemm_plain(const __grid_constant__ fp8_gemm_args a)
{
    __shared__ shared_tiles s;
    static_assert(THREADS == 256, "a thread a code");
    s.x_table[threadIdx.x] = value_of_bits(threadIdx.x, a.x.elements.dtype);
    s.w_table[threadIdx.x] = value_of_bits(threadIdx.x, a.w.elements.dtype);
    const int64_t across = (a.n + TILE - 1) / TILE, tiles = (a.m + TILE - 1) / TILE * across;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
        compute_tile(a, s, tile / across * TILE, tile % across * TILE);
}
