/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_layers.c - the error of a model's linear layers in FP8: Y[M,N] = X[M,K] W[N,K]^T by an
 * fp8_linear that quantizes W itself, against R, the same product of the unquantized W in double.
 *
 *     bench_layers [--m M] [--x FILE] [--least DB] CHECKPOINT
 *
 * Layers are the weights that `fp8 quantize` would quantize; schemes are those of `fp8 bench` that
 * quantize. X is bf16, the same for all schemes: the first M*K numbers of a file of raw fp32, or
 * normal numbers with one channel in 128 twenty times as large, which is what hidden states of
 * transformers look like and what scales per tensor suffer from. Y is fp32.
 *
 *     sqnr_db    10 log10(sum R^2 / sum (Y - R)^2), of the layer
 *     worst      max |Y - R| / rms of the row of R
 *
 * One line a layer and scheme, then one a scheme. Fails if a layer's sqnr_db is below DB. */
#include "cli/linear_scheme.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SCHEMES = 8, OUTLIERS = 128 /* one channel in so many */ };
#define OUTLIER_SIZE 20.0

/* What became of a scheme. */
typedef struct tally {
    int64_t layers;
    double least, sum, worst; /* of sqnr_db, and of worst */
} tally;

typedef struct job {
    fp8_context *ctx;
    fp8_checkpoint *model;
    FILE *x_file;
    int64_t m;
    double least; /* sqnr_db that is good enough */
    tally of[MOST_SCHEMES];
} job;

/* A layer: its weight as it is stored, X, and R; all malloc'ed. */
typedef struct layer {
    const char *name;
    fp8_tensor w, x;
    double *right; /* [m,n] */
} layer;

static void die(const char *why)
{
    fprintf(stderr, "bench_layers: %s\n", why);
    exit(1);
}

static void try(fp8_status status, const fp8_error *err)
{
    if (status != FP8_OK)
        die(err->msg);
}

static void *memory(int64_t count, size_t bytes)
{
    void *p = calloc((size_t)count + 1, bytes);
    if (!p)
        die("no memory");
    return p;
}

/* A normal number of mean 0 and variance 1, by Box and Muller. */
static double next_normal(void)
{
    const double size = sqrt(-2 * log(1 - drand48()));
    return size * cos(2 * acos(-1) * drand48());
}

static void make_x(const job *j, float *x, int64_t k)
{
    srand48(1);
    if (j->x_file) {
        rewind(j->x_file);
        if (fread(x, sizeof *x, (size_t)(j->m * k), j->x_file) != (size_t)(j->m * k))
            die("the file of X has too few numbers");
        return;
    }
    for (int64_t i = 0; i < j->m * k; i++) {
        const bool outlier = i % k % OUTLIERS == 0;
        x[i] = (float)(next_normal() * (outlier ? OUTLIER_SIZE : 1));
    }
}

static float *to_f32(const job *j, const fp8_tensor *t)
{
    fp8_error err;
    const int64_t n = t->shape[0] * t->shape[1];
    float *to = memory(n, sizeof *to);
    try(fp8_cast(j->ctx, t->data, t->dtype, to, FP8_F32, n, 0, NULL, &err), &err);
    return to;
}

/* right[m,n] = x[m,k] w[n,k]^T. */
static double *multiply(const job *j, const layer *l)
{
    const int64_t n = l->w.shape[0], k = l->w.shape[1];
    float *x = to_f32(j, &l->x), *w = to_f32(j, &l->w);
    double *right = memory(j->m * n, sizeof *right);
    for (int64_t col = 0; col < n; col++)
        for (int64_t i = 0; i < j->m; i++) {
            double sum = 0;
            for (int64_t c = 0; c < k; c++)
                sum += (double)x[i * k + c] * (double)w[col * k + c];
            right[i * n + col] = sum;
        }
    free(x);
    free(w);
    return right;
}

static layer read_layer(const job *j, const char *name)
{
    fp8_error err = {0};
    fp8_tensor_info info;
    layer l = {.name = name};
    if (fp8_checkpoint_find(j->model, name, strlen(name), &info) != FP8_OK || info.ndim != 2)
        die("a weight is no matrix");
    const int64_t n = info.shape[0], k = info.shape[1];
    l.w = fp8_matrix(memory((int64_t)info.bytes, 1), info.dtype, n, k);
    l.x = fp8_matrix(memory(j->m * k, 2), FP8_BF16, j->m, k);
    float *x = memory(j->m * k, sizeof *x);
    make_x(j, x, k);
    try(fp8_checkpoint_read(j->model, &info, 0, info.bytes, l.w.data, &err), &err);
    try(fp8_cast(j->ctx, x, FP8_F32, l.x.data, FP8_BF16, j->m * k, 0, NULL, &err), &err);
    free(x);
    l.right = multiply(j, &l);
    return l;
}

