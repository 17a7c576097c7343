/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_f8_ladder.cu - Y[M,N] (bf16) = X[M,K] . W[N,K]^T (e4m3), row and channel scales and bias in the epilogue, or
 * 1x128 x 128x128 block scales in the main loop; sm_90a, persistent, warp-specialised.
 *
 * One kernel template; a version of the ladder is a row of the table `versions` and adds one thing:
 *   1  TMA + mbarrier, two stages; a producer warp and two consumer groups of 64 rows, 128x128 tile
 *   2  six stages: the ring hides the latency of L2
 *   3  cluster of two: the two CTAs share the W tile, each loads half and multicasts it
 *   4  256x128 tile: a consumer group owns 128 rows, one temporary of 64x128 is promoted while the other group multiplies
 *   5  128x192 tile: fewer shared-memory bytes per product than 4, another wave count
 *   6  as 4 or 5 with the groups started out of phase, so that one's promotion or epilogue meets the other's products
 *   7  clusters of two on top of 6
 *   f* fast accumulation (no promotion);  b*  block scales
 * ACC: FAST (the tensor core accumulates all of K), PROMOTED (added to fp32 registers every 128 of K), BLOCK (the same,
 * multiplied by both scales of the block). Epilogue: bf16 through swizzled shared memory and TMA stores that run under
 * the next tile. Needs K % 16 == 0; N % 8 != 0 takes plain stores.
 *
 * Build: make gemm_f8_ladder      Run: ./gemm_f8_ladder check | bench shapes.txt [pdl: dependent launches]
 */
#include "harness/bench.cuh"
#include "harness/sm90.cuh"
#include "harness/wgmma_gen.h"

enum { FAST, PROMOTED, BLOCK };

struct gemm_args {
    CUtensorMap x, w, y, sx_map;  /* boxes: BM x 128, BN/CL x 128, 64 x slab, BM scales of one k block (BLOCK) */
    const float *sx, *sw, *bias;  /* [M], [N] or [N/128][K/128] in BLOCK, [N] or null */
    __nv_bfloat16 *y_plain;       /* set where TMA cannot store (N % 8 != 0) */
    int M, N, K, group, skew;     /* group: tiles of M walked before N advances; skew: k blocks by which group 1 starts late */
};

template <int BM, int BN, int ST, int CL, int ACC> struct cfg {
    static constexpr int MT = BM / 128, SLAB = BN % 64 ? 32 : 64, SLABS = BN / SLAB; /* m64 tiles per group; columns per store */
    static constexpr int HELD = BN <= 192 && !(ACC == BLOCK && SLABS == 2) ? SLABS : SLABS / 2; /* slabs staged at once */
    static constexpr int A = BM * 128, B = BN * 128, SF = ACC == BLOCK ? BM * 4 : 0;
    static constexpr int STAGE_D = HELD * 64 * SLAB * 2;                              /* bytes staged per group */
    static constexpr int SMEM = ST * (A + B + SF) + 2 * STAGE_D + 2 * BN * 4 + 128;
    static constexpr int THREADS = 384;
    static_assert(SMEM <= 232448, "shared memory");
};

