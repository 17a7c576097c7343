/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_linear.h - a linear layer of the vectors, Y[M,N] = X[M,K] W[N,K]^T + bias[N], run through
 * fp8_matmul and through fp8_linear_run at every instruction set and on a GPU, and compared bit
 * for bit or within the bound of oracle.h. A case counts once, when all of them are right. */
#ifndef GOLDEN_LINEAR_H
#define GOLDEN_LINEAR_H

#include "golden/golden.h"
#include "support/oracle.h"

/* A tensor without dtype is absent. */
typedef struct golden_linear {
    const char *family, *name;
    fp8_linear_desc desc;
    fp8_tensor x, x_scales, w, w_scales, bias;
    fp8_tensor x_codes; /* with x_scales: what X is quantized to inside, absent if it is not */
} golden_linear;

/* A view of t with at least two dimensions: a vector [n] becomes [n,1]. t NULL: absent. */
fp8_tensor golden_matrix(const golden_tensor *t);
/* t[first_row .. + rows, first_col .. + cols]. */
fp8_tensor golden_slice(fp8_tensor t, int64_t first_row, int64_t rows, int64_t first_col,
                        int64_t cols);
/* Element (i,j) in double; F64 too. */
double golden_real(const fp8_tensor *t, int64_t i, int64_t j);
/* "mode dtype" and the like, in static storage that the next 63 calls leave alone. */
const char *golden_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A grid of two numbers, "[64, 32]", under `key` in the file's metadata; {128,128} if none. */
fp8_grid golden_grid(const golden_file *f, const char *key);

/* Y in want's dtype has want's bits. */
void golden_linear_bits(const golden_linear *c, const char *mode, const fp8_tensor *want);
/* Y in dtype y lies within the bound of its definition in double, and so do the vectors' exact[M,N]
 * (F64 or F32, bias included; NULL: none) within far less, and theirs (of dtype y; NULL: none). */
void golden_linear_bound(const golden_linear *c, const char *mode, fp8_dtype y,
                         const fp8_tensor *exact, const fp8_tensor *theirs);

/* The context capped at isa; NULL if this machine does not reach it. */
const fp8_context *golden_context(int isa);
/* Frees the contexts. */
void golden_linear_end(void);

#endif
