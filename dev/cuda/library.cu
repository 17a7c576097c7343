/* SPDX-License-Identifier: Apache-2.0 */
/* library.cu - times fp8_linear_run of the library as the ladder times its versions: cold weights, graphs, cuBLASLt's best
 * algorithms in the same rounds.
 *   library FILE        a line "M N K" a shape: row x channel and 1x128 x 128x128 scales, X as codes, quantized from bf16 by the call
 *                       (q_), and quantized by a call before (2_)
 *   library sweep FILE  the versions of the fast kernels one by one, from codes and from bf16 (2_: after a quantizer): those that the model
 *                       thinks the best, up to SLACK (2) times its first choice, at most KEEP (12) of each kind; or, where a line goes on, those
 *                       that have one of its words in their names
 *   library dx FILE     the gradient for x, a scale a channel and blocks, dy in bf16
 *   library once FILE   for a profiler (profile.py): a graph of runs from codes, a range of cudaProfilerStart a shape and kind
 *   library hold FILE   each such graph, and cuBLASLt's best, for some time: clock, power and what holds the clock down
 *   library host        time of a call on the host; of its launches alone, repeated as the driver got them; of all but these; and of
 *                       each of the other things that a call asks the driver for */
#include "../../include/fp8.h"
#include "harness/bench.cuh"
#include "library_versions.h"
#include <cuda_profiler_api.h>
#include <dlfcn.h>
#include <time.h>

static fp8_context *g_ctx;
static fp8_error g_err;
#define NEED(call) do { if ((call) != FP8_OK) { printf("%s:%d: %s\n", __FILE__, __LINE__, g_err.msg); exit(1); } } while (0)

typedef struct { fp8_linear *l[MAX_COPIES]; fp8_tensor x, sx, y; int codes; void *space; uint64_t bytes; } layer;

