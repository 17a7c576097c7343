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
#include "backend/cuda/kernels/wide_decode.cuh"
#include "backend/cuda/wide_args.h"
#include "fp8.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <int TOK_, int KIND_, bool BF16_, bool TURNED_> struct wide_cfg {
    static constexpr int TOK = TOK_, KIND = KIND_;
    static constexpr bool BF16 = BF16_, TURNED = TURNED_;
    static constexpr int DEPTH = fp8_wide_depth(TOK), STAGE = fp8_wide_stage(TOK);
    static constexpr int X = TOK * DEPTH * 2; /* bytes of X in a stage; W follows */
    static constexpr int PARTS = 2;           /* of a stage: registers for both of them */
    static constexpr int STEPS = DEPTH / 16 / PARTS;
    static constexpr int TERMS = KIND == FP8_WIDE_TERMS ? 3 : 1; /* that a number of W is */
    static constexpr int PER_128 = 128 / DEPTH;                  /* stages */
    static constexpr int R = TOK / 2, J = TOK / 8;               /* sums; groups of 8 tokens */
    static constexpr bool LONE = fp8_wide_per_sm(TOK, KIND) == 1;
    static constexpr int THREADS = fp8_wide_threads(TOK, KIND);
    static constexpr int OTHER = TURNED ? 1 : 8; /* from one of a thread's two rows to the other */
    static constexpr int LINE = 64 + 4; /* of a buffer of the epilogue, in floats: no conflicts */
    static_assert(KIND != FP8_WIDE_BLOCK || DEPTH == 128, "a scale a stage");
};

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

/* ---- the block's place ---- */

struct wide_block {
    int stages;              /* of the ring */
    int split, rank;         /* blocks of a cluster, which share K; this one in it */
    int clusters, cluster;   /* how many, and which */
    int blocks, first, mine; /* of 128 columns of K: all, those before this block's, and its own */
    int ns;                  /* stages of a tile */
    int across, tiles;       /* all tiles */
};

template <class c> DEV wide_block wide_block_of(const fp8_wide_args &a)
{
    wide_block b;
    b.stages = a.stages;
    b.split = a.split;
    b.rank = (int)blockIdx.x % b.split;
    b.clusters = (int)gridDim.x / b.split;
    b.cluster = (int)blockIdx.x / b.split;
    b.blocks = (a.k + 127) / 128;
    b.first = b.blocks * b.rank / b.split;
    b.mine = b.blocks * (b.rank + 1) / b.split - b.first;
    b.ns = c::PER_128 == 1 ? b.mine : (a.k + c::DEPTH - 1) / c::DEPTH;
    b.across = (a.n + FP8_WIDE_ROWS - 1) / FP8_WIDE_ROWS;
    b.tiles = (a.m + c::TOK - 1) / c::TOK * b.across;
    return b;
}

/* The first row of X and of W of tile t; groups of a.group down, M fastest. */
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

/* Addresses in shared memory: stages, X and W; barriers of those that were copied, and read. */
struct wide_shared {
    uint32_t ring, full, empty;
};

template <class c> DEV wide_shared wide_shared_of(uint8_t *all)
{
    __shared__ alignas(8) uint64_t full[FP8_WIDE_STAGES], empty[FP8_WIDE_STAGES];
    wide_shared m;
    m.ring = __shfl_sync(~0u, smem_u32(all), 0);
    m.full = __shfl_sync(~0u, smem_u32(full), 0);
    m.empty = __shfl_sync(~0u, smem_u32(empty), 0);
    return m;
}

/* ---- the producer: all lanes of its warp, see mbar_expect_tx_if ---- */

DEV void wide_start(const fp8_wide_args &a, const wide_block &b, const wide_shared &m)
{
    const int lane = (int)threadIdx.x % 32;
    if (lane == 0) {
        tma_prefetch_map(&a.w);
        tma_prefetch_map(&a.x);
    }
    if (lane < b.stages) {
        mbar_init(m.full + lane * 8, 1);
        mbar_init(m.empty + lane * 8, 2); /* an arrival of each group */
    }
    mbar_init_fence();
    fence_async_smem();
}

