/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_small.cuh - Y[M,N] = X[M,K] . W[N,K]^T (e4m3fn) + bias for few rows of X ("tokens",
 * up to a few hundred), K % 16 == 0, on sm_90a.
 *
 * The operands are swapped: the rows of W are the 64 rows of a product, the tokens its n = 8..128,
 * so that no row of X is padded to 64. A cluster of C blocks splits K; its partial sums travel into
 * the shared memory of the block that owns those tokens, are added there in a fixed order (no
 * workspace, and always the same bits) and stored.
 *
 *   8 warps  two groups: they halve the rows of W (BR is 128), the tokens (BT >= 64), or K
 *   1 warp   W: asks for the first stages before the kernel before has ended, at the memory's pace
 *   1 warp   X, where it comes with W: after the kernel before
 *
 * X is codes or, for up to 8 tokens, IN: bf16 or fp16, which every cluster quantizes for itself
 * while W is on its way (quantize_slice.cuh).
 *
 * Sums of 128 columns are made by the tensor cores and added in fp32; with BLOCK times their
 * scales, 1x128 of X and 128x128 of W. To be launched with the cluster attribute even for C = 1:
 * st.async does not complete in a launch without it. */
#ifndef FP8_KERNELS_GEMM_SMALL_CUH
#define FP8_KERNELS_GEMM_SMALL_CUH

#include "backend/cuda/kernels/quantize_slice.cuh"
#include "backend/cuda/kernels/sm90.cuh"
#include "backend/cuda/kernels/wgmma.cuh"
#include "backend/cuda/sm90_args.h"

template <int BR, int BT, bool BLOCK, int C> struct small_cfg {
    static constexpr bool HALF_K = fp8_small_halves_k(BR, BT), RESIDENT = fp8_small_resident(BT);
    static constexpr int KPS = fp8_small_blocks(BR, BT), PER_SM = fp8_small_per_sm(BR, BT);
    static constexpr int THREADS = fp8_small_threads(BR, BT);
    static constexpr int TOK = fp8_small_group_tokens(BR, BT);
    static constexpr int J = TOK / 8, R = TOK / 2; /* groups of 8 tokens, registers of sums */
    static constexpr int WARPS = fp8_small_warps(BR, BT);
    static constexpr bool DIRECT = fp8_small_direct(BT);
    static constexpr bool WIDE = fp8_small_wide(BT), IN_RING = fp8_small_in_ring(BT, C);
    static constexpr int A = fp8_small_w_bytes(BR, BT), B = fp8_small_x_bytes(BR, BT);
    static constexpr int SF_ROW = fp8_small_scale_row(BT),
                         SF = fp8_small_scale_bytes(BR, BT, BLOCK);
    static constexpr int FILLS = RESIDENT ? 1 : 2; /* arrivals that fill a stage: of W and of X */
    static constexpr bool LEAN = SF == 0; /* one arrival of a group frees a stage, else (it holds
                                             scales) one of a warp */
    /* Block o of the cluster sums and stores the groups of 8 tokens first(o) to first(o + 1) - 1.
     */
    static __host__ __device__ constexpr int first(int o)
    {
        return J * o / C;
    }
    static __host__ __device__ constexpr int own(int o)
    {
        return first(o + 1) - first(o);
    }
    static constexpr int MOST = fp8_small_owned(BR, BT, C), OWNERS = C < J ? C : J;
    /* The sums of one source for one owner: [warp][group of 8 tokens][lane]. */
    static constexpr int REGION = fp8_small_region(BR, BT, C);
    static constexpr int RECV = fp8_small_received(BR, BT, C), PAIR = fp8_small_pair(BR, BT);
    static constexpr int STORE_ROWS = fp8_small_store_rows(BR, BT, C); /* tokens of a store */
};

/* X codes [M,K], M up to 8: this block's slice into shared memory: [k block][BT][128], swizzled as
 * the tensor core wants it, zeros past K; scales [k block][BT] (BLOCK). All 256 consumer threads,
 * of a token each, and in turn HELD of its units of 16 codes, which a thread asks for at once.
 * Waits for the kernel before once it knows all addresses: a warp alone takes 5 clocks an
 * instruction. */
