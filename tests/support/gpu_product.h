/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_product.h - what tests of products on a GPU share: made-up matrices, the elements of Y that
 * are compared with their exact values, and that none is NaN. Free what is new with free(). */
#ifndef FP8_TESTS_GPU_PRODUCT_H
#define FP8_TESTS_GPU_PRODUCT_H

#include "fp8.h"

#include <stdbool.h>

/* The next of a sequence that is the same in each run. */
uint32_t random_word(void);
/* [rows, cols], contiguous, of numbers in [-by/2, by/2), or, of one sign, in [0, by). */
fp8_tensor elements_new(fp8_dtype dtype, int64_t rows, int64_t cols, float by, bool one_sign);
/* The same in fp32, in [0.001, 0.002). */
fp8_tensor scales_new(int64_t rows, int64_t cols);
/* Element [i,j] of a matrix whose rows are contiguous. */
double element_at(const fp8_tensor *t, int64_t i, int64_t j);

/* Elements of Y[m,n]; exact and size are for the test to fill. */
typedef struct samples {
    int64_t count;
    int64_t *at;          /* [count]: by number, i * n + j */
    double *exact, *size; /* [count]: what they are exactly, and the sum of |x w| */
} samples;
/* All, or so many, the last one among them. */
samples samples_new(int64_t m, int64_t n, int64_t most);
void samples_free(samples *s);

/* Fails the test, called `name`, if an element of y is NaN. */
void check_numbers(const fp8_tensor *y, const char *name);

#endif
