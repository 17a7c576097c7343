/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_wide.cuh - Y[M,N] (bf16, fp16, fp32) = X[M,K] (bf16, fp16) . W[N,K]^T (e4m3fn) + bias,
 * K % 16 == 0, on sm_90a. W's codes come as bytes and become 16 bits in the registers from which
 * the tensor cores take them: exact, so what is summed is X times the codes.
 *
 * The operands are swapped: 128 rows of W are the rows of two products of 64, the rows of X
 * ("tokens") their n = 16..256, so that no row of X is padded to 64.
 *   8 warps  two groups, 64 rows of W each, which share nothing but the ring
 *   1 warp   producer: a ring of stages (X tokens x 128, W 128 x 128; half as many columns with 256
 *            tokens) by bulk copies; W of the first ones before it waits for the kernel before
 *
 * A group decodes a part of a stage while the products of the part before are under way. A cluster
 * may split K: its sums then pass through shared memory, each block adds those of some tokens in
 * the order of the blocks, so the bits are always the same. Sums are fp32 as the tensor cores make
 * them (truncated); with BLOCK each 128 columns are added in fp32, times their scale. Powers of two
 * (MX) are multiplied into W: exact while the product is a number of bf16. Scales that differ along
 * K (TERMS) are multiplied into W in fp32, and that is the exact sum of three numbers of bf16, 8
 * bits each, which are multiplied one by one.
 *
 * TURNED computes dX = dY W: W is [K,N] then and lies in a stage as it does in memory, 128 of N
 * wide. Two bytes side by side are of two rows of the product, 2i and 2i + 1 for what the tensor
 * cores take for rows i and i + 8. */
#ifndef FP8_KERNELS_GEMM_WIDE_CUH
#define FP8_KERNELS_GEMM_WIDE_CUH

#include "backend/cuda/kernels/sm90.cuh"
#include "backend/cuda/kernels/wgmma_wide.cuh"
#include "backend/cuda/wide_args.h"
#include "fp8.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <int TOK, int KIND> struct wide_cfg {
    static constexpr int DEPTH = fp8_wide_depth(TOK), STAGE = fp8_wide_stage(TOK);
    static constexpr int X = TOK * DEPTH * 2; /* bytes of X in a stage; W follows */
    static constexpr int PARTS = 2;           /* of a stage: registers for both of them */
    static constexpr int STEPS = DEPTH / 16 / PARTS;
    static constexpr int TERMS = KIND == FP8_WIDE_TERMS ? 3 : 1; /* that a number of W is */
    static constexpr int PER_128 = 128 / DEPTH;                  /* stages */
    static constexpr int R = TOK / 2, J = TOK / 8;               /* sums; groups of 8 tokens */
    static constexpr bool LONE = fp8_wide_per_sm(TOK, KIND) == 1;
    static constexpr int THREADS = fp8_wide_threads(TOK, KIND);
    static constexpr int LINE = 64 + 4; /* of a buffer of the epilogue, in floats: no conflicts */
    static_assert(KIND != FP8_WIDE_BLOCK || DEPTH == 128, "a scale a stage");
};

/* ---- decoding ---- */

