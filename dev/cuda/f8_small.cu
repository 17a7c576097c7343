/* SPDX-License-Identifier: Apache-2.0 */
/* f8_small.cu - the instances of f8_small.cuh, their launch (ring depth, grid) and a model of their time. */
#include "ladder.h"
#include "f8_small.cuh"

typedef struct { int tiles, clusters, stages, smem, blocks, waves; } small_plan;
static int round_up(int v, int to) { return (v + to - 1) / to * to; }

/* p->m x p->n x p->k in tiles of v->rows (of W) x v->cols (tokens); 0 when the ring has no room */
static int plan(const version *v, const problem *p, small_plan *o)
{
    const int kb = (p->k + 127) / 128;
    o->blocks = (kb + v->cluster - 1) / v->cluster;
    o->tiles = ((p->n + v->rows - 1) / v->rows) * ((p->m + v->cols - 1) / v->cols);
    const int fixed = v->fixed + round_up(v->fixed_k * o->blocks, 1024), room = (v->per_sm == 2 ? 233472 / 2 - 1024 : 232448) - v->static_smem - fixed;
    const int stages = room / v->stage < 16 ? room / v->stage : 16;
    if (stages < 2) return 0;
    o->stages = stages;
    o->smem = stages * v->stage + fixed;
    const int most = max_clusters(v->kernel, v->threads, (size_t)o->smem, v->cluster);
    if (most < 1) return 0;
    o->clusters = o->tiles < most ? o->tiles : most;
    o->waves = (o->tiles + o->clusters - 1) / o->clusters;
    const int need = o->waves * ((o->blocks + v->kps - 1) / v->kps);
    if (v->exchange && (o->waves > 1 || stages * v->stage < v->exchange)) return 0; /* the ring holds the exchange */
    if (need < stages && need * v->stage >= v->exchange) { o->stages = need < 2 ? 2 : need; o->smem = o->stages * v->stage + fixed; }
    return 1;
}
static cudaError_t run(const version *v, const problem *p, int copy, int pdl)
{
    small_args a;
    small_plan o;
    if (!plan(v, p, &o)) return cudaErrorInvalidValue;
    memset(&a, 0, sizeof a);
    a.M = p->m; a.N = p->n; a.K = p->k; a.stages = o.stages; a.prefetch = 4; a.chained = pdl;
    a.x_rows = p->m < v->cols ? p->m : v->cols;
    a.w = map_bytes(p->w[copy], p->n, p->k, v->rows, 128);
    if (v->cols > 16) a.x = map_bytes(v->acc == BLOCK ? p->xc : p->x, p->m, p->k, a.x_rows, 128);
    if (v->cols > 16 && v->acc == BLOCK) a.sx_map = map_f32(p->sxb, (p->k + 127) / 128, p->ldsx, v->cols);
    if (v->store_rows && p->n % 8 == 0) a.y_map = map_bf16(p->y, p->m, p->n, v->store_rows, 64);
    a.sx = v->acc == BLOCK ? p->sxb : p->sx; a.ldsx = p->ldsx; a.sw = v->acc == BLOCK ? p->swb : p->sw; a.bias = p->bias; a.y = p->y;
    a.xq = v->acc == BLOCK ? p->xc : p->x; a.xb = p->xb;
    return launch(v->kernel, o.clusters * v->cluster, v->threads, (size_t)o.smem, v->cluster, pdl, &a);
}
/* Start, the longest of (memory, bytes into an SM, products), exchange of the partial sums, end. */
static float estimate(const version *v, const problem *p)
{
    small_plan o;
    const int cols = v->cols, m = p->m;
    if (cols <= 16 && m > cols) return -1;
    if (m <= cols / 2 && cols > 8) return -1;          /* a smaller tile serves it */
    if (m > cols && cols < 128) return -1;
    if (m > 256) return -1;                            /* the large kernel serves it */
    if (v->cluster > (p->k + 127) / 128 || !plan(v, p, &o)) return -1;
    const float share = (float)((o.clusters * v->cluster + g_sms - 1) / g_sms), blocks = share * (float)(o.waves * o.blocks);
    const float bytes = (float)((v->rows + (m < cols ? m : cols)) * 128), clk = (float)(v->rows * cols) / 32.0f + 60;
    const float memory = ((float)p->n * (float)p->k + (float)m * (float)(p->k + 2 * p->n)) / 3.08e6f;
    const float feed = blocks * bytes / 80e3f, products = blocks * clk / (cols < 128 ? 1.6e3f : v->acc == BLOCK ? 0.8e3f : 1e3f); /* fitted to run 9 from M = 128 on */
    const float exchange = v->cluster > 1 ? 0.8f + (float)((v->cluster - 1) * v->region) / 60e3f : 0;
    return (cols < 128 ? 2.5f : 3.0f) + fmaxf(memory, fmaxf(feed, products)) + exchange;
}

