/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_quantize.c - fp8_quantize of a matrix against memcpy of the same input bytes, and for bf16
 * against PyTorch's eager expression of the same formula, in turn in the same run.
 *
 *     bench_quantize [--peer "python3 bench/peer_quantize.py"] [--case NAME] [--in F32|F16|BF16]
 *                    [ROWS COLS]
 *
 * One line a case, level and number of threads; times are medians of the rounds, and `least` the
 * ratio of the least times, which other work on the machine disturbs less. memcpy is one thread's
 * or, with two, both threads' copy of half each. */
#include "base/context.h"
#include "number/dtype.h"

#include "bench.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that times the other side: a line out, a line back. */
typedef struct peer {
    FILE *to, *from;
    char version[128];
} peer;

/* What is timed; the peer knows the first four. */
typedef struct bench_case {
    const char *name;
    fp8_rule rule;
    fp8_grid grid;
    fp8_dtype scale; /* NONE: that of the input */
    int pow2;
} bench_case;

static const bench_case cases[] = {
    {"hf-block", FP8_RULE_BEST, {128, 128}, FP8_F32, 0},
    {"ct-channel", FP8_RULE_BEST, {1, 0}, FP8_F32, 0},
    {"hf-tensor", FP8_RULE_BEST, {0, 0}, FP8_F32, 0},
    {"mxfp8", FP8_RULE_BEST, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-vllm", FP8_RULE_VLLM, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-ct", FP8_RULE_COMPRESSED_TENSORS, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-ct-act", FP8_RULE_COMPRESSED_TENSORS_ACTIVATION, {1, 32}, FP8_DTYPE_NONE, 1},
    {"mxfp8-modelopt", FP8_RULE_MODELOPT, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-deepseek", FP8_RULE_DEEPSEEK, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-ocp", FP8_RULE_MX_OCP, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-floor", FP8_RULE_MX_FLOOR, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-ceil", FP8_RULE_MX_CEIL, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-even", FP8_RULE_MX_EVEN, {1, 32}, FP8_E8M0FNU, 0},
    {"mxfp8-rceil", FP8_RULE_MX_RCEIL, {1, 32}, FP8_E8M0FNU, 0},
    {"group", FP8_RULE_BEST, {1, 128}, FP8_F32, 0},
    {"group-pow2", FP8_RULE_BEST, {1, 128}, FP8_F32, 1},
    {"group-vllm", FP8_RULE_VLLM, {1, 128}, FP8_F32, 0},
    {"group-vllm-pow2", FP8_RULE_VLLM, {1, 128}, FP8_F32, 1},
    {"group-triton", FP8_RULE_VLLM_TRITON, {1, 128}, FP8_F32, 0},
    {"group-ct", FP8_RULE_COMPRESSED_TENSORS, {1, 128}, FP8_DTYPE_NONE, 0},
    {"group-ct-act", FP8_RULE_COMPRESSED_TENSORS_ACTIVATION, {1, 128}, FP8_DTYPE_NONE, 0},
    {"group-torchao", FP8_RULE_TORCHAO, {1, 128}, FP8_F32, 0},
    {"group-deepseek", FP8_RULE_DEEPSEEK, {1, 128}, FP8_F32, 0},
    {"group-deepseek-pow2", FP8_RULE_DEEPSEEK, {1, 128}, FP8_F32, 1},
};
enum { CASES = sizeof cases / sizeof *cases, PEER_CASES = 4 };

typedef struct job {
    const char *only; /* the case that is timed, NULL: all */
    bench_case what;
    fp8_context *ctx;
    fp8_dtype in;
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
    fprintf(p->to, "%s %lld %lld %d\n", j->what.name, (long long)j->rows, (long long)j->cols,
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
    desc.rule = j->what.rule;
    desc.grid = j->what.grid;
    desc.pow2_scales = j->what.pow2;
    const int64_t gr = desc.grid.rows ? desc.grid.rows : j->rows;
    const int64_t gc = desc.grid.cols ? desc.grid.cols : j->cols;
    const fp8_dtype scale = j->what.scale ? j->what.scale : j->in;
    fp8_tensor x = fp8_matrix(j->x, j->in, j->rows, j->cols);
    fp8_tensor codes = fp8_matrix(j->codes, FP8_E4M3FN, j->rows, j->cols);
    fp8_tensor scales =
        fp8_matrix(j->scales, scale, (j->rows + gr - 1) / gr, (j->cols + gc - 1) / gc);
    if (fp8_quantize(j->ctx, &desc, &x, &codes, &scales, NULL, &err) != FP8_OK)
        die(err.msg);
}

static int64_t input_bytes(const job *j)
{
    return j->rows * j->cols * fp8_dtype_bits(j->in) / 8;
}

static void copy_part(void *arg, int64_t i)
{
    const job *j = arg;
    const size_t part = (size_t)input_bytes(j) / (size_t)j->ctx->threads;
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
    const double bytes = (double)input_bytes(j);
    const bool has_peer = p->to && j->in == FP8_BF16;
    const double first = bench_once(quantize, j, 1) + bench_once(copy, j, 1);
    const int64_t calls = 1 + (int64_t)(1e-3 / first); /* so that the clock's step is nothing */
    for (int r = 0; r < BENCH_ROUNDS; r++) {
        ours[r] = bench_once(quantize, j, calls) / (double)calls;
        copies[r] = bench_once(copy, j, calls) / (double)calls;
        theirs[r] = has_peer ? peer_seconds(p, j) : 0;
    }
    const double mine = median(ours, BENCH_ROUNDS), copied = median(copies, BENCH_ROUNDS);
    printf("bench quantize case=%s isa=%s threads=%d in=%s [%lld,%lld] fp8=%s us=%.2f "
           "input_GB/s=%.2f memcpy_us=%.2f speed_vs_memcpy=%.2f least=%.2f",
           j->what.name, fp8_isa_name(j->ctx->isa), j->ctx->threads, fp8_dtype_name(j->in),
           (long long)j->rows, (long long)j->cols, fp8_version(), mine * 1e6, bytes / mine * 1e-9,
           copied * 1e6, copied / mine, copies[0] / ours[0]);
    if (has_peer) {
        const double other = median(theirs, BENCH_ROUNDS);
        printf(" peer=%s peer_us=%.2f speed_vs_peer=%.1f least=%.1f", p->version, other * 1e6,
               other / mine, theirs[0] / ours[0]);
    }
    printf("\n");
    fflush(stdout);
}

static bool is_defined(const job *j)
{
    const unsigned inputs_without_f16 = 1u << FP8_RULE_MX_FLOOR | 1u << FP8_RULE_MX_CEIL |
                                        1u << FP8_RULE_MX_EVEN | 1u << FP8_RULE_MX_RCEIL;
    return j->in != FP8_F16 || !(inputs_without_f16 >> j->what.rule & 1);
}

static void report_level(job j, const peer *p, fp8_isa isa, int threads)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = threads;
    setenv("FP8_CPU_ISA", fp8_isa_name(isa), 1);
    if (fp8_context_create(&desc, &j.ctx, NULL) != FP8_OK)
        die("no context");
    for (size_t i = 0; i < CASES; i++) {
        j.what = cases[i];
        if (is_defined(&j) && (!j.only || !strcmp(j.only, j.what.name)))
            report(&j, i < PEER_CASES ? p : &(const peer){0});
    }
    fp8_context_free(j.ctx);
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 11) + 0.5) * 0x1p-53;
}