/* Two codes, the first in the lower byte, as two numbers of 16 bits. */
template <bool BF16> DEV uint32_t wide_two(uint16_t codes)
{
    uint32_t h;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(codes));
    if (!BF16)
        return h;
    const float2 f = __half22float2(*reinterpret_cast<const __half2 *>(&h));
    return bf16x2(f.x, f.y);
}
/* 2^(e - 127) in bf16; 255 is NaN. */
DEV uint32_t wide_power(uint32_t e)
{
    return max(e << 7, 0x0040u) | ((e + 1) >> 8) * 0x7F;
}
/* Of bytes i and i + 1 of `exponents`, the first in the lower half. */
DEV uint32_t wide_powers(uint32_t exponents, int i)
{
    return wide_power(exponents >> 8 * i & 255) | wide_power(exponents >> (8 * i + 8) & 255) << 16;
}
/* Its half i twice. */
DEV uint32_t wide_twice(uint32_t powers, int i)
{
    return __byte_perm(powers, 0, i ? 0x3232 : 0x1010);
}
/* Four exponents of a row, of which `count` are there, 0 for the rest; `words`: all, at once. */
DEV uint32_t wide_exponents(const uint8_t *from, int count, bool words)
{
    uint32_t some = 0;
    if (words)
        return __ldg((const uint32_t *)from);
#pragma unroll
    for (int i = 0; i < 4; i++)
        some |= i < count ? (uint32_t)__ldg(from + i) << 8 * i : 0;
    return some;
}
DEV uint32_t wide_times(uint32_t a, uint32_t b)
{
    uint32_t r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
DEV uint16_t wide_codes(uint32_t address)
{
    uint16_t two;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(two) : "r"(address));
    return two;
}

/* A's four registers of 16 columns: from two rows, `below` bytes apart. */
template <bool BF16> DEV void wide_straight(uint32_t (&f)[4], uint32_t at, uint32_t below)
{
#pragma unroll
    for (int e = 0; e < 4; e++)
        f[e] = wide_two<BF16>(wide_codes(at + e % 2 * below + e / 2 * 8));
}
/* The same from 16 rows of W as it lies, two of which are side by side for a thread. */
template <bool BF16> DEV void wide_turned(uint32_t (&f)[4], uint32_t at, const uint32_t (&rows)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t even = wide_codes(at + rows[0] + half * (8 * 128)),
                       odd = wide_codes(at + rows[1] + half * (8 * 128));
        f[2 * half] = wide_two<BF16>((uint16_t)__byte_perm(even, odd, 0x0040));
        f[2 * half + 1] = wide_two<BF16>((uint16_t)__byte_perm(even, odd, 0x0051));
    }
}

/* Takes from *rest, not a NaN's or infinity's, the bits of bf16 that it begins with. */
DEV uint32_t wide_take(float *rest)
{
    const uint32_t bits = __float_as_uint(*rest);
    *rest = (bits & 0x7F800000) == 0x7F800000 ? 0 : *rest - __uint_as_float(bits & 0xFFFF0000);
    return bits;
}
/* Register e of each term of two codes, the first in the lower byte, times two scales. */
DEV void wide_two_terms(uint32_t (&f)[3][4], int e, uint16_t codes, float2 by)
{
    uint32_t h;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(h) : "h"(codes));
    const float2 w = __half22float2(*reinterpret_cast<const __half2 *>(&h));
    float first = w.x * by.x, second = w.y * by.y;
#pragma unroll
    for (int term = 0; term < 3; term++) {
        const uint32_t low = wide_take(&first);
        f[term][e] = __byte_perm(low, wide_take(&second), 0x7632);
    }
}
/* As wide_turned, with the scales of the thread's four columns of K. */
DEV void wide_turned_terms(uint32_t (&f)[3][4], uint32_t at, const uint32_t (&rows)[2],
                           const float2 (&by)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t even = wide_codes(at + rows[0] + half * (8 * 128)),
                       odd = wide_codes(at + rows[1] + half * (8 * 128));
        wide_two_terms(f, 2 * half, (uint16_t)__byte_perm(even, odd, 0x0040), by[half]);
        wide_two_terms(f, 2 * half + 1, (uint16_t)__byte_perm(even, odd, 0x0051), by[half]);
    }
}

/* ---- the last step ---- */

