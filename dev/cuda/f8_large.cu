/* SPDX-License-Identifier: Apache-2.0 */
/* f8_large.cu - the instances of f8_large.cuh, their launch and a model of their time. */
#include "ladder.h"
#include "f8_large.cuh"

template <typename D> static void divider(D *o, int d) /* floor(t / d) = t * inverse >> 32 for t * d below 2^32; d = 1 apart */
{
    o->d = d;
    o->inverse = (uint32_t)(0xFFFFFFFFu / (uint32_t)d + 1);
}
static int up(int a, int b) { return (a + b - 1) / b; }
static cudaError_t run(const version *v, const problem *p, int copy, int pdl)
{
    large_args a;
    memset(&a, 0, sizeof a);
    a.x = map_bytes(v->acc == BLOCK ? p->xc : p->x, p->m, p->k, v->rows / v->across, 128);
    a.w = map_bytes(p->w[copy], p->n, p->k, v->cols / v->down, 128);
    if (p->n % 8) a.y_plain = p->y; else a.y = map_bf16(p->y, p->m, p->n, 64, v->slab);
    if (v->acc == BLOCK) a.sx_map = map_f32(p->sxb, up(p->k, 128), p->ldsx, v->rows);
    a.sx = p->sx; a.sw = v->acc == BLOCK ? p->swb : p->sw; a.bias = p->bias;
    a.M = p->m; a.N = p->n; a.K = p->k; a.skew = v->skew; a.chained = pdl;
    a.mt = up(p->m, v->rows * v->down); a.nt = up(p->n, v->cols * v->across);
    a.group = (size_t)p->m * (size_t)p->k <= (24u << 20) ? a.mt : 2048 / (v->rows * v->down); /* X stays in L2 while W passes once */
    divider(&a.per, a.group * a.nt); divider(&a.full, a.group); divider(&a.last, a.mt % a.group ? a.mt % a.group : a.group);
    const int tiles = a.mt * a.nt, most = v->at_once;
    return launch(v->kernel, (tiles < most ? tiles : most) * v->cluster, 384, (size_t)v->smem, v->cluster, pdl, &a);
}
/* Start, then the longer of memory and whole waves of (products, or bytes asked for or received by an SM, and the rest of a tile).
 * Constants fitted to run 9: clocks of a k block over those of its products, and clocks a tile. */