template <int BT, bool BLOCK>
DEV void load_slice(const fp8_small_args &a, int kb0, int nk, uint8_t *codes, float *scales)
{
    constexpr int HELD = 4;
    static_assert(BT == 8, "a token is one of 8 warps', or of some that share it");
    const uint32_t tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int side = (a.m > 1) + (a.m > 2) + (a.m > 4); /* 2^side tokens at once */
    const int token = (int)(warp & ((1U << side) - 1)), step = 256 >> side;
    const uint32_t first = (warp >> side) * 32 + lane;
    const int units = nk * 8, inside = min(units, (int)((uint32_t)a.k / 16) - kb0 * 8);
    const uint8_t *from[HELD];
    uint32_t to =
        smem_u32(codes) + first / 8 * (BT * 128) + token * 128 + ((first % 8) ^ token) * 16;
    const uint32_t apart = step / 8 * (BT * 128);
    bool is[HELD];
    uint32_t known = to;
    const float *scale = a.scales.x + (size_t)(kb0 + tid / BT) * a.scales.x_stride + tid % BT;
    const bool scaled = BLOCK && tid < nk * BT && tid % BT < a.m;
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        from[h] = a.x_codes + token * a.x_codes_stride + kb0 * 128 + (first + h * step) * 16;
        is[h] = token < a.m && (int)first + h * step < inside;
        known |= (uint32_t)(uintptr_t)from[h] | (uint32_t)is[h];
    }
    if (BLOCK)
        known |= (uint32_t)(uintptr_t)scale | (uint32_t)scaled;
    pdl_wait_with(known);
    const float scale0 = scaled ? __ldcg(scale) : 0.0f;
    for (int j0 = (int)first;;) {
        uint4 v[HELD];
#pragma unroll
        for (int h = 0; h < HELD; h++)
            v[h] = is[h] ? __ldcg((const uint4 *)from[h]) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int h = 0; h < HELD; h++)
            if (token < a.m && j0 + h * step < units)
                st_shared(to + h * apart, v[h]);
        j0 += HELD * step;
        if (j0 >= units)
            break;
        to += HELD * apart;
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            from[h] += HELD * step * 16;
            is[h] = token < a.m && j0 + h * step < inside;
        }
    }
    if (BLOCK) {
        if (scaled)
            scales[tid] = scale0;
        for (int i = tid + 256; i < nk * BT; i += 256)
            if (i % BT < a.m)
                scales[i] =
                    __ldcg(a.scales.x + (size_t)(kb0 + i / BT) * a.scales.x_stride + i % BT);
    }
    fence_async_smem();
    bar_named(1, 256);
}