template <int BR, int BT, int ACC, int XIN, int C> static int add_one(version *out)
{
    using c = small_cfg<BR, BT, ACC, XIN, C>;
    const void *kernel = (const void *)small_k<BR, BT, ACC, XIN, C>;
    cudaFuncAttributes f;
    CK(cudaFuncGetAttributes(&f, kernel));
    CK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448 - round_up((int)f.sharedSizeBytes, 1024)));
    for (int per_sm = 1; per_sm <= c::PER_SM; per_sm++) { /* the ring may fill the SM or half of it */
        version *v = &out[per_sm - 1];
        memset(v, 0, sizeof *v);
        v->kernel = kernel; v->static_smem = round_up((int)f.sharedSizeBytes, 1024);
        v->acc = ACC; v->xin = XIN; v->rows = BR; v->cols = BT; v->kps = c::KPS; v->cluster = C; v->per_sm = per_sm; v->threads = c::THREADS;
        v->stage = c::STAGE; v->fixed = c::FIXED; v->fixed_k = c::PER_BLOCK; v->exchange = c::EXCHANGE; v->region = c::REGION; v->store_rows = c::WIDE ? c::STORE_ROWS : 0;
        v->estimate = estimate; v->run = run;
        snprintf(v->name, sizeof v->name, "s%c%s_%dx%d_c%d_%d", "fpb"[ACC], XIN == BF16 ? "q" : "", BR, BT, C, per_sm);
    }
    return c::PER_SM;
}
template <int BR, int BT, int ACC, int XIN, int... C> static int add(version *out) /* one for every cluster size */
{
    int n = 0;
    ((n += add_one<BR, BT, ACC, XIN, C>(out + n)), ...);
    return n;
}
template <int ACC> static int add_kind(version *out)
{
    int n = 0;
    n += add<64, 8, ACC, BF16, 1, 2, 3, 4, 8>(out + n);
    n += add<64, 16, ACC, BF16, 1, 2, 3, 4, 8>(out + n);
    n += add<64, 8, ACC, CODES, 1, 2, 3, 4, 8>(out + n);
    n += add<64, 16, ACC, CODES, 1, 2, 3, 4, 8>(out + n);
    n += add<64, 32, ACC, CODES, 1, 2, 3, 4, 8>(out + n);
    n += add<64, 64, ACC, CODES, 1, 2, 3, 4>(out + n);
    n += add<128, 64, ACC, CODES, 1>(out + n);
    n += add<64, 128, ACC, CODES, 1, 2, 3, 4>(out + n);
    n += add<128, 128, ACC, CODES, 1, 2, 3, 4>(out + n);
    return n;
}
int small_versions(version *out)
{
    int n = add_kind<PROMOTED>(out);
    n += add_kind<BLOCK>(out + n);
    n += add<128, 128, FAST, CODES, 1, 2, 3, 4>(out + n);
    return n;
}
