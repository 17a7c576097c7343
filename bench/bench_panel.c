/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_panel.c - every panel kernel that this processor can run, against what the processor can do
 * at most, measured in turn in the same run: the multiply-add of its level in registers, and
 * reading memory.
 *
 *     bench_panel [KERNEL [M [large]]]
 *
 * One line a kernel, scales (none along K, or mx: a power of two every 32 columns), number of
 * threads and number of rows of X. Up to 4 rows, and with "large", the weights are larger than the
 * last cache, else [4096, 4096]. roofline is the least of the peak and of what reading the
 * weights allows; figures are those of the fastest of the rounds, which other work on the machine
 * disturbs least. */
#include "base/context.h"
#include "base/size.h"
#include "op/backend.h"
#include "op/peak.h"

#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 40, READ_STEP = 1 << 20, SPINS = 100000, MX_COLS = 32, K = 8192 };

typedef struct job {
    const fp8_panel_kernel *kernel;
    fp8_context *ctx;
    int64_t m, n, k, x_stride;
    void *x;
    uint8_t *w;
    int64_t w_bytes;
    const fp8_kernel *peak; /* NULL: no multiply-adds are known for the level */
    uint64_t sink;          /* so that nothing is left out */
    bool mx;
    int64_t cut[K / MX_COLS + 1];
    float *w_scale;  /* [cuts, 64] of ones .. */
    uint8_t *w_fold; /* .. and zeros */
} job;

static void die(const char *why)
{
    fprintf(stderr, "bench_panel: %s\n", why);
    exit(1);
}

/* ---- what is measured ---- */

/* As the operation cuts it: a group of panels and a block of rows are a task, a chunk of columns a
 * call. */
static void task(void *arg, int64_t i)
{
    static _Thread_local _Alignas(64) float c[512 * FP8_TILE_COLS];
    static _Thread_local _Alignas(64) char scratch[1 << 18];
    const job *j = arg;
    const fp8_panel_kernel *kernel = j->kernel;
    const int64_t blocks = fp8_ceil_div(j->m, kernel->rows), row = i % blocks * kernel->rows;
    const int64_t bytes = kernel->x == FP8_BF16 ? 2 : 4, stride = fp8_panel_stride(j->k);
    fp8_panel_run run = {.x_stride = j->x_stride, .w_stride = stride, .c = c, .scratch = scratch};
    run.m = fp8_min_i64(kernel->rows, j->m - row);
    run.panels = FP8_PANEL_GROUP;
    run.code = FP8_E4M3FN;
    for (int64_t k = 0; k < j->k; k += kernel->cols) {
        run.x = (const char *)j->x + (row * j->x_stride + k) * bytes;
        run.w = j->w + i / blocks * FP8_PANEL_GROUP * stride + k * FP8_PANEL_ROWS;
        run.k = fp8_min_i64(kernel->cols, j->k - k);
        run.accumulate = k > 0;
        if (j->mx) {
            run.cuts = fp8_ceil_div(run.k, MX_COLS);
            run.cut = j->cut;
            run.w_fold = kernel->x == FP8_BF16 ? j->w_fold : NULL;
            run.w_scale = kernel->x == FP8_F32 ? j->w_scale : NULL;
        }
        kernel->fn(&run);
    }
}

static void product(void *arg)
{
    const job *j = arg;
    const int64_t blocks = fp8_ceil_div(j->m, j->kernel->rows);
    fp8_run_parallel(j->ctx, blocks * (j->n / FP8_TILE_COLS), task, arg);
}

static void read_part(void *arg, int64_t i)
{
    job *j = arg;
    __atomic_fetch_add(&j->sink, fp8_read_lines(j->w + i * READ_STEP, READ_STEP), __ATOMIC_RELAXED);
}

static void read_weights(void *arg)
{
    const job *j = arg;
    fp8_run_parallel(j->ctx, j->w_bytes / READ_STEP, read_part, arg);
}

/* The multiply-adds of the kernel's level, as fp8_machine_peak measures them; NULL if there are
 * none.
 */
static const fp8_kernel *peak_of(const fp8_panel_kernel *kernel)
{
    const fp8_kernel *k;
    for (size_t i = 0; (k = fp8_kernel_at(i)); i++)
        if (k->op == FP8_OP_PEAK && k->isa == kernel->isa)
            return k;
    return NULL;
}

static void spin_part(void *arg, int64_t i)
{
    job *j = arg;
    fp8_peak_run run = {.rounds = SPINS};
    (void)i;
    j->peak->fn.peak(&run);
    __atomic_fetch_add(&j->sink, run.sum != 0, __ATOMIC_RELAXED);
}

static void spin(void *arg)
{
    const job *j = arg;
    fp8_run_parallel(j->ctx, j->ctx->threads, spin_part, arg);
}

/* ---- a line ---- */