/* q: how X is quantized, with IN other than e4m3fn. */
template <int BR, int BT, bool BLOCK, int C, int IN>
DEV void small_body(const fp8_small_args &a, const fp8_cuda_quantize_args &q)
{
    constexpr bool QUANTIZES = IN != FP8_E4M3FN;
    using c = small_cfg<BR, BT, BLOCK, C>;
    constexpr int R = c::R, J = c::J, KPS = c::KPS;
    extern __shared__ __align__(1024) uint8_t sm[];
    __shared__ alignas(8) uint64_t full[16], empty[16], arrived,
        free_again; /* arrived: partial sums; free_again: they were read, or the ring may hold them
                     */
    __shared__ alignas(16) float x_scale[2][BT]; /* of this tile and of the one before */
    __shared__ slice_quantizer quantizer;
    auto uniform = [](uint32_t v) {
        return __shfl_sync(~0u, v, 0);
    }; /* the compiler then knows that a warp agrees, and keeps it */
    const int rank = C == 1 ? 0 : (int)uniform(cluster_rank()),
              clusters = (int)uniform(cluster_count()), cluster = (int)uniform(cluster_id());
    const int tid = threadIdx.x, warp = (int)uniform((uint32_t)tid / 32), lane = tid % 32,
              S = a.stages;
    const int kb = (a.k + 127) / 128, slice = (kb + C - 1) / C, kb0 = kb * rank / C,
              nk = kb * (rank + 1) / C - kb0, ns = (nk + KPS - 1) / KPS;
    const int mt = a.m <= BT ? 1 : (a.m + BT - 1) / BT;
    const int mine = a.rounds + (cluster < a.rest); /* tiles of this cluster */
    const uint32_t ring = uniform(smem_u32(sm)), ring_b = ring + S * c::A,
                   codes = ring_b + S * c::B,
                   ring_sf = codes + (c::RESIDENT ? slice * BT * 128 : 0);
    const uint32_t after =
        (ring_sf + S * c::SF + (c::RESIDENT && BLOCK ? slice * BT * 4 : 0) + 1023) / 1024 * 1024;
    const uint32_t recv = c::IN_RING ? ring : after + c::PAIR, staging = recv + c::RECV,
                   out = c::IN_RING ? ring : after; /* the stores reuse what was received */
    const uint32_t full_bar = uniform(smem_u32(full)), empty_bar = uniform(smem_u32(empty)),
                   arrived_bar = uniform(smem_u32(&arrived)),
                   free_bar = uniform(smem_u32(&free_again));
    float *scales = (float *)(sm + (ring_sf - ring)); /* RESIDENT and BLOCK */
    pdl_launch();
    if (warp >= 8) { /* ---- producers ---- */
        if (c::PER_SM == 1)
            reg_dec<24>();
        const uint32_t lead = elect_one();
        const uint64_t policy = mt == 1 ? policy_evict_first() : policy_evict_normal();
        auto blocks = [&](int s) { return min(KPS, nk - s * KPS); };
        auto has = [&](int s, int p) { return p == 0 || p < nk - s * KPS; };
        auto load_w = [&](int slot, int n0, int s) {
            mbar_expect_tx_if(lead, full_bar + slot * 8, (uint32_t)blocks(s) * (BR * 128));
#pragma unroll
            for (int p = 0; p < KPS; p++)
                if (has(s, p))
                    tma_2d_hint_if(lead, ring + slot * c::A + p * (BR * 128), &a.w,
                                   (kb0 + s * KPS + p) * 128, n0, full_bar + slot * 8, policy);
        };
        auto load_x = [&](int slot, int m0, int s) {
            mbar_expect_tx_if(lead, full_bar + slot * 8,
                              (uint32_t)blocks(s) * (a.x_rows * 128 + (c::SF ? BT * 4 : 0)));
#pragma unroll
            for (int p = 0; p < KPS; p++) {
                if (!has(s, p))
                    continue;
                tma_2d_if(lead, ring_b + slot * c::B + p * (BT * 128), &a.x,
                          (kb0 + s * KPS + p) * 128, m0, full_bar + slot * 8);
                if (c::SF)
                    tma_2d_if(lead, ring_sf + slot * c::SF + p * c::SF_ROW, &a.x_scales, m0,
                              kb0 + s * KPS + p, full_bar + slot * 8);
            }
        };
        if (warp == 8) { /* the first stage of W at once, all else after it */
            mbar_init_if(lead, full_bar, c::FILLS);
            mbar_init_fence();
            fence_async_smem();
            __syncwarp(); /* one lane does all of it; racecheck wants to see that */
            if (ns)
                load_w(0, (mt == 1 ? cluster : cluster / mt) * BR, 0);
            tma_prefetch_map_if(lead, &a.w);
            if (!c::RESIDENT)
                tma_prefetch_map_if(lead, &a.x);
            if (c::WIDE)
                tma_prefetch_map_if(lead, &a.y);
            for (int i = 0; i < S; i++) {
                if (i)
                    mbar_init_if(lead, full_bar + i * 8, c::FILLS);
                mbar_init_if(lead, empty_bar + i * 8, c::LEAN ? 2 : 8);
            }
            mbar_init_if(lead, arrived_bar, 1);
            mbar_init_if(lead, free_bar, c::OWNERS);
            if (QUANTIZES)
                mbar_init_if(lead, uniform(smem_u32(&quantizer.joined)), 1);
            mbar_init_fence();
            fence_async_smem();
        }
        __syncwarp();
        if (!c::RESIDENT && warp == 9)
            bar_named(3, c::THREADS);
        else
            bar_named_arrive(3, c::THREADS); /* nobody waits for the copies */
        if (C > 1)
            cluster_arrive_relaxed();
        if (warp == 8 || (!c::RESIDENT && warp == 9)) {
            const int total = mine * ns;
            /* Stages from..to - 1 of this CTA: each(stage, m0 and n0 of the tile, its stage). */
            auto walk = [&](int from, int to, auto each) {
                int i = from;
                for (int tile = cluster + (ns ? from / ns : 0) * clusters, s = ns ? from % ns : 0;
                     i < to; tile += clusters, s = 0) {
                    const int m0 = mt == 1 ? 0 : tile % mt * BT,
                              n0 = (mt == 1 ? tile : tile / mt) * BR;
                    for (; s < ns && i < to; s++, i++)
                        each(i, m0, n0, s);
                }
            };
            int slot = 0;
            uint32_t phase = 1; /* the ring is empty at first */
            auto free_slot = [&](int i) {
                if (i >= S)
                    mbar_wait(empty_bar + slot * 8, phase);
            };
            auto next = [&] {
                if (++slot == S) {
                    slot = 0;
                    phase ^= 1;
                }
            };
            if (warp == 8) {
                const uint32_t begun = clocks();
                /* The first ring at the memory's pace: what is asked for at once is in the way of
                 * X, and of the kernel before. */
                auto pace = [&](int i) {
                    while (too_early(begun, (uint32_t)(i * a.pace))) {
                    }
                };
                const int ahead = min(S, total);
                walk(1, ahead, [&](int i, int, int n0, int s) {
                    pace(i);
                    load_w(i, n0, s);
                });
                walk(ahead, min(S + a.prefetch, total), [&](int i, int, int n0, int s) {
                    pace(i);
#pragma unroll
                    for (int p = 0; p < KPS; p++)
                        if (has(s, p))
                            tma_prefetch_2d_if(lead, &a.w, (kb0 + s * KPS + p) * 128, n0);
                });
                slot = ahead == S ? 0 : ahead;
                phase = 0;
                walk(ahead, total, [&](int i, int, int n0, int s) {
                    free_slot(i);
                    load_w(slot, n0, s);
                    next();
                });
            } else {
                pdl_wait();
                walk(0, total, [&](int i, int m0, int, int s) {
                    free_slot(i);
                    load_x(slot, m0, s);
                    next();
                });
            }
        }
        __syncwarp();
        if (C > 1)
            cluster_wait();
    } else { /* ---- consumers ---- */
        if (c::PER_SM == 1)
            reg_inc<240>();
        if (QUANTIZES && tid < 16)
            quantizer.amax[tid] = 0;
        if (C > 1)
            cluster_arrive_relaxed();
        bar_named(3, c::THREADS);
        const int wg = warp / 4, w = warp % 4;
        const uint32_t a_lo = (ring >> 4) + 0x10000 +
                              (c::HALF_K   ? wg * (BR * 8)
                               : BR == 128 ? wg * 512
                                           : 0);
        const uint32_t b_lo = ((c::RESIDENT ? codes : ring_b) >> 4) + 0x10000 +
                              (c::HALF_K  ? wg * (BT * 8)
                               : BR == 64 ? wg * (c::TOK * 8)
                                          : 0);
        const bool floats = a.y_dtype == FP8_F32;
        const bool pairs =
            ((uintptr_t)a.y_plain | (uint64_t)a.y_stride * 2) % 4 == 0; /* of Y at once */
        const int row = (BR == 128 ? wg * 64 : 0) + w * 16; /* of the tile: this warp's first */
        /* Of a tile, never of the kernel before: asked for now, used after its products. Two rows a
         * lane. */
        float sw[2] = {1, 1}, bias[2] = {0, 0};
        float ws = 0; /* lane l has the scale of W for k block l of 32 */
        auto ask = [&](int n0) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int n = n0 + row + 8 * e + lane / 4;
                if (n < a.n) {
                    if (!BLOCK)
                        sw[e] = __ldg(a.scales.w + n);
                    if (a.scales.bias)
                        bias[e] = __ldg(a.scales.bias + n);
                }
            }
            if (BLOCK && lane < nk && n0 < a.n)
                ws = __ldg(a.scales.w + (size_t)(n0 / 128) * kb + kb0 + lane);
        };
        /* Once the kernel before is done, and the cluster has started. */
        auto take_x = [&] {
            if constexpr (QUANTIZES) {
                const x_slice x = {a.m, a.k, kb0, nk, rank, sm + (codes - ring), scales};
                if (quantize_slice<IN, BT, BLOCK, C>(q, x, quantizer))
                    return;
            } else if constexpr (c::RESIDENT)
                load_slice<BT, BLOCK>(a, kb0, nk, sm + (codes - ring), scales);
            else
                pdl_wait();
            if (C > 1)
                cluster_wait();
        };
        if (QUANTIZES) /* which needs the registers */
            take_x();
        int slot = 0, parity = 0;
        uint32_t phase = 0;
        auto next = [&] {
            if (++slot == S) {
                slot = 0;
                phase ^= 1;
            }
        };
        /* Scales of blocks: lane 0 speaks for its whole warp, which is together since the wait for
         * the products. That does not wait for reads of scales that are still under way: they have
         * as long as the products and a refill take (must_be_alone of sm90_choose.c). A __syncwarp
         * here is an instruction that does nothing, but the additions are scheduled around it: 0 to
         * .6 % at 16 and 32 tokens, -7 to 7 % at 128. */
        auto release = [&](int s) {
            if ((c::LEAN ? tid % 128 : lane) == 0)
                mbar_arrive(empty_bar + s * 8);
        };
        for (int i = 0; i < mine; i++, parity ^= 1) {
            const int tile = cluster + i * clusters, m0 = mt == 1 ? 0 : tile % mt * BT,
                      n0 = (mt == 1 ? tile : tile / mt) * BR;
            ask(n0);
            const float *const x_scale_at = a.scales.x + (m0 + tid) * a.scales.x_step;
            const bool scaled = !BLOCK && !QUANTIZES && tid < BT && m0 + tid < a.m;
            /* Few tokens: what a lane needs to store its part of the groups that this block owns.
             */
            const int first = m0 + 8 * (J * rank / C);
            int64_t y_at = (first + lane / 4) * a.y_stride + n0 + row + 2 * (lane % 4);
            int left = a.m - first - lane / 4;   /* tokens */
            int whole = pairs && n0 + BR <= a.n; /* pairs of Y, all of them inside */
            asm volatile(""
                         : "+l"(y_at), "+r"(left),
                           "+r"(whole)); /* now, not when the sums are there */
            if (i == 0 && !QUANTIZES)    /* here, so that the compiler reckons before it what no
                                            tile changes */
                take_x();
            const float sx = scaled ? __ldcg(x_scale_at) : 1.0f;
            const float *block_scale = a.scales.w + (size_t)(n0 / 128) * kb + kb0;
            float acc[R];
#pragma unroll
            for (int r = 0; r < R; r++)
                acc[r] = 0;
            /* BLOCK: the scales of k block k; of W, and of X at stage `at` of the ring. */
            auto scales_of = [&](int k, int at, int p, float2(&f)[J], float &block) {
                if (!BLOCK)
                    return;
                if (k >= 32 && k % 32 < KPS)
                    ws = k - k % 32 + lane < nk ? __ldg(block_scale + k - k % 32 + lane) : 0;
                block = __shfl_sync(~0u, ws, k % 32);
                const float *xs =
                    c::RESIDENT
                        ? scales + k * BT
                        : (const float *)(sm + (ring_sf - ring) + at * c::SF + p * c::SF_ROW) +
                              (BR == 64 && !c::HALF_K ? wg * c::TOK : 0);
#pragma unroll
                for (int j = 0; j < J; j++)
                    f[j] = *(const float2 *)(xs + 8 * j + 2 * (lane % 4));
            };
            auto add = [&](const float(&d)[R], const float2(&f)[J], float block) {
#pragma unroll
                for (int r = 0; r < R; r++)
                    acc[r] = BLOCK ? fmaf(d[r], (r % 2 ? f[r / 4].y : f[r / 4].x) * block, acc[r])
                                   : acc[r] + d[r];
            };
            if constexpr (c::HALF_K) { /* the products of a k block under those before */
                float d0[R], d1[R], block0, block1;
                float2 f0[J], f1[J];
                const int n = (nk - wg + 1) / 2; /* k blocks of this group, one a stage */
                int at = slot;                   /* of the products, ahead of `slot` */
                uint32_t at_phase = phase;
                auto multiply = [&](int s, float(&d)[R], float2(&f)[J], float &block) {
                    mbar_wait(full_bar + at * 8, at_phase);
                    scales_of(2 * s + wg, at, wg, f, block);
                    wg_fence();
                    kblock<c::TOK>::ss(d, a_lo + at * (c::A / 16),
                                       b_lo + (c::RESIDENT ? s * (2 * BT * 8) : at * (c::B / 16)),
                                       0);
                    wg_commit();
                    if (++at == S) {
                        at = 0;
                        at_phase ^= 1;
                    }
                };
                auto finish = [&](float(&d)[R], const float2(&f)[J], float block) {
                    pin(d);
                    release(slot);
                    next();
                    add(d, f, block);
                };
                if (n > 0)
                    multiply(0, d0, f0, block0);
                /* No branch between products and their wait: the assembler must see the order. */
                for (int s = 1;; s += 2) {
                    if (s >= n) {
                        wg_wait<0>();
                        if (n > 0)
                            finish(d0, f0, block0);
                        break;
                    }
                    multiply(s, d1, f1, block1);
                    wg_wait<1>();
                    finish(d0, f0, block0);
                    if (s + 1 >= n) {
                        wg_wait<0>();
                        finish(d1, f1, block1);
                        break;
                    }
                    multiply(s + 1, d0, f0, block0);
                    wg_wait<1>();
                    finish(d1, f1, block1);
                }
                /* Not its k block, but its arrival, and not before the stage is full. A warp that
                 * does not arrive must not look: the stage may be full again before it does. */
                if (n < ns) {
                    if (!c::LEAN || tid % 128 < 32)
                        mbar_wait(full_bar + slot * 8, phase);
                    release(slot);
                    next();
                }
            } else
                for (int s = 0; s < ns; s++) { /* KPS is 1 */
                    float d[R], block;
                    float2 f[J];
                    if (c::WIDE && s == 0 && wg == 1)
                        bar_named(6, 256); /* half a step late: one group multiplies while the
                                              other adds */
                    mbar_wait(full_bar + slot * 8, phase);
                    wg_fence();
                    kblock<c::TOK>::ss(d, a_lo + slot * (c::A / 16), b_lo + slot * (c::B / 16), 0);
                    wg_commit();
                    scales_of(s, slot, 0, f, block); /* read under the products */
                    wg_wait<0>();
                    pin(d);
                    release(slot);
                    if (c::WIDE && s == 0 && wg == 0)
                        bar_named_arrive(6, 256);
                    add(d, f, block);
                    next();
                }
            /* ---- partial sums to their owners, scales, store ---- */
            if (tid < BT)
                x_scale[parity][tid] = QUANTIZES && !BLOCK ? quantizer.scale[tid] : sx;
            float4 *half = (float4 *)(sm + (after - ring)) + parity * (R / 4 * 128) + tid % 128;
            if (c::HALF_K && wg == 1)
#pragma unroll
                for (int j = 0; j < J; j++)
                    half[j * 128] =
                        make_float4(acc[4 * j], acc[4 * j + 1], acc[4 * j + 2], acc[4 * j + 3]);
            if (c::WIDE && tid % 128 < J)
                bulk_wait_read<0>();
            bar_named(1, 256);
            if (c::HALF_K && wg == 0)
#pragma unroll
                for (int j = 0; j < J; j++) {
                    const float4 f = half[j * 128];
                    acc[4 * j] += f.x;
                    acc[4 * j + 1] += f.y;
                    acc[4 * j + 2] += f.z;
                    acc[4 * j + 3] += f.w;
                }
            const bool holds = !c::HALF_K || wg == 0, owner = c::own(rank) > 0;
            if (C > 1) {
                const uint32_t at = (uint32_t)(c::HALF_K ? w : warp) *
                                    (c::MOST * 512); /* of this warp in a region */
                if (c::IN_RING && owner && tid < C)
                    mbar_arrive_remote(mapa(free_bar, (uint32_t)tid)); /* this ring may hold sums */
                /* The sums of the tile before were read. Only those that send wait: of the others
                 * nobody waits, and two tiles might be read before they look. */
                if (!c::IN_RING && i && holds)
                    mbar_wait_cluster(free_bar, (i - 1) & 1);
                if (holds) {
#pragma unroll
                    for (int o = 0; o < C; o++) {
                        if (c::own(o) == 0 || o == rank)
                            continue;
                        const uint32_t to = mapa(recv + (uint32_t)(rank - (rank > o)) * c::REGION +
                                                     at + lane * 16,
                                                 (uint32_t)o),
                                       to_bar = mapa(arrived_bar, (uint32_t)o);
                        float4 *from =
                            (float4 *)(sm + (staging - ring) + (o - (o > rank)) * c::REGION + at) +
                            lane;
#pragma unroll
                        for (int j = c::first(o); j < c::first(o + 1); j++) {
                            const int in = j - c::first(o);
                            if (c::DIRECT)
                                st_async4(to + in * 512, acc[4 * j], acc[4 * j + 1], acc[4 * j + 2],
                                          acc[4 * j + 3], to_bar);
                            else
                                from[in * 32] = make_float4(acc[4 * j], acc[4 * j + 1],
                                                            acc[4 * j + 2], acc[4 * j + 3]);
                        }
                    }
                    if (!c::DIRECT) {
                        fence_async_smem();
                        __syncwarp();
                        const int o = lane;
                        if (o < C && o != rank && c::own(o)) {
                            if (c::IN_RING)
                                mbar_wait_cluster(free_bar, 0);
                            bulk_to_cta(mapa(recv + (uint32_t)(rank - (rank > o)) * c::REGION + at,
                                             (uint32_t)o),
                                        staging + (uint32_t)(o - (o > rank)) * c::REGION + at,
                                        c::MOST * 512, mapa(arrived_bar, (uint32_t)o));
                        }
                        __syncwarp();
                    }
                }
                if (owner) {
                    if (tid == 0)
                        mbar_expect_tx(arrived_bar,
                                       (C - 1) *
                                           (c::DIRECT ? c::own(rank) * c::WARPS * 512 : c::REGION));
                    mbar_wait_cluster(arrived_bar, i & 1);
                    if (holds)
#pragma unroll
                        for (int o = 0; o < C; o++) {
                            if (o != rank)
                                continue;
#pragma unroll
                            for (int q = 0; q + 1 < C; q++) { /* by rank, this one first */
                                const float4 *from =
                                    (const float4 *)(sm + (recv - ring) + q * c::REGION + at) +
                                    lane;
#pragma unroll
                                for (int j = c::first(o); j < c::first(o + 1); j++) {
                                    const float4 f = from[(j - c::first(o)) * 32];
                                    acc[4 * j] += f.x;
                                    acc[4 * j + 1] += f.y;
                                    acc[4 * j + 2] += f.z;
                                    acc[4 * j + 3] += f.w;
                                }
                            }
                        }
                    if (c::WIDE || i + 1 < mine)
                        bar_named(1, 256);
                    if (!c::IN_RING && i + 1 < mine && tid < C)
                        mbar_arrive_remote(mapa(
                            free_bar, (uint32_t)tid)); /* at the end nobody waits for it any more */
                }
                if (!c::DIRECT && i + 1 == mine)
                    cluster_arrive_relaxed(); /* all that was sent here is here */
            }
            if (!owner || !holds)
                continue;
            const int token0 = BR == 64 && !c::HALF_K ? wg * c::TOK : 0; /* of the tile */
            /* 16 rows of W from n on x group j of 8 tokens, from m on; wide: into shared memory
             * first. */
            auto store = [&](uint32_t to, int j, int m, int n, const float(&y)[4]) {
                if (floats) {
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int i = m + 2 * (lane % 4) + e % 2, j = n + lane / 4 + e / 2 * 8;
                        if (i < a.m && j < a.n)
                            ((float *)a.y_plain)[i * a.y_stride + j] = y[e];
                    }
                    return;
                }
                const uint32_t y2[2] = {half2_of(a.y_dtype, y[0], y[1]),
                                        half2_of(a.y_dtype, y[2], y[3])};
                if (c::WIDE) {
                    stmatrix2_trans(to + lane % 8 * 128 +
                                        (((2 * w + lane / 8 % 2) ^ (lane % 8)) * 16),
                                    y2[0], y2[1]);
                    return;
                }
                const uint32_t pair[2] = {transpose8(y2[0]), transpose8(y2[1])};
                uint16_t *const at = (uint16_t *)a.y_plain + y_at + 8 * j * a.y_stride;
                if (8 * j >= left)
                    return;
                if (whole) {
                    *(uint32_t *)at = pair[0];
                    *(uint32_t *)(at + 8) = pair[1];
                } else
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (n + 2 * (lane % 4) + e / 2 * 8 + e % 2 < a.n)
                            at[e / 2 * 8 + e % 2] = (uint16_t)(pair[e / 2] >> e % 2 * 16);
            };
            {
                const uint32_t to = out + (uint32_t)wg * (c::MOST * 1024);
#pragma unroll
                for (int o = 0; o < C; o++) {
                    if (o != rank)
                        continue;
                    float2 xs[c::MOST]; /* all before the first store: the assembler keeps the order
                                           of shared accesses */
#pragma unroll
                    for (int j = c::first(o); j < c::first(o + 1); j++)
                        xs[j - c::first(o)] =
                            *(const float2 *)&x_scale[parity][token0 + 8 * j + 2 * (lane % 4)];
#pragma unroll
                    for (int j = c::first(o); j < c::first(o + 1);
                         j++) { /* 16 rows of W x 8 tokens */
                        const int token = token0 + 8 * j;
                        const float2 x = xs[j - c::first(o)];
                        const float y[4] = {fmaf(x.x, sw[0] * acc[4 * j], bias[0]),
                                            fmaf(x.y, sw[0] * acc[4 * j + 1], bias[0]),
                                            fmaf(x.x, sw[1] * acc[4 * j + 2], bias[1]),
                                            fmaf(x.y, sw[1] * acc[4 * j + 3], bias[1])};
                        store(to + (j - c::first(o)) * 1024, j - c::first(o), m0 + token, n0 + row,
                              y);
                    }
                }
                if (c::WIDE && !floats) {
                    const int rows = 8 * c::own(rank), n = n0 + (BR == 128 ? wg * 64 : 0),
                              m = m0 + token0 + 8 * c::first(rank);
                    fence_async_smem();
                    bar_named(4 + wg, 128);
                    if (a.by_bulk) {
                        const int t = tid % 128 * c::STORE_ROWS;
                        if (t < rows && n < a.n && m + t < a.m) {
                            tma_store_2d(&a.y, to + t * 128, n, m + t);
                            bulk_commit();
                        }
                    } else
#pragma unroll 1
                        for (int e = tid % 128; e < rows * 64; e += 128) {
                            const int t = e / 64, col = e % 64;
                            if (m + t < a.m && n + col < a.n)
                                ((uint16_t *)a.y_plain)[(m + t) * a.y_stride + n + col] =
                                    *(const uint16_t *)(sm + (to - ring) + t * 128 +
                                                        ((col / 8) ^ (t % 8)) * 16 + col % 8 * 2);
                        }
                }
            }
        }
        if (!c::DIRECT && C > 1)
            cluster_wait(); /* nothing is read from here any more */
        if (c::WIDE && tid % 128 < J)
            bulk_wait_all();
    }
}

#endif