template <int BM, int BN, int ST, int CL, int ACC> __global__ void __launch_bounds__(384, 1) gemm_k(const __grid_constant__ gemm_args a)
{
    using c = cfg<BM, BN, ST, CL, ACC>;
    constexpr int MT = c::MT;
    extern __shared__ __align__(1024) uint8_t sm[];
    const int tid = threadIdx.x, warp = __shfl_sync(~0u, tid / 32, 0), lane = tid % 32;
    const int kb = (a.K + 127) / 128;
    const int mt = (a.M + BM * CL - 1) / (BM * CL), nt = (a.N + BN - 1) / BN, tiles = mt * nt; /* tiles of a cluster */
    const uint32_t rank = CL > 1 ? cluster_rank() : 0;
    const int cid = (int)blockIdx.x / CL, clusters = (int)gridDim.x / CL;
    const uint32_t ring = smem_u32(sm), ring_b = ring + ST * c::A, staging = ring_b + ST * c::B;
    const uint32_t ring_sf = staging + 2 * c::STAGE_D;
    float *cols = (float *)(sm + ST * (c::A + c::B + c::SF) + 2 * c::STAGE_D); /* channel scales of the tile, a copy per group */
    const uint32_t bars = smem_u32(cols) + 2 * BN * 4;
    auto full = [&](int s) { return bars + s * 8; };
    auto empty = [&](int s) { return bars + (ST + s) * 8; };
    if (ring & 1023) __trap();
    if (warp == 0 && lane < ST) { mbar_init(full(lane), 1); mbar_init(empty(lane), 8 * CL); mbar_init_fence(); fence_async_smem(); }
    __syncthreads();
    if (CL > 1) { cluster_arrive(); cluster_wait(); }
    auto place = [&](int t, int &m0, int &n0) { /* groups of a.group row tiles, M fastest inside a group */
        const int per = a.group * nt, g = t / per, in = t - g * per, rows = min(a.group, mt - g * a.group);
        m0 = ((g * a.group + in % rows) * CL + (int)rank) * BM;
        n0 = in / rows * BN;
    };
    pdl_launch();
    if (warp >= 8) { /* ---- producer ---- */
        reg_dec<24>();
        if (warp == 8 && lane == 0) {
            int slot = 0;
            uint32_t ph = 1;
            pdl_wait();
            for (int t = cid; t < tiles; t += clusters) {
                int m0, n0;
                place(t, m0, n0);
                for (int k = 0; k < kb; k++) {
                    mbar_wait(empty(slot), ph);
                    mbar_expect_tx(full(slot), c::A + c::B + c::SF);
                    tma_2d_plain(ring + slot * c::A, &a.x, k * 128, m0, full(slot));
                    if (CL == 1) tma_2d_plain(ring_b + slot * c::B, &a.w, k * 128, n0, full(slot));
                    else tma_2d_mc(ring_b + slot * c::B + rank * (c::B / CL), &a.w, k * 128, n0 + (int)rank * (BN / CL), full(slot), (uint16_t)((1 << CL) - 1));
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
        const uint32_t stage_d = staging + (uint32_t)wg * c::STAGE_D;
        const uint32_t peer = CL > 1 ? mapa(bars, rank ^ 1) : 0;
        auto release = [&](int s) { if (lane == 0) mbar_arrive(empty(s)); if (CL > 1 && lane == 1) mbar_arrive_remote(peer + (ST + s) * 8); };
        if (a.skew && wg == 1 && cid < tiles) bar_named(3, 256);
        bool first = true;
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
                        if (h == MT - 1) release(slot);
#pragma unroll
                        for (int i = 0; i < BN / 2; i++) acc[h][i] = ACC == BLOCK ? fmaf(d[i], i % 4 < 2 ? s0 : s1, acc[h][i]) : acc[h][i] + d[i];
                    }
                    if (++slot == ST) { slot = 0; ph ^= 1; }
                    if (first && a.skew && wg == 0 && (k + 1 == a.skew || k + 1 == kb)) { asm volatile("bar.arrive 3, 256;" ::: "memory"); first = false; }
                }
            }
            /* epilogue: the groups share nothing, so they may drift apart by as many k blocks as the ring holds */
            float *my_cols = cols + wg * BN;
#pragma unroll
            for (int i = 0; i < 2; i++) { const int col = t128 + 128 * i; if (col < BN) my_cols[col] = cs[i]; }
            if (a.y_plain) bar_named(1 + wg, 128);
#pragma unroll
            for (int h = 0; h < MT; h++)
#pragma unroll
                for (int part = 0; part < c::SLABS / c::HELD; part++) {
                    const int col0 = part * c::HELD * c::SLAB;
                    if (!a.y_plain) {
                        if (t128 == 0) bulk_wait_read();
                        bar_named(1 + wg, 128);
                    }
#pragma unroll
                    for (int g = 0; g < c::HELD * c::SLAB / 8; g += 2) { /* two groups of 8 columns: one stmatrix of four 8x8 */
                        uint32_t o[4];
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            const int col = col0 + (g + i) * 8 + 2 * (lane % 4), r = (col0 / 8 + g + i) * 4;
                            const float2 s = *(const float2 *)(my_cols + col);
                            float2 b = make_float2(0, 0);
                            if (a.bias) { if (n0 + col < a.N) b.x = __ldg(a.bias + n0 + col); if (n0 + col + 1 < a.N) b.y = __ldg(a.bias + n0 + col + 1); }
                            o[2 * i] = bf16x2(fmaf(acc[h][r] * rs[h][0], s.x, b.x), fmaf(acc[h][r + 1] * rs[h][0], s.y, b.y));
                            o[2 * i + 1] = bf16x2(fmaf(acc[h][r + 2] * rs[h][1], s.x, b.x), fmaf(acc[h][r + 3] * rs[h][1], s.y, b.y));
                        }
                        if (a.y_plain) {
#pragma unroll
                            for (int i = 0; i < 4; i++) {
                                const int rr = row0 + h * 64 + (i % 2) * 8, cc = n0 + col0 + (g + i / 2) * 8 + 2 * (lane % 4);
                                uint16_t *p = (uint16_t *)a.y_plain + (size_t)rr * a.N + cc;
                                if (rr < a.M && cc < a.N) p[0] = (uint16_t)o[i];
                                if (rr < a.M && cc + 1 < a.N) p[1] = (uint16_t)(o[i] >> 16);
                            }
                        } else {
                            const int row = w * 16 + (lane / 8 % 2) * 8 + lane % 8, cg = g + lane / 16; /* row in the m64 tile, group of 8 columns */
                            const int slab = cg * 8 / c::SLAB, in = cg % (c::SLAB / 8);
                            const uint32_t base = stage_d + slab * (64 * c::SLAB * 2) + row * (c::SLAB * 2);
                            stmatrix4(base + ((in ^ (c::SLAB == 64 ? row % 8 : row / 2 % 4)) * 16), o[0], o[1], o[2], o[3]);
                        }
                    }
                    if (!a.y_plain) {
                        fence_async_smem();
                        bar_named(1 + wg, 128);
                        if (t128 == 0) {
#pragma unroll
                            for (int s = 0; s < c::HELD; s++)
                                if (n0 + col0 + s * c::SLAB < a.N && m0 + wg * (BM / 2) + h * 64 < a.M) tma_store_2d(&a.y, stage_d + s * (64 * c::SLAB * 2), n0 + col0 + s * c::SLAB, m0 + wg * (BM / 2) + h * 64);
                            bulk_commit();
                        }
                    }
                }
            bar_named(1 + wg, 128); /* the columns are free again */
        }
        if (t128 == 0) bulk_wait_all();
    }
    if (CL > 1) { cluster_arrive(); cluster_wait(); } /* the peer may still arrive on this CTA's barriers */
}