/* Seconds of a call: of one thread the processor's time, which other work takes nothing from. */
static double seconds_of(bench_fn fn, job *j)
{
    const clockid_t clock = j->ctx->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    struct timespec a, b;
    clock_gettime(clock, &a);
    fn(j);
    clock_gettime(clock, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void report(job *j)
{
    fp8_peak_run once = {.rounds = SPINS};
    double ours = 1e9, reading = 1e9, spinning = 1e9;
    j->w_bytes = j->n * j->k;
    j->peak = peak_of(j->kernel);
    if (j->peak)
        j->peak->fn.peak(&once);
    for (int r = 0; r < ROUNDS; r++) {
        ours = least(ours, seconds_of(product, j));
        reading = least(reading, seconds_of(read_weights, j));
        if (j->peak)
            spinning = least(spinning, seconds_of(spin, j));
    }
    const double flop = 2.0 * (double)j->m * (double)(j->n * j->k), bytes = (double)j->w_bytes;
    const double most = once.operations * j->ctx->threads / spinning;
    const double by_reading = bytes / reading; /* bytes a second */
    const double line = least(most, by_reading * 2 * (double)j->m);
    printf("bench panel kernel=%s scales=%s threads=%d m=%lld [%lld,%lld] GFLOP/s=%.1f "
           "weights_GB/s=%.2f",
           j->kernel->name, j->mx ? "mx" : "none", j->ctx->threads, (long long)j->m,
           (long long)j->n, (long long)j->k, flop / ours * 1e-9, bytes / ours * 1e-9);
    if (j->peak)
        printf(" peak=%.1f of_peak=%.2f of_roofline=%.2f", most * 1e-9, flop / ours / most,
               flop / ours / line);
    printf(" read_GB/s=%.2f of_read=%.2f\n", by_reading * 1e-9, bytes / ours / by_reading);
    fflush(stdout);
}

static void *new_memory(int64_t bytes)
{
    void *p = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096);
    if (!p)
        die("no memory");
    return p;
}

static void fill(job *j, int64_t x_floats, int64_t w_bytes)
{
    for (int64_t i = 0; i < x_floats; i++)
        ((uint32_t *)j->x)[i] = 0x3F803F80u ^ (uint32_t)(i * 2654435761u >> 9 & 0x807F807F);
    for (int64_t i = 0; i < w_bytes; i++)
        j->w[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24 & 0xBF); /* no NaN */
}

static void fill_scales(job *j)
{
    const int64_t scales = (int64_t)K / MX_COLS * FP8_TILE_COLS;
    j->w_scale = new_memory(scales * 4);
    j->w_fold = new_memory(scales);
    memset(j->w_fold, 0, (size_t)scales);
    for (int64_t i = 0; i < scales; i++)
        j->w_scale[i] = 1;
    for (int64_t s = 0; s <= K / MX_COLS; s++)
        j->cut[s] = s * MX_COLS;
}

static fp8_context *new_context(int32_t threads)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx;
    desc.threads = threads;
    if (fp8_context_create(&desc, &ctx, NULL) != FP8_OK)
        die("no context");
    return ctx;
}

/* Rows of a weight of K columns that is twice the last cache, within limits. */
static int64_t rows_beyond_cache(void)
{
    enum { LEAST = 16384, MOST = 65536 };
    const int64_t rows = 2 * (int64_t)sysconf(_SC_LEVEL3_CACHE_SIZE) / K;
    return rows < LEAST ? LEAST : fp8_min_i64(rows, MOST) / FP8_TILE_COLS * FP8_TILE_COLS;
}

int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 16, 32, 64, 256};
    enum { COUNT = sizeof rows / sizeof *rows, MOST = 256, MIDDLE = 4096 };
    const int64_t large = rows_beyond_cache();
    fp8_context *ctx = new_context(1);
    static job j;
    fill_scales(&j);
    j.x = new_memory((int64_t)MOST * (K + FP8_X_PAD) * 4);
    j.w = fp8_alloc_streamed(ctx, (uint64_t)(large * K)); /* so large that it is aligned, too */
    if (!j.w)
        die("no memory");
    fill(&j, (int64_t)MOST * (K + FP8_X_PAD), large * K);
    for (size_t i = 0; (j.kernel = fp8_panel_kernel_at(i)); i++) {
        if (j.kernel->isa == FP8_ISA_SCALAR || j.kernel->isa > fp8_isa_detect() ||
            (argc > 1 && strcmp(argv[1], j.kernel->name) != 0))
            continue;
        for (int all = 0; all < 2; all++) {
            j.ctx = new_context(all ? 0 : 1);
            for (size_t r = 0; r < COUNT; r++) {
                j.m = rows[r];
                const bool cold = j.m <= 4 || argc > 3;
                j.n = cold ? large : MIDDLE;
                j.k = cold ? K : MIDDLE;
                j.x_stride = j.k + FP8_X_PAD;
                for (int mx = 0; mx < 2; mx++) {
                    j.mx = mx;
                    if (j.m >= j.kernel->min_m && j.m <= j.kernel->max_m &&
                        (argc < 3 || j.m == atoll(argv[2])))
                        report(&j);
                }
            }
            fp8_context_free(j.ctx);
        }
    }
    free(j.x);
    fp8_release(ctx, j.w);
    free(j.w_scale);
    free(j.w_fold);
    fp8_context_free(ctx);
    return 0;
}
