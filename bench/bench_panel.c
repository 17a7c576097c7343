/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_panel.c - every panel kernel that this processor can run, against what the processor can do
 * at most, measured in turn in the same run: the multiply-add of its level in registers, and
 * reading memory.
 *
 *     bench_panel [KERNEL [M]]
 *
 * One line a kernel, number of threads and number of rows of X. Up to 4 rows the weights are larger
 * than the last cache, else [4096, 4096]. roofline is the least of the peak and of what reading the
 * weights allows; figures are those of the fastest of the rounds, which other work on the machine
 * disturbs least. */
#include "base/context.h"
#include "base/size.h"
#include "op/backend.h"

#include "bench.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 40, READ_STEP = 1 << 20 };

typedef struct job {
    const fp8_panel_kernel *kernel;
    fp8_context *ctx;
    int64_t m, n, k, x_stride;
    void *x;
    uint8_t *w;
    int64_t w_bytes;
    int64_t spins;
    float sink[64];
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
        kernel->fn(&run);
    }
}

static void product(void *arg)
{
    const job *j = arg;
    const int64_t blocks = fp8_ceil_div(j->m, j->kernel->rows);
    fp8_run_parallel(j->ctx, blocks * (j->n / FP8_TILE_COLS), task, arg);
}

/* A word of each line of four streams, fetched ahead: plain reading leaves a third of what the
 * memory gives. */
static void read_part(void *arg, int64_t i)
{
    enum { STREAMS = 4, LINE = 64, AHEAD = 2048 };
    job *j = arg;
    const char *p = (const char *)j->w + i * READ_STEP;
    uint64_t sum[STREAMS] = {0}, word;
    for (int64_t n = 0; n < READ_STEP / STREAMS; n += LINE)
        for (int s = 0; s < STREAMS; s++) {
            const char *line = p + s * (READ_STEP / STREAMS) + n;
            __builtin_prefetch(line + AHEAD);
            memcpy(&word, line, sizeof word);
            sum[s] += word;
        }
    if (sum[0] + sum[1] + sum[2] + sum[3] == 1) /* never known to the compiler */
        j->sink[i % 64] = 1;
}

static void read_weights(void *arg)
{
    const job *j = arg;
    fp8_run_parallel(j->ctx, j->w_bytes / READ_STEP, read_part, arg);
}

/* ---- the most that a level can do: chains of its multiply-add in registers ---- */

enum { CHAINS = 12 };
typedef float v8 __attribute__((vector_size(32)));
typedef float v16 __attribute__((vector_size(64)));

#if defined(__x86_64__)
#include <immintrin.h>

#define UNROLL _Pragma("GCC unroll 12")
#define DEFINE_SPIN(NAME, TARGET, VECTOR, START, STEP)                       \
    __attribute__((target(TARGET))) static void NAME(float *sink, int64_t n) \
    {                                                                        \
        VECTOR acc[CHAINS];                                                  \
        UNROLL for (int c = 0; c < CHAINS; c++) acc[c] = START;              \
        for (int64_t i = 0; i < n; i++)                                      \
            UNROLL for (int c = 0; c < CHAINS; c++)                          \
            {                                                                \
                acc[c] = STEP;                                               \
                __asm__ volatile("" : "+x"(acc[c]));                         \
            }                                                                \
        UNROLL for (int c = 0; c < CHAINS; c++) sink[c] = acc[c][0];         \
    }
DEFINE_SPIN(spin_avx2, "avx2,fma", __m256, _mm256_set1_ps(1),
            _mm256_fmadd_ps(acc[c], _mm256_set1_ps(0.5f), _mm256_set1_ps(0.5f)))
DEFINE_SPIN(spin_avx512, "avx512f", __m512, _mm512_set1_ps(1),
            _mm512_fmadd_ps(acc[c], _mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f)))
DEFINE_SPIN(spin_bf16, "avx512f,avx512bf16", __m512, _mm512_set1_ps(1),
            _mm512_dpbf16_ps(acc[c], (__m512bh)_mm512_set1_epi32(0),
                             (__m512bh)_mm512_set1_epi32(0)))

