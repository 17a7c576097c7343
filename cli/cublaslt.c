/* SPDX-License-Identifier: Apache-2.0
 *
 * cublaslt.c - loading cuBLASLt, and finding its fastest algorithms. It sees columns where we see
 * rows: its A is W, its B is X. */
#include "cli/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { WORKSPACE_BYTES = 64 << 20 };
/* cublasComputeType_t, cudaDataType_t, cublasOperation_t */
enum { COMPUTE_32F = 68, R_32F = 0, R_BF16 = 14, R_E4M3 = 28, TRANSPOSED = 1 };
/* cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t */
enum {
    DESC_TRANS_A = 3,
    DESC_A_SCALE = 17,
    DESC_B_SCALE = 18,
    DESC_FAST = 25,
    DESC_A_MODE = 31,
    DESC_B_MODE = 32,
    PREFERENCE_WORKSPACE = 1,
};
enum { VEC128 = 4 }; /* the mode of X beside CLI_LT_BLOCK of W */

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define ROW(result, name, arguments) {#name, offsetof(cli_cublaslt, name)},
    CLI_LT_FUNCTIONS(ROW)
#undef ROW
};

/* The newest that is installed; *name is its file. */
static void *load(const char **name)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    void *library = NULL;
    for (int i = 0; i < 2 && library == NULL; i++) {
        *name = names[i];
        library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    }
    return library;
}

bool cli_cublaslt_installed(char *text, size_t bytes)
{
    const char *name;
    size_t (*version)(void) = NULL;
    void *library = load(&name);
    if (library != NULL)
        *(void **)&version = dlsym(library, "cublasLtGetVersion");
    if (version != NULL)
        snprintf(text, bytes, "%s, version %zu", name, version());
    else
        snprintf(text, bytes, "not installed (libcublasLt.so.13 or .12)");
    if (library != NULL)
        dlclose(library); /* which unloads nothing */
    return version != NULL;
}

void cli_cublaslt_open(cli_cublaslt *lt, const fp8_context *ctx)
{
    const char *name;
    fp8_error err;
    *lt = (cli_cublaslt){.ctx = ctx};
    void *library = load(&name);
    if (library == NULL) {
        snprintf(lt->missing, sizeof lt->missing,
                 "neither libcublasLt.so.13 nor libcublasLt.so.12 is installed");
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (function == NULL) {
            snprintf(lt->missing, sizeof lt->missing, "%s has no %s", name, functions[i].name);
            return;
        }
        memcpy((char *)lt + functions[i].offset, &function, sizeof function);
    }
    lt->version = lt->cublasLtGetVersion();
    if (lt->cublasLtCreate(&lt->handle) != 0) {
        lt->handle = NULL;
        snprintf(lt->missing, sizeof lt->missing, "%s does not start", name);
    } else if (fp8_device_alloc(ctx, WORKSPACE_BYTES, &lt->workspace, &err) != FP8_OK) {
        snprintf(lt->missing, sizeof lt->missing, "no memory for the workspace of %s", name);
    }
}

void cli_cublaslt_close(cli_cublaslt *lt)
{
    fp8_device_free(lt->ctx, lt->workspace);
    if (lt->handle != NULL)
        lt->cublasLtDestroy(lt->handle);
    *lt = (cli_cublaslt){0};
}

/* ---- one problem ---- */

/* A multiplication as cuBLASLt is told of it. */
typedef struct matmul {
    const cli_cublaslt *lt;
    const cli_lt_problem *problem;
    void *desc, *w, *x, *y, *preference;
    const cli_lt_found *found; /* the algorithm that is tried */
} matmul;

static bool set(const matmul *m, int which, const void *value, size_t bytes)
{
    return m->lt->cublasLtMatmulDescSetAttribute(m->desc, which, value, bytes) == 0;
}

static bool describe_scales(const matmul *m)
{
    const cli_lt_problem *p = m->problem;
    const int8_t fast = p->fast;
    const int w_mode = (int)p->scales, x_mode = p->scales == CLI_LT_BLOCK ? VEC128 : w_mode;
    return set(m, DESC_FAST, &fast, sizeof fast) &&
           set(m, DESC_A_SCALE, &p->w_scales, sizeof p->w_scales) &&
           set(m, DESC_B_SCALE, &p->x_scales, sizeof p->x_scales) &&
           (p->scales == CLI_LT_TENSOR || (set(m, DESC_A_MODE, &w_mode, sizeof w_mode) &&
                                           set(m, DESC_B_MODE, &x_mode, sizeof x_mode)));
}

