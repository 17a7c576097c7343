/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_quantize.c - fp8_quantize of a bf16 weight against memcpy of the same input bytes, and
 * against PyTorch's eager expression of the same formula, in turn in the same run.
 *
 *     bench_quantize [--peer "python3 bench/peer_quantize.py"] [ROWS COLS]
 *
 * One line a case, level and number of threads; times are medians of the rounds, and `least` the
 * ratio of the least times, which other work on the machine disturbs less. memcpy is one thread's
 * or, with two, both threads' copy of half each. */
#include "base/context.h"

#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that times the other side: a line out, a line back. */
typedef struct peer {
    FILE *to, *from;
    char version[128];
} peer;

typedef struct job {
    const char *name;
    fp8_context *ctx;
    fp8_grid grid;
    fp8_dtype scale_dtype;
    void *x, *codes, *scales, *copy;
    int64_t rows, cols;
} job;

static void die(const char *why)
{
    fprintf(stderr, "bench_quantize: %s\n", why);
    exit(1);
}

static void start_peer(peer *p, const char *command)
{
    int out[2], back[2];
    if (pipe(out) || pipe(back))
        die("no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(out[0], 0);
        dup2(back[1], 1);
        close(out[1]);
        close(back[0]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(out[0]);
    close(back[1]);
    p->to = fdopen(out[1], "w");
    p->from = fdopen(back[0], "r");
    if (pid < 0 || !p->to || !p->from || !fgets(p->version, sizeof p->version, p->from))
        die("the peer does not start");
    p->version[strcspn(p->version, "\n")] = 0;
}

static double peer_seconds(const peer *p, const job *j)
{
    double seconds = 0;
    fprintf(p->to, "%s %lld %lld %d\n", j->name, (long long)j->rows, (long long)j->cols,
            j->ctx->threads);
    fflush(p->to);
    if (fscanf(p->from, "%lf", &seconds) != 1)
        die("the peer does not answer");
    return seconds;
}

static void quantize(void *arg)
{
    job *j = arg;
    fp8_error err;
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.grid = j->grid;
    const int64_t gr = j->grid.rows ? j->grid.rows : j->rows;
    const int64_t gc = j->grid.cols ? j->grid.cols : j->cols;
    fp8_tensor x = fp8_matrix(j->x, FP8_BF16, j->rows, j->cols);
    fp8_tensor codes = fp8_matrix(j->codes, FP8_E4M3FN, j->rows, j->cols);
    fp8_tensor scales =
        fp8_matrix(j->scales, j->scale_dtype, (j->rows + gr - 1) / gr, (j->cols + gc - 1) / gc);
    if (fp8_quantize(j->ctx, &desc, &x, &codes, &scales, &err) != FP8_OK)
        die(err.msg);
}

static void copy_part(void *arg, int64_t i)
{
    const job *j = arg;
    const size_t part = (size_t)(j->rows * j->cols * 2) / (size_t)j->ctx->threads;
    memcpy((char *)j->copy + (size_t)i * part, (char *)j->x + (size_t)i * part, part);
}

static void copy(void *arg)
{
    job *j = arg;
    fp8_run_parallel(j->ctx, j->ctx->threads, copy_part, j);
}

static double median(double *seconds, int n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, bench_compare);
    return seconds[n / 2];
}

static void report(job *j, const peer *p)
{
    double ours[BENCH_ROUNDS], copies[BENCH_ROUNDS], theirs[BENCH_ROUNDS];
    const double bytes = (double)(j->rows * j->cols) * 2;
    quantize(j);
    copy(j);
    if (p->to)
        peer_seconds(p, j);
    for (int r = 0; r < BENCH_ROUNDS; r++) {
        ours[r] = bench_once(quantize, j, 1);
        copies[r] = bench_once(copy, j, 1);
        theirs[r] = p->to ? peer_seconds(p, j) : 0;
    }
    const double mine = median(ours, BENCH_ROUNDS), copied = median(copies, BENCH_ROUNDS);
    printf("bench quantize case=%s isa=%s threads=%d in=BF16 [%lld,%lld] fp8=%s ms=%.2f "
           "input_GB/s=%.2f memcpy_ms=%.2f speed_vs_memcpy=%.2f least=%.2f",
           j->name, fp8_isa_name(j->ctx->isa), j->ctx->threads, (long long)j->rows,
           (long long)j->cols, fp8_version(), mine * 1e3, bytes / mine * 1e-9, copied * 1e3,
           copied / mine, copies[0] / ours[0]);
    if (p->to) {
        const double other = median(theirs, BENCH_ROUNDS);
        printf(" peer=%s peer_ms=%.2f speed_vs_peer=%.1f least=%.1f", p->version, other * 1e3,
               other / mine, theirs[0] / ours[0]);
    }
    printf("\n");
    fflush(stdout);
}

static void report_level(job j, const peer *p, fp8_isa isa, int threads)
{
    static const struct {
        const char *name;
        fp8_grid grid;
        fp8_dtype scale;
    } cases[] = {
        {"hf-block", {128, 128}, FP8_F32},
        {"ct-channel", {1, 0}, FP8_F32},
        {"hf-tensor", {0, 0}, FP8_F32},
        {"mxfp8", {1, 32}, FP8_E8M0FNU},
    };
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = threads;
    setenv("FP8_CPU_ISA", fp8_isa_name(isa), 1);
    if (fp8_context_create(&desc, &j.ctx, NULL) != FP8_OK)
        die("no context");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        j.name = cases[i].name;
        j.grid = cases[i].grid;
        j.scale_dtype = cases[i].scale;
        report(&j, p);
    }
    fp8_context_free(j.ctx);
}

int main(int argc, char **argv)
{
    peer p = {0};
    if (argc > 2 && !strcmp(argv[1], "--peer")) {
        start_peer(&p, argv[2]);
        argc -= 2;
        argv += 2;
    }
    job j = {.rows = argc > 2 ? atoll(argv[1]) : 4096, .cols = argc > 2 ? atoll(argv[2]) : 4096};
    if (j.rows < 128 || j.cols < 128 || j.rows % 128 || j.cols % 128)
        die("sizes must be multiples of 128");
    const size_t n = (size_t)(j.rows * j.cols);
    j.x = malloc(n * 2);
    j.copy = malloc(n * 2);
    j.codes = malloc(n);
    j.scales = malloc(n / 8);
    if (!j.x || !j.copy || !j.codes || !j.scales)
        die("no memory");
    for (size_t i = 0; i < n; i++) /* numbers of both signs over some twenty binades */
        ((uint16_t *)j.x)[i] =
            (uint16_t)((i * 2654435761u >> 13 & 0x8FFF) | 0x3000 | (i * 40503u >> 7 & 0x0C00));
    memset(j.copy, 0, n * 2);
    const int top = (int)fp8_isa_detect(); /* the reference is timed only where there is no other */
    for (int isa = top > FP8_ISA_SCALAR ? FP8_ISA_AVX2 : FP8_ISA_SCALAR; isa <= top; isa++)
        for (int threads = 1; threads <= 2; threads++)
            report_level(j, &p, (fp8_isa)isa, threads);
    if (p.to)
        fclose(p.to);
    free(j.x);
    free(j.copy);
    free(j.codes);
    free(j.scales);
    return 0;
}
