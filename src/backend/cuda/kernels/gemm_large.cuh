/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_large.cuh - Y[M,N] = X[M,K] . W[N,K]^T (e4m3fn) + bias for many rows of X, K % 16 ==
 * 0; persistent, warp-specialised, on sm_90a. Sums of 128 columns are made by the tensor cores and
 * added in fp32, times their 1x128 and 128x128 scales with BLOCK; other scales, and the bias, come
 * last. With FAST the tensor cores make all of the sum.
 *
 * A cluster of CM x CN blocks works on so many neighbouring tiles: blocks of a row of tiles share
 * X, those of a column share W. Each asks for its part of both, and the copy goes to all that need
 * it.
 *   2 warps  producers of a ring of ST stages by bulk copies: one of W (BN x 128), one of X (BM x
 *            128), so that X, once it is there, need not wait for what was asked of W before
 *   8 warps  two groups; SPLIT says what each computes: half the rows; every second k block (BM is
 *            64; they exchange half of their sums at the end); or every second tile (FAST)
 * ROWS: the second group starts some k blocks late and shares nothing but the ring with the first,
 * so that the additions and the epilogue of one meet the products of the other. TILES: the epilogue
 * of one meets the main loop of the other. AHEAD: a group has the products of a k block under way
 * while it adds those of the one before. The epilogue goes through small buffers and bulk
 * stores that are read while the next columns are converted. Tiles are walked in groups of
 * `group` tiles down, M fastest.
 *
 * large_cfg.cuh has a version's numbers, large_join.cuh the sums of slices of K, large_epilogue.cuh
 * and large_store.cuh the ways to Y: by bulk stores, and from registers. */
#ifndef FP8_KERNELS_GEMM_LARGE_CUH
#define FP8_KERNELS_GEMM_LARGE_CUH

#include "backend/cuda/kernels/large_cfg.cuh"
#include "backend/cuda/kernels/large_epilogue.cuh"
#include "backend/cuda/kernels/large_join.cuh"
#include "backend/cuda/kernels/large_store.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

/* to[64, BN] += d, COUNT sums of a thread, from its number `at` on; s: scales of two rows, with TWO
 * once more for columns from `edge` on. With BLOCK one row after the other: after every second
 * addition the assembler lets other warps go ahead, and a scale is not kept over that. In pairs of
 * a row it is read once a pair or once a value, as it happens; so it is once a pair. No DEV: that
 * is inlined earlier, and the main loops become other code. */
template <class c, int COUNT, int SCALES>
static __device__ inline void add_sums(float (&to)[c::R], const float (&d)[COUNT],
                                       const float (&s)[SCALES], int at, const int &edge)
{
#pragma unroll
    for (int l = 0; l < COUNT; l++) {
        const int e = l / (COUNT / 2), j = c::BLOCK ? l % (COUNT / 2) / 2 * 4 + 2 * e + l % 2 : l,
                  i = at + j;
        const bool second = c::TWO && i / 4 * 8 / c::EDGE * c::EDGE >= edge;
        to[i] = c::BLOCK ? fmaf(d[j], second ? s[SCALES - 2 + e] : s[e], to[i]) : to[i] + d[j];
    }
}

