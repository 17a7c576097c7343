/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_load.c - memory of loading a bf16 checkpoint of equal layers, quantized on the way:
 *
 *     bench_load [SIDE] [SCHEME]
 *
 * For 8 and for 32 layers of [SIDE,SIDE] (1024, "tensor", which reads each twice): a line a
 * finished layer with what is resident then, in a process of its own; then
 *
 *     peak <= FP8 size + 1.5 layers in bf16 + 64 MiB
 *     peak of 32 - peak of 8 <= FP8 size of 32 - that of 8, + 4 MiB that the system rounds up to
 *
 * all over what was resident before. Exit code 1 if one does not hold. The checkpoint is made in
 * $TMPDIR. */
#include "fp8.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 32, MIB = 1 << 20 };

/* What a child tells its parent, in bytes. */
typedef struct result {
    int64_t peak, final;
} result;

/* A load that is being watched from inside its parallel loops. */
typedef struct watch {
    fp8_layer *layers[MOST];
    int count, whole;
    int64_t before;
} watch;

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "bench_load: %s\n", what);
    exit(2);
}

static int64_t resident(void)
{
    long all, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2)
        die("/proc/self/statm cannot be read");
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* The most that was ever resident. */
static int64_t most_resident(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        die("getrusage fails");
    return (int64_t)usage.ru_maxrss * 1024;
}

/* Layers are finished in their order; the thread that loads them is the one that looks. */
static void look(watch *w)
{
    fp8_layer_info info;
    while (w->whole < w->count && fp8_layer_get_info(w->layers[w->whole], &info) == FP8_OK &&
           info.state == FP8_LAYER_READY)
        printf("layers %d whole %2d resident %8.2f MiB, most so far %8.2f\n", w->count, ++w->whole,
               (double)(resident() - w->before) / MIB, (double)(most_resident() - w->before) / MIB);
}

static void run_and_look(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    for (int64_t i = 0; i < n; i++)
        body(arg, i);
    look(user);
}

/* ---- the checkpoint -------------------------------------------------------------------------- */

static char *header_of(int layers, int64_t side)
{
    char *text = malloc((size_t)layers * 128 + 3);
    size_t at = 0;
    if (!text)
        die("no memory");
    text[at++] = '{';
    for (int i = 0; i < layers; i++)
        at += (size_t)sprintf(text + at,
                              "%s\"l.%02d.weight\":{\"dtype\":\"BF16\",\"shape\":[%lld,%lld],"
                              "\"data_offsets\":[%lld,%lld]}",
                              i ? "," : "", i, (long long)side, (long long)side,
                              (long long)(2 * side * side * i),
                              (long long)(2 * side * side * (i + 1)));
    text[at++] = '}';
    text[at] = 0;
    return text;
}

/* bf16 numbers of magnitude 2^-4 to 2^4, each from the one before. */
static void fill_row(uint16_t *row, int64_t n, uint32_t *state)
{
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525U + 1013904223U;
        row[i] = (uint16_t)((*state >> 31 << 15) | (123 + (*state >> 16) % 8) << 7 |
                            (*state >> 20 & 127));
    }
}

static void make_checkpoint(const char *path, int layers, int64_t side)
{
    FILE *file = fopen(path, "w");
    char *header = header_of(layers, side);
    uint16_t *row = malloc((size_t)side * sizeof *row);
    const uint64_t bytes = strlen(header);
    uint32_t state = 1;
    bool ok = file && row && fwrite(&bytes, 8, 1, file) && fwrite(header, bytes, 1, file);
    for (int64_t i = 0; i < layers * side && ok; i++) {
        fill_row(row, side, &state);
        ok = fwrite(row, (size_t)side * sizeof *row, 1, file);
    }
    if (!ok || fclose(file))
        die("the checkpoint cannot be written");
    free(row);
    free(header);
}

/* ---- loading it ------------------------------------------------------------------------------ */

