/* SPDX-License-Identifier: Apache-2.0
 *
 * large_epilogue.cuh - of gemm_large.cuh: Y[M,N] through buffers in shared memory and by bulk
 * copies; fp32, which is too much for them, from registers. The groups share nothing, so they may
 * drift apart by as many k blocks as the ring holds. */
#ifndef FP8_KERNELS_LARGE_EPILOGUE_CUH
#define FP8_KERNELS_LARGE_EPILOGUE_CUH

#include "backend/cuda/kernels/large_cfg.cuh"

/* A group of four warps, and of it a thread. */
struct large_group {
    int wg, w, t128, lane;  /* the group; its warp and thread; of the warp the lane */
    uint32_t base, staging; /* addresses: of shared memory, and the group's buffers there */
    float *cols;            /* scales of the group's columns, unused with BLOCK */
};

/* What a group stores of a tile, where the kernel has it. */
template <class c> struct large_part {
    const int &m0, &n1; /* first row and column */
    const int &row0;    /* a row of this thread; others are 8 and multiples of 64 further down */
    const float (&rs)[c::MT][2]; /* scales of the thread's rows */
};

/* Of the group's columns `col` and col + 1, and of one the bias, 0 beyond the last. */
template <class c> DEV float2 col_scales(const float *cols, int col)
{
    return c::BLOCK ? make_float2(1, 1) : *(const float2 *)(cols + col);
}
template <class c>
DEV float bias_of(const fp8_large_args &a, const large_part<c> &p, bool with_bias, int col)
{
    return with_bias && p.n1 + col < a.n ? __ldg(a.scales.bias + p.n1 + col) : 0.0f;
}

/* Y of a sum, with the scales of its row and column. */
template <class c> DEV float value_of(float sum, float row, float col, bool with_bias, float bias)
{
    if (c::BLOCK) /* nothing is left to multiply by */
        return with_bias ? sum + bias : sum;
    return with_bias ? fmaf(row, sum * col, bias) : row * (sum * col);
}

/* Which 16 bytes of a row of a buffer take those of number 0. */
template <class c> DEV int swizzle(int row)
{
    return c::SLAB == 64   ? row % 8
           : c::SLAB == 32 ? row / 2 % 4
           : c::SLAB == 16 ? row / 4 % 2
                           : 0; /* an odd number of 16 bytes */
}

/* sums[64, BN], rs[64], a thread's each: SLAB columns, from `first` of the group's on, go to the
 * buffer at `to`, as Y. */
template <class c, bool BIAS, int DTYPE>
DEV void convert_slab(const fp8_large_args &a, const large_group &g, const large_part<c> &p,
                      const float (&sums)[c::R], const float (&rs)[2], int first, uint32_t to)
{
    constexpr int G = c::SLAB / 8;
    float2 scale[G]; /* all before the first store: the assembler keeps the order of shared
                        accesses */
#pragma unroll
    for (int e = 0; e < G; e++)
        scale[e] = col_scales<c>(g.cols, first + e * 8 + 2 * (g.lane % 4));
#pragma unroll
    for (int e = 0; e < G; e += 2) { /* one stmatrix of four 8x8, or two */
        const int pair = e + 1 < G ? 2 : 1;
        uint32_t o[4];
#pragma unroll
        for (int i = 0; i < pair; i++) {
            const int col = first + (e + i) * 8 + 2 * (g.lane % 4);
            const float *d = sums + (first / 8 + e + i) * 4;
            const float2 by = scale[e + i];
            const float b0 = bias_of(a, p, BIAS, col), b1 = bias_of(a, p, BIAS, col + 1);
#pragma unroll
            for (int r = 0; r < 2; r++)
                o[2 * i + r] = half2_of(DTYPE, value_of<c>(d[2 * r], rs[r], by.x, BIAS, b0),
                                        value_of<c>(d[2 * r + 1], rs[r], by.y, BIAS, b1));
        }
        /* row in the m64 tile, 8 columns in the slab */
        const int row = g.w * 16 + (g.lane / 8 % 2) * 8 + g.lane % 8, in = e + g.lane / 16;
        const uint32_t at = to + row * (c::SLAB * 2) + ((in ^ swizzle<c>(row)) * 16);
        if (pair == 2)
            stmatrix4(at, o[0], o[1], o[2], o[3]);
        else
            stmatrix2(at, o[0], o[1]);
    }
}