/* block: 1x128 x 128x128; codes: X is given as codes; fast: sums in 13 bits */
static layer layer_make(const problem *p, int block, int codes, int fast)
{
    layer o;
    const int kb = (p->k + 127) / 128;
    fp8_linear_desc d = FP8_LINEAR_DESC_INIT;
    memset(&o, 0, sizeof o);
    d.activation = codes ? FP8_ACTIVATION_CODES : FP8_ACTIVATION_DYNAMIC;
    d.accumulation = fast ? FP8_ACCUMULATION_FAST : FP8_ACCUMULATION_FP32;
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
/* codes and scales as the peers and the reference get them: those that the library makes of p->xb */
static fp8_status quantize(const problem *p, int block)
{
    const int kb = (p->k + 127) / 128;
    const fp8_tensor x = fp8_matrix(p->xb, FP8_BF16, p->m, p->k);
    fp8_tensor codes = fp8_matrix(block ? p->xc : p->x, FP8_E4M3FN, p->m, p->k), scales = fp8_matrix(block ? p->sxb : p->sx, FP8_F32, p->m, block ? kb : 1);
    fp8_quantize_desc d = FP8_QUANTIZE_DESC_INIT;
    d.nan = FP8_NAN_PROPAGATE; d.grid.rows = 1; d.grid.cols = block ? 128 : 0;
    if (block) { scales.stride[0] = 1; scales.stride[1] = p->ldsx; }
    return fp8_quantize(g_ctx, &d, &x, &codes, &scales, g_stream, &g_err);
}
static fp8_status layer_run(const layer *o, int copy) { return fp8_linear_run(o->l[copy], &o->x, o->codes ? &o->sx : NULL, const_cast<fp8_tensor *>(&o->y), o->space, o->bytes, g_stream, &g_err); }

/* One of the kinds below. */
enum { KINDS = 6, WITH_QUANTIZER = 4 /* two calls: fp8_quantize, then the product of its codes */ };
static fp8_status kind_run(const problem *p, int kind, const layer *l, int copy)
{
    if (kind >= WITH_QUANTIZER && quantize(p, kind & 1) != FP8_OK) return FP8_E_DEVICE;
    return layer_run(l, copy);
}
static int bench(FILE *f)
{
    char line[256];
    int bad = 0;
    static const char *const names[] = {"channel", "block", "q_channel", "q_block", "2_channel", "2_block"};
    while (fgets(line, sizeof line, f)) {
        int m, n, k, cases = 0;
        if (line[0] == '#' || sscanf(line, "%d %d %d", &m, &n, &k) != 3) continue;
        problem p;
        problem_make(&p, m, n, k, 0, 0);
        for (int block = 0; block < 2; block++) NEED(quantize(&p, block));
        static series all[KINDS + PEERS];
        layer layers[KINDS];
        for (int kind = 0; kind < KINDS; kind++) {
            layers[kind] = layer_make(&p, kind & 1, kind < 2 || kind >= WITH_QUANTIZER, 0);
            poison(&p);
            NEED(kind_run(&p, kind, &layers[kind], p.copies - 1));
            if (verify(&p, p.copies - 1, names[kind], kind & 1, 0)) { bad++; continue; }
            series_begin();
            for (int c = 0; c < p.launches; c++) NEED(kind_run(&p, kind, &layers[kind], c % p.copies));
            all[cases++] = series_end(names[kind], 1 + (kind & 1), kind >= 2, 1, p.launches);
        }
        cases += peers(&p, all + cases);
        interleave(all, cases);
        report(&p, all, cases);
        for (int kind = 0; kind < KINDS; kind++) layer_free(&layers[kind]);
        problem_free(&p);
    }
    printf("library: %d wrong\n", bad);
    return bad != 0;
}
/* ---- versions ---- */

static version_product product_of(const problem *p, int copy, int block, int whole)
{
    version_product o = {p->m, p->n, p->k, block, block ? p->ldsx : 1, block ? p->xc : p->x, p->w[copy], whole ? p->xb : NULL, block ? p->sxb : p->sx, block ? p->swb : p->sw, p->y};
    return o;
}
static fp8_status version_run(const problem *p, int version, int copy, int block, int whole)
{
    const version_product o = product_of(p, copy, block, whole);
    if (whole && !version_quantizes(version) && quantize(p, block) != FP8_OK) return FP8_E_DEVICE;
    return version_launch(g_ctx, version, &o, g_stream, &g_err);
}
/* Whether one of the words is part of the name, or there are none. */
static int is_asked_for(const char *name, const char *words)
{
    char all[256];
    if (!*words) return 1;
    snprintf(all, sizeof all, "%s", words);
    for (char *word = strtok(all, " \t\n"); word; word = strtok(NULL, " \t\n")) if (strstr(name, word)) return 1;
    return 0;
}
/* Which versions of a kind (0 fast, 1 promoted, 2 block; 3 and 4: these two from bf16) are worth timing: out[] by the model's time; words: "", or what their names must have. */
static int worth(const version_product *p, int kind, const char *words, int *out)
{
    const char *slack = getenv("SLACK"), *keep = getenv("KEEP");
    const float limit = slack ? strtof(slack, NULL) : 2;
    const int most = keep ? atoi(keep) : *words ? 16 : 12, all = version_count();
    float time[512];
    int n = 0;
    for (int i = 0; i < all; i++) {
        time[i] = p->block != (kind % 2 == 0 && kind > 0) || version_is_fast(i) != (kind == 0) ? -1 : version_estimate(g_ctx, i, p);
        char name[48];
        version_name(i, name);
        if (time[i] < 0 || !is_asked_for(name, words)) continue;
        int at = n < most ? n++ : most;
        if (at == most && time[out[--at]] <= time[i]) continue;
        for (; at > 0 && time[out[at - 1]] > time[i]; at--) out[at] = out[at - 1];
        out[at] = i;
    }
    while (!*words && n > 1 && time[out[n - 1]] > limit * time[out[0]]) n--;
    return n;
}
static int sweep(FILE *f)
{
    char line[256];
    int bad = 0, cases_in_all = 0;
    while (fgets(line, sizeof line, f)) {
        int m, n, k, cases = 0, words = 0;
        if (line[0] == '#' || sscanf(line, "%d %d %d%n", &m, &n, &k, &words) != 3) continue;
        words += (int)strspn(line + words, " \t\n");
        problem p;
        problem_make(&p, m, n, k, 0, 0);
        static series all[128];
        for (int block = 0; block < 2; block++) NEED(quantize(&p, block));
        for (int kind = 0; kind < 5; kind++) {
            const int block = kind == 2 || kind == 4, whole = kind > 2;
            const version_product first = product_of(&p, p.copies - 1, block, whole);
            int chosen[16];
            const int count = worth(&first, kind, line + words, chosen);
            for (int c = 0; c < count; c++) {
                const int two = whole && !version_quantizes(chosen[c]);
                char name[50] = "2_";
                version_name(chosen[c], name + 2 * two);
                poison(&p);
                NEED(version_run(&p, chosen[c], p.copies - 1, block, whole));
                cases_in_all++;
                if (verify(&p, p.copies - 1, name, block, kind == 0)) { bad++; continue; }
                series_begin();
                for (int l = 0; l < p.launches; l++) NEED(version_run(&p, chosen[c], l % p.copies, block, whole));
                all[cases++] = series_end(name, whole ? kind - 2 : kind, whole + two, c == 0, p.launches);
            }
        }
        cases += peers(&p, all + cases);
        interleave(all, cases);
        report(&p, all, cases);
        problem_free(&p);
    }
    printf("sweep: %d wrong of %d\n", bad, cases_in_all);
    return bad != 0;
}
/* ---- gradients ---- */

static int gradients(FILE *f)
{
    char line[256];
    while (fgets(line, sizeof line, f)) {
        int m, n, k, cases = 0;
        if (line[0] == '#' || sscanf(line, "%d %d %d", &m, &n, &k) != 3) continue;
        problem p;
        problem_make(&p, m, n, k, 0, 0);
        static series all[2];
        layer layers[2];
        __nv_bfloat16 *dy;
        CK(cudaMalloc(&dy, (size_t)m * (size_t)n * 2));
        fill_bf16<<<1056, 256, 0, g_stream>>>(dy, (size_t)m * (size_t)n, 9, 0);
        for (int block = 0; block < 2; block++) {
            layers[block] = layer_make(&p, block, 0, 0);
            const layer *l = &layers[block];
            const fp8_tensor in = fp8_matrix(dy, FP8_BF16, m, n);
            fp8_tensor out = fp8_matrix(p.xb, FP8_BF16, m, k);
            series_begin();
            for (int c = 0; c < p.copies; c++) NEED(fp8_linear_run_dx(l->l[c], &in, &out, l->space, l->bytes, g_stream, &g_err));
            all[cases++] = series_end(block ? "dx_block" : "dx_channel", 1 + block, 1, 1, p.copies);
        }
        interleave(all, cases);
        report(&p, all, cases);
        for (int block = 0; block < 2; block++) layer_free(&layers[block]);
        CK(cudaFree(dy));
        problem_free(&p);
    }
    return 0;
}
/* ---- what bounds it ---- */

typedef struct { double us, mhz, watts, capped; int looks; } held; /* capped: share of the looks at which power held the clock down */
/* What NVML tells of the first GPU; it is there where the driver is. */
typedef struct { void *device; unsigned (*clock)(void *, unsigned, unsigned *), (*power)(void *, unsigned *), (*reasons)(void *, unsigned long long *); } meter;
static meter meter_open(void)
{
    meter o = {};
    unsigned (*init)(void) = NULL, (*find)(unsigned, void **) = NULL;
    void *l = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (l) { *(void **)&init = dlsym(l, "nvmlInit_v2"); *(void **)&find = dlsym(l, "nvmlDeviceGetHandleByIndex_v2"); *(void **)&o.clock = dlsym(l, "nvmlDeviceGetClockInfo"); *(void **)&o.power = dlsym(l, "nvmlDeviceGetPowerUsage"); *(void **)&o.reasons = dlsym(l, "nvmlDeviceGetCurrentClocksThrottleReasons"); }
    if (!init || !find || !o.clock || !o.power || !o.reasons || init() || find(0, &o.device)) { printf("no NVML\n"); exit(1); }
    return o;
}
/* A graph again and again, always some 30 ms of them ahead of the device, so that it never rests while NVML answers; what the last
 * second was like, of which the driver's power is the mean. */
static held hold(const meter *m, series *s)
{
    enum { SM = 1, POWER_CAP = 4 | 128, BATCHES = 50, FIRST = 17 /* that counts */ };
    static cudaEvent_t at[BATCHES + 1];
    const int reps = (int)(30 / (series_ms(s, 1) + 1e-3f)) + 1;
    held h = {};
    unsigned mhz, milliwatts = 0;
    unsigned long long reasons;
    float ms;
    for (int i = 0; i <= BATCHES; i++) {
        if (!at[i]) CK(cudaEventCreate(&at[i]));
        CK(cudaEventRecord(at[i], g_stream));
        for (int r = 0; r < reps; r++) CK(cudaGraphLaunch(s->g, g_stream));
        if (i > 0) CK(cudaEventSynchronize(at[i - 1]));
        if (i > FIRST && !m->clock(m->device, SM, &mhz) && !m->reasons(m->device, &reasons) && !m->power(m->device, &milliwatts)) { h.mhz += mhz; h.capped += (reasons & POWER_CAP) != 0; h.looks++; }
    }
    CK(cudaStreamSynchronize(g_stream));
    CK(cudaEventElapsedTime(&ms, at[FIRST], at[BATCHES]));
    h.us = ms * 1e3 / ((double)(BATCHES - FIRST) * reps * s->launches); h.mhz /= h.looks; h.capped /= h.looks; h.watts = milliwatts * 1e-3;
    return h;
}
/* HOLD M N K name us TFLOP/s share MHz W capped; share: of what the tensor cores do at that clock, 8192 operations a clock and SM */
static void hold_and_tell(const meter *m, const problem *p, series *s)
{
    const held h = hold(m, s);
    const double flops = 2.0 * p->m * p->n * p->k / h.us * 1e-6;
    printf("HOLD\t%d\t%d\t%d\t%s\t%.2f\t%.0f\t%.3f\t%.0f\t%.0f\t%.2f\n", p->m, p->n, p->k, s->name, h.us, flops, flops * 1e6 / (8192.0 * g_sms * h.mhz), h.mhz, h.watts, h.capped);
}
static void profile_range(const problem *p, series *s)
{
    for (int i = 0; i < 3; i++) series_ms(s, 1);
    CK(cudaProfilerStart());
    series_ms(s, 1);
    CK(cudaProfilerStop());
    printf("ONCE\t%d\t%d\t%d\t%s\t%d\n", p->m, p->n, p->k, s->name, s->launches);
}
/* Of series of one name, which stand side by side, only the faster is kept. */
static int keep_faster(series *all, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        series_ms(&all[i], 1);
        all[i].t[0] = series_ms(&all[i], 1);
        if (kept == 0 || strcmp(all[kept - 1].name, all[i].name)) { all[kept++] = all[i]; continue; }
        if (all[i].t[0] < all[kept - 1].t[0]) { const series slower = all[kept - 1]; all[kept - 1] = all[i]; all[i] = slower; }
        CK(cudaGraphExecDestroy(all[i].g));
    }
    return kept;
}
static int chains(FILE *f, int once)
{
    char line[256];
    const meter m = once ? meter{} : meter_open();
    static const char *const names[] = {"channel", "block", "fast"};
    while (fgets(line, sizeof line, f)) {
        int rows, n, k, words = 0, count = 0;
        if (line[0] == '#' || sscanf(line, "%d %d %d%n", &rows, &n, &k, &words) != 3) continue;
        words += (int)strspn(line + words, " \t\n");
        problem p;
        problem_make(&p, rows, n, k, 0, 0);
        static series all[3 + PEERS];
        layer layers[3];
        for (int kind = 0; kind < 3; kind++) {
            layers[kind] = layer_make(&p, kind == 1, 1, kind == 2);
            NEED(layer_run(&layers[kind], 0));
            series_begin();
            for (int c = 0; c < p.launches; c++) NEED(layer_run(&layers[kind], c % p.copies));
            all[count++] = series_end(names[kind], 0, 0, 0, p.launches);
        }
        if (!once) count = keep_faster(all, count + peers(&p, all + count));
        for (int i = 0; i < count; i++)
            if (is_asked_for(all[i].name, line + words)) { if (once) profile_range(&p, &all[i]); else hold_and_tell(&m, &p, &all[i]); }
        for (int i = 0; i < count; i++) cudaGraphExecDestroy(all[i].g);
        for (int kind = 0; kind < 3; kind++) layer_free(&layers[kind]);
        problem_free(&p);
    }
    return 0;
}
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3; }
enum { BURST = 100, BURSTS = 60 };
/* us of f(), which enqueues or asks for something, best of many bursts; *best: of those before */
template <class F> static void host_burst(F f, double *best)
{
    CK(cudaStreamSynchronize(g_stream));
    const double t = now();
    for (int i = 0; i < BURST; i++) f();
    *best = fmin(*best, (now() - t) / BURST);
}
template <class F> static double host_us(F f)
{
    double best = 1e30;
    for (int b = 0; b < BURSTS; b++) host_burst(f, &best);
    return best;
}
#define DRIVER(name, since) static decltype(&name) f_##name; do { cudaDriverEntryPointQueryResult q; CK(cudaGetDriverEntryPointByVersion(#name, (void **)&f_##name, since, cudaEnableDefault, &q)); if (!f_##name) { printf("the driver has no %s\n", #name); exit(1); } } while (0)

