/* SPDX-License-Identifier: Apache-2.0 */
/* f8_small.cuh - Y[M,N] (bf16) = X[M,K] . W[N,K]^T (e4m3) for few tokens (M up to a few hundred), sm_90a. K % 16 == 0.
 *
 * Swapped operands: the rows of W are the 64 rows of a wgmma, the tokens its n = 8..128, so no row of X is padded to 64. A
 * cluster of C CTAs splits K; its partial sums travel into the shared memory of the CTA that owns those tokens, are added there in
 * a fixed order (deterministic, no workspace) and stored.
 *   8 warps   two consumer groups: they halve the rows of W (BR = 128), the tokens (BR = 64, BT >= 64), or K (BT <= 32)
 *   1 warp    producer: asks for the first stages of W before the dependency wait, for X after it
 * ACC: FAST (the tensor core accumulates all of K), PROMOTED (added in fp32 every 128 of K), BLOCK (the same, times the scales
 * 1x128 of X and 128x128 of W). XIN: CODES (X is e4m3) or BF16 (M <= BT <= 16: X is quantized here, by row or by 1x128).
 * Launch with the cluster attribute even for C = 1: st.async does not complete in a launch without it. */
#pragma once
#include "f8_kinds.h"
#include "f8_quantize.cuh"
#include "harness/sm90.cuh"
#include "harness/wgmma_gen.h"

struct small_args {
    CUtensorMap w, x, sx_map, y_map; /* boxes: BR x 128, x_rows x 128, BT scales of one k block (BLOCK), STORE_ROWS x 64; X only where it is streamed */
    const float *sx, *sw, *bias;   /* [M] or [K/128][ldsx] in BLOCK, [N] or [N/128][K/128] in BLOCK, [N] or null */
    const uint8_t *xq;             /* [M,K] codes, where X is resident */
    const __nv_bfloat16 *xb;       /* [M,K] in BF16 */
    __nv_bfloat16 *y;              /* [M,N]; used where y_map is not: BT < 64 or N % 8 */
    int M, N, K, stages, prefetch; /* prefetch: stages past the ring that are asked into L2 before the dependency wait */
    int ldsx, chained;             /* chained: launched with the dependency attribute, so W is asked for before X may be */
    int x_rows;                    /* rows of the box of X: min(M, BT), so that no box lies outside */
};

enum { FIRST = 3 }; /* stages that a plain launch asks for before the first is there: else the first of all SMs would come with the last */

template <int BR, int BT, int ACC, int XIN, int C> struct small_cfg {
    static constexpr bool HALF_K = BR == 64 && BT <= 32;             /* the groups take alternate k blocks of a stage */
    static constexpr bool RESIDENT = BT <= 16;                       /* the slice of X stays in shared memory; else it is streamed with W */
    static constexpr int KPS = HALF_K ? 2 : 1;                       /* k blocks of a stage */
    static constexpr int PER_SM = BR == 64 && BT <= 64 ? 2 : 1, THREADS = PER_SM == 1 ? 384 : 288; /* whole groups where setmaxnreg moves registers */
    static constexpr int TOK = BR == 64 && !HALF_K ? BT / 2 : BT;    /* tokens of a group */
    static constexpr int CHUNKS = TOK > 128 ? 2 : 1, CN = TOK / CHUNKS, J = CN / 8, R = CN / 2; /* wgmma n, its groups of 8 tokens, registers */
    static constexpr int WARPS = HALF_K ? 4 : 8;                     /* that hold sums, once the halves of K are joined */
    static constexpr bool DIRECT = BT <= 16;                         /* partial sums by st.async (a low latency, 4 to 8 bytes a clock); else by bulk copies */
    static constexpr bool WIDE = BT >= 64, IN_RING = WIDE && C > 1;  /* Y by TMA; one tile a cluster: the ring then holds the exchange */
    static constexpr int A = KPS * BR * 128, B = RESIDENT ? 0 : KPS * BT * 128;
    static constexpr int SF_ROW = BT * 4 < 128 ? 128 : BT * 4, SF = ACC == BLOCK && !RESIDENT ? KPS * SF_ROW : 0, STAGE = A + B + SF;
    static constexpr bool LEAN = SF == 0;                            /* one arrival of a group frees a stage, else (it holds scales) one of a warp */
    /* CTA o of the cluster sums and stores the groups of 8 tokens first(o) to first(o + 1) - 1 of every chunk */
    static __host__ __device__ constexpr int first(int o) { return J * o / C; }
    static __host__ __device__ constexpr int own(int o) { return first(o + 1) - first(o); }
    static constexpr int MOST = (J + C - 1) / C, OWNERS = C < J ? C : J;
    static constexpr int REGION = CHUNKS * MOST * WARPS * 512;       /* the sums of one source for one owner: [warp][chunk][group of 8 tokens][lane] */
    static constexpr int RECV = (C - 1) * REGION, STAGING = DIRECT || C == 1 ? 0 : (C - 1) * REGION;
    static constexpr int PAIR = HALF_K ? 2 * R * 512 : 0, OUT = WIDE ? CHUNKS * CN * 256 : 0; /* the second group's half of K, for two tiles; bf16 tile */
    static constexpr int STORE_ROWS = J % C == 0 ? 8 * MOST : 8;     /* tokens of a store */
    static constexpr int EXCHANGE = IN_RING ? RECV + STAGING : 0, FIXED = (WIDE ? C == 1 ? OUT : 0 : PAIR + RECV + STAGING) + (SF ? 1024 : 0);
    static constexpr int PER_BLOCK = RESIDENT ? BT * (ACC == BLOCK ? 132 : 128) : 0; /* bytes a k block of the slice */
    static_assert(XIN == CODES || RESIDENT, "only a resident slice is quantized");
    static_assert(ACC != FAST || !HALF_K, "fast accumulation runs over whole stages");
};