/* The buffer at `to`, to rows from m on and columns from n on of Y, where a bulk copy cannot. */
template <class c>
DEV void store_plainly(const fp8_large_args &a, const large_group &g, uint32_t to, int m, int n)
{
#pragma unroll 1
    for (int i = g.t128; i < 64 * c::SLAB; i += 128) {
        const int row = i / c::SLAB, col = i % c::SLAB, at = (col / 8) ^ swizzle<c>(row);
        if (m + row < a.m && n + col < a.n)
            ((uint16_t *)a.y_plain)[(m + row) * a.y_stride + n + col] = *(
                const uint16_t *)(sm + (to - g.base) + row * (c::SLAB * 2) + at * 16 + col % 8 * 2);
    }
}

/* Instances: a branch inside would keep the columns from overlapping. Not DEV, so that it is
 * inlined late: else the compiler takes its addresses apart together with those of the main loop.
 */
template <class c, bool BIAS, int DTYPE>
static __device__ inline void store_halves(const fp8_large_args &a, const large_group &g,
                                           const large_part<c> &p, const float (&acc)[c::MT][c::R])
{
#pragma unroll
    for (int h = 0; h < c::MT; h++)
#pragma unroll
        for (int slab = 0; slab < c::SLABS; slab++) {
            const int part = h * c::SLABS + slab;
            const uint32_t to = g.staging + part % c::BUFFERS * c::BUFFER;
            convert_slab<c, BIAS, DTYPE>(a, g, p, acc[h], p.rs[h], slab * c::SLAB, to);
            const int m1 = p.m0 + h * 64, n2 = p.n1 + slab * c::SLAB;
            /* The next part's buffer was stored: after the barrier it may be written. */
            if (g.t128 == 0 && part + 1 >= c::BUFFERS && part + 1 < c::PARTS)
                bulk_wait_read<(c::BUFFERS > 2 ? c::BUFFERS - 2 : 0)>();
            fence_async_smem();
            bar_named(1 + g.wg, 128);
            if (!a.y_plain) {
                if (g.t128 == 0) {
                    if (n2 < a.n && m1 < a.m)
                        tma_store_2d(&a.y, to, n2, m1);
                    bulk_commit(); /* of nothing, too: they are counted */
                }
            } else
                store_plainly<c>(a, g, to, m1, n2);
        }
}

/* Four lanes store 32 bytes of a row, as the sums lie. Inlined late, too. */
template <class c>
static __device__ inline void store_floats(const fp8_large_args &a, const large_group &g,
                                           const large_part<c> &p, const float (&acc)[c::MT][c::R])
{
    const bool bias = a.scales.bias != NULL,
               pairs = ((uintptr_t)a.y_plain | (uint64_t)a.y_stride * 4) % 8 == 0;
#pragma unroll
    for (int at = 0; at < c::GN / 8; at++) {
        const int col = at * 8 + 2 * (g.lane % 4), n = p.n1 + col;
        const float2 by = col_scales<c>(g.cols, col);
        const float b0 = bias_of(a, p, bias, col), b1 = bias_of(a, p, bias, col + 1);
#pragma unroll
        for (int i = 0; i < 2 * c::MT; i++) {
            const int h = i / 2, e = i % 2, m = p.row0 + h * 64 + e * 8;
            const float *d = acc[h] + at * 4 + 2 * e;
            const float v0 = value_of<c>(d[0], p.rs[h][e], by.x, bias, b0),
                        v1 = value_of<c>(d[1], p.rs[h][e], by.y, bias, b1);
            float *y = (float *)a.y_plain + m * a.y_stride + n;
            if (m < a.m && n + 1 < a.n && pairs)
                *(float2 *)y = make_float2(v0, v1);
            else if (m < a.m && n < a.n) {
                y[0] = v0;
                if (n + 1 < a.n)
                    y[1] = v1;
            }
        }
    }
}

/* acc[64 MT, BN] to a group's part of Y[M,N]; cs: scales of its columns t128 and t128 + 128. */
template <class c>
DEV void store_part(const fp8_large_args &a, const large_group &g, const large_part<c> &p,
                    const float (&cs)[2], const float (&acc)[c::MT][c::R])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int col = g.t128 + 128 * i;
        if (!c::BLOCK && col < c::GN)
            g.cols[col] = cs[i];
    }
    if (g.t128 == 0)
        bulk_wait_read<0>(); /* of the tile before */
    bar_named(1 + g.wg, 128);
    if (a.y_dtype == FP8_F32)
        store_floats(a, g, p, acc);
    else if (a.y_dtype == FP8_F16 && a.scales.bias)
        store_halves<c, true, FP8_F16>(a, g, p, acc);
    else if (a.y_dtype == FP8_F16)
        store_halves<c, false, FP8_F16>(a, g, p, acc);
    else if (a.scales.bias)
        store_halves<c, true, FP8_BF16>(a, g, p, acc);
    else
        store_halves<c, false, FP8_BF16>(a, g, p, acc);
}

#endif
