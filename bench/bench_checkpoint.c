/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_checkpoint.c - a conversion against plain copying of as many bytes:
 *
 *     bench_checkpoint SRC DST [SCHEME] [ROUNDS]
 *
 * Each round, with SRC dropped from the page cache before each: (a) all of SRC is read in 8 MiB
 * pieces and, in between, as many bytes as the conversion writes are written to one file, then
 * fsync; (b) the conversion. One line a round, with the ratio b / a; DST is replaced. */
#include "fp8.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 8 << 20 };

static void die(const char *what)
{
    fprintf(stderr, "bench_checkpoint: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Calls fn for the path of every file of the checkpoint. */
static void each_file(const fp8_checkpoint *ckpt, void (*fn)(void *, const char *), void *arg)
{
    const char *last = "";
    for (int64_t i = 0; i < fp8_checkpoint_count(ckpt); i++) {
        fp8_tensor_info info;
        if (fp8_checkpoint_tensor(ckpt, i, &info) == FP8_OK && strcmp(info.file, last)) {
            last = info.file;
            fn(arg, last);
        }
    }
}

static void drop_from_cache(void *arg, const char *path)
{
    (void)arg;
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        die(path);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

typedef struct plain {
    char *buffer;
    int out;
    double ratio; /* bytes to write for each that is read */
    uint64_t read, written;
} plain;

static void write_share(plain *p)
{
    uint64_t due = (uint64_t)((double)p->read * p->ratio);
    while (p->written < due) {
        uint64_t n = due - p->written < PIECE ? due - p->written : PIECE;
        ssize_t done = write(p->out, p->buffer, n);
        if (done <= 0)
            die("cannot write");
        p->written += (uint64_t)done;
    }
}

static void copy_file(void *arg, const char *path)
{
    plain *p = arg;
    int fd = open(path, O_RDONLY);
    ssize_t n;
    if (fd < 0)
        die(path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while ((n = read(fd, p->buffer, PIECE)) > 0) {
        p->read += (uint64_t)n;
        write_share(p);
    }
    if (n < 0)
        die(path);
    close(fd);
}

static double run_plain(const fp8_checkpoint *ckpt, const char *path, double ratio)
{
    plain p = {.buffer = malloc(PIECE), .ratio = ratio};
    p.out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (!p.buffer || p.out < 0)
        die(path);
    double begin = now();
    each_file(ckpt, copy_file, &p);
    if (fsync(p.out))
        die("cannot sync");
    double seconds = now() - begin;
    close(p.out);
    unlink(path);
    free(p.buffer);
    return seconds;
}

static fp8_convert *plan(const fp8_context *ctx, const char *src, const char *dst,
                         const char *scheme)
{
    fp8_convert_desc desc = FP8_CONVERT_DESC_INIT;
    fp8_convert *conv;
    fp8_error err;
    desc.src = src;
    desc.dst = dst;
    desc.scheme = scheme;
    desc.force = 1;
    if (fp8_convert_plan(ctx, &desc, &conv, &err) != FP8_OK)
        die(err.msg);
    return conv;
}

static double run_convert(const fp8_context *ctx, const char *src, const char *dst,
                          const char *scheme)
{
    fp8_error err;
    double begin = now();
    fp8_convert *conv = plan(ctx, src, dst, scheme);
    if (fp8_convert_run(conv, NULL, NULL, &err) != FP8_OK)
        die(err.msg);
    fp8_convert_free(conv);
    return now() - begin;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_checkpoint SRC DST [SCHEME] [ROUNDS]\n");
        return 2;
    }
    const char *scheme = argc > 3 ? argv[3] : "hf-block";
    int rounds = argc > 4 ? atoi(argv[4]) : 3;
    char path[4096];
    fp8_context *ctx;
    fp8_checkpoint *ckpt;
    fp8_plan_summary sum;
    fp8_error err;
    if (fp8_context_create(NULL, &ctx, &err) != FP8_OK ||
        fp8_checkpoint_open(ctx, argv[1], &ckpt, &err) != FP8_OK)
        die(err.msg);
    fp8_convert *conv = plan(ctx, argv[1], argv[2], scheme);
    fp8_convert_summary(conv, &sum);
    fp8_convert_free(conv);
    snprintf(path, sizeof path, "%s.plain", argv[2]);
    for (int i = 0; i < rounds; i++) {
        each_file(ckpt, drop_from_cache, NULL);
        double a = run_plain(ckpt, path, (double)sum.bytes_out / (double)sum.bytes_in);
        each_file(ckpt, drop_from_cache, NULL);
        double b = run_convert(ctx, argv[1], argv[2], scheme);
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        printf("checkpoint scheme=%s in=%llu out=%llu plain_s=%.2f convert_s=%.2f ratio=%.3f "
               "MB/s=%.0f maxrss_MiB=%ld\n",
               scheme, (unsigned long long)sum.bytes_in, (unsigned long long)sum.bytes_out, a, b,
               b / a, (double)sum.bytes_in / b / 1e6, usage.ru_maxrss / 1024);
        fflush(stdout);
    }
    fp8_checkpoint_close(ckpt);
    fp8_context_free(ctx);
    return 0;
}
