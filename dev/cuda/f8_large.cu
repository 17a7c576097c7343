/* SPDX-License-Identifier: Apache-2.0 */
/* f8_large.cu - the instances of f8_large.cuh, their launch and a model of their time. */
#include "ladder.h"
#include "f8_large.cuh"

template <typename D> static void divider(D *o, int d) /* floor(t / d) = t * inverse >> 32 for t * d below 2^32; d = 1 apart */
{
    o->d = d;
    o->inverse = (uint32_t)(0xFFFFFFFFu / (uint32_t)d + 1);
}
static cudaError_t run(const version *v, const problem *p, int copy, int pdl)
{
    large_args a;
    memset(&a, 0, sizeof a);
    a.x = map_bytes(v->acc == BLOCK ? p->xc : p->x, p->m, p->k, v->rows, 128);
    a.w = map_bytes(p->w[copy], p->n, p->k, v->cols / v->cluster, 128);
    if (p->n % 8) a.y_plain = p->y; else a.y = map_bf16(p->y, p->m, p->n, 64, v->slab);
    if (v->acc == BLOCK) a.sx_map = map_f32(p->sxb, (p->k + 127) / 128, p->ldsx, v->rows);
    a.sx = p->sx; a.sw = v->acc == BLOCK ? p->swb : p->sw; a.bias = p->bias;
    a.M = p->m; a.N = p->n; a.K = p->k; a.skew = v->skew; a.chained = pdl;
    a.mt = (p->m + v->rows * v->cluster - 1) / (v->rows * v->cluster); a.nt = (p->n + v->cols - 1) / v->cols;
    a.group = (size_t)p->m * (size_t)p->k <= (24u << 20) ? a.mt : 2048 / (v->rows * v->cluster); /* X stays in L2 while W passes once */
    divider(&a.per, a.group * a.nt); divider(&a.full, a.group); divider(&a.last, a.mt % a.group ? a.mt % a.group : a.group);
    const int tiles = a.mt * a.nt, most = g_sms / v->cluster;
    return launch(v->kernel, (tiles < most ? tiles : most) * v->cluster, 384, (size_t)v->smem, v->cluster, pdl, &a);
}
/* Start, the longest of (memory, bytes into an SM, products) over whole waves, end. */
static float estimate(const version *v, const problem *p)
{
    const int rows = v->rows * v->cluster, mt = (p->m + rows - 1) / rows, nt = (p->n + v->cols - 1) / v->cols, kb = (p->k + 127) / 128;
    if (p->m < 128 || (rows > 256 && p->m <= rows / 2)) return -1;
    const int most = g_sms / v->cluster, waves = (mt * nt + most - 1) / most;
    const float bytes = (float)(v->rows + v->cols / v->cluster) * 128, clk = (float)(v->rows * v->cols) / 32.0f * (v->acc == FAST ? 1.0f : 1.1f);
    const float memory = ((float)p->n * (float)p->k + (float)p->m * ((float)p->k + 2 * (float)p->n)) / 3.08e6f;
    const float feed = (float)waves * (float)kb * bytes / 75e3f, products = (float)waves * ((float)kb * clk + (v->skew ? 300 : 1500)) / 1.5e3f;
    return 3.0f + fmaxf(memory, fmaxf(feed, products));
}
template <int BM, int BN, int ST, int CL, int ACC> static int add(version *v, const char *step, int skew)
{
    using c = large_cfg<BM, BN, ST, CL, ACC>;
    memset(v, 0, sizeof *v);
    v->kernel = (const void *)large_k<BM, BN, ST, CL, ACC>;
    v->acc = ACC; v->xin = CODES; v->rows = BM; v->cols = BN; v->cluster = CL; v->skew = skew; v->slab = c::SLAB; v->smem = c::SMEM; v->threads = 384; v->per_sm = 1;
    v->estimate = estimate; v->run = run;
    snprintf(v->name, sizeof v->name, "%s_%dx%d%s%s", step, BM, BN, CL == 2 ? "_c2" : "", skew ? "_skew" : "");
    CK(cudaFuncSetAttribute(v->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, c::SMEM));
    return 1;
}
int large_versions(version *out)
{
    int n = 0;
    n += add<128, 128, 2, 1, PROMOTED>(out + n, "1", 0);
    n += add<128, 128, 6, 1, PROMOTED>(out + n, "2", 0);
    n += add<128, 128, 6, 1, PROMOTED>(out + n, "p", 2);
    n += add<128, 128, 6, 2, PROMOTED>(out + n, "p", 2);
    n += add<128, 64, 8, 1, PROMOTED>(out + n, "p", 2);
    n += add<128, 64, 8, 2, PROMOTED>(out + n, "p", 2);
    n += add<128, 80, 8, 2, PROMOTED>(out + n, "p", 2);
    n += add<128, 96, 7, 1, PROMOTED>(out + n, "p", 2);
    n += add<128, 112, 6, 2, PROMOTED>(out + n, "p", 2);
    n += add<128, 144, 5, 1, PROMOTED>(out + n, "p", 2);
    n += add<128, 160, 5, 1, PROMOTED>(out + n, "p", 2);
    n += add<128, 160, 5, 2, PROMOTED>(out + n, "p", 2);
    n += add<128, 192, 4, 1, PROMOTED>(out + n, "p", 2);
    n += add<128, 192, 4, 2, PROMOTED>(out + n, "p", 2);
    n += add<256, 128, 4, 1, PROMOTED>(out + n, "p", 0);
    n += add<256, 128, 4, 1, PROMOTED>(out + n, "p", 2);
    n += add<256, 128, 4, 2, PROMOTED>(out + n, "p", 2);
    n += add<128, 128, 6, 1, FAST>(out + n, "f", 2);
    n += add<128, 128, 6, 2, FAST>(out + n, "f", 0);
    n += add<128, 128, 6, 2, FAST>(out + n, "f", 2);
    n += add<128, 64, 8, 1, FAST>(out + n, "f", 2);
    n += add<128, 64, 8, 2, FAST>(out + n, "f", 2);
    n += add<128, 80, 8, 2, FAST>(out + n, "f", 2);
    n += add<128, 96, 7, 1, FAST>(out + n, "f", 2);
    n += add<128, 96, 7, 2, FAST>(out + n, "f", 2);
    n += add<128, 112, 6, 2, FAST>(out + n, "f", 2);
    n += add<128, 144, 5, 1, FAST>(out + n, "f", 2);
    n += add<128, 160, 5, 1, FAST>(out + n, "f", 0);
    n += add<128, 160, 5, 1, FAST>(out + n, "f", 2);
    n += add<128, 160, 5, 2, FAST>(out + n, "f", 2);
    n += add<128, 192, 4, 1, FAST>(out + n, "f", 2);
    n += add<128, 192, 4, 2, FAST>(out + n, "f", 2);
    n += add<128, 224, 4, 1, FAST>(out + n, "f", 2);
    n += add<128, 224, 4, 2, FAST>(out + n, "f", 2);
    n += add<128, 256, 4, 1, FAST>(out + n, "f", 0);
    n += add<128, 256, 4, 1, FAST>(out + n, "f", 2);
    n += add<128, 256, 4, 2, FAST>(out + n, "f", 2);
    n += add<256, 128, 4, 1, FAST>(out + n, "f", 2);
    n += add<256, 128, 4, 2, FAST>(out + n, "f", 2);
    n += add<128, 64, 8, 1, BLOCK>(out + n, "b", 2);
    n += add<128, 64, 8, 2, BLOCK>(out + n, "b", 2);
    n += add<128, 128, 6, 1, BLOCK>(out + n, "b", 2);
    n += add<128, 128, 6, 2, BLOCK>(out + n, "b", 2);
    n += add<256, 128, 4, 1, BLOCK>(out + n, "b", 0);
    n += add<256, 128, 4, 1, BLOCK>(out + n, "b", 2);
    n += add<256, 128, 4, 2, BLOCK>(out + n, "b", 2);
    return n;
}