/* ---- the table of versions ---- */
typedef struct { const char *name; const void *k; int bm, bn, cl, acc, smem, slab, skew; } version;
#define V(name, bm, bn, st, cl, acc, skew) {name, (const void *)gemm_k<bm, bn, st, cl, acc>, bm, bn, cl, acc, cfg<bm, bn, st, cl, acc>::SMEM, cfg<bm, bn, st, cl, acc>::SLAB, skew}
static const version versions[] = {
    V("1_128x128_s2", 128, 128, 2, 1, PROMOTED, 0),
    V("2_128x128_s6", 128, 128, 6, 1, PROMOTED, 0),
    V("3_128x128_s6_c2", 128, 128, 6, 2, PROMOTED, 0),
    V("4_256x128", 256, 128, 4, 1, PROMOTED, 0),
    V("4_256x128_c2", 256, 128, 4, 2, PROMOTED, 0),
    V("5_128x192", 128, 192, 4, 1, PROMOTED, 0),
    V("6_128x128_skew", 128, 128, 6, 1, PROMOTED, 2),
    V("6_256x128_skew", 256, 128, 4, 1, PROMOTED, 2),
    V("6_128x192_skew", 128, 192, 4, 1, PROMOTED, 2),
    V("f1_128x256", 128, 256, 4, 1, FAST, 0),
    V("f2_128x256_c2", 128, 256, 4, 2, FAST, 0),
    V("f3_256x128", 256, 128, 4, 1, FAST, 0),
    V("f6_128x160", 128, 160, 5, 1, FAST, 0),
    V("b1_128x128", 128, 128, 6, 1, BLOCK, 0),
    V("b2_256x128", 256, 128, 4, 1, BLOCK, 0),
    V("b3_128x128_skew", 128, 128, 6, 1, BLOCK, 2),
    V("7_128x192_c2_skew", 128, 192, 4, 2, PROMOTED, 2),
    V("7_256x128_c2_skew", 256, 128, 4, 2, PROMOTED, 2),
    V("7_128x160_c2", 128, 160, 5, 2, PROMOTED, 0),
    V("f4_128x128_c2", 128, 128, 6, 2, FAST, 0),
    V("f5_256x128_c2", 256, 128, 4, 2, FAST, 0),
    V("f6_128x192_c2", 128, 192, 4, 2, FAST, 0),
    V("b4_256x128_c2_skew", 256, 128, 4, 2, BLOCK, 2),
    V("b5_128x128_c2_skew", 128, 128, 6, 2, BLOCK, 2),
};
enum { VERSIONS = sizeof versions / sizeof *versions };