DEV float wide_round(float v, int dtype)
{
    return dtype == FP8_BF16  ? __bfloat162float(__float2bfloat16_rn(v))
           : dtype == FP8_F16 ? __half2float(__float2half_rn(v))
                              : v;
}
DEV uint32_t wide_f16x2(float lo, float hi)
{
    const __half2 h = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<const uint32_t *>(&h);
}
/* Some of four neighbours of a row of Y; not inlined, as it is rare. */
static __device__ __noinline__ void wide_store_some(const fp8_wide_args &a, int m, int n, float4 v)
{
    const float f[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64_t at = m * a.y_stride + n + i;
        if (n + i >= a.n)
            return;
        if (a.y_dtype == FP8_F32)
            ((float *)a.y)[at] = f[i];
        else
            ((uint16_t *)a.y)[at] =
                (uint16_t)(a.y_dtype == FP8_BF16 ? bf16x2(f[i], 0) : wide_f16x2(f[i], 0));
    }
}
/* Four of them; whole: at once. */
DEV void wide_store(const fp8_wide_args &a, int m, int n, float4 v, bool whole)
{
    const int64_t at = m * a.y_stride + n;
    if (!whole)
        wide_store_some(a, m, n, v);
    else if (a.y_dtype == FP8_F32)
        *(float4 *)((float *)a.y + at) = v;
    else
        *(uint2 *)((uint16_t *)a.y + at) =
            a.y_dtype == FP8_BF16 ? make_uint2(bf16x2(v.x, v.y), bf16x2(v.z, v.w))
                                  : make_uint2(wide_f16x2(v.x, v.y), wide_f16x2(v.z, v.w));
}
DEV float4 wide_peer(uint32_t address) /* of shared memory of the cluster */
{
    float4 f;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(f.x), "=f"(f.y), "=f"(f.z), "=f"(f.w)
                 : "r"(address)
                 : "memory");
    return f;
}

/* ---- the walk over tiles: groups of a.group down, M fastest ---- */

struct wide_tile {
    int m, n;
};
template <int TOK> DEV wide_tile wide_place(const fp8_wide_args &a, int t)
{
    const int down = (a.m + TOK - 1) / TOK, across = (a.n + FP8_WIDE_ROWS - 1) / FP8_WIDE_ROWS;
    const int g = t / (a.group * across), in = t - g * a.group * across;
    const int rows = min(a.group, down - g * a.group), col = in / rows;
    return {(g * a.group + in - col * rows) * TOK, col * FP8_WIDE_ROWS};
}