/* W[N,K], or turned [K,N]: stage s of the tile's rows from n0 on; the stage's X comes, too. */
template <class c>
DEV void wide_ask_w(const fp8_wide_args &a, const wide_block &b, const wide_shared &m,
                    uint32_t lead, uint64_t policy, int slot, int n0, int s)
{
    mbar_expect_tx_if(lead, m.full + slot * 8, c::STAGE);
    const int k = b.first * 128 + s * c::DEPTH;
    tma_2d_hint_if(lead, m.ring + slot * c::STAGE + c::X, &a.w, c::TURNED ? n0 : k,
                   c::TURNED ? k : n0, m.full + slot * 8, policy);
}

/* X[M,K]: of its rows from m0 on. */
template <class c>
DEV void wide_ask_x(const fp8_wide_args &a, const wide_block &b, const wide_shared &m,
                    uint32_t lead, int slot, int m0, int s)
{
#pragma unroll
    for (int i = 0; i < c::DEPTH / 64; i++)
        tma_2d_if(lead, m.ring + slot * c::STAGE + i * (c::TOK * 128), &a.x,
                  b.first * 128 + s * c::DEPTH + i * 64, m0, m.full + slot * 8);
}

/* Stage after stage; W of the first ring before it waits for the kernel before. */
template <class c> DEV void wide_produce(const fp8_wide_args &a, wide_block b, wide_shared m)
{
    const uint32_t lead = elect_one();
    const uint64_t policy = a.m <= c::TOK ? policy_evict_first() : policy_evict_normal();
    int early = 0, slot = 0;
    uint32_t phase = 1;
    if (b.cluster < b.tiles) {
        const wide_tile at = wide_place<c::TOK>(a, b.cluster);
        for (early = min(b.stages, b.ns); slot < early; slot++)
            wide_ask_w<c>(a, b, m, lead, policy, slot, at.n, slot);
        slot = 0;
    }
    pdl_wait();
    for (int t = b.cluster; t < b.tiles; t += b.clusters) {
        const wide_tile at = wide_place<c::TOK>(a, t);
        for (int s = 0; s < b.ns; s++) {
            mbar_wait(m.empty + slot * 8, phase);
            if (early)
                early--;
            else
                wide_ask_w<c>(a, b, m, lead, policy, slot, at.n, s);
            wide_ask_x<c>(a, b, m, lead, slot, at.m, s);
            if (++slot == b.stages) {
                slot = 0;
                phase ^= 1;
            }
        }
    }
}

/* ---- the consumers ---- */

/* TERMS: scales of columns 2q, 2q + 1 and 8 more of 16 from k on. */
DEV void wide_column_scales(const fp8_wide_args &a, int k, float2 (&by)[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++)
        by[half] =
            k < a.k ? *(const float2 *)((const float *)a.scales + k + half * 8) : make_float2(0, 0);
}

/* A's registers of a step of 16 columns, from a stage's codes at `from`; k: its first column for
 * the lane. */
template <class c>
DEV void wide_step(uint32_t from, uint32_t swizzle, const uint32_t (&turned)[2], int step,
                   const uint32_t (&power)[2][2], const float2 (&by)[2], uint32_t (&f)[c::TERMS][4])
{
    const uint32_t depth = from + (uint32_t)step * (16 * 128);
    if constexpr (c::KIND == FP8_WIDE_TERMS)
        wide_turned_terms(f, depth, turned, by);
    else if (c::TURNED)
        wide_turned<c::BF16>(f[0], depth, turned);
    else
        wide_straight<c::BF16>(f[0], from + ((uint32_t)(step * 16) ^ swizzle), 8 * c::DEPTH);
    if (c::KIND == FP8_WIDE_MX)
#pragma unroll
        for (int e = 0; e < 4; e++)
            f[0][e] = wide_times(f[0][e], wide_twice(power[e % 2][step / 4], step / 2 % 2));
}

/* Sums v of 8 tokens from m on and the group's 64 rows of W from n on, into Y; turned in one of the
 * group's buffers `out`, so that neighbours of a row lie side by side. scale, bias: of rows `row`
 * and OTHER more. */