static float estimate(const version *v, const problem *p)
{
    static const struct { float products, tile; } cost[3][3] = { /* FAST, PROMOTED, BLOCK; ROWS, ROWS with AHEAD or TILES, DEPTH */
        {{1.14f, 1000}, {1.06f, 750}, {1.05f, 600}}, {{1.17f, 1700}, {1.13f, 1050}, {1.15f, 600}}, {{1.17f, 3150}, {1.31f, 1350}, {1.15f, 1750}}};
    const int rows = v->rows * v->down, cols = v->cols * v->across, mt = up(p->m, rows), nt = up(p->n, cols), kb = up(p->k, 128);
    if (p->m < 128 || (rows > v->rows && p->m <= rows - v->rows) || (cols > v->cols && p->n <= cols - v->cols)) return -1;
    const int waves = up(mt * nt, v->at_once);
    const float asked = (float)(v->rows / v->across + v->cols / v->down) * 128, received = (float)(v->rows + v->cols) * 128;
    const float clk = (float)(v->rows * v->cols) / 32.0f * cost[v->acc][v->form].products;
    const float memory = ((float)p->n * (float)p->k + (float)p->m * ((float)p->k + 2 * (float)p->n)) / 3.16e6f;
    const float block = fmaxf(fmaxf(asked / 54, received / 60), clk);
    return 2.25f + fmaxf(memory, (float)waves * ((float)kb * block + cost[v->acc][v->form].tile) / 1.43e3f);
}
template <int BM, int BN, int ST, int CM, int CN, int SPLIT, int ACC, bool AHEAD = false> static int add(version *v, int skew = SPLIT == ROWS ? 2 : 0)
{
    using c = large_cfg<BM, BN, ST, CM, CN, SPLIT, ACC, AHEAD>;
    memset(v, 0, sizeof *v);
    v->kernel = (const void *)large_k<BM, BN, ST, CM, CN, SPLIT, ACC, AHEAD>;
    v->acc = ACC; v->xin = CODES; v->rows = BM; v->cols = BN; v->down = CM; v->across = CN; v->cluster = CM * CN; v->form = SPLIT == DEPTH ? 2 : SPLIT == TILES || AHEAD ? 1 : 0; v->skew = skew; v->slab = c::SLAB; v->smem = c::SMEM; v->threads = 384;
    v->estimate = estimate; v->run = run;
    snprintf(v->name, sizeof v->name, "%c_%dx%d_%dx%d%s%s%s", "fpb"[ACC], BM, BN, CM, CN, SPLIT == TILES ? "_t" : "", AHEAD ? "_a" : "", skew || SPLIT != ROWS ? "" : "_0");
    CK(cudaFuncSetAttribute(v->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, c::SMEM));
    v->at_once = max_clusters(v->kernel, 384, c::SMEM, v->cluster);
    return 1;
}
template <int ACC> static int add_promoted(version *out)
{
    int n = 0;
    n += add<64, 64, ACC == BLOCK ? 10 : 12, 1, 1, DEPTH, ACC, true>(out + n);
    n += add<64, 64, ACC == BLOCK ? 10 : 12, 2, 1, DEPTH, ACC, true>(out + n);
    n += add<128, 64, 8, 1, 1, ROWS, ACC, true>(out + n);
    n += add<128, 64, 8, 2, 1, ROWS, ACC, true>(out + n);
    n += add<128, 128, 6, 1, 1, ROWS, ACC, true>(out + n);
    n += add<256, 128, 4, 1, 1, ROWS, ACC>(out + n);
    n += add<256, 128, 4, 1, 1, ROWS, ACC>(out + n, 0);
    return n;
}
int large_versions(version *out)
{
    int n = add_promoted<PROMOTED>(out);
    n += add_promoted<BLOCK>(out + n);
    n += add<64, 128, 6, 1, 1, DEPTH, BLOCK, true>(out + n);
    n += add<128, 96, 7, 1, 1, ROWS, PROMOTED, true>(out + n);
    n += add<128, 96, 7, 2, 2, ROWS, PROMOTED, true>(out + n);
    n += add<128, 112, 6, 2, 1, ROWS, PROMOTED, true>(out + n);
    n += add<128, 128, 6, 2, 1, ROWS, PROMOTED, true>(out + n);
    n += add<128, 160, 5, 1, 1, ROWS, PROMOTED>(out + n);
    n += add<128, 192, 4, 1, 1, ROWS, PROMOTED>(out + n);
    n += add<64, 64, 12, 1, 1, DEPTH, FAST>(out + n);
    n += add<64, 64, 12, 2, 1, DEPTH, FAST>(out + n);
    n += add<64, 64, 12, 4, 1, DEPTH, FAST>(out + n);
    n += add<128, 64, 8, 1, 1, ROWS, FAST>(out + n);
    n += add<128, 64, 8, 2, 1, ROWS, FAST>(out + n);
    n += add<128, 96, 7, 1, 1, ROWS, FAST>(out + n);
    n += add<128, 96, 7, 2, 2, ROWS, FAST>(out + n);
    n += add<128, 112, 6, 2, 1, ROWS, FAST>(out + n);
    n += add<128, 128, 6, 1, 1, ROWS, FAST>(out + n);
    n += add<128, 128, 6, 2, 1, ROWS, FAST>(out + n);
    n += add<128, 224, 4, 1, 1, ROWS, FAST>(out + n);
    n += add<128, 224, 4, 2, 1, ROWS, FAST>(out + n);
    n += add<256, 128, 4, 1, 1, ROWS, FAST>(out + n);
    n += add<256, 128, 4, 2, 1, ROWS, FAST>(out + n);
    n += add<128, 128, 6, 1, 2, TILES, FAST>(out + n);
    n += add<128, 128, 6, 2, 1, TILES, FAST>(out + n);
    n += add<128, 160, 5, 1, 1, TILES, FAST>(out + n);
    n += add<128, 160, 5, 2, 1, TILES, FAST>(out + n);
    return n;
}