template <int TOK, int KIND, bool BF16, bool TURNED> DEV void wide_body(const fp8_wide_args &a)
{
    using c = wide_cfg<TOK, KIND>;
    constexpr int R = c::R, J = c::J, STEPS = c::STEPS;
    extern __shared__ __align__(1024) uint8_t sm[];
    __shared__ alignas(8) uint64_t full[FP8_WIDE_STAGES], empty[FP8_WIDE_STAGES];
    __shared__ alignas(16) float out[2][2][8 * c::LINE]; /* of each group, in turn */
    const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid / 32, 0), lane = tid % 32;
    const int S = a.stages, split = a.split, rank = (int)blockIdx.x % split;
    const int clusters = (int)gridDim.x / split, cluster = (int)blockIdx.x / split;
    const int blocks = (a.k + 127) / 128, first = blocks * rank / split,
              mine = blocks * (rank + 1) / split - first; /* of 128 columns */
    const int ns = c::PER_128 == 1 ? mine : (a.k + c::DEPTH - 1) / c::DEPTH;
    const int across = (a.n + FP8_WIDE_ROWS - 1) / FP8_WIDE_ROWS,
              tiles = (a.m + TOK - 1) / TOK * across;
    const uint32_t ring = __shfl_sync(~0u, smem_u32(sm), 0);
    const uint32_t full_bar = __shfl_sync(~0u, smem_u32(full), 0),
                   empty_bar = __shfl_sync(~0u, smem_u32(empty), 0);
    if (ring & 1023)
        __trap();
    if (warp == 8) {
        if (lane == 0) {
            tma_prefetch_map(&a.w);
            tma_prefetch_map(&a.x);
        }
        if (lane < S) {
            mbar_init(full_bar + lane * 8, 1);
            mbar_init(empty_bar + lane * 8, 2); /* an arrival of each group */
        }
        mbar_init_fence();
        fence_async_smem();
    }
    __syncthreads();
    pdl_launch();
    if (warp >= 8) { /* ---- producer ---- */
        if (c::LONE)
            reg_dec<24>();
        if (warp == 8) { /* all lanes: see mbar_expect_tx_if */
            const uint32_t lead = elect_one();
            const uint64_t policy = a.m <= TOK ? policy_evict_first() : policy_evict_normal();
            auto load_w = [&](int slot, int n0, int s) {
                mbar_expect_tx_if(lead, full_bar + slot * 8, c::STAGE);
                const int k = first * 128 + s * c::DEPTH;
                tma_2d_hint_if(lead, ring + slot * c::STAGE + c::X, &a.w, TURNED ? n0 : k,
                               TURNED ? k : n0, full_bar + slot * 8, policy);
            };
            auto load_x = [&](int slot, int m0, int s) {
#pragma unroll
                for (int i = 0; i < c::DEPTH / 64; i++)
                    tma_2d_if(lead, ring + slot * c::STAGE + i * (TOK * 128), &a.x,
                              first * 128 + s * c::DEPTH + i * 64, m0, full_bar + slot * 8);
            };
            int early = 0, slot = 0;
            uint32_t phase = 1;
            if (cluster < tiles) {
                const wide_tile at = wide_place<TOK>(a, cluster);
                for (early = min(S, ns); slot < early; slot++)
                    load_w(slot, at.n, slot);
                slot = 0;
            }
            pdl_wait();
            for (int t = cluster; t < tiles; t += clusters) {
                const wide_tile at = wide_place<TOK>(a, t);
                for (int s = 0; s < ns; s++) {
                    mbar_wait(empty_bar + slot * 8, phase);
                    if (early)
                        early--;
                    else
                        load_w(slot, at.n, s);
                    load_x(slot, at.m, s);
                    if (++slot == S) {
                        slot = 0;
                        phase ^= 1;
                    }
                }
            }
        }
        __syncwarp();
        if (split > 1)
            for (int i = 0; i < 2; i++) {
                cluster_arrive();
                cluster_wait();
            }
    } else { /* ---- consumers ---- */
        if (c::LONE)
            reg_inc<240>();
        const int wg = warp / 4, w = warp % 4, t128 = tid % 128, g = lane / 4, q = lane % 4;
        /* Rows of the group: this one, and `other` more. */
        const int row = w * 16 + (TURNED ? 2 * g : g), other = TURNED ? 1 : 8;
        const uint32_t codes =
            ring + c::X +
            (uint32_t)(TURNED ? 2 * q * 128 + 2 * g : (wg * 64 + row) * c::DEPTH + 2 * q);
        const uint32_t swizzle = c::DEPTH == 128 ? g * 16 : g / 2 * 16;
        const uint32_t turned[2] = {(uint32_t)((wg * 4 + w) ^ (2 * q)) * 16,
                                    (uint32_t)((wg * 4 + w) ^ (2 * q + 1)) * 16 + 128};
        const uint32_t b_lo = (ring >> 4) + 0x10000;
        const int bytes = a.y_dtype == FP8_F32 ? 4 : 2;
        const bool aligned = ((uintptr_t)a.y | (uint64_t)(a.y_stride * bytes)) % (4 * bytes) == 0;
        int slot = 0, turn = 0;
        uint32_t phase = 0;
        auto release = [&](int s) {
            if (t128 == 0)
                mbar_arrive(empty_bar + s * 8);
        };
        pdl_wait();
        for (int t = cluster; t < tiles; t += clusters) {
            const wide_tile at = wide_place<TOK>(a, t);
            const int n0 = at.n + wg * 64;
            float scale[2], bias[2]; /* asked for now, used after the main loop */
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int n = n0 + row + other * e;
                scale[e] = KIND == FP8_WIDE_CHANNEL && n < a.n
                               ? ((const float *)a.scales)[n * a.scale_step]
                               : 1;
                bias[e] = a.bias && n < a.n ? a.bias[n] : -0.0f; /* which changes nothing */
            }
            const float *block_scale = (const float *)a.scales +
                                       (TURNED ? (int64_t)first * across + at.n / FP8_WIDE_ROWS
                                               : (int64_t)(at.n / FP8_WIDE_ROWS) * blocks + first);
            /* Exponents: of the warp's 16 rows for two blocks of 128 columns, 4 each. */
            const int mx_row = min(n0 + w * 16 + lane % 16, a.n - 1);
            const int groups = (a.k + 31) / 32;
            const bool words = ((uintptr_t)a.scales | groups) % 4 == 0;
            const uint8_t *exponents = (const uint8_t *)a.scales + (int64_t)mx_row * groups;
            auto two_blocks = [&](int b) {
                const int at = 4 * (first + b + lane / 16);
                return b + lane / 16 < mine ? wide_exponents(exponents + at, groups - at, words)
                                            : 0;
            };
            uint32_t now[2] = {0, 0}, next = KIND == FP8_WIDE_MX ? two_blocks(0) : 0;
            float acc[R], d[KIND == FP8_WIDE_BLOCK ? R : 1];
            float by = 0; /* lane l: scale of block l of the current 32 */
#pragma unroll
            for (int r = 0; r < R; r++)
                acc[r] = 0;
            int before = 0;
            for (int s = 0; s < ns; s++) {
                uint32_t power[2][2]; /* of both rows, for each 32 columns of the stage */
                if (KIND == FP8_WIDE_MX) {
                    const int b = s / c::PER_128, from = g + b % 2 * 16;
                    if (s % (2 * c::PER_128) == 0) {
                        now[0] = wide_powers(next, 0);
                        now[1] = wide_powers(next, 2);
                        next = two_blocks(b + 2);
                    }
#pragma unroll
                    for (int i = 0; i < 2 / c::PER_128; i++) {
                        const uint32_t of = c::PER_128 == 1 ? now[i] : s % 2 ? now[1] : now[0];
                        power[0][i] = __shfl_sync(~0u, of, from);
                        power[1][i] = __shfl_sync(~0u, of, from + 8);
                    }
                }
                if (KIND == FP8_WIDE_BLOCK && s % 32 == 0)
                    by =
                        s + lane < ns ? __ldg(block_scale + (s + lane) * (TURNED ? across : 1)) : 0;
                mbar_wait(full_bar + slot * 8, phase);
                const uint32_t from = codes + slot * c::STAGE;
                const uint32_t b = b_lo + slot * (c::STAGE / 16);
#pragma unroll
                for (int h = 0; h < c::PARTS; h++) {
                    float2 by_column[STEPS][2]; /* scales of columns 2q, 2q + 1 and 8 more */
                    if constexpr (KIND == FP8_WIDE_TERMS)
#pragma unroll
                        for (int i = 0; i < STEPS; i++) {
                            const int k = first * 128 + s * c::DEPTH + (h * STEPS + i) * 16 + 2 * q;
#pragma unroll
                            for (int half = 0; half < 2; half++)
                                by_column[i][half] =
                                    k < a.k
                                        ? *(const float2 *)((const float *)a.scales + k + half * 8)
                                        : make_float2(0, 0);
                        }
                    uint32_t f[STEPS][c::TERMS][4];
#pragma unroll
                    for (int i = 0; i < STEPS; i++) {
                        const int step = h * STEPS + i;
                        const uint32_t depth = from + (uint32_t)step * (16 * 128);
                        if constexpr (KIND == FP8_WIDE_TERMS)
                            wide_turned_terms(f[i], depth, turned, by_column[i]);
                        else if (TURNED)
                            wide_turned<BF16>(f[i][0], depth, turned);
                        else
                            wide_straight<BF16>(f[i][0], from + ((uint32_t)(step * 16) ^ swizzle),
                                                8 * c::DEPTH);
                        if (KIND == FP8_WIDE_MX)
#pragma unroll
                            for (int e = 0; e < 4; e++)
                                f[i][0][e] = wide_times(
                                    f[i][0][e], wide_twice(power[e % 2][step / 4], step / 2 % 2));
                    }
                    wg_fence();
#pragma unroll
                    for (int i = 0; i < STEPS; i++) {
                        const int step = h * STEPS + i;
                        const uint32_t x = b + step / 4 * (TOK * 8) + step % 4 * 2;
#pragma unroll
                        for (int term = 0; term < c::TERMS; term++)
                            if constexpr (KIND == FP8_WIDE_BLOCK)
                                kstep<TOK, BF16>::rs(d, f[i][term], x, step > 0);
                            else
                                kstep<TOK, BF16>::rs(acc, f[i][term], x, 1);
                    }
                    wg_commit();
                    if (KIND != FP8_WIDE_BLOCK) {
                        wg_wait<1>(); /* the part before, whose registers come next */
                        if (h == 0 && s > 0)
                            release(before);
                    }
                }
                if constexpr (KIND == FP8_WIDE_BLOCK) {
                    const float factor = __shfl_sync(~0u, by, s % 32);
                    wg_wait<0>();
                    pin(d);
                    release(slot);
#pragma unroll
                    for (int r = 0; r < R; r++)
                        acc[r] = fmaf(d[r], factor, acc[r]);
                }
                before = slot;
                if (++slot == S) {
                    slot = 0;
                    phase ^= 1;
                }
            }
            if (KIND != FP8_WIDE_BLOCK) {
                wg_wait<0>();
                pin(acc);
                if (ns > 0)
                    release(before);
            }
            /* 8 tokens: turned in shared memory, so that neighbours of a row lie side by side. */
            auto emit = [&](int j, const float(&v)[4]) {
                float *buffer = out[wg][turn];
                turn ^= 1;
                float y[4]; /* docs/numerics.md, section 11, with sx = 1 */
#pragma unroll
                for (int e = 0; e < 4; e++)
                    y[e] = __fmul_rn(v[e], scale[e / 2]);
                if (a.bias_last)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        y[e] = wide_round(y[e], a.y_dtype);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    buffer[(2 * q + e % 2) * c::LINE + row + e / 2 * other] =
                        __fadd_rn(y[e], bias[e / 2]);
                bar_named(4 + wg, 128);
                const int m = at.m + 8 * j + t128 / 16, n = n0 + t128 % 16 * 4;
                if (m < a.m && n < a.n)
                    wide_store(a, m, n,
                               *(const float4 *)(buffer + t128 / 16 * c::LINE + t128 % 16 * 4),
                               aligned && n + 4 <= a.n);
            };
            if (split == 1) {
#pragma unroll
                for (int j = 0; j < J; j++) {
                    const float v[4] = {acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]};
                    emit(j, v);
                }
                continue;
            }
            bar_named(1, 256); /* nobody reads the ring any more */
            float4 *sums = (float4 *)sm + wg * (J * 128) + t128;
#pragma unroll
            for (int j = 0; j < J; j++)
                sums[j * 128] =
                    make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
            cluster_arrive();
            cluster_wait();
            for (int j = J * rank / split; j < J * (rank + 1) / split; j++) {
                const uint32_t from = smem_u32(sums + j * 128);
                float v[4] = {0, 0, 0, 0};
#pragma unroll 4
                for (int o = 0; o < split; o++) {
                    const float4 f = wide_peer(mapa(from, (uint32_t)o));
                    v[0] += f.x;
                    v[1] += f.y;
                    v[2] += f.z;
                    v[3] += f.w;
                }
                emit(j, v);
            }
            cluster_arrive(); /* the others have read what is here */
            cluster_wait();
        }
    }
}

#endif