template <int BM, int BN, int ST, int CM, int CN, int SLICES, int SPLIT, int SUMS, bool AHEAD>
DEV void large_body(const fp8_large_args &a)
{
    using c = large_cfg<BM, BN, ST, CM, CN, SLICES, SPLIT, SUMS, AHEAD>;
    constexpr bool BLOCK = c::BLOCK, FAST = c::FAST;
    constexpr int MT = c::MT, GN = c::GN, CL = CM * CN;
    const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid / 32, 0), lane = tid % 32;
    const int slice = SLICES > 1 ? (int)__shfl_sync(~0u, cluster_rank(), 0) : 0;
    const int all_kb = (a.k + 127) / 128, kb0 = all_kb * slice / SLICES;
    const int kb = all_kb * (slice + 1) / SLICES - kb0; /* k blocks, from kb0 on */
    const int tiles = a.down * a.across;                /* of a cluster */
    const int rank = CL > 1 ? (int)__shfl_sync(~0u, cluster_rank(), 0) : 0, rm = rank % CM,
              rn = rank / CM; /* place in the cluster: down, across */
    const int cid = (int)blockIdx.x / (CL * SLICES), clusters = (int)gridDim.x / (CL * SLICES);
    const uint32_t ring = __shfl_sync(~0u, smem_u32(sm), 0), ring_b = ring + ST * c::A,
                   staging = ring_b + ST * c::B;
    constexpr int OUT = c::DIRECT ? 0 : 2 * c::BUFFERS * c::BUFFER;
    const uint32_t ring_sf = staging + OUT;
    float4 *swap = (float4 *)(sm + ST * (c::A + c::B + 2 * c::SF) + OUT);
    uint8_t *after = (uint8_t *)swap + c::SWAP;
    float *cols = (float *)after; /* channel scales of the tile, a copy per group; with slices
                                     scales and biases */
    uint8_t *received = after + c::COLS; /* sums of other slices */
    const uint32_t bars = smem_u32(received) + c::RECEIVED;
    const uint32_t arrived = bars + 2 * ST * 8; /* the same */
    auto full = [&](int s) { return bars + s * 8; };
    auto empty = [&](int s) { return bars + (ST + s) * 8; };
    if (ring & 1023)
        __trap();
    if (tid == 288) {
        tma_prefetch_map(&a.w);
        tma_prefetch_map(&a.x);
        if (!c::DIRECT)
            tma_prefetch_map(&a.y);
    }
    if (warp == 8) {
        const uint32_t lead = elect_one(); /* a lane each would take a loop of moves each */
#pragma unroll
        for (int i = 0; i < ST; i++) {
            mbar_init_if(lead, full(i), 2);
            mbar_init_if(lead, empty(i), c::RELEASES * c::PEERS);
        }
#pragma unroll
        for (int i = 0; SLICES > 1 && i < c::OWNED; i++)
            mbar_init_if(lead, arrived + i * 8, 1);
        mbar_init_fence();
        fence_async_smem();
        __syncwarp();
    }
    if (CL > 1) { /* others copy into this block */
        cluster_arrive();
        cluster_wait();
    } else if (warp == 8) /* nobody waits for the copies */
        bar_named_arrive(0, FP8_LARGE_THREADS);
    else
        bar_named(0, FP8_LARGE_THREADS);
    if (SLICES > 1)
        cluster_arrive_relaxed();
    /* Groups of a.group row tiles, M fastest inside a group. */
    auto place = [&](int t, int &m0, int &n0) {
        const int g = fp8_divide(t, a.per), in = t - g * a.per.d;
        const fp8_divider by = (g + 1) * a.group > a.down ? a.last : a.full;
        const int rows = by.d, across = fp8_divide(in, by);
        m0 = min(((g * a.group + in - across * rows) * CM + rm) * BM, a.last_m);
        n0 = min((across * CN + rn) * BN, a.last_n);
    };
    pdl_launch();
    if (warp >= 8) { /* ---- producers: all lanes, see mbar_expect_tx_if ---- */
        reg_dec<24>();
        const uint32_t lead = elect_one();
        int slot = 0, t = cid, m0, n0;
        uint32_t ph = 1;
        auto next = [&] {
            if (++slot == ST) {
                slot = 0;
                ph ^= 1;
            }
        };
        place(t, m0, n0);
        if (warp == 8) {
            /* W, which does not depend on the kernel before: the first ring of it no faster than an
             * SM's share of what the memory gives, since X would queue behind it. */
            constexpr uint32_t AT_ONCE = 2, PACE = 32; /* stages, bytes a clock */
            const uint32_t begin = clocks();
            const uint16_t column = (uint16_t)(((1 << CM) - 1) << (CM * rn)); /* of the cluster */
            for (;;) {
                for (int k = 0; k < kb; k++, next()) {
                    const uint32_t i = (uint32_t)k;
                    while (t == cid && i >= AT_ONCE && i < ST &&
                           too_early(begin, i * (c::B / PACE))) {
                    }
                    mbar_wait(empty(slot), ph);
                    mbar_expect_tx_if(lead, full(slot), c::B);
                    if (CM == 1)
                        tma_2d_if(lead, ring_b + slot * c::B, &a.w, (kb0 + k) * 128, n0,
                                  full(slot));
                    else
                        tma_2d_mc_if(lead, ring_b + slot * c::B + rm * (c::B / CM), &a.w,
                                     (kb0 + k) * 128, n0 + rm * (BN / CM), full(slot), column);
                }
                if ((t += clusters) >= tiles)
                    break;
                place(t, m0, n0);
                pdl_wait(); /* X goes before W of a second tile */
            }
        } else if (warp == 9) { /* X, by a warp of its own, so that it never queues behind W */
            uint16_t row = 0;
            for (int i = 0; i < CN; i++)
                row = (uint16_t)(row | 1 << (rm + CM * i));
            pdl_wait_with(bars | (uint32_t)m0);
            for (;;) {
                for (int k = 0; k < kb; k++, next()) {
                    mbar_wait(empty(slot), ph);
                    mbar_expect_tx_if(lead, full(slot), (uint32_t)a.x_bytes);
                    if (CN == 1)
                        tma_2d_if(lead, ring + slot * c::A, &a.x, (kb0 + k) * 128, m0, full(slot));
                    else
                        tma_2d_mc_if(lead, ring + slot * c::A + rn * (c::A / CN), &a.x,
                                     (kb0 + k) * 128, m0 + rn * (BM / CN), full(slot), row);
                    if (BLOCK)
                        tma_2d_if(lead, ring_sf + (slot + (ph ^ 1) * ST) * c::SF, &a.x_scales, m0,
                                  kb0 + k, full(slot));
                }
                if ((t += clusters) >= tiles)
                    break;
                place(t, m0, n0);
            }
        }
        __syncwarp();
        if (SLICES > 1) {
            cluster_wait();
            cluster_arrive_relaxed();
        }
    } else { /* ---- consumers ---- */
        reg_inc<240>();
        const int wg = warp / 4, w = warp % 4, t128 = tid % 128;
        int slot = 0;
        uint32_t ph = 0;
        const uint32_t alo = (ring >> 4) + 0x10000 +
                             (SPLIT == FP8_LARGE_ROWS ? (uint32_t)wg * (MT * 512) : 0),
                       blo = (ring_b >> 4) + 0x10000;
        const uint32_t stage_d = staging + (uint32_t)wg * (c::BUFFERS * c::BUFFER);
        /* A stage is free for this CTA (peer 0) and for those of its row and column. The products
         * of a group end together, so its warps share out the telling. */
        const int whom = lane < 2 ? w + 4 * lane : c::PEERS,
                  other = whom < CM ? whom - 1 : whom - CM;
        const bool tells = whom < c::PEERS;
        const uint32_t peer =
            CL > 1 ? mapa(bars, (uint32_t)(whom == 0 || !tells ? rank
                                           : whom < CM         ? other + (other >= rm) + CM * rn
                                                               : rm + CM * (other + (other >= rn))))
                   : 0;
        auto release = [&](int s) {
            if (whom == 0)
                mbar_arrive(empty(s));
            else if (CL > 1 && tells)
                mbar_arrive_remote(peer + (ST + s) * 8);
        };
        if (SPLIT == FP8_LARGE_ROWS && a.late && wg == 1 && cid < tiles)
            bar_named(3, 256);
        bool first = SPLIT == FP8_LARGE_ROWS && a.late && wg == 0;
        auto start_other = [&](int k) {
            if (first && (k + 1 == a.late || k + 1 == kb)) {
                bar_named_arrive(3, 256);
                first = false;
            }
        };
        constexpr int STEP =
            SPLIT == FP8_LARGE_DEPTH ? 2 : 1; /* k blocks from one of this group to the next */
        auto next = [&] {
            slot += STEP;
            if (slot >= ST) {
                slot -= ST;
                ph ^= 1;
            }
        };
        auto skip = [&](int blocks) { /* the other group's tile */
                                      slot += blocks;
                                      ph ^= slot / ST & 1;
                                      slot %= ST;
        };
        int k0 = SPLIT == FP8_LARGE_DEPTH ? wg : 0; /* the group's first k block of a tile */
        if (SPLIT == FP8_LARGE_DEPTH)
            slot = wg;
        pdl_wait();
        constexpr int TURNS = SPLIT == FP8_LARGE_TILES ? 2 : 1; /* groups that take a tile each */
        if (TURNS == 2 && wg == 1)
            skip(kb);
        for (int t = cid + (TURNS == 2 ? wg * clusters : 0); t < tiles; t += TURNS * clusters) {
            int m0, n0;
            place(t, m0, n0);
            if (SPLIT == FP8_LARGE_ROWS)
                m0 += wg * c::GM;
            const int n1 =
                n0 +
                (SPLIT == FP8_LARGE_DEPTH ? wg * GN : 0); /* first column that this group stores */
            const int row0 = m0 + w * 16 + lane / 4;
            float rs[MT][2], cs[2] = {1, 1}, bs[2] = {0, 0}; /* asked for now, used after the main
                                                                loop */
#pragma unroll
            for (int h = 0; h < MT; h++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int r = row0 + h * 64 + e * 8;
                    rs[h][e] = !BLOCK && r < a.m ? a.scales.x[r * a.scales.x_step] : 1.0f;
                }
            float scale = 1, bias = 0; /* slices: of column tid */
            if (SLICES > 1) {
                if (tid < BN && n0 + tid < a.n) {
                    scale = BLOCK ? 1.0f : __ldg(a.scales.w + n0 + tid);
                    bias = a.scales.bias ? __ldg(a.scales.bias + n0 + tid) : 0.0f;
                }
            } else {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int col = t128 + 128 * i;
                    if (!BLOCK && col < GN && n1 + col < a.n)
                        cs[i] = a.scales.w[n1 + col];
                    if (c::DIRECT && a.scales.bias && col < GN && n1 + col < a.n)
                        bs[i] = __ldg(a.scales.bias + n1 + col);
                }
            }
            constexpr int R = BN / 2;
            float acc[MT][R];
            constexpr int WB = c::TWO ? 2 : 1; /* blocks of W that a tile may lie in */
            const int edge = 128 - n0 % 128;   /* first column of the second */
            const float *sfw_p[WB];
            float sfw[WB]; /* lane i: scale of W for k block i of the current 32 */
            float sw[WB];  /* of the k block that is there */
#pragma unroll
            for (int b = 0; b < WB; b++) /* the last tiles of a cluster may lie outside */
                sfw_p[b] = a.scales.w + (size_t)(min(n0 + 128 * b, a.n - 1) / 128) * all_kb + kb0;
            /* The scales of W are asked for and sent round before the wait: after it the shuffle
             * would stand between X's scales and the products. */
            auto wait_full = [&](int k) {
                if (BLOCK && k % 32 < STEP)
#pragma unroll
                    for (int b = 0; b < WB; b++)
                        sfw[b] = k / 32 * 32 + lane < kb ? sfw_p[b][k / 32 * 32 + lane] : 0.0f;
                if (BLOCK)
#pragma unroll
                    for (int b = 0; b < WB; b++)
                        sw[b] = __shfl_sync(~0u, sfw[b], k % 32);
                mbar_wait(full(slot), ph);
            };
            /* Of the rows lane / 4 and lane / 4 + 8, times that of W. */
            auto scales = [&](int h, float(&s)[2 * WB]) {
                if (!BLOCK)
                    return;
                const float *p = (const float *)(sm + (ring_sf - ring)) + (slot + ph * ST) * BM +
                                 (SPLIT == FP8_LARGE_ROWS ? wg * c::GM : 0) + h * 64 + w * 16 +
                                 lane / 4;
#pragma unroll
                for (int b = 0; b < WB; b++) {
                    s[2 * b] = p[0] * sw[b];
                    s[2 * b + 1] = p[8] * sw[b];
                }
            };
            if (!FAST || (SPLIT == FP8_LARGE_DEPTH && k0 >= kb))
#pragma unroll
                for (int h = 0; h < MT; h++)
#pragma unroll
                    for (int i = 0; i < R; i++)
                        acc[h][i] = 0;
            if (FAST) {
                int before = 0;
                if (TURNS == 2 && t != cid)
                    bar_named(4 + wg, 256); /* after the other: a wait may not run ahead by a phase
                                               of a stage */
                for (int k = k0; k < kb; k += STEP) {
                    mbar_wait(full(slot), ph);
                    wg_fence();
#pragma unroll
                    for (int h = 0; h < MT; h++)
                        kblock<BN>::ss(acc[h], alo + slot * (c::A / 16) + h * 512,
                                       blo + slot * (c::B / 16), k != k0);
                    wg_commit();
                    if (k != k0) {
                        wg_wait<1>();
                        release(before);
                    }
                    start_other(k);
                    before = slot;
                    next();
                }
                if (TURNS == 2 && t + clusters < tiles)
                    bar_named_arrive(5 - wg, 256);
                wg_wait<0>();
                if (SPLIT != FP8_LARGE_DEPTH || k0 < kb)
                    release(before);
#pragma unroll
                for (int h = 0; h < MT; h++)
                    pin(acc[h]);
            } else if constexpr (c::HALVES) { /* the same, a half of the columns at a time */
                float d0[R / 2], d1[R / 2], s[2 * WB];
                auto multiply = [&](int half, float(&d)[R / 2]) {
                    wg_fence();
                    kblock<BN / 2>::ss(d, alo + slot * (c::A / 16),
                                       blo + slot * (c::B / 16) + half * (BN / 2 * 8), 0);
                    wg_commit();
                };
                wait_full(0);
                scales(0, s);
                multiply(0, d0);
                for (int k = 0;;) {
                    if (k >= kb) { /* never; without it the assembler loses the order */
                        wg_wait<0>();
                        pin(d0);
                        add_sums<c>(acc[0], d0, s, 0, edge);
                        break;
                    }
                    const int p = slot;
                    multiply(1, d1);
                    start_other(k);
                    next();
                    wg_wait<1>();
                    pin(d0);
                    add_sums<c>(acc[0], d0, s, 0, edge);
                    if (++k == kb) {
                        wg_wait<0>();
                        pin(d1);
                        release(p);
                        add_sums<c>(acc[0], d1, s, R / 2, edge);
                        break;
                    }
                    float following[2 * WB];
                    wait_full(k);
                    scales(0, following);
                    multiply(0, d0);
                    wg_wait<1>();
                    pin(d1);
                    release(p);
                    add_sums<c>(acc[0], d1, s, R / 2, edge);
#pragma unroll
                    for (int i = 0; i < 2 * WB; i++)
                        s[i] = following[i];
                }
            } else if (AHEAD) { /* the products of a k block meet the additions of the one before */
                float d0[R], d1[R], s0[2 * WB], s1[2 * WB];
                int p0, p1; /* their stages */
                auto multiply = [&](int k, float(&d)[R], float(&s)[2 * WB], int &p) {
                    wait_full(k);
                    scales(0, s);
                    wg_fence();
                    kblock<BN>::ss(d, alo + slot * (c::A / 16), blo + slot * (c::B / 16), 0);
                    wg_commit();
                    start_other(k);
                    p = slot;
                    next();
                };
                auto finish = [&](float(&d)[R], const float(&s)[2 * WB], int p) {
                    pin(d);
                    release(p);
                    add_sums<c>(acc[0], d, s, 0, edge);
                };
                if (k0 < kb)
                    multiply(k0, d0, s0, p0);
                /* No branch between products and their wait: the assembler must see the order. */
                for (int k = k0 + STEP;; k += 2 * STEP) {
                    if (k >= kb) {
                        wg_wait<0>();
                        if (k0 < kb)
                            finish(d0, s0, p0);
                        break;
                    }
                    multiply(k, d1, s1, p1);
                    wg_wait<1>();
                    finish(d0, s0, p0);
                    if (k + STEP >= kb) {
                        wg_wait<0>();
                        finish(d1, s1, p1);
                        break;
                    }
                    multiply(k + STEP, d0, s0, p0);
                    wg_wait<1>();
                    finish(d1, s1, p1);
                }
            } else {
                for (int k = k0; k < kb; k += STEP) {
                    wait_full(k);
#pragma unroll
                    for (int h = 0; h < MT; h++) {
                        float d[R], s[2 * WB];
                        scales(h, s);
                        wg_fence();
                        kblock<BN>::ss(d, alo + slot * (c::A / 16) + h * 512,
                                       blo + slot * (c::B / 16), 0);
                        wg_commit();
                        wg_wait<0>();
                        pin(d);
                        if (h == MT - 1) {
                            release(slot);
                            start_other(k);
                        } /* the other's products meet the additions below */
                        add_sums<c>(acc[h], d, s, 0, edge);
                    }
                    next();
                }
            }
            if (SLICES > 1 && tid < BN) {
                cols[tid] = scale;
                cols[BN + tid] = bias;
            }
            if (SPLIT == FP8_LARGE_DEPTH) { /* each group gets the other's sums of its half of the
                                               columns; deterministic, a sum of two */
                k0 = (k0 ^ kb) & 1;
                if (t != cid)
                    bar_named(7, 256); /* those of the tile before were read */
                auto half = [&](bool right, int i) {
                    return right ? acc[0][R / 2 + i] : acc[0][i];
                };
#pragma unroll
                for (int i = 0; i < R / 2; i += 4)
                    swap[(wg * (R / 8) + i / 4) * 128 + t128] = make_float4(
                        half(!wg, i), half(!wg, i + 1), half(!wg, i + 2), half(!wg, i + 3));
                bar_named(6, 256);
#pragma unroll
                for (int i = 0; i < R / 2; i += 4) {
                    const float4 f = swap[((wg ^ 1) * (R / 8) + i / 4) * 128 + t128];
                    const float g[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        acc[0][i + e] = half(wg, i + e) + g[e];
                }
            }
            if constexpr (SLICES > 1) {
                if (SPLIT == FP8_LARGE_ROWS)
                    bar_named(6, 256); /* nothing is read from the ring any more */
                cluster_wait();
                const bool mine = join_tile<c>(acc[0], slice, warp, received, arrived);
                cluster_arrive_relaxed(); /* all that was sent here is here */
                if (mine)
                    store_sums<GN>(a, acc[0], rs[0], cols + n1 - n0, cols + BN + n1 - n0, row0, n1);
            } else if constexpr (c::DIRECT) {
                store_direct<c>(a, cols + wg * (2 * BN), wg, t128, cs[0], bs[0], acc[0], rs[0],
                                row0, n1);
                if (t + clusters < tiles)
                    bar_named(1 + wg, 128);
            } else {
                const large_part<c> p = {m0, n1, row0, rs};
                const large_group g = {wg, w, t128, lane, ring, stage_d, cols + wg * BN};
                store_part(a, g, p, cs, acc);
            }
            if (TURNS == 2)
                skip(kb);
        }
        if (!c::DIRECT && t128 == 0) /* the stores themselves are done before the kernel is */
            bulk_wait_read<0>();
    }
    if (CL > 1) /* the peer may still arrive on this CTA's barriers */
        cluster_arrive();
    if (CL > 1 || SLICES > 1)
        cluster_wait();
}

#endif