static void declare(const fp8_context *ctx, fp8_load *load, watch *w, int64_t side,
                    const char *scheme)
{
    fp8_error err;
    for (int i = 0; i < w->count; i++) {
        char name[16];
        fp8_layer_desc d = FP8_LAYER_DESC_INIT;
        snprintf(name, sizeof name, "l.%02d", i);
        d.name = name;
        d.n = d.k = side;
        if (fp8_online_linear(scheme, 0, &d.linear, &err) ||
            fp8_layer_create(ctx, &d, &w->layers[i], &err) ||
            fp8_load_add(load, w->layers[i], &err))
            die(err.msg);
    }
}

static result load_all(const char *path, int layers, int64_t side, const char *scheme)
{
    watch w = {.count = layers};
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx;
    fp8_load *load;
    fp8_error err;
    result r = {0};
    desc.threads = 1;
    desc.parallel_for = run_and_look;
    desc.parallel_user = &w;
    if (fp8_context_create(&desc, &ctx, &err) || fp8_load_create(ctx, NULL, &load, &err))
        die(err.msg);
    w.before = resident();
    declare(ctx, load, &w, side, scheme);
    if (fp8_load_checkpoint(load, path, &err) || fp8_load_finish(load, &err))
        die(err.msg);
    look(&w);
    r.peak = most_resident() - w.before;
    for (int i = 0; i < layers; i++) {
        fp8_layer_info info;
        if (fp8_layer_get_info(w.layers[i], &info))
            die("a layer says nothing");
        r.final += (int64_t)(info.code_bytes + info.scale_bytes + info.other_bytes);
    }
    return r;
}

/* In a process that has not held anything before. */
static result measure(const char *path, int layers, int64_t side, const char *scheme)
{
    int ends[2], status;
    result r = {0};
    make_checkpoint(path, layers, side);
    fflush(stdout);
    if (pipe(ends))
        die("no pipe");
    const pid_t child = fork();
    if (child == 0) {
        r = load_all(path, layers, side, scheme);
        const bool told = write(ends[1], &r, sizeof r) == sizeof r;
        exit(told ? 0 : 2);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status ||
        read(ends[0], &r, sizeof r) != sizeof r)
        die("the load failed");
    close(ends[0]);
    close(ends[1]);
    unlink(path);
    return r;
}

int main(int argc, char **argv)
{
    const int64_t side = argc > 1 ? atoll(argv[1]) : 1024;
    const char *scheme = argc > 2 ? argv[2] : "tensor", *folder = getenv("TMPDIR");
    const int counts[2] = {8, MOST};
    char path[4096];
    result r[2];
    bool ok = true;
    if (side < 1 || side > 1 << 15)
        die("usage: bench_load [SIDE] [SCHEME], SIDE 1 to 32768");
    snprintf(path, sizeof path, "%s/fp8_bench_load_%d.safetensors", folder ? folder : "/tmp",
             (int)getpid());
    for (int i = 0; i < 2; i++) {
        r[i] = measure(path, counts[i], side, scheme);
        const int64_t limit = r[i].final + 3 * side * side + 64 * (int64_t)MIB;
        ok = ok && r[i].peak <= limit;
        printf("bench_load scheme=%s side=%lld layers=%d fp8_mib=%.2f peak_mib=%.2f over_fp8=%.2f "
               "limit_mib=%.2f\n",
               scheme, (long long)side, counts[i], (double)r[i].final / MIB,
               (double)r[i].peak / MIB, (double)(r[i].peak - r[i].final) / MIB,
               (double)limit / MIB);
    }
    const int64_t growth = r[1].peak - r[0].peak, fp8 = r[1].final - r[0].final;
    printf("bench_load scheme=%s growth_mib=%.2f fp8_growth_mib=%.2f\n", scheme,
           (double)growth / MIB, (double)fp8 / MIB);
    return ok && growth <= fp8 + 4 * MIB ? 0 : 1;
}