/* ---- what the library has launched ---- */

typedef struct { CUlaunchConfig config; CUlaunchAttribute attributes[4]; CUfunction function; alignas(128) char argument[1024]; } kept;
static kept g_launches[8];
static int g_launched;
static decltype(&cuLaunchKernelEx) g_launch;
static CUresult launch_kept(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra)
{
    size_t at, bytes;
    DRIVER(cuFuncGetParamInfo, 12040);
    kept *l = &g_launches[g_launched++];
    if (f_cuFuncGetParamInfo(function, 0, &at, &bytes) || bytes > sizeof l->argument || config->numAttrs > 4) { printf("what launch is that?\n"); exit(1); }
    l->config = *config;
    memcpy(l->attributes, config->attrs, config->numAttrs * sizeof *config->attrs);
    l->config.attrs = l->attributes;
    l->function = function;
    memcpy(l->argument, arguments[0], bytes);
    return g_launch(config, function, arguments, extra);
}
static CUresult launch_none(const CUlaunchConfig *, CUfunction, void **, void **) { return CUDA_SUCCESS; }
static void launch_again(void)
{
    for (int i = 0; i < g_launched; i++) {
        void *arguments[] = {g_launches[i].argument};
        if (g_launch(&g_launches[i].config, g_launches[i].function, arguments, NULL)) { printf("no launch\n"); exit(1); }
    }
}

