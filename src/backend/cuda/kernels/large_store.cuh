/* SPDX-License-Identifier: Apache-2.0
 *
 * large_store.cuh - of gemm_large.cuh: Y[M,N] from registers to memory, times scales, plus bias:
 * the smallest tiles, and where slices of K meet. */
#ifndef FP8_KERNELS_LARGE_STORE_CUH
#define FP8_KERNELS_LARGE_STORE_CUH

#include "backend/cuda/kernels/sm90.cuh"
#include "backend/cuda/sm90_args.h"

struct yes {
    static constexpr bool value = true;
};
struct no {
    static constexpr bool value = false;
};

/* Four columns of a row of Y, from column n on. */
DEV void store_four(const fp8_large_args &a, int m, int n, float4 v, bool whole)
{
    const int64_t at = m * a.y_stride + n;
    const uint32_t lo = half2_of(a.y_dtype, v.x, v.y), hi = half2_of(a.y_dtype, v.z, v.w);
    if (a.y_dtype == FP8_F32) {
        float *y = (float *)a.y_plain + at;
        const float one[4] = {v.x, v.y, v.z, v.w};
        if (whole)
            *(float4 *)y = v;
        else
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n + i < a.n)
                    y[i] = one[i];
    } else {
        uint16_t *y = (uint16_t *)a.y_plain + at;
        if (whole)
            *(uint2 *)y = make_uint2(lo, hi);
        else
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (n + i < a.n)
                    y[i] = (uint16_t)((i < 2 ? lo : hi) >> i % 2 * 16);
    }
}

/* A warp's sums of rows row, row + 8 and COLS columns from n0 on, times the scales rs of the rows
 * and those of the columns, which are in shared memory as the biases are; four columns a lane go to
 * store(row, column, values). */
template <int COLS, bool BIAS, class store_fn>
DEV void scale_sums(const float *sums, const float (&rs)[2], const float *scales,
                    const float *biases, int row, int n0, store_fn store)
{
    const int lane = threadIdx.x % 32;
    const bool odd = lane & 1;
    auto give =
        [&](int e, int col, float l0, float l1, float r0, float r1, const float4 &s,
            const float4 &b) { /* l: what an even lane keeps; r: what an odd one does */
        const float f0 = __shfl_xor_sync(~0u, odd ? l0 : r0, 1),
                    f1 = __shfl_xor_sync(~0u, odd ? l1 : r1, 1);
        const float4 v = odd ? make_float4(f0, f1, r0, r1) : make_float4(l0, l1, f0, f1);
        const float x = e ? rs[1] : rs[0];
        store(
            row + 8 * e, n0 + col,
            BIAS ? make_float4(fmaf(x, v.x * s.x, b.x), fmaf(x, v.y * s.y, b.y),
                               fmaf(x, v.z * s.z, b.z), fmaf(x, v.w * s.w, b.w))
                 : make_float4(x * (v.x * s.x), x * (v.y * s.y), x * (v.z * s.z), x * (v.w * s.w)));
    };
    /* Of 16 columns an even lane stores four of the first 8, its neighbour four of the others; of 8
     * that are left, four of the first row and four of the second. */
#pragma unroll
    for (int i = 0; i < COLS / 8; i += 2) {
        const bool two = i + 1 < COLS / 8;
        const int col = 8 * i + (two && odd ? 8 : 0) + 2 * (lane & 2);
        const float4 s = *(const float4 *)(scales + col),
                     b = BIAS ? *(const float4 *)(biases + col) : float4{};
        const float *l = sums + 4 * i, *r = two ? l + 4 : l;
        if (two) {
            give(0, col, l[0], l[1], r[0], r[1], s, b);
            give(1, col, l[2], l[3], r[2], r[3], s, b);
        } else
            give(odd, col, l[0], l[1], l[2], l[3], s, b);
    }
}

/* The same, into Y. */
template <int COLS>
DEV void store_sums(const fp8_large_args &a, const float *sums, const float (&rs)[2],
                    const float *scales, const float *biases, int row, int n0)
{
    const int bytes = a.y_dtype == FP8_F32 ? 4 : 2;
    const bool aligned = ((uintptr_t)a.y_plain | (uint64_t)(a.y_stride * bytes)) % (4 * bytes) == 0;
    /* Instances: a branch inside would keep the columns from overlapping. */
    auto scale = [&](auto store) {
        if (a.scales.bias)
            scale_sums<COLS, true>(sums, rs, scales, biases, row, n0, store);
        else
            scale_sums<COLS, false>(sums, rs, scales, biases, row, n0, store);
    };
    auto halves = [&](auto in_f16) {
        constexpr int DTYPE = decltype(in_f16)::value ? FP8_F16 : FP8_BF16;
        scale([&](int m, int n, float4 v) {
            if (m < a.m)
                *(uint2 *)((uint16_t *)a.y_plain + m * a.y_stride + n) =
                    make_uint2(half2_of(DTYPE, v.x, v.y), half2_of(DTYPE, v.z, v.w));
        });
    };
    if (a.y_dtype == FP8_F32 || !aligned || n0 + COLS > a.n)
        scale([&](int m, int n, float4 v) {
            if (m < a.m && n < a.n)
                store_four(a, m, n, v, aligned && n + 4 <= a.n);
        });
    else if (a.y_dtype == FP8_F16)
        halves(yes{});
    else
        halves(no{});
}

/* acc[64, BN] to rows from row0 on and columns from n1 on of Y; scale, bias: of column t128 of the
 * group's; `mine`: place for all of them. */
template <class c>
DEV void store_direct(const fp8_large_args &a, float *mine, int wg, int t128, float scale,
                      float bias, const float *acc, const float (&rs)[2], int row0, int n1)
{
    if (t128 < c::GN) {
        mine[t128] = scale;
        mine[c::BN + t128] = bias;
    }
    bar_named(1 + wg, 128);
    store_sums<c::GN>(a, acc, rs, mine, mine + c::BN, row0, n1);
}

#endif