template <class c>
DEV void wide_emit(const fp8_wide_args &a, float (&out)[2][2][8 * c::LINE], int &turn, int wg,
                   int q, int row, int m, int n, const float (&v)[4], const float (&scale)[2],
                   const float (&bias)[2], bool aligned)
{
    const int t128 = (int)threadIdx.x % 128;
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
        buffer[(2 * q + e % 2) * c::LINE + row + e / 2 * c::OTHER] = __fadd_rn(y[e], bias[e / 2]);
    bar_named(4 + wg, 128);
    m += t128 / 16;
    n += t128 % 16 * 4;
    if (m < a.m && n < a.n)
        wide_store(a, m, n, *(const float4 *)(buffer + t128 / 16 * c::LINE + t128 % 16 * 4),
                   aligned && n + 4 <= a.n);
}

/* The scale and bias of the two rows from n on, asked for now and used after the main loop. */
template <class c>
DEV void wide_ask_rows(const fp8_wide_args &a, int n, float (&scale)[2], float (&bias)[2])
{
#pragma unroll
    for (int e = 0; e < 2; e++, n += c::OTHER) {
        scale[e] = c::KIND == FP8_WIDE_CHANNEL && n < a.n
                       ? ((const float *)a.scales)[n * a.scale_step]
                       : 1;
        bias[e] = a.bias && n < a.n ? a.bias[n] : -0.0f; /* which changes nothing */
    }
}

/* Begins the products of part h of a stage, whose X has the descriptor x, into d. */
template <class c>
DEV void wide_multiply(float (&d)[c::R], const uint32_t (&f)[c::STEPS][c::TERMS][4], uint32_t x,
                       int h)
{
    wg_fence();
#pragma unroll
    for (int i = 0; i < c::STEPS; i++) {
        const int step = h * c::STEPS + i;
        const uint32_t at = x + step / 4 * (c::TOK * 8) + step % 4 * 2;
#pragma unroll
        for (int term = 0; term < c::TERMS; term++)
            kstep<c::TOK, c::BF16>::rs(d, f[i][term], at, c::KIND != FP8_WIDE_BLOCK || step > 0);
    }
    wg_commit();
}

/* A's registers of part h of stage s, which lies at `from`. */
template <class c>
DEV void wide_part(const fp8_wide_args &a, int first, uint32_t from, uint32_t swizzle,
                   const uint32_t (&turned)[2], int q, int s, int h, const uint32_t (&power)[2][2],
                   uint32_t (&f)[c::STEPS][c::TERMS][4])
{
    float2 by[c::STEPS][2];
    if constexpr (c::KIND == FP8_WIDE_TERMS)
#pragma unroll
        for (int i = 0; i < c::STEPS; i++)
            wide_column_scales(a, first * 128 + s * c::DEPTH + (h * c::STEPS + i) * 16 + 2 * q,
                               by[i]);
#pragma unroll
    for (int i = 0; i < c::STEPS; i++)
        wide_step<c>(from, swizzle, turned, h * c::STEPS + i, power, by[i], f[i]);
}

/* The sums of 8 tokens at `from` in all blocks of the cluster, in the order of the blocks. */
DEV void wide_add_peers(uint32_t from, int split, float (&v)[4])
{
#pragma unroll 4
    for (int o = 0; o < split; o++) {
        const float4 f = wide_peer(mapa(from, (uint32_t)o));
        v[0] += f.x;
        v[1] += f.y;
        v[2] += f.z;
        v[3] += f.w;
    }
}

/* The loops over tiles, stages and parts are here and not in functions: the compiler orders code in
 * them by what it sees around them. */
