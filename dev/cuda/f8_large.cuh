/* SPDX-License-Identifier: Apache-2.0 */
/* f8_large.cuh - Y[M,N] (bf16) = X[M,K] . W[N,K]^T (e4m3), row and channel scales and bias in the epilogue, or 1x128 x 128x128
 * block scales in the main loop; sm_90a, persistent, warp-specialised. K % 16 == 0; N % 8 != 0 takes plain stores.
 *
 *   1 warp    producer: a ring of ST stages (X BM x 128, W BN x 128) by TMA; in a cluster of two each CTA loads half of W for both
 *   8 warps   two consumer groups, BM / 2 rows each, one or two wgmma m64nBN
 * `skew`: the second group starts that many k blocks late and the groups share nothing but the ring, so that the epilogue (and
 * the promotion) of one meets the products of the other. The epilogue goes through two small swizzled buffers a group and TMA
 * stores that are read while the next columns are converted. Tiles are walked in groups of `group` row tiles, M fastest. */
#pragma once
#include "f8_kinds.h"
#include "harness/sm90.cuh"
#include "harness/wgmma_gen.h"

struct yes { static constexpr bool value = true; };
struct no { static constexpr bool value = false; };

struct large_args {
    CUtensorMap x, w, y, sx_map;  /* boxes: BM x 128, BN/CL x 128, 64 x slab, BM scales of one k block (BLOCK) */
    const float *sx, *sw, *bias;  /* [M], [N] or [N/128][K/128] in BLOCK, [N] or null */
    __nv_bfloat16 *y_plain;       /* set where TMA cannot store (N % 8 != 0) */
    int M, N, K, group, skew;     /* group: tiles of M walked before N advances; skew: k blocks by which group 1 starts late */
    int chained;                  /* launched with the dependency attribute */
    int mt, nt;                   /* tiles of a cluster, down and across */
    struct { int d; uint32_t inverse; } per, full, last; /* division by group * nt, by group, by the rows of the last group */
};

template <int BM, int BN, int ST, int CL, int ACC> struct large_cfg {
    static constexpr int MT = BM / 128, SLAB = BN % 32 ? 16 : BN % 64 || ACC == BLOCK ? 32 : 64, SLABS = BN / SLAB; /* m64 tiles per group; columns per store */
    static constexpr int A = BM * 128, B = BN * 128, SF = ACC == BLOCK ? BM * 4 : 0;
    static constexpr int STAGE_D = 64 * SLAB * 2;                                     /* a buffer of the epilogue; two a group */
    static constexpr int SMEM = ST * (A + B + SF) + 4 * STAGE_D + 2 * BN * 4 + 128;
    static constexpr int THREADS = 384;
    static_assert(SMEM <= 232448, "shared memory");
};

