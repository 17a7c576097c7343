/* SPDX-License-Identifier: Apache-2.0
 *
 * cublaslt.h - cuBLASLt beside ours on a GPU, loaded where it is installed: Y[M,N] (bf16) =
 * X[M,K] W[N,K]^T in FP8 or bf16, by the best of the algorithms that its heuristics offer. */
#ifndef FP8_CLI_CUBLASLT_H
#define FP8_CLI_CUBLASLT_H

#include "cli/gpu_timing.h"
#include "cli/shapes.h"

/* Its functions, as cublasLt.h declares them; handles are pointers, enumerations ints. */
/* clang-format off */
#define CLI_LT_FUNCTIONS(X)                                                                       \
    X(size_t, cublasLtGetVersion, (void))                                                         \
    X(int, cublasLtCreate, (void **))                                                             \
    X(int, cublasLtDestroy, (void *))                                                             \
    X(int, cublasLtMatmulDescCreate, (void **, int compute, int scale))                           \
    X(int, cublasLtMatmulDescDestroy, (void *))                                                   \
    X(int, cublasLtMatmulDescSetAttribute, (void *, int which, const void *value, size_t bytes))  \
    X(int, cublasLtMatrixLayoutCreate, (void **, int type, uint64_t rows, uint64_t cols, int64_t ld)) \
    X(int, cublasLtMatrixLayoutDestroy, (void *))                                                 \
    X(int, cublasLtMatmulPreferenceCreate, (void **))                                             \
    X(int, cublasLtMatmulPreferenceDestroy, (void *))                                             \
    X(int, cublasLtMatmulPreferenceSetAttribute, (void *, int which, const void *value, size_t bytes)) \
    X(int, cublasLtMatmulAlgoGetHeuristic, (void *, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted, void *found, int *count)) \
    X(int, cublasLtMatmul, (void *, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const void *algorithm, void *workspace, size_t bytes, struct CUstream_st *))
/* clang-format on */

/* cublasLtMatmulHeuristicResult_t */
typedef struct cli_lt_found {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} cli_lt_found;

enum {
    CLI_LT_TRIED = 16,    /* algorithms asked for and timed once */
    CLI_LT_FINALISTS = 2, /* of which are timed beside ours */
};

typedef struct cli_cublaslt {
#define FIELD(result, name, arguments) result(*name) arguments; /* NOLINT */
    CLI_LT_FUNCTIONS(FIELD)
#undef FIELD
    void *handle, *workspace;
    const fp8_context *ctx; /* whose memory the workspace is */
    size_t version;         /* 130100 for 13.1 */
    char missing[128];      /* why it cannot be timed; empty if it can */
} cli_cublaslt;

/* The scales that X and W have; numbers of cublasLtMatmulMatrixScale_t, but for bf16. */
typedef enum cli_lt_scales {
    CLI_LT_BF16 = -1, /* no FP8 at all */
    CLI_LT_TENSOR = 0,
    CLI_LT_VECTOR = 3, /* one a row of X and of W */
    CLI_LT_BLOCK = 5,  /* 1x128 and 128x128 */
} cli_lt_scales;

typedef struct cli_lt_problem {
    const char *name; /* of the series */
    cli_shape shape;
    cli_lt_scales scales;
    bool fast;      /* sums stay in the tensor cores */
    const void *x;  /* [M,K] */
    void *const *w; /* [copies], each [N,K] */
    int64_t copies;
    void *y; /* [M,N] */
    const void *x_scales, *w_scales;
    int64_t launches; /* of a graph */
} cli_lt_problem;

/* Whether it is installed: its file name and version in text; nothing stays loaded that was not. */
bool cli_cublaslt_installed(char *text, size_t bytes);
/* Loads it for the GPU that is current. What is missing is no error. */
void cli_cublaslt_open(cli_cublaslt *lt, const fp8_context *ctx);
void cli_cublaslt_close(cli_cublaslt *lt);
/* The fastest algorithms for a problem as series; out[i].graph is NULL where there is none. Errors:
 * DEVICE. */
fp8_status cli_cublaslt_record(cli_cublaslt *lt, cli_gpu *gpu, const cli_lt_problem *problem,
                               cli_series out[CLI_LT_FINALISTS], fp8_error *err);

#endif