/* Normal deviates, as weights are. */
static void fill(const job *j, size_t n)
{
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        const double radius = sqrt(-2 * log(uniform(&state)));
        const float value = (float)(radius * cos(2 * 3.14159265358979 * uniform(&state)));
        fp8_dtype_facts_of(j->in)->store(j->x, (int64_t)i, value, false);
    }
}

int main(int argc, char **argv)
{
    peer p = {0};
    job j = {.in = FP8_BF16};
    for (; argc > 2 && argv[1][0] == '-'; argc -= 2, argv += 2) {
        if (!strcmp(argv[1], "--peer"))
            start_peer(&p, argv[2]);
        else if (!strcmp(argv[1], "--case"))
            j.only = argv[2];
        else if (!strcmp(argv[1], "--in"))
            j.in = fp8_dtype_parse(argv[2]);
        else
            die("options are --peer, --case and --in");
    }
    if (j.in != FP8_F32 && j.in != FP8_F16 && j.in != FP8_BF16)
        die("the input must be F32, F16 or BF16");
    j.rows = argc > 2 ? atoll(argv[1]) : 4096;
    j.cols = argc > 2 ? atoll(argv[2]) : 4096;
    if (j.rows < 1 || j.cols < 128 || j.cols % 128)
        die("columns must be a multiple of 128");
    const size_t n = (size_t)(j.rows * j.cols);
    j.x = malloc(n * 4);
    j.copy = malloc(n * 4);
    j.codes = malloc(n);
    j.scales = malloc(n / 8 + 4 * (size_t)j.rows);
    if (!j.x || !j.copy || !j.codes || !j.scales)
        die("no memory");
    fill(&j, n);
    memset(j.copy, 0, n * 4);
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