static float *run_linear(const job *j, const layer *l, const cli_linear_scheme *scheme)
{
    const fp8_linear_desc desc = cli_linear_desc(scheme, scheme->activation);
    fp8_error err = {0};
    fp8_linear *linear;
    uint64_t bytes;
    float *y = memory(j->m * l->w.shape[0], sizeof *y);
    fp8_tensor out = fp8_matrix(y, FP8_F32, j->m, l->w.shape[0]);
    try(fp8_linear_create(j->ctx, &desc, &l->w, NULL, NULL, &linear, &err), &err);
    try(fp8_linear_workspace(linear, j->m, &bytes, &err), &err);
    void *workspace = memory((int64_t)bytes, 1);
    try(fp8_linear_run(linear, &l->x, NULL, &out, workspace, bytes, NULL, &err), &err);
    free(workspace);
    fp8_linear_free(linear);
    return y;
}

static void compare(job *j, const layer *l, const char *scheme, const float *y, tally *t)
{
    const int64_t n = l->w.shape[0];
    double signal = 0, noise = 0, worst = 0;
    for (int64_t i = 0; i < j->m; i++) {
        double row = 0, most = 0;
        for (int64_t c = i * n; c < (i + 1) * n; c++) {
            const double error = (double)y[c] - l->right[c];
            row += l->right[c] * l->right[c];
            noise += error * error;
            most = fmax(most, fabs(error));
        }
        signal += row;
        if (most > 0)
            worst = fmax(worst, most / sqrt(row / (double)n));
    }
    const double db = 10 * log10(signal / noise);
    printf("layer scheme=%s sqnr_db=%.2f worst=%.4f n=%lld k=%lld name=%s\n", scheme, db, worst,
           (long long)n, (long long)l->w.shape[1], l->name);
    t->least = t->layers++ ? fmin(t->least, db) : db;
    t->sum += db;
    t->worst = fmax(t->worst, worst);
}

static void check_layer(job *j, const char *name)
{
    layer l = read_layer(j, name);
    const cli_linear_scheme *scheme;
    for (int64_t i = 0; (scheme = cli_linear_scheme_at(i)) && i < MOST_SCHEMES; i++) {
        if (scheme->activation == FP8_ACTIVATION_CODES)
            continue;
        float *y = run_linear(j, &l, scheme);
        compare(j, &l, scheme->name, y, &j->of[i]);
        free(y);
    }
    free(l.w.data);
    free(l.x.data);
    free(l.right);
}

/* Says what became of each scheme; false if one is not good enough, or there was no layer. */
static bool report(const job *j)
{
    double least = INFINITY;
    for (int64_t i = 0; i < MOST_SCHEMES; i++) {
        const tally *t = &j->of[i];
        if (!t->layers)
            continue;
        printf("layers scheme=%s layers=%lld m=%lld mean_sqnr_db=%.2f least_sqnr_db=%.2f "
               "worst=%.4f\n",
               cli_linear_scheme_name(i), (long long)t->layers, (long long)j->m,
               t->sum / (double)t->layers, t->least, t->worst);
        least = fmin(least, t->least);
    }
    return least >= j->least && least < INFINITY;
}

static void check_model(job *j, const char *path)
{
    char dst[4096];
    fp8_error err = {0};
    fp8_convert *plan;
    fp8_plan_row row;
    fp8_convert_desc desc = FP8_CONVERT_DESC_INIT;
    snprintf(dst, sizeof dst, "%s.never-written", path);
    desc.src = path;
    desc.dst = dst;
    try(fp8_convert_plan(j->ctx, &desc, &plan, &err), &err);
    try(fp8_checkpoint_open(j->ctx, path, &j->model, &err), &err);
    for (int64_t i = 0; fp8_convert_row(plan, i, &row) == FP8_OK; i++)
        if (!strcmp(row.action, "quantize"))
            check_layer(j, row.name);
    fp8_checkpoint_close(j->model);
    fp8_convert_free(plan);
}

int main(int argc, char **argv)
{
    fp8_error err = {0};
    job j = {.m = 16, .least = -INFINITY};
    int i = 1;
    for (; i + 2 < argc && argv[i][0] == '-'; i += 2)
        if (!strcmp(argv[i], "--m"))
            j.m = atoll(argv[i + 1]);
        else if (!strcmp(argv[i], "--least"))
            j.least = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--x") != 0 || !(j.x_file = fopen(argv[i + 1], "rb")))
            die("no such option, or no such file");
    if (i + 1 != argc || j.m < 1)
        die("usage: bench_layers [--m M] [--x FILE] [--least DB] CHECKPOINT");
    try(fp8_context_create(NULL, &j.ctx, &err), &err);
    check_model(&j, argv[i]);
    const bool good = report(&j);
    fp8_context_free(j.ctx);
    return good ? 0 : 1;
}