template <int TOK, int KIND, bool BF16, bool TURNED> DEV void wide_body(const fp8_wide_args &a)
{
    using c = wide_cfg<TOK, KIND, BF16, TURNED>;
    constexpr int R = c::R, J = c::J, STEPS = c::STEPS;
    extern __shared__ __align__(1024) uint8_t sm[];
    const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid / 32, 0), lane = tid % 32;
    const wide_block b = wide_block_of<c>(a);
    const wide_shared m = wide_shared_of<c>(sm);
    __shared__ alignas(16) float out[2][2][8 * c::LINE]; /* of each group, in turn */
    const int S = b.stages, split = b.split, ns = b.ns, first = b.first, across = b.across;
    const uint32_t ring = m.ring;
    if (ring & 1023)
        __trap();
    if (warp == 8)
        wide_start(a, b, m);
    __syncthreads();
    pdl_launch();
    if (warp >= 8) {
        if (c::LONE)
            reg_dec<24>();
        if (warp == 8)
            wide_produce<c>(a, b, m);
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
        /* Rows of the group: this one, and OTHER more. */
        const int row = w * 16 + (TURNED ? 2 * g : g);
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
                mbar_arrive(m.empty + s * 8);
        };
        pdl_wait();
        for (int t = b.cluster; t < b.tiles; t += b.clusters) {
            const wide_tile at = wide_place<TOK>(a, t);
            const int n0 = at.n + wg * 64;
            float scale[2], bias[2];
            wide_ask_rows<c>(a, n0 + row, scale, bias);
            const float *block_scale =
                (const float *)a.scales +
                (TURNED ? (int64_t)first * across + at.n / FP8_WIDE_ROWS
                        : (int64_t)(at.n / FP8_WIDE_ROWS) * b.blocks + first);
            /* Exponents: of the warp's 16 rows for two blocks of 128 columns, 4 each. */
            const int mx_row = min(n0 + w * 16 + lane % 16, a.n - 1);
            const int groups = (a.k + 31) / 32;
            const bool words = ((uintptr_t)a.scales | groups) % 4 == 0;
            const uint8_t *exponents = (const uint8_t *)a.scales + (int64_t)mx_row * groups;
            auto two_blocks = [&](int block) {
                const int at = 4 * (first + block + lane / 16);
                return block + lane / 16 < b.mine
                           ? wide_exponents(exponents + at, groups - at, words)
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
                    const int of = s / c::PER_128, from = g + of % 2 * 16;
                    if (s % (2 * c::PER_128) == 0) {
                        now[0] = wide_powers(next, 0);
                        now[1] = wide_powers(next, 2);
                        next = two_blocks(of + 2);
                    }
#pragma unroll
                    for (int i = 0; i < 2 / c::PER_128; i++) {
                        const uint32_t powers = c::PER_128 == 1 ? now[i] : s % 2 ? now[1] : now[0];
                        power[0][i] = __shfl_sync(~0u, powers, from);
                        power[1][i] = __shfl_sync(~0u, powers, from + 8);
                    }
                }
                if (KIND == FP8_WIDE_BLOCK && s % 32 == 0)
                    by =
                        s + lane < ns ? __ldg(block_scale + (s + lane) * (TURNED ? across : 1)) : 0;
                mbar_wait(m.full + slot * 8, phase);
                const uint32_t from = codes + slot * c::STAGE;
                const uint32_t x = b_lo + slot * (c::STAGE / 16);
#pragma unroll
                for (int h = 0; h < c::PARTS; h++) {
                    uint32_t f[STEPS][c::TERMS][4];
                    wide_part<c>(a, first, from, swizzle, turned, q, s, h, power, f);
                    if constexpr (KIND == FP8_WIDE_BLOCK)
                        wide_multiply<c>(d, f, x, h);
                    else
                        wide_multiply<c>(acc, f, x, h);
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
            if (split == 1) {
#pragma unroll
                for (int j = 0; j < J; j++) {
                    const float v[4] = {acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]};
                    wide_emit<c>(a, out, turn, wg, q, row, at.m + 8 * j, n0, v, scale, bias,
                                 aligned);
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
            for (int j = J * b.rank / split; j < J * (b.rank + 1) / split; j++) {
                const uint32_t from = smem_u32(sums + j * 128);
                float v[4] = {0, 0, 0, 0};
                wide_add_peers(from, split, v);
                wide_emit<c>(a, out, turn, wg, q, row, at.m + 8 * j, n0, v, scale, bias, aligned);
            }
            cluster_arrive(); /* the others have read what is here */
            cluster_wait();
        }
    }
}

#endif