/* Four accumulators of 16 x 16, each +- [16, 32] times [32, 16]. */
__attribute__((target("amx-tile,amx-bf16"))) static void spin_amx(float *sink, int64_t n)
{
    _Alignas(64) unsigned char config[64] = {1};
    for (int t = 0; t < 8; t++) {
        config[16 + 2 * t] = 64; /* bytes of a row */
        config[48 + t] = 16;     /* rows */
    }
    __asm__ volatile("" ::"r"(config) : "memory"); /* gcc 12's intrinsic does not say it is read */
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int64_t i = 0; i < n; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    sink[0] = 0;
}
#endif

typedef struct peak {
    fp8_isa isa;
    fp8_dtype x;
    double flop; /* of one step of all chains */
    void (*spin)(float *sink, int64_t n);
} peak;

static const peak peaks[] = {
#if defined(__x86_64__)
    {FP8_ISA_AVX2, FP8_F32, 2.0 * 8 * CHAINS, spin_avx2},
    {FP8_ISA_AVX512, FP8_F32, 2.0 * 16 * CHAINS, spin_avx512},
    {FP8_ISA_AVX512_BF16, FP8_BF16, 4.0 * 16 * CHAINS, spin_bf16},
    {FP8_ISA_AMX, FP8_BF16, 4 * 2.0 * 16 * 16 * 32, spin_amx},
#endif
    {0},
};

static const peak *peak_of(const fp8_panel_kernel *kernel)
{
    const peak *p = peaks;
    while (p->spin && (p->isa != kernel->isa || p->x != kernel->x))
        p++;
    return p;
}

static void spin_part(void *arg, int64_t i)
{
    job *j = arg;
    float sink[CHAINS];
    peak_of(j->kernel)->spin(sink, j->spins);
    j->sink[i % 64] += sink[0];
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
    const peak *top = peak_of(j->kernel);
    double ours = 1e9, reading = 1e9, spinning = 1e9;
    j->w_bytes = j->n * j->k;
    j->spins = 100000;
    for (int r = 0; r < ROUNDS; r++) {
        ours = least(ours, seconds_of(product, j));
        reading = least(reading, seconds_of(read_weights, j));
        if (top->spin)
            spinning = least(spinning, seconds_of(spin, j));
    }
    const double flop = 2.0 * (double)j->m * (double)(j->n * j->k), bytes = (double)j->w_bytes;
    const double most = (double)j->spins * top->flop * j->ctx->threads / spinning;
    const double by_reading = bytes / reading; /* bytes a second */
    const double line = least(most, by_reading * 2 * (double)j->m);
    printf("bench panel kernel=%s threads=%d m=%lld [%lld,%lld] GFLOP/s=%.1f weights_GB/s=%.2f",
           j->kernel->name, j->ctx->threads, (long long)j->m, (long long)j->n, (long long)j->k,
           flop / ours * 1e-9, bytes / ours * 1e-9);
    if (top->spin)
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

int main(int argc, char **argv)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8, 16, 32, 64, 256};
    enum { COUNT = sizeof rows / sizeof *rows, MOST = 256, LARGE = 16384, MIDDLE = 4096, K = 8192 };
    job j = {0};
    j.x = new_memory((int64_t)MOST * (K + FP8_X_PAD) * 4);
    j.w = new_memory((int64_t)LARGE * K);
    fill(&j, (int64_t)MOST * (K + FP8_X_PAD), (int64_t)LARGE * K);
    for (size_t i = 0; (j.kernel = fp8_panel_kernel_at(i)); i++) {
        if (j.kernel->isa == FP8_ISA_SCALAR || j.kernel->isa > fp8_isa_detect() ||
            (argc > 1 && strcmp(argv[1], j.kernel->name) != 0))
            continue;
        for (int all = 0; all < 2; all++) {
            fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
            desc.threads = all ? 0 : 1;
            if (fp8_context_create(&desc, &j.ctx, NULL) != FP8_OK)
                die("no context");
            for (size_t r = 0; r < COUNT; r++) {
                j.m = rows[r];
                j.n = j.m <= 4 ? LARGE : MIDDLE;
                j.k = j.m <= 4 ? K : MIDDLE;
                j.x_stride = j.k + FP8_X_PAD;
                if (j.m >= j.kernel->min_m && j.m <= j.kernel->max_m &&
                    (argc < 3 || j.m == atoll(argv[2])))
                    report(&j);
            }
            fp8_context_free(j.ctx);
        }
    }
    free(j.x);
    free(j.w);
    return 0;
}
