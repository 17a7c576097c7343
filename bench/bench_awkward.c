/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_awkward.c - what shapes that fit no tile cost: each of a file against its next larger
 * neighbour with M in 8s, N in 64s and K in 128s, in turn in the same run.
 *
 *     bench_awkward [--threads N] [--seconds S] [FILE]        (bench/shapes/awkward.txt)
 *
 * One line a shape that is not its own neighbour and scheme, then the worst of each scheme. Times
 * are the least of the rounds, S seconds of them for a pair. */
#include "cli/case_linear.h"
#include "cli/shapes.h"
#include "cli/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *why)
{
    fprintf(stderr, "bench_awkward: %s\n", why);
    exit(1);
}

static int64_t up(int64_t size, int64_t multiple)
{
    return (size + multiple - 1) / multiple * multiple;
}

static cli_shape neighbour_of(cli_shape shape)
{
    return (cli_shape){up(shape.m, 8), up(shape.n, 64), up(shape.k, 128)};
}

/* The time of a shape over that of its neighbour. */
static double compare(const fp8_context *ctx, const cli_linear_scheme *scheme, cli_shape shape,
                      cli_shape near, double seconds)
{
    static cli_timed times[2];
    const cli_shape shapes[2] = {shape, near};
    cli_linear_case cases[2];
    char name[2][CLI_SHAPE_NAME];
    fp8_error err = {0};
    for (int i = 0; i < 2; i++) {
        if (cli_linear_case_make(&cases[i], ctx, scheme, shapes[i], &err) != FP8_OK)
            die(err.msg);
        times[i] = (cli_timed){.call = cli_linear_case_call, .arg = &cases[i]};
    }
    cli_time(times, 2, seconds);
    const double ratio = times[0].best / times[1].best;
    printf("bench awkward shape=%s scheme=%s neighbour=%s ms=%.4g neighbour_ms=%.4g ratio=%.3f\n",
           cli_shape_name(name[0], &shape), scheme->name, cli_shape_name(name[1], &near),
           times[0].best * 1e3, times[1].best * 1e3, ratio);
    fflush(stdout);
    for (int i = 0; i < 2; i++)
        cli_linear_case_free(&cases[i]);
    return ratio;
}

static void compare_all(const fp8_context *ctx, const cli_shapes *shapes, double seconds)
{
    const cli_linear_scheme *scheme;
    for (int64_t i = 0; (scheme = cli_linear_scheme_at(i)) != NULL; i++) {
        double worst = 0;
        for (size_t s = 0; s < shapes->count; s++) {
            const cli_shape shape = shapes->items[s], near = neighbour_of(shape);
            if (shape.m == near.m && shape.n == near.n && shape.k == near.k)
                continue;
            const double ratio = compare(ctx, scheme, shape, near, seconds);
            worst = ratio > worst ? ratio : worst;
        }
        printf("bench awkward worst scheme=%s ratio=%.3f\n", scheme->name, worst);
    }
}

int main(int argc, char **argv)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx;
    fp8_error err = {0};
    cli_shapes shapes = {0};
    double seconds = 0.5;
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2)
        if (!strcmp(argv[i], "--threads"))
            desc.threads = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = atof(argv[i + 1]);
        else
            die("usage: bench_awkward [--threads N] [--seconds S] [FILE]");
    if (cli_shapes_read(&shapes, i < argc ? argv[i] : "bench/shapes/awkward.txt") != 0)
        return 1;
    if (fp8_context_create(&desc, &ctx, &err) != FP8_OK)
        die(err.msg);
    compare_all(ctx, &shapes, seconds);
    fp8_context_free(ctx);
    cli_shapes_free(&shapes);
    return 0;
}
