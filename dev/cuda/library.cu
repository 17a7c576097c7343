/* SPDX-License-Identifier: Apache-2.0 */
/* library.cu - times fp8_linear_run of the library as the ladder times its versions: cold weights, graphs, cuBLASLt's best
 * algorithms in the same rounds.
 *   library FILE        a line "M N K" a shape: row x channel and 1x128 x 128x128 scales, X as codes and quantized from bf16 by the call
 *   library host        time of a call on the host */
#include "../../include/fp8.h"
#include "harness/bench.cuh"
#include <time.h>

static fp8_context *g_ctx;
static fp8_error g_err;
#define NEED(call) do { if ((call) != FP8_OK) { printf("%s:%d: %s\n", __FILE__, __LINE__, g_err.msg); exit(1); } } while (0)

typedef struct { fp8_linear *l[MAX_COPIES]; fp8_tensor x, sx, y; int codes; void *space; uint64_t bytes; } layer;

/* block: 1x128 x 128x128; codes: X is given as codes */
static layer layer_make(const problem *p, int block, int codes)
{
    layer o;
    const int kb = (p->k + 127) / 128;
    fp8_linear_desc d = FP8_LINEAR_DESC_INIT;
    memset(&o, 0, sizeof o);
    d.activation = codes ? FP8_ACTIVATION_CODES : FP8_ACTIVATION_DYNAMIC;
    d.x.grid.rows = 1; d.x.grid.cols = block ? 128 : 0;
    d.w.grid.rows = block ? 128 : 1; d.w.grid.cols = block ? 128 : 0;
    const fp8_tensor sw = block ? fp8_matrix(p->swb, FP8_F32, (p->n + 127) / 128, kb) : fp8_matrix(p->sw, FP8_F32, p->n, 1);
    for (int c = 0; c < p->copies; c++) { const fp8_tensor w = fp8_matrix(p->w[c], FP8_E4M3FN, p->n, p->k); NEED(fp8_linear_create(g_ctx, &d, &w, &sw, NULL, &o.l[c], &g_err)); }
    o.codes = codes;
    o.x = codes ? fp8_matrix(block ? p->xc : p->x, FP8_E4M3FN, p->m, p->k) : fp8_matrix(p->xb, FP8_BF16, p->m, p->k);
    o.sx = block ? fp8_matrix(p->sxb, FP8_F32, p->m, kb) : fp8_matrix(p->sx, FP8_F32, p->m, 1);
    if (block) { o.sx.stride[0] = 1; o.sx.stride[1] = p->ldsx; }
    o.y = fp8_matrix(p->y, FP8_BF16, p->m, p->n);
    NEED(fp8_linear_workspace(o.l[0], p->m, &o.bytes, &g_err));
    CK(cudaMalloc(&o.space, o.bytes + 1));
    return o;
}
static void layer_free(layer *o)
{
    for (int c = 0; c < MAX_COPIES; c++) fp8_linear_free(o->l[c]);
    CK(cudaFree(o->space));
}
static fp8_status layer_run(const layer *o, int copy) { return fp8_linear_run(o->l[copy], &o->x, o->codes ? &o->sx : NULL, const_cast<fp8_tensor *>(&o->y), o->space, o->bytes, g_stream, &g_err); }

/* The codes that the peers and the reference get are those that the library makes. */
static void quantize_all(const problem *p)
{
    const int kb = (p->k + 127) / 128;
    const fp8_tensor x = fp8_matrix(p->xb, FP8_BF16, p->m, p->k);
    fp8_tensor row = fp8_matrix(p->x, FP8_E4M3FN, p->m, p->k), s = fp8_matrix(p->sx, FP8_F32, p->m, 1);
    fp8_tensor block = fp8_matrix(p->xc, FP8_E4M3FN, p->m, p->k), sb = fp8_matrix(p->sxb, FP8_F32, p->m, kb);
    fp8_quantize_desc d = FP8_QUANTIZE_DESC_INIT;
    d.nan = FP8_NAN_PROPAGATE; d.grid.rows = 1;
    sb.stride[0] = 1; sb.stride[1] = p->ldsx;
    NEED(fp8_quantize(g_ctx, &d, &x, &row, &s, g_stream, &g_err));
    d.grid.cols = 128;
    NEED(fp8_quantize(g_ctx, &d, &x, &block, &sb, g_stream, &g_err));
}
static int bench(FILE *f)
{
    char line[256];
    int bad = 0;
    static const char *const names[] = {"channel", "block", "q_channel", "q_block"};
    while (fgets(line, sizeof line, f)) {
        int m, n, k, cases = 0;
        if (line[0] == '#' || sscanf(line, "%d %d %d", &m, &n, &k) != 3) continue;
        problem p;
        problem_make(&p, m, n, k, 0, 0);
        quantize_all(&p);
        static series all[4 + PEERS];
        layer layers[4];
        for (int kind = 0; kind < 4; kind++) {
            layers[kind] = layer_make(&p, kind & 1, kind < 2);
            poison(&p);
            NEED(layer_run(&layers[kind], p.copies - 1));
            if (verify(&p, p.copies - 1, names[kind], kind & 1, 0)) { bad++; continue; }
            series_begin();
            for (int c = 0; c < p.launches; c++) NEED(layer_run(&layers[kind], c % p.copies));
            all[cases++] = series_end(names[kind], 1 + (kind & 1), kind >= 2, 1, p.launches);
        }
        cases += peers(&p, all + cases);
        interleave(all, cases);
        report(&p, all, cases);
        for (int kind = 0; kind < 4; kind++) layer_free(&layers[kind]);
        problem_free(&p);
    }
    printf("library: %d wrong\n", bad);
    return bad != 0;
}
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3; }
/* us of a call that enqueues, best of many bursts */
static int host(void)
{
    enum { BURST = 100, BURSTS = 100 };
    static const int shape[][3] = {{1, 4096, 4096}, {16, 4096, 4096}, {64, 4096, 4096}, {256, 4096, 4096}, {2048, 4096, 4096}};
    for (unsigned s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int kind = 0; kind < 4; kind++) {
            problem p;
            problem_make(&p, shape[s][0], shape[s][1], shape[s][2], 1, 0);
            layer l = layer_make(&p, kind & 1, kind < 2);
            double best = 1e30;
            if (layer_run(&l, 0) == FP8_OK)
                for (int b = 0; b < BURSTS; b++) {
                    CK(cudaStreamSynchronize(g_stream));
                    const double t = now();
                    for (int i = 0; i < BURST; i++) NEED(layer_run(&l, 0));
                    best = fmin(best, (now() - t) / BURST);
                }
            printf("HOST\t%d\t%d\t%d\t%d\t%.2f\n", shape[s][0], shape[s][1], shape[s][2], kind, best);
            layer_free(&l);
            problem_free(&p);
        }
    return 0;
}
int main(int argc, char **argv)
{
    fp8_context_desc d = FP8_CONTEXT_DESC_INIT;
    bench_init();
    d.device = FP8_DEVICE_CUDA;
    NEED(fp8_context_create(&d, &g_ctx, &g_err));
    if (argc > 1 && !strcmp(argv[1], "host")) return host();
    FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!f) { printf("usage: library shapes.txt | host\n"); return 2; }
    return bench(f);
}