static void driver(void)
{
    DRIVER(cuCtxPushCurrent, 12000); DRIVER(cuCtxPopCurrent, 12000); DRIVER(cuCtxGetCurrent, 12000); DRIVER(cuStreamGetCtx, 12000); DRIVER(cuPointerGetAttribute, 12000); DRIVER(cuPointerGetAttributes, 12000);
    CUcontext ctx, got;
    CUdeviceptr at, start;
    size_t size;
    int ordinal;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&at, &ordinal, &start, &size};
    f_cuCtxGetCurrent(&ctx);
    printf("DRIVER\tpush and pop %.3f", host_us([&] { f_cuCtxPushCurrent(ctx); f_cuCtxPopCurrent(&got); }));
    printf("; cuCtxGetCurrent %.3f", host_us([&] { f_cuCtxGetCurrent(&got); }));
    printf("; cuStreamGetCtx %.3f", host_us([&] { f_cuStreamGetCtx((CUstream)g_stream, &got); }));
    printf("; cuPointerGetAttribute %.3f", host_us([&] { f_cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (CUdeviceptr)g_work); }));
    for (unsigned n = 1; n <= 4; n *= 2) printf(", of %u attributes %.3f", n, host_us([&] { f_cuPointerGetAttributes(n, which, values, (CUdeviceptr)g_work); }));
    printf("; cuTensorMapEncodeTiled %.3f us\n", host_us([&] { map_bytes(g_work, 4096, 4096, 64, 128); }));
}
/* A call (us), its launches alone, and all but these; kinds as in bench(). */
static int host(void)
{
    static const int shape[][3] = {{1, 4096, 4096}, {16, 4096, 4096}, {64, 4096, 4096}, {256, 4096, 4096}, {2048, 4096, 4096}};
    void **launcher = version_launcher(g_ctx), *real = *launcher;
    g_launch = (decltype(g_launch))real;
    driver();
    for (unsigned s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int kind = 0; kind < 4; kind++) {
            problem p;
            double whole = 1e30, again = 1e30, rest = 1e30;
            problem_make(&p, shape[s][0], shape[s][1], shape[s][2], 1, 0);
            layer l = layer_make(&p, kind & 1, kind < 2, 0);
            g_launched = 0;
            *launcher = (void *)launch_kept;
            NEED(layer_run(&l, 0));
            for (int b = 0; b < BURSTS; b++) {
                *launcher = real;
                host_burst([&] { NEED(layer_run(&l, 0)); }, &whole);
                host_burst(launch_again, &again);
                *launcher = (void *)launch_none;
                host_burst([&] { NEED(layer_run(&l, 0)); }, &rest);
            }
            *launcher = real;
            printf("HOST\t%d\t%d\t%d\t%d\tcall %.2f\tlaunches (%d) %.2f\tbeyond them %.2f\twithout them %.2f\n", shape[s][0], shape[s][1], shape[s][2], kind, whole, g_launched, again, whole - again, rest);
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
    FILE *f = argc > 1 ? fopen(argv[argc - 1], "r") : NULL;
    if (!f) { printf("usage: library [sweep | dx | once | hold] shapes.txt | host\n"); return 2; }
    if (argc > 2 && (!strcmp(argv[1], "once") || !strcmp(argv[1], "hold"))) return chains(f, argv[1][0] == 'o');
    return argc < 3 ? bench(f) : strcmp(argv[1], "dx") ? sweep(f) : gradients(f);
}
