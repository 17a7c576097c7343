/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_f8_ladder.cu - checks and times the versions of f8_small.cuh beside cuBLASLt. Build: make.
 *   check [MNK]       every version on shapes around every tile edge, mixed-sign and same-sign data, with bias; MNK: only shapes
 *                     of at most so many products (for compute-sanitizer)
 *   bench FILE [pdl]  a line "M N K" a shape; pdl: ours with dependent launch (a chain), the peer always plain
 *   linear ...        the same from bf16 for every version: a quantizer first where the kernel takes codes (`linear check`, `linear bench ..`)
 *   once M N K NAME   one launch, for a profiler
 * Of the versions of a kind only those are timed whose estimate is within SLACK of the best, at most KEEP of them, and the one
 * that the model chooses is marked. Env KEEP=n and SLACK=x change these limits, ONLY=text times those whose name holds it. */
#include "ladder.h"
#include "f8_kinds.h"
#include "f8_quantize.cuh"

enum { MOST = 600 };
static version g_versions[MOST];
static int g_count;
static int g_linear; /* X is bf16 for all: a kernel quantizes it for versions that take codes, and these depend on it */

static cudaError_t run(const version *v, const problem *p, int copy, int pdl)
{
    if (!g_linear || v->xin == BF16) return v->run(v, p, copy, pdl);
    const int block = v->acc == BLOCK;
    problem q = *p;
    q.x = q.xc = p->q; q.sx = q.sxb = p->sq;
    void *args[] = {&q.xb, &q.x, &q.sx, &q.k, &q.ldsx};
    CK(launch_args(block ? (const void *)quantize_k<true> : (const void *)quantize_k<false>, q.m, QUANT_THREADS, 0, 0, pdl, args));
    return v->run(v, &q, copy, 1);
}
/* One output tile, one less, one more; K of one block, less, more, and slices that differ by one block between CTAs. */
static int check(double most)
{
    static const int shape[][3] = {{1, 8, 16}, {1, 1, 16}, {2, 7, 144}, {3, 40, 48}, {7, 63, 128}, {8, 64, 272}, {9, 65, 1040}, {15, 129, 256}, {16, 128, 2064}, {17, 576, 7168}, {31, 127, 640},
        {32, 200, 1280}, {33, 1152, 1152}, {63, 192, 1536}, {64, 320, 512}, {65, 257, 384}, {68, 2112, 7168}, {127, 256, 1024}, {128, 384, 4096}, {129, 3420, 1280}, {255, 255, 2048}, {256, 512, 1808},
        {257, 383, 1536}, {300, 129, 272}, {1000, 896, 5120}, {513, 1288, 4112}, {2048, 2112, 512}, {777, 4096, 4096}, {16, 28672, 512}, {1, 12288, 4096}, {4, 2048, 30720}};
    const char *only = getenv("ONLY");
    int bad = 0, cases = 0;
    for (unsigned s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int same = 0; same < 2; same++) {
            problem p;
            if ((double)shape[s][0] * shape[s][1] * shape[s][2] > most) continue;
            problem_make(&p, shape[s][0], shape[s][1], shape[s][2], 1, same);
            for (int i = 0; i < g_count; i++) {
                const version *v = &g_versions[i];
                if (only && !strstr(v->name, only)) continue;
                if (v->name[0] == 's' && v->estimate(v, &p) < 0) continue; /* the small kernel refuses: X does not fit its tile, or the ring not the SM */
                poison(&p);
                CK(run(v, &p, 0, s % 2));
                bad += verify(&p, 0, v->name, v->acc == BLOCK, v->acc == FAST);
                cases++;
            }
            problem_free(&p);
        }
    printf("check %s: %d wrong of %d\n", bad ? "FAILED" : "passed", bad, cases);
    return bad != 0;
}
/* marks the versions worth timing */
static void choose(const problem *p)
{
    const char *only = getenv("ONLY"), *keep = getenv("KEEP"), *slack = getenv("SLACK");
    const int most = keep ? atoi(keep) : 9;
    const float limit = slack ? strtof(slack, NULL) : 1.5f;
    float e[MOST];
    for (int i = 0; i < g_count; i++) { e[i] = g_versions[i].estimate(&g_versions[i], p); g_versions[i].chosen = 0; if (only && !strstr(g_versions[i].name, only)) e[i] = -1; }
    for (int kind = 0; kind < 6; kind++) {
        float best = 1e30f;
        for (int kept = 0; kept < most; kept++) {
            int pick = -1;
            for (int i = 0; i < g_count; i++)
                if (g_versions[i].acc * 2 + g_versions[i].xin == kind && e[i] >= 0 && !g_versions[i].chosen && (pick < 0 || e[i] < e[pick])) pick = i;
            if (pick < 0 || (kept && e[pick] > best * limit)) break;
            if (kept == 0) best = e[pick];
            g_versions[pick].chosen = 1 + (kept == 0);
        }
    }
}
static int bench(FILE *f, int pdl)
{
    char line[256];
    int bad = 0;
    while (fgets(line, sizeof line, f)) {
        int m, n, k;
        if (line[0] == '#' || sscanf(line, "%d %d %d", &m, &n, &k) != 3) continue;
        problem p;
        problem_make(&p, m, n, k, 0, 0);
        choose(&p);
        static series all[MOST + PEERS];
        int cases = 0;
        for (int i = 0; i < g_count; i++) {
            const version *v = &g_versions[i];
            if (!v->chosen) continue;
            poison(&p);
            CK(run(v, &p, p.copies - 1, 0));
            if (verify(&p, p.copies - 1, v->name, v->acc == BLOCK, v->acc == FAST)) { bad++; continue; }
            series_begin();
            for (int c = 0; c < p.launches; c++) CK(run(v, &p, c % p.copies, pdl));
            all[cases++] = series_end(v->name, v->acc, g_linear ? BF16 : v->xin, v->chosen == 2, p.launches);
        }
        cases += peers(&p, all + cases);
        interleave(all, cases);
        report(&p, all, cases);
        problem_free(&p);
    }
    printf("bench: %d wrong\n", bad);
    return bad != 0;
}
/* for a profiler: every version of that name once, on cold weights */
static int once(int m, int n, int k, const char *name)
{
    problem p;
    problem_make(&p, m, n, k, 0, 0);
    for (int i = 0; i < g_count; i++)
        if (!strcmp(g_versions[i].name, name)) CK(g_versions[i].run(&g_versions[i], &p, 0, 0));
    CK(cudaStreamSynchronize(g_stream));
    return 0;
}
int main(int argc, char **argv)
{
    bench_init();
    g_count = small_versions(g_versions);
    if (argc > 1 && !strcmp(argv[1], "linear")) { g_linear = 1; argv++; argc--; }
    if (argc > 1 && !strcmp(argv[1], "check")) return check(argc > 2 ? atof(argv[2]) : 1e30);
    if (argc > 5 && !strcmp(argv[1], "once")) return once(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), argv[5]);
    FILE *f = argc > 2 ? fopen(argv[2], "r") : NULL;
    if (!f) { printf("usage: gemm_f8_ladder [linear] check [MNK] | bench shapes.txt [pdl] | once M N K version\n"); return 2; }
    return bench(f, argc > 3);
}
