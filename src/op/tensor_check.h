/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_check.h - what a caller's matrices must be before a kernel may touch them. Words name the
 * argument and the numbers. */
#ifndef FP8_OP_TENSOR_CHECK_H
#define FP8_OP_TENSOR_CHECK_H

#include "base/status.h"

#include <stdbool.h>

/* Element [row, col] of a matrix that passed fp8_check_matrix. */
static inline void *fp8_element_at(const fp8_tensor *t, int64_t row, int64_t col)
{
    const int64_t bytes = fp8_dtype_bits(t->dtype) / 8;
    return (char *)t->data + (row * t->stride[0] + col * t->stride[1]) * bytes;
}

/* t is a matrix [rows, cols] with data where it has elements, and its extent fits in memory.
 * rows or cols < 0: any. Errors: ARGUMENT, SHAPE, STRIDE. */
fp8_status fp8_check_matrix(const fp8_tensor *t, const char *name, int64_t rows, int64_t cols,
                            fp8_error *err);

/* No two elements of an output share memory. Error: STRIDE. t passed fp8_check_matrix. */
fp8_status fp8_check_distinct(const fp8_tensor *t, const char *name, fp8_error *err);

/* Where the elements of a matrix lie: for who compares one with several others. */
typedef struct fp8_extent {
    const char *name;
    intptr_t first, last; /* bytes from address 0; last < first: there are none */
    int64_t row_bytes;    /* |stride of a row|, 0 if there is one row */
    int64_t span_bytes;   /* from the first to past the last byte of one row */
} fp8_extent;
/* None of NULL, and of what fp8_check_matrix would refuse. */
fp8_extent fp8_extent_of(const fp8_tensor *t, const char *name);
/* fp8_check_matrix, which finds it on its way. */
fp8_status fp8_check_extent(const fp8_tensor *t, const char *name, int64_t rows, int64_t cols,
                            fp8_extent *out, fp8_error *err);

/* The elements of a and b do not overlap; views that interleave row by row (codes and scales side
 * by side in one buffer) are allowed. Error: STRIDE. */
fp8_status fp8_check_extents(const fp8_extent *a, const fp8_extent *b, fp8_error *err);
/* The same of matrices. One that fp8_check_matrix would refuse may pass. */
fp8_status fp8_check_apart(const fp8_tensor *a, const char *a_name, const fp8_tensor *b,
                           const char *b_name, fp8_error *err);

#endif
