/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_problem.h - problems for tests of linears, Y[M,N] = X[M,K] W[N,K]^T + bias[N]: every kind
 * of X, every kind of W, edge shapes; with random data and the answer by definition. */
#ifndef FP8_TESTS_LINEAR_PROBLEM_H
#define FP8_TESTS_LINEAR_PROBLEM_H

#include "op/linear.h"
#include "support/guard.h"
#include "support/oracle.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { X_KINDS = 13, W_KINDS = 14, LINEAR_SHAPES = 18, ODD_X = 7 /* of x_kinds: 1x7 */ };

uint32_t random_word(void);
float random_normal(void);

/* One side of a problem. */
typedef struct kind {
    const char *name;
    fp8_dtype dtype;
    fp8_activation activation; /* of X */
    fp8_dtype scale;
    fp8_grid grid, origin;
    int parts; /* of W */
} kind;

extern const kind x_kinds[X_KINDS], w_kinds[W_KINDS];
extern const int64_t linear_shapes[LINEAR_SHAPES][3]; /* M, N, K */

/* A whole problem, its memory and its answer. */
typedef struct problem {
    int64_t m, n, k, widths[3];
    fp8_linear_desc desc;
    fp8_tensor x, x_scales, w, w_scales, bias;
    bool has_w_scales;
    guard x_memory, w_memory;
    void *x_scale_memory, *w_scale_memory, *bias_memory;
    double *exact, *size; /* [m, n], without the bias */
    double largest_scale;
    double coarse; /* part of size that may be lost beyond the bound: 0, but with tensor cores that
                      add in fewer bits than fp32 has */
} problem;

/* Contiguous [rows, cols] that ends where a page ends. */
fp8_tensor elements_new(fp8_dtype dtype, int64_t rows, int64_t cols, guard *memory);
/* The context is one of the CPU: it quantizes what the answer is of. */
problem problem_new(const fp8_context *ctx, const kind *xk, const kind *wk, const int64_t *shape);
void problem_free(problem *p);
/* A linear of it in any context; fails the test if there is none. */
fp8_linear *linear_of(const fp8_context *ctx, const problem *p, bool with_bias);
/* The first element of y that is beyond its bound, as words; false if there is none. */
bool find_wrong(const problem *p, const fp8_tensor *y, bool with_bias, char *words, size_t bytes);

#endif