/* false: it refuses. */
static bool describe(matmul *m)
{
    const cli_cublaslt *lt = m->lt;
    const cli_shape *s = &m->problem->shape;
    const int type = m->problem->scales == CLI_LT_BF16 ? R_BF16 : R_E4M3;
    const int transposed = TRANSPOSED;
    const size_t room = WORKSPACE_BYTES;
    const uint64_t rows = (uint64_t)s->m, cols = (uint64_t)s->n, depth = (uint64_t)s->k;
    return lt->cublasLtMatmulDescCreate(&m->desc, COMPUTE_32F, R_32F) == 0 &&
           set(m, DESC_TRANS_A, &transposed, sizeof transposed) &&
           (m->problem->scales == CLI_LT_BF16 || describe_scales(m)) &&
           lt->cublasLtMatrixLayoutCreate(&m->w, type, depth, cols, s->k) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&m->x, type, depth, rows, s->k) == 0 &&
           lt->cublasLtMatrixLayoutCreate(&m->y, R_BF16, cols, rows, s->n) == 0 &&
           lt->cublasLtMatmulPreferenceCreate(&m->preference) == 0 &&
           lt->cublasLtMatmulPreferenceSetAttribute(m->preference, PREFERENCE_WORKSPACE, &room,
                                                    sizeof room) == 0;
}

static void forget(const matmul *m)
{
    const cli_cublaslt *lt = m->lt;
    void *const layouts[] = {m->w, m->x, m->y};
    if (m->preference != NULL)
        lt->cublasLtMatmulPreferenceDestroy(m->preference);
    for (int i = 0; i < 3; i++)
        if (layouts[i] != NULL)
            lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (m->desc != NULL)
        lt->cublasLtMatmulDescDestroy(m->desc);
}

static fp8_status enqueue(void *arg, int64_t i, void *stream, fp8_error *err)
{
    const matmul *m = arg;
    const cli_lt_problem *p = m->problem;
    const float one = 1, zero = 0;
    const int result = m->lt->cublasLtMatmul(
        m->lt->handle, m->desc, &one, p->w[i % p->copies], m->w, p->x, m->x, &zero, p->y, m->y,
        p->y, m->y, m->found->algorithm, m->lt->workspace, WORKSPACE_BYTES, stream);
    return result == 0 ? FP8_OK
                       : cli_bench_fail(err, FP8_E_DEVICE, "bench: cublasLtMatmul: %d", result);
}

/* Puts a series into its place among the finalists, the fastest first; the last drops out. */
static void rank(cli_gpu *gpu, cli_series *series, cli_series out[CLI_LT_FINALISTS])
{
    int at = CLI_LT_FINALISTS - 1;
    if (out[at].graph != NULL && out[at].best <= series->best) {
        cli_series_free(gpu, series);
        return;
    }
    cli_series_free(gpu, &out[at]);
    for (; at > 0 && (out[at - 1].graph == NULL || out[at - 1].best > series->best); at--)
        out[at] = out[at - 1];
    out[at] = *series;
}

/* Times one algorithm alone; one that does not run is left out. */
static fp8_status try_one(cli_gpu *gpu, matmul *m, cli_series out[CLI_LT_FINALISTS], fp8_error *err)
{
    const cli_recipe recipe = {m->problem->name, enqueue, m, m->problem->launches, false};
    cli_series series;
    if (cli_gpu_record(gpu, &recipe, &series, err) != FP8_OK)
        return FP8_OK;
    fp8_status status = FP8_OK;
    for (int i = 0; i < 2 && status == FP8_OK; i++) /* the first warms up */
        status = cli_gpu_replay(gpu, &series, 1, &series.best, err);
    if (status == FP8_OK)
        rank(gpu, &series, out);
    else
        cli_series_free(gpu, &series);
    return status;
}

fp8_status cli_cublaslt_record(cli_cublaslt *lt, cli_gpu *gpu, const cli_lt_problem *problem,
                               cli_series out[CLI_LT_FINALISTS], fp8_error *err)
{
    cli_lt_found found[CLI_LT_TRIED];
    matmul m = {.lt = lt, .problem = problem};
    int count = 0;
    fp8_status status = FP8_OK;
    for (int i = 0; i < CLI_LT_FINALISTS; i++)
        out[i] = (cli_series){.name = problem->name};
    if (lt->missing[0] != 0)
        return FP8_OK;
    if (!describe(&m) ||
        lt->cublasLtMatmulAlgoGetHeuristic(lt->handle, m.desc, m.w, m.x, m.y, m.y, m.preference,
                                           CLI_LT_TRIED, found, &count) != 0)
        count = 0;
    for (int i = 0; i < count && status == FP8_OK; i++) {
        m.found = &found[i];
        if (found[i].status == 0)
            status = try_one(gpu, &m, out, err);
    }
    forget(&m);
    return status;
}