/* x [m,k], w [n,k], y [m,n] of p; copy: which copy of W */
static void prepare(gemm_args *a, const version *v, const problem *p, int copy)
{
    memset(a, 0, sizeof *a);
    a->x = map_bytes(p->x, p->m, p->k, v->bm, 128);
    a->w = map_bytes(p->w[copy], p->n, p->k, v->bn / v->cl, 128);
    if (p->n % 8) a->y_plain = p->y; else a->y = map_bf16(p->y, p->m, p->n, 64, v->slab);
    if (v->acc == BLOCK) a->sx_map = map_f32(p->sxb, (p->k + 127) / 128, p->ldsx, v->bm);
    a->sx = p->sx; a->sw = v->acc == BLOCK ? p->swb : p->sw; a->bias = p->bias;
    a->M = p->m; a->N = p->n; a->K = p->k; a->skew = v->skew;
    a->group = 2048 / (v->bm * v->cl);
}
static void run(const version *v, const problem *p, int copy, int pdl)
{
    gemm_args a;
    prepare(&a, v, p, copy);
    const int tiles = ((p->m + v->bm * v->cl - 1) / (v->bm * v->cl)) * ((p->n + v->bn - 1) / v->bn), most = g_sms / v->cl;
    CK(launch(v->k, (tiles < most ? tiles : most) * v->cl, 384, (size_t)v->smem, v->cl, pdl, &a));
}
static int eligible(const version *v, const problem *p) /* a tile of which most is outside is not worth its time */
{
    return p->m > v->bm * v->cl / 2 || v->bm * v->cl <= 256;
}

int main(int argc, char **argv)
{
    bench_init();
    for (int i = 0; i < VERSIONS; i++) CK(cudaFuncSetAttribute(versions[i].k, cudaFuncAttributeMaxDynamicSharedMemorySize, versions[i].smem));
    int bad = 0;
    if (argc > 1 && !strcmp(argv[1], "check")) {
        static const int shape[][3] = {{1, 8, 16}, {3, 40, 48}, {17, 576, 7168}, {33, 1152, 1152}, {68, 2112, 7168}, {129, 3420, 1280}, {1000, 896, 5120}, {5, 640, 144}, {257, 383, 1536}, {300, 129, 272}, {513, 1288, 4112}, {2048, 2112, 512}, {777, 4096, 4096}};
        for (unsigned s = 0; s < sizeof shape / sizeof *shape; s++)
            for (int same = 0; same < 2; same++) {
                problem p;
                problem_make(&p, shape[s][0], shape[s][1], shape[s][2], 1, same);
                for (int i = 0; i < VERSIONS; i++) {
                    poison(&p);
                    run(&versions[i], &p, 0, 0);
                    bad += verify(&p, 0, versions[i].name, versions[i].acc == BLOCK, versions[i].acc == FAST);
                }
                problem_free(&p);
            }
        printf("check %s: %d wrong\n", bad ? "FAILED" : "passed", bad);
        return bad != 0;
    }
    FILE *f = argc > 2 ? fopen(argv[2], "r") : NULL;
    if (!f) { printf("usage: gemm_f8_ladder check | bench shapes.txt [pdl]\n"); return 2; }
    char line[256];
    while (fgets(line, sizeof line, f)) {
        int m, n, k;
        if (line[0] == '#' || sscanf(line, "%d %d %d", &m, &n, &k) != 3) continue;
        problem p;
        problem_make(&p, m, n, k, 0, 0);
        series all[VERSIONS + PEERS];
        int cases = 0;
        for (int i = 0; i < VERSIONS; i++) {
            if (!eligible(&versions[i], &p)) continue;
            poison(&p);
            run(&versions[i], &p, p.copies - 1, 0);
            if (verify(&p, p.copies - 1, versions[i].name, versions[i].acc == BLOCK, versions[i].acc == FAST)) { bad++; continue; }
            series_begin();
            for (int c = 0; c < p.copies; c++) run(&versions[i], &p, c, argc > 3);
            all[cases++] = series_end(versions[i].name, versions[i].acc, p.copies);
        }
        cases += peers(&p, all + cases);
        interleave(all, cases);
        report(&p, all, cases);
        problem_free(&p);
    }
    printf("bench: %d wrong\n", bad);
    return bad != 0;
}
