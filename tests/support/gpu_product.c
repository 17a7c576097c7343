/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_product.c - see gpu_product.h. */
#include "support/gpu_product.h"

#include "number/dtype.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

uint32_t random_word(void)
{
    static uint32_t x = 11;
    return next_random(&x);
}

fp8_tensor elements_new(fp8_dtype dtype, int64_t rows, int64_t cols, float by, bool one_sign)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    void *memory = malloc((size_t)rows * (size_t)cols * 4);
    for (int64_t i = 0; i < rows * cols; i++)
        facts->store(memory, i,
                     ((float)(random_word() >> 8) * 0x1p-24F - (one_sign ? 0 : 0.5F)) * by, true);
    return fp8_matrix(memory, dtype, rows, cols);
}

fp8_tensor scales_new(int64_t rows, int64_t cols)
{
    float *values = malloc((size_t)rows * (size_t)cols * sizeof *values);
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = 0.001F + 0.001F * (float)(random_word() & 255) / 256;
    return fp8_matrix(values, FP8_F32, rows, cols);
}

double element_at(const fp8_tensor *t, int64_t i, int64_t j)
{
    return (double)fp8_dtype_facts_of(t->dtype)->load(t->data, i * t->stride[0] + j);
}

samples samples_new(int64_t m, int64_t n, int64_t most)
{
    const int64_t all = m * n;
    samples s = {.count = all < most ? all : most};
    s.at = malloc((size_t)s.count * sizeof *s.at);
    s.exact = malloc((size_t)s.count * sizeof *s.exact);
    s.size = malloc((size_t)s.count * sizeof *s.size);
    for (int64_t i = 0; i < s.count; i++)
        s.at[i] = all <= most ? i : i == 0 ? all - 1 : (int64_t)(random_word() % (uint64_t)all);
    return s;
}

void samples_free(samples *s)
{
    free(s->at);
    free(s->exact);
    free(s->size);
}

void check_numbers(const fp8_tensor *y, const char *name)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(y->dtype);
    for (int64_t i = 0; i < y->shape[0]; i++)
        for (int64_t j = 0; j < y->shape[1]; j++)
            if (isnan(facts->load(y->data, i * y->stride[0] + j)))
                fail_msg("%s: y[%lld,%lld] is NaN", name, (long long)i, (long long)j);
}