template <int BM, int BN, int ST, int CL, int ACC> __global__ void __launch_bounds__(384, 1) large_k(const __grid_constant__ large_args a)
{
    using c = large_cfg<BM, BN, ST, CL, ACC>;
    constexpr int MT = c::MT;
    extern __shared__ __align__(1024) uint8_t sm[];
    const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid / 32, 0), lane = tid % 32;
    const int kb = (a.K + 127) / 128;
    const int tiles = a.mt * a.nt; /* of a cluster */
    const uint32_t rank = CL > 1 ? cluster_rank() : 0;
    const int cid = (int)blockIdx.x / CL, clusters = (int)gridDim.x / CL;
    const uint32_t ring = smem_u32(sm), ring_b = ring + ST * c::A, staging = ring_b + ST * c::B;
    const uint32_t ring_sf = staging + 4 * c::STAGE_D;
    float *cols = (float *)(sm + ST * (c::A + c::B + c::SF) + 4 * c::STAGE_D); /* channel scales of the tile, a copy per group */
    const uint32_t bars = smem_u32(cols) + 2 * BN * 4;
    auto full = [&](int s) { return bars + s * 8; };
    auto empty = [&](int s) { return bars + (ST + s) * 8; };
    if (ring & 1023) __trap();
    if (tid == 256) { tma_prefetch_map(&a.x); tma_prefetch_map(&a.w); tma_prefetch_map(&a.y); }
    if (warp == 0 && lane < ST) { mbar_init(full(lane), 1); mbar_init(empty(lane), 8 * CL); mbar_init_fence(); fence_async_smem(); }
    __syncthreads();
    if (CL > 1) { cluster_arrive(); cluster_wait(); }
    auto place = [&](int t, int &m0, int &n0) { /* groups of a.group row tiles, M fastest inside a group; products below 2^32 */
        const int g = a.per.d == 1 ? t : (int)__umulhi((uint32_t)t, a.per.inverse), in = t - g * a.per.d;
        const bool last = (g + 1) * a.group > a.mt;
        const int rows = last ? a.last.d : a.full.d, across = rows == 1 ? in : (int)__umulhi((uint32_t)in, last ? a.last.inverse : a.full.inverse);
        m0 = ((g * a.group + in - across * rows) * CL + (int)rank) * BM;
        n0 = across * BN;
    };
    auto swizzle = [](int row) { return c::SLAB == 64 ? row % 8 : c::SLAB == 32 ? row / 2 % 4 : row / 4 % 2; }; /* of the buffers of the epilogue */
    pdl_launch();
    if (warp >= 8) { /* ---- producer ---- */
        reg_dec<24>();
        if (warp == 8 && lane == 0) {
            int slot = 0;
            uint32_t ph = 1;
            auto load_w = [&](int s, int k, int n0) {
                mbar_expect_tx(full(s), c::A + c::B + c::SF);
                if (CL == 1) tma_2d_plain(ring_b + s * c::B, &a.w, k * 128, n0, full(s));
                else tma_2d_mc(ring_b + s * c::B + rank * (c::B / CL), &a.w, k * 128, n0 + (int)rank * (BN / CL), full(s), (uint16_t)((1 << CL) - 1));
            };
            int early = 0, m0, n0; /* in a chain the first stages of W are asked for before X may be */
            if (a.chained && cid < tiles) {
                place(cid, m0, n0);
                for (early = min(ST, kb); slot < early; slot++) load_w(slot, slot, n0);
                slot = 0;
            }
            pdl_wait();
            for (int t = cid; t < tiles; t += clusters) {
                place(t, m0, n0);
                for (int k = 0; k < kb; k++) {
                    mbar_wait(empty(slot), ph);
                    if (early) early--; else load_w(slot, k, n0);
                    tma_2d_plain(ring + slot * c::A, &a.x, k * 128, m0, full(slot));
                    if (ACC == BLOCK) tma_2d_plain(ring_sf + slot * c::SF, &a.sx_map, m0, k, full(slot));
                    if (++slot == ST) { slot = 0; ph ^= 1; }
                }
            }
        }
        __syncwarp();
    } else { /* ---- consumers ---- */
        reg_inc<240>();
        const int wg = warp / 4, w = warp % 4, t128 = tid % 128;
        int slot = 0;
        uint32_t ph = 0;
        const uint32_t alo = (ring >> 4) + 0x10000 + (uint32_t)wg * (MT * 512), blo = (ring_b >> 4) + 0x10000;
        const uint32_t stage_d = staging + (uint32_t)wg * (2 * c::STAGE_D);
        const uint32_t peer = CL > 1 ? mapa(bars, rank ^ 1) : 0;
        auto release = [&](int s) { if (lane == 0) mbar_arrive(empty(s)); if (CL > 1 && lane == 1) mbar_arrive_remote(peer + (ST + s) * 8); };
        if (a.skew && wg == 1 && cid < tiles) bar_named(3, 256);
        bool first = a.skew && wg == 0;
        auto start_other = [&](int k) { if (first && (k + 1 == a.skew || k + 1 == kb)) { bar_named_arrive(3, 256); first = false; } };
        uint32_t buffer = 0;
        pdl_wait();
        for (int t = cid; t < tiles; t += clusters) {
            int m0, n0;
            place(t, m0, n0);
            const int row0 = m0 + wg * (BM / 2) + w * 16 + lane / 4;
            float rs[MT][2], cs[2] = {1, 1}; /* asked for now, used after the main loop */
#pragma unroll
            for (int h = 0; h < MT; h++)
#pragma unroll
                for (int e = 0; e < 2; e++) { const int r = row0 + h * 64 + e * 8; rs[h][e] = ACC != BLOCK && r < a.M ? a.sx[r] : 1.0f; }
            if (ACC != BLOCK) {
#pragma unroll
                for (int i = 0; i < 2; i++) { const int col = t128 + 128 * i; if (col < BN && n0 + col < a.N) cs[i] = a.sw[n0 + col]; }
            }
            float acc[MT][BN / 2];
            float sfw = 0; /* lane i: scale of W for k block i of the current 32 */
            const float *sfw_p = a.sw + (size_t)(n0 / 128) * kb;
            if (ACC == FAST) {
                int prev = 0;
                for (int k = 0; k < kb; k++) {
                    mbar_wait(full(slot), ph);
                    wg_fence();
#pragma unroll
                    for (int h = 0; h < MT; h++) kblock<BN>::ss(acc[h], alo + slot * (c::A / 16) + h * 512, blo + slot * (c::B / 16), k != 0);
                    wg_commit();
                    if (k) { wg_wait<1>(); release(prev); }
                    start_other(k);
                    prev = slot;
                    if (++slot == ST) { slot = 0; ph ^= 1; }
                }
                wg_wait<0>();
                release(prev);
#pragma unroll
                for (int h = 0; h < MT; h++) pin(acc[h]);
            } else {
#pragma unroll
                for (int h = 0; h < MT; h++)
#pragma unroll
                    for (int i = 0; i < BN / 2; i++) acc[h][i] = 0;
                for (int k = 0; k < kb; k++) {
                    float sw = 1;
                    if (ACC == BLOCK) {
                        if (k % 32 == 0) sfw = k + lane < kb ? sfw_p[k + lane] : 0.0f;
                        sw = __shfl_sync(~0u, sfw, k % 32);
                    }
                    mbar_wait(full(slot), ph);
#pragma unroll
                    for (int h = 0; h < MT; h++) {
                        float d[BN / 2], s0 = 1, s1 = 1;
                        if (ACC == BLOCK) {
                            const float *p = (const float *)(sm + (ring_sf - ring)) + slot * BM + wg * (BM / 2) + h * 64 + w * 16 + lane / 4;
                            s0 = p[0] * sw; s1 = p[8] * sw;
                        }
                        wg_fence();
                        kblock<BN>::ss(d, alo + slot * (c::A / 16) + h * 512, blo + slot * (c::B / 16), 0);
                        wg_commit();
                        wg_wait<0>();
                        pin(d);
                        if (h == MT - 1) { release(slot); start_other(k); } /* the other's products meet the additions below */
#pragma unroll
                        for (int i = 0; i < BN / 2; i++) acc[h][i] = ACC == BLOCK ? fmaf(d[i], i % 4 < 2 ? s0 : s1, acc[h][i]) : acc[h][i] + d[i];
                    }
                    if (++slot == ST) { slot = 0; ph ^= 1; }
                }
            }
            /* epilogue: the groups share nothing, so they may drift apart by as many k blocks as the ring holds */
            float *my_cols = cols + wg * BN;
#pragma unroll
            for (int i = 0; i < 2; i++) { const int col = t128 + 128 * i; if (col < BN) my_cols[col] = cs[i]; }
            bar_named(1 + wg, 128);
            auto epilogue = [&](auto with_bias) { /* two instances: a branch inside would keep the columns from overlapping */
                constexpr bool BIAS = decltype(with_bias)::value;
#pragma unroll
                for (int h = 0; h < MT; h++)
#pragma unroll
                    for (int slab = 0; slab < c::SLABS; slab++, buffer ^= 1) {
                        const uint32_t to = stage_d + buffer * c::STAGE_D;
                        float2 scale[c::SLAB / 8]; /* all before the first store: the assembler keeps the order of shared accesses */
#pragma unroll
                        for (int g = 0; g < c::SLAB / 8; g++) scale[g] = *(const float2 *)(my_cols + slab * c::SLAB + g * 8 + 2 * (lane % 4));
#pragma unroll
                        for (int g = 0; g < c::SLAB / 8; g += 2) { /* two groups of 8 columns: one stmatrix of four 8x8 */
                            uint32_t o[4];
#pragma unroll
                            for (int i = 0; i < 2; i++) {
                                const int col = slab * c::SLAB + (g + i) * 8 + 2 * (lane % 4), r = (slab * c::SLAB / 8 + g + i) * 4;
                                const float2 s = scale[g + i];
                                float2 b = make_float2(0, 0);
                                if (BIAS && n0 + col < a.N) b.x = __ldg(a.bias + n0 + col);
                                if (BIAS && n0 + col + 1 < a.N) b.y = __ldg(a.bias + n0 + col + 1);
#pragma unroll
                                for (int e = 0; e < 2; e++) {
                                    const float sx = rs[h][e] * s.x, sy = rs[h][e] * s.y;
                                    o[2 * i + e] = BIAS ? bf16x2(fmaf(acc[h][r + 2 * e], sx, b.x), fmaf(acc[h][r + 2 * e + 1], sy, b.y)) : bf16x2(acc[h][r + 2 * e] * sx, acc[h][r + 2 * e + 1] * sy);
                                }
                            }
                            const int row = w * 16 + (lane / 8 % 2) * 8 + lane % 8, in = g + lane / 16; /* row in the m64 tile, 8 columns in the slab */
                            stmatrix4(to + row * (c::SLAB * 2) + ((in ^ swizzle(row)) * 16), o[0], o[1], o[2], o[3]);
                        }
                        const int m1 = m0 + wg * (BM / 2) + h * 64, n1 = n0 + slab * c::SLAB;
                        if (t128 == 0) bulk_wait_read(); /* the other buffer was stored: after the barrier it may be written */
                        fence_async_smem();
                        bar_named(1 + wg, 128);
                        if (!a.y_plain) {
                            if (t128 == 0 && n1 < a.N && m1 < a.M) { tma_store_2d(&a.y, to, n1, m1); bulk_commit(); }
                        } else {
#pragma unroll 1
                            for (int i = t128; i < 64 * c::SLAB; i += 128) {
                                const int row = i / c::SLAB, col = i % c::SLAB, at = (col / 8) ^ swizzle(row);
                                if (m1 + row < a.M && n1 + col < a.N) a.y_plain[(size_t)(m1 + row) * a.N + n1 + col] = *(const __nv_bfloat16 *)(sm + (to - ring) + row * (c::SLAB * 2) + at * 16 + col % 8 * 2);
                            }
                        }
                    }
            };
            if (a.bias) epilogue(yes{}); else epilogue(no{});
        }
        if (t128 == 0) bulk_wait_all();
    }
    if (CL > 1) { cluster_arrive(); cluster_wait(); } /* the peer may still arrive on this CTA's barriers */
}