/* ---- this CTA's slice of X into shared memory: [k block][BT][128], swizzled as the tensor core wants it, zeros past K;
 * scales [k block][BT] (BLOCK). All 256 consumer threads. ---- */
template <int BT, int ACC> DEV void load_slice(const small_args &a, int kb0, int nk, uint8_t *codes, float *scales)
{
    constexpr int T = BT / 8, HELD = 4; /* tokens of a warp; units of 16 codes that are asked for at once */
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int mp = a.M <= 1 ? 1 : a.M <= 2 ? 2 : a.M <= 4 ? 4 : 8, token0 = warp % mp, step = 8 / mp * 32, first = warp / mp * 32 + lane;
    const int units = nk * 8, inside = min(units, a.K / 16 - kb0 * 8);
    const uint4 *x = (const uint4 *)(a.xq + (size_t)token0 * a.K) + kb0 * 8;
    for (int j0 = first; j0 < units; j0 += HELD * step) {
        uint4 v[T][HELD];
#pragma unroll
        for (int i = 0; i < T; i++)
#pragma unroll
            for (int h = 0; h < HELD; h++) v[i][h] = token0 + 8 * i < a.M && j0 + h * step < inside ? __ldcg(x + (size_t)i * (a.K / 2) + j0 + h * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < T; i++)
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                const int token = token0 + 8 * i, j = j0 + h * step;
                if (token < a.M && j < units) *(uint4 *)(codes + j / 8 * (BT * 128) + token * 128 + ((j % 8) ^ (token % 8)) * 16) = v[i][h];
            }
    }
    if (ACC == BLOCK)
        for (int i = tid; i < nk * BT; i += 256) if (i % BT < a.M) scales[i] = __ldcg(a.sx + (size_t)(kb0 + i / BT) * a.ldsx + i % BT);
    fence_async_smem();
    bar_named(1, 256);
}
struct quant_smem { /* amax[token], those of the other CTAs, and what follows from them; peers_bar counts the bytes of `peers` */
    uint32_t amax[16];
    alignas(16) float peers[8 * 16];
    float scale[16], inverse[16];
    alignas(8) uint64_t peers_bar;
};
/* The same from bf16: quantized by row (the maximum is joined over the cluster) or by 1x128. */
template <int BT, int ACC, int C> DEV void quantize_slice(const small_args &a, int kb0, int nk, uint8_t *codes, float *scales, quant_smem &q, uint32_t rank)
{
    constexpr int T = BT / 8, HELD = ACC == BLOCK && T == 2 ? 6 : 8; /* tokens of a warp; units of 8 values held in registers between the two passes */
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int mp = a.M <= 1 ? 1 : a.M <= 2 ? 2 : a.M <= 4 ? 4 : 8, token0 = warp % mp, step = 8 / mp * 32, first = warp / mp * 32;
    const int units = nk * 16, inside = min(units, (a.K - kb0 * 128) / 8); /* past K the codes are zeros */
    const uint4 *x = (const uint4 *)(a.xb + (size_t)token0 * a.K) + kb0 * 16;
    auto at = [&](int i, int j) { return j < inside ? __ldcg(x + (size_t)i * a.K + j) : make_uint4(0, 0, 0, 0); };
    uint4 v[T][HELD];
#pragma unroll
    for (int i = 0; i < T; i++)
#pragma unroll
        for (int h = 0; h < HELD; h++) v[i][h] = token0 + 8 * i < a.M ? at(i, first + lane + h * step) : make_uint4(0, 0, 0, 0);
    if (ACC != BLOCK) { /* the maximum of a row: over the lanes, the warps of the token, the cluster */
#pragma unroll
        for (int i = 0; i < T; i++) {
            const int token = token0 + 8 * i;
            float m = 0;
#pragma unroll
            for (int h = 0; h < HELD; h++) m = fmaxf(m, amax8(v[i][h]));
            if (token < a.M)
#pragma unroll 4
                for (int j = first + lane + HELD * step; j < inside; j += step) m = fmaxf(m, amax8(at(i, j)));
            const uint32_t u = __reduce_max_sync(~0u, __float_as_uint(m));
            if (lane == 0 && token < a.M) atomicMax(&q.amax[token], u);
        }
        bar_named(1, 256);
        if (C > 1) {
            cluster_wait();
            if (tid == 0) mbar_expect_tx(smem_u32(&q.peers_bar), C * BT * 4);
            if (tid < C * (BT / 4)) {
                const uint32_t to = (uint32_t)tid / (BT / 4), g = (uint32_t)tid % (BT / 4) * 4;
                st_async4(mapa(smem_u32(q.peers + rank * BT + g), to), __uint_as_float(q.amax[g]), __uint_as_float(q.amax[g + 1]), __uint_as_float(q.amax[g + 2]), __uint_as_float(q.amax[g + 3]), mapa(smem_u32(&q.peers_bar), to));
            }
        }
        if (tid < BT) {
            float m = __uint_as_float(q.amax[tid]);
            if (C > 1) {
                mbar_wait_cluster(smem_u32(&q.peers_bar), 0);
                for (int i = 0; i < C; i++) m = fmaxf(m, q.peers[i * BT + tid]);
            }
            q.scale[tid] = m / 448.0f;
            q.inverse[tid] = m > 0 ? 1.0f / (m / 448.0f) : 0;
        }
        bar_named(1, 256);
    }
#pragma unroll
    for (int i = 0; i < T; i++) {
        const int token = token0 + 8 * i;
        if (token >= a.M) continue; /* the same for the whole warp */
        float inverse = ACC == BLOCK ? 0 : q.inverse[token];
        auto put = [&](uint4 u, int j) {
            if (ACC == BLOCK) { /* 16 lanes hold a block of 128 */
                float m = amax8(u);
#pragma unroll
                for (int o = 1; o < 16; o *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
                inverse = m > 0 ? 1.0f / (m / 448.0f) : 0;
                if (j < units && lane % 16 == 0) scales[j / 16 * BT + token] = m / 448.0f;
            }
            if (j < units) *(uint2 *)(codes + j / 16 * (BT * 128) + token * 128 + ((j / 2 % 8) ^ (token % 8)) * 16 + j % 2 * 8) = codes8(u, inverse);
        };
#pragma unroll
        for (int h = 0; h < HELD; h++) put(v[i][h], first + lane + h * step);
#pragma unroll 2
        for (int j = first + HELD * step; j < units; j += step) put(at(i, j + lane), j + lane);
    }
    fence_async_smem();
    bar_named(1, 256);
}

template <int BR, int BT, int ACC, int XIN, int C>
__global__ void __launch_bounds__(small_cfg<BR, BT, ACC, XIN, C>::THREADS, small_cfg<BR, BT, ACC, XIN, C>::PER_SM) small_k(const __grid_constant__ small_args a)
{
    using c = small_cfg<BR, BT, ACC, XIN, C>;
    constexpr int R = c::R, J = c::J, KPS = c::KPS;
    extern __shared__ __align__(1024) uint8_t sm[];
    __shared__ alignas(8) uint64_t full[16], empty[16], arrived, free_again; /* arrived: partial sums; free_again: they were read, or the ring may hold them */
    __shared__ alignas(16) float w_scale[2][BR], w_bias[2][BR], x_scale[2][BT]; /* of this tile and of the one before */
    __shared__ quant_smem quant;
    auto uniform = [](uint32_t v) { return __shfl_sync(~0u, v, 0); }; /* the compiler then knows that a warp agrees, and keeps it */
    const int rank = C == 1 ? 0 : (int)uniform(cluster_rank()), clusters = (int)uniform(cluster_count()), cluster = (int)uniform(cluster_id());
    const int tid = threadIdx.x, warp = (int)uniform((uint32_t)tid / 32), lane = tid % 32, S = a.stages;
    const int kb = (a.K + 127) / 128, slice = (kb + C - 1) / C, kb0 = kb * rank / C, nk = kb * (rank + 1) / C - kb0, ns = (nk + KPS - 1) / KPS;
    const int mt = a.M <= BT ? 1 : (a.M + BT - 1) / BT, tiles = mt * ((a.N + BR - 1) / BR);
    const uint32_t ring = uniform(smem_u32(sm)), ring_b = ring + S * c::A, codes = ring_b + S * c::B, ring_sf = codes + (c::RESIDENT ? slice * BT * 128 : 0);
    const uint32_t after = (ring_sf + S * c::SF + (c::RESIDENT && ACC == BLOCK ? slice * BT * 4 : 0) + 1023) / 1024 * 1024;
    const uint32_t recv = c::IN_RING ? ring : after + c::PAIR, staging = recv + c::RECV, out = c::IN_RING ? ring : after; /* the stores reuse what was received */
    const uint32_t full_bar = uniform(smem_u32(full)), empty_bar = uniform(smem_u32(empty)), arrived_bar = uniform(smem_u32(&arrived)), free_bar = uniform(smem_u32(&free_again));
    float *scales = (float *)(sm + (ring_sf - ring)); /* RESIDENT and BLOCK */
    pdl_launch();
    if (warp >= 8) { /* ---- producer ---- */
        if (c::PER_SM == 1) reg_dec<24>();
        if (warp == 8) {
            if (lane == 0) { tma_prefetch_map(&a.w); if (!c::RESIDENT) tma_prefetch_map(&a.x); if (c::WIDE) tma_prefetch_map(&a.y_map); }
            if (lane < S) { mbar_init(full_bar + lane * 8, 1); mbar_init(empty_bar + lane * 8, c::LEAN ? 2 : 8); }
            if (lane == 16) mbar_init(arrived_bar, 1);
            if (lane == 17) mbar_init(free_bar, c::OWNERS);
            if (lane == 18) mbar_init(smem_u32(&quant.peers_bar), 1);
            mbar_init_fence(); fence_async_smem();
        }
        __syncwarp();
        bar_named_arrive(3, c::THREADS); /* nobody waits for the copies */
        cluster_arrive_relaxed();
        if (warp == 8) {
            const int mine = (tiles - cluster + clusters - 1) / clusters, total = mine * ns;
            const uint64_t policy = mt == 1 ? policy_evict_first() : policy_evict_normal();
            const uint32_t lead = elect_one();
            const bool early = c::RESIDENT || a.chained;
            auto blocks = [&](int s) { return min(KPS, nk - s * KPS); };
            auto load_w = [&](int slot, int n0, int s) {
                const int n = blocks(s);
                mbar_expect_tx_if(lead, full_bar + slot * 8, (uint32_t)n * (BR * 128 + (c::RESIDENT ? 0 : a.x_rows * 128 + (c::SF ? BT * 4 : 0))));
                for (int p = 0; p < n; p++) tma_2d_hint_if(lead, ring + slot * c::A + p * (BR * 128), &a.w, (kb0 + s * KPS + p) * 128, n0, full_bar + slot * 8, policy);
            };
            auto load_x = [&](int slot, int m0, int s) {
                for (int p = 0; p < blocks(s); p++) {
                    tma_2d_if(lead, ring_b + slot * c::B + p * (BT * 128), &a.x, (kb0 + s * KPS + p) * 128, m0, full_bar + slot * 8);
                    if (c::SF) tma_2d_if(lead, ring_sf + slot * c::SF + p * c::SF_ROW, &a.sx_map, m0, kb0 + s * KPS + p, full_bar + slot * 8);
                }
            };
            auto walk = [&](int from, int to, auto each) { /* stages from..to - 1 of this CTA: each(stage, m0 and n0 of the tile, stage of the tile) */
                int i = from;
                for (int tile = cluster + (ns ? from / ns : 0) * clusters, s = ns ? from % ns : 0; i < to; tile += clusters, s = 0) {
                    const int m0 = mt == 1 ? 0 : tile % mt * BT, n0 = (mt == 1 ? tile : tile / mt) * BR;
                    for (; s < ns && i < to; s++, i++) each(i, m0, n0, s);
                }
            };
            const int ahead = early ? min(S, total) : 0;
            if (ahead) { /* W at once, X when it is there */
                walk(0, ahead, [&](int i, int, int n0, int s) {
                    if (!a.chained && i == FIRST) mbar_wait(full_bar, 0);
                    load_w(i, n0, s);
                });
                walk(ahead, min(S + a.prefetch, total), [&](int, int, int n0, int s) {
                    for (int p = 0; p < blocks(s); p++) tma_prefetch_2d_if(lead, &a.w, (kb0 + s * KPS + p) * 128, n0);
                });
            }
            if (!c::RESIDENT) {
                pdl_wait();
                walk(0, ahead, [&](int i, int m0, int, int s) { load_x(i, m0, s); });
            }
            int slot = ahead == S ? 0 : ahead;
            uint32_t phase = early ? 0 : 1;
            walk(ahead, total, [&](int, int m0, int n0, int s) {
                mbar_wait(empty_bar + slot * 8, phase);
                load_w(slot, n0, s);
                if (!c::RESIDENT) load_x(slot, m0, s);
                if (++slot == S) { slot = 0; phase ^= 1; }
            });
        }
        __syncwarp();
        cluster_wait();
    } else { /* ---- consumers ---- */
        if (c::PER_SM == 1) reg_inc<240>();
        if (XIN == BF16 && tid < 16) quant.amax[tid] = 0;
        cluster_arrive_relaxed();
        bar_named(3, c::THREADS);
        const int mine = (tiles - cluster + clusters - 1) / clusters;
        const int wg = warp / 4, w = warp % 4;
        pdl_wait();
        if (XIN == BF16) quantize_slice<BT, ACC, C>(a, kb0, nk, sm + (codes - ring), scales, quant, (uint32_t)rank);
        else if (c::RESIDENT) load_slice<BT, ACC>(a, kb0, nk, sm + (codes - ring), scales);
        if (!(XIN == BF16 && ACC != BLOCK && C > 1)) cluster_wait(); /* the quantizer by rows has waited */
        const uint32_t a_lo = (ring >> 4) + 0x10000 + (c::HALF_K ? wg * (BR * 8) : BR == 128 ? wg * 512 : 0);
        const uint32_t b_lo = ((c::RESIDENT ? codes : ring_b) >> 4) + 0x10000 + (BR == 64 && !c::HALF_K ? wg * (c::TOK * 8) : c::HALF_K && !c::RESIDENT ? wg * (BT * 8) : 0);
        int slot = 0, parity = 0;
        uint32_t phase = 0;
        auto release = [&](int s) { if ((c::LEAN ? tid % 128 : lane) == 0) mbar_arrive(empty_bar + s * 8); };
        for (int i = 0; i < mine; i++, parity ^= 1) {
            const int tile = cluster + i * clusters, m0 = mt == 1 ? 0 : tile % mt * BT, n0 = (mt == 1 ? tile : tile / mt) * BR;
            float sw = 1, bias = 0, sx = 1; /* asked for now, used after the main loop */
            if (tid < BR && n0 + tid < a.N) { if (ACC != BLOCK) sw = a.sw[n0 + tid]; if (a.bias) bias = a.bias[n0 + tid]; }
            if (ACC != BLOCK && XIN == CODES && tid < BT && m0 + tid < a.M) sx = a.sx[m0 + tid];
            const float *block_scale = a.sw + (size_t)(n0 / 128) * kb + kb0;
            float acc[c::CHUNKS][R], ws = 0; /* ws: lane l has the scale of W for k block l of the current 32 */
#pragma unroll
            for (int h = 0; h < c::CHUNKS; h++)
#pragma unroll
                for (int r = 0; r < R; r++) acc[h][r] = 0;
            if (ACC == FAST) {
                int before = 0;
                for (int s = 0; s < ns; s++) {
                    mbar_wait(full_bar + slot * 8, phase);
                    wg_fence();
#pragma unroll
                    for (int h = 0; h < c::CHUNKS; h++) kblock<c::CN>::ss(acc[h], a_lo + slot * (c::A / 16), b_lo + slot * (c::B / 16) + h * (c::CN * 8), 1);
                    wg_commit();
                    if (s) { wg_wait<1>(); release(before); }
                    before = slot;
                    if (++slot == S) { slot = 0; phase ^= 1; }
                }
                wg_wait<0>();
                if (ns) release(before);
#pragma unroll
                for (int h = 0; h < c::CHUNKS; h++) pin(acc[h]);
            } else {
                for (int s = 0; s < ns; s++) {
                    if (c::WIDE && s == 0 && wg == 1) bar_named(6, 256); /* half a step late: one group multiplies while the other adds */
                    if (ACC == BLOCK && s * KPS % 32 == 0) ws = s * KPS + lane < nk ? block_scale[s * KPS + lane] : 0.0f;
                    mbar_wait(full_bar + slot * 8, phase);
#pragma unroll
                    for (int p0 = 0; p0 < (c::HALF_K ? 1 : KPS); p0++) {
                        const int p = c::HALF_K ? wg : p0, k = s * KPS + p;
                        if (k < nk) {
                            const float block = ACC == BLOCK ? __shfl_sync(~0u, ws, k % 32) : 1.0f;
                            const float *xs = c::RESIDENT ? scales + k * BT : (const float *)(sm + (ring_sf - ring) + slot * c::SF + p * c::SF_ROW) + (BR == 64 && !c::HALF_K ? wg * c::TOK : 0);
#pragma unroll
                            for (int h = 0; h < c::CHUNKS; h++) {
                                float d[R];
                                wg_fence();
                                kblock<c::CN>::ss(d, a_lo + slot * (c::A / 16) + (c::HALF_K ? 0 : p0 * (BR * 8)), b_lo + (c::RESIDENT ? k * (BT * 8) : slot * (c::B / 16) + (c::HALF_K ? 0 : p0 * (BT * 8))) + h * (c::CN * 8), 0);
                                wg_commit();
                                constexpr bool EARLY = ACC == BLOCK && c::CHUNKS == 1; /* scales read under the products, where registers allow */
                                float2 f[c::J];
                                if (EARLY) {
#pragma unroll
                                    for (int j = 0; j < c::J; j++) f[j] = *(const float2 *)(xs + h * c::CN + 8 * j + 2 * (lane % 4));
                                }
                                wg_wait<0>();
                                pin(d);
                                if (h == c::CHUNKS - 1 && (c::HALF_K || p0 == KPS - 1 || k + 1 == nk)) release(slot);
                                if (c::WIDE && s == 0 && wg == 0 && h == 0) bar_named_arrive(6, 256);
#pragma unroll
                                for (int r = 0; r < R; r++) {
                                    if (ACC == BLOCK && !EARLY && r % 16 == 0) asm volatile("" ::: "memory"); /* few at a time */
                                    if (ACC == BLOCK && !EARLY && r % 4 == 0) f[r / 4] = *(const float2 *)(xs + h * c::CN + 2 * r + 2 * (lane % 4));
                                    acc[h][r] = ACC == BLOCK ? fmaf(d[r], (r % 2 ? f[r / 4].y : f[r / 4].x) * block, acc[h][r]) : acc[h][r] + d[r];
                                }
                            }
                        } else if (c::HALF_K) release(slot);
                    }
                    if (++slot == S) { slot = 0; phase ^= 1; }
                }
            }
            /* ---- partial sums to their owners, scales, store ---- */
            if (tid < BR) { w_scale[parity][tid] = sw; w_bias[parity][tid] = bias; }
            if (tid < BT) x_scale[parity][tid] = XIN == BF16 && ACC != BLOCK ? quant.scale[tid] : sx;
            float4 *half = (float4 *)(sm + (after - ring)) + parity * (R / 4 * 128) + tid % 128;
            if (c::HALF_K && wg == 1)
#pragma unroll
                for (int j = 0; j < J; j++) half[j * 128] = make_float4(acc[0][4 * j], acc[0][4 * j + 1], acc[0][4 * j + 2], acc[0][4 * j + 3]);
            if (c::WIDE && tid % 128 < J) bulk_wait_read();
            bar_named(1, 256);
            if (c::HALF_K && wg == 0)
#pragma unroll
                for (int j = 0; j < J; j++) { const float4 f = half[j * 128]; acc[0][4 * j] += f.x; acc[0][4 * j + 1] += f.y; acc[0][4 * j + 2] += f.z; acc[0][4 * j + 3] += f.w; }
            const bool holds = !c::HALF_K || wg == 0, owner = c::own(rank) > 0;
            if (C > 1) {
                const uint32_t at = (uint32_t)(c::HALF_K ? w : warp) * (c::CHUNKS * c::MOST * 512); /* of this warp in a region */
                if (c::IN_RING && owner && tid < C) mbar_arrive_remote(mapa(free_bar, (uint32_t)tid)); /* this ring may hold sums */
                if (!c::IN_RING && i) mbar_wait_cluster(free_bar, (i - 1) & 1); /* the sums of the tile before were read */
                if (holds) {
#pragma unroll
                    for (int o = 0; o < C; o++) {
                        if (c::own(o) == 0 || o == rank) continue;
                        const uint32_t to = mapa(recv + (uint32_t)(rank - (rank > o)) * c::REGION + at + lane * 16, (uint32_t)o), to_bar = mapa(arrived_bar, (uint32_t)o);
                        float4 *from = (float4 *)(sm + (staging - ring) + (o - (o > rank)) * c::REGION + at) + lane;
#pragma unroll
                        for (int h = 0; h < c::CHUNKS; h++)
#pragma unroll
                            for (int j = c::first(o); j < c::first(o + 1); j++) {
                                const int in = h * c::MOST + j - c::first(o);
                                if (c::DIRECT) st_async4(to + in * 512, acc[h][4 * j], acc[h][4 * j + 1], acc[h][4 * j + 2], acc[h][4 * j + 3], to_bar);
                                else from[in * 32] = make_float4(acc[h][4 * j], acc[h][4 * j + 1], acc[h][4 * j + 2], acc[h][4 * j + 3]);
                            }
                    }
                    if (!c::DIRECT) {
                        fence_async_smem();
                        __syncwarp();
                        const int o = lane;
                        if (o < C && o != rank && c::own(o)) {
                            if (c::IN_RING) mbar_wait_cluster(free_bar, 0);
                            bulk_to_cta(mapa(recv + (uint32_t)(rank - (rank > o)) * c::REGION + at, (uint32_t)o), staging + (uint32_t)(o - (o > rank)) * c::REGION + at, c::CHUNKS * c::MOST * 512, mapa(arrived_bar, (uint32_t)o));
                        }
                        __syncwarp();
                    }
                }
                if (owner) {
                    if (tid == 0) mbar_expect_tx(arrived_bar, (C - 1) * (c::DIRECT ? c::own(rank) * c::WARPS * 512 : c::REGION));
                    mbar_wait_cluster(arrived_bar, i & 1);
                    if (holds)
#pragma unroll
                        for (int o = 0; o < C; o++) {
                            if (o != rank) continue;
#pragma unroll 1
                            for (int q = 0; q + 1 < C; q++) { /* in the order of the ranks, this one first */
                                const float4 *from = (const float4 *)(sm + (recv - ring) + q * c::REGION + at) + lane;
#pragma unroll
                                for (int h = 0; h < c::CHUNKS; h++)
#pragma unroll
                                    for (int j = c::first(o); j < c::first(o + 1); j++) {
                                        const float4 f = from[(h * c::MOST + j - c::first(o)) * 32];
                                        acc[h][4 * j] += f.x; acc[h][4 * j + 1] += f.y; acc[h][4 * j + 2] += f.z; acc[h][4 * j + 3] += f.w;
                                    }
                            }
                        }
                    bar_named(1, 256);
                    if (!c::IN_RING && i + 1 < mine && tid < C) mbar_arrive_remote(mapa(free_bar, (uint32_t)tid)); /* at the end nobody waits for it any more */
                }
                if (!c::DIRECT && i + 1 == mine) cluster_arrive_relaxed(); /* all that was sent here is here */
            }
            if (!owner || !holds) continue;
            const int row = (BR == 128 ? wg * 64 : 0) + w * 16, token0 = BR == 64 && !c::HALF_K ? wg * c::TOK : 0; /* of the tile */
            const float s0 = w_scale[parity][row + lane / 4], s1 = w_scale[parity][row + 8 + lane / 4], b0 = w_bias[parity][row + lane / 4], b1 = w_bias[parity][row + 8 + lane / 4];
#pragma unroll
            for (int h = 0; h < c::CHUNKS; h++) {
                const uint32_t to = out + (uint32_t)(h * 2 + wg) * (c::MOST * 1024);
#pragma unroll
                for (int o = 0; o < C; o++) {
                    if (o != rank) continue;
                    float2 xs[c::MOST]; /* all before the first store: the assembler keeps the order of shared accesses */
#pragma unroll
                    for (int j = c::first(o); j < c::first(o + 1); j++) xs[j - c::first(o)] = *(const float2 *)&x_scale[parity][token0 + h * c::CN + 8 * j + 2 * (lane % 4)];
#pragma unroll
                    for (int j = c::first(o); j < c::first(o + 1); j++) { /* 16 rows of W x 8 tokens */
                        const int token = token0 + h * c::CN + 8 * j;
                        const float2 x = xs[j - c::first(o)];
                        uint32_t y2[2] = {bf16x2(fmaf(acc[h][4 * j], s0 * x.x, b0), fmaf(acc[h][4 * j + 1], s0 * x.y, b0)), bf16x2(fmaf(acc[h][4 * j + 2], s1 * x.x, b1), fmaf(acc[h][4 * j + 3], s1 * x.y, b1))};
                        if (c::WIDE) stmatrix2_trans(to + (j - c::first(o)) * 1024 + lane % 8 * 128 + (((2 * w + lane / 8 % 2) ^ (lane % 8)) * 16), y2[0], y2[1]);
                        else
#pragma unroll
                            for (int e = 0; e < 2; e++) {
                                y2[e] = transpose8(y2[e]);
                                const int m = m0 + token + lane / 4, n = n0 + row + e * 8 + 2 * (lane % 4);
                                __nv_bfloat16 *y = a.y + (size_t)m * a.N + n;
                                if (m < a.M && n < a.N) {
                                    if (a.N % 2 == 0) *(uint32_t *)y = y2[e];
                                    else {
                                        *(uint16_t *)y = (uint16_t)y2[e];
                                        if (n + 1 < a.N) *((uint16_t *)y + 1) = (uint16_t)(y2[e] >> 16);
                                    }
                                }
                            }
                    }
                }
                if (c::WIDE) {
                    const int rows = 8 * c::own(rank), n = n0 + (BR == 128 ? wg * 64 : 0), m = m0 + token0 + h * c::CN + 8 * c::first(rank);
                    fence_async_smem();
                    bar_named(4 + wg, 128);
                    if (a.N % 8 == 0) {
                        const int t = tid % 128 * c::STORE_ROWS;
                        if (t < rows && n < a.N && m + t < a.M) { tma_store_2d(&a.y_map, to + t * 128, n, m + t); bulk_commit(); }
                    } else
#pragma unroll 1
                        for (int e = tid % 128; e < rows * 64; e += 128) {
                            const int t = e / 64, col = e % 64;
                            if (m + t < a.M && n + col < a.N) a.y[(size_t)(m + t) * a.N + n + col] = *(const __nv_bfloat16 *)(sm + (to - ring) + t * 128 + ((col / 8) ^ (t % 8)) * 16 + col % 8 * 2);
                        }
                }
            }
        }
        if (!c::DIRECT && C > 1) cluster_wait(); /* nothing is read from here any more */
        if (c::WIDE && tid % 128 < J) bulk_wait_all();
    }
}
