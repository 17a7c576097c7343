/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_cublaslt.c - a libcublasLt.so.13 over the fake driver. It offers three algorithms: one that
 * takes 30 us, one that cannot be launched, and one that takes 20 us. Handles are counted. */
#include "cli/cublaslt.h"
#include "cuda/fake_driver.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT                           __attribute__((visibility("default")))
#define DECLARE(result, name, arguments) EXPORT result name arguments;
CLI_LT_FUNCTIONS(DECLARE)

enum { OFFERED = 3, NOT_SUPPORTED = 15, INVALID_VALUE = 7, STEP = 16 };

size_t cublasLtGetVersion(void)
{
    return 130100;
}

static int make(void **out)
{
    *out = malloc(1); /* what is not given back, a sanitizer tells */
    return *out == NULL;
}

static int destroy(void *handle)
{
    free(handle);
    return 0;
}

int cublasLtCreate(void **out)
{
    return make(out);
}

int cublasLtDestroy(void *handle)
{
    return destroy(handle);
}

int cublasLtMatmulDescCreate(void **out, int compute, int scale)
{
    return compute == 68 && scale == 0 ? make(out) : INVALID_VALUE;
}

int cublasLtMatmulDescDestroy(void *desc)
{
    return destroy(desc);
}

int cublasLtMatmulDescSetAttribute(void *desc, int which, const void *value, size_t bytes)
{
    return desc && value && which >= 3 && which <= 32 && bytes <= 8 ? 0 : INVALID_VALUE;
}

int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    return (type == 14 || type == 28) && (uint64_t)ld >= rows && cols ? make(out) : INVALID_VALUE;
}

int cublasLtMatrixLayoutDestroy(void *layout)
{
    return destroy(layout);
}

int cublasLtMatmulPreferenceCreate(void **out)
{
    return make(out);
}

int cublasLtMatmulPreferenceDestroy(void *preference)
{
    return destroy(preference);
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int which, const void *value,
                                         size_t bytes)
{
    return preference && which == 1 && value && bytes == sizeof(size_t) ? 0 : INVALID_VALUE;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d,
                                   void *preference, int wanted, void *found, int *count)
{
    cli_lt_found *results = found;
    if (!handle || !desc || !a || !b || !c || !d || !preference || wanted < OFFERED)
        return INVALID_VALUE;
    memset(results, 0, (size_t)wanted * sizeof *results);
    results[0].algorithm[0] = 30;
    results[2].algorithm[0] = 20;
    *count = OFFERED;
    return 0;
}

int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                   const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                   void *d, void *d_layout, const void *algorithm, void *workspace, size_t bytes,
                   struct CUstream_st *stream)
{
    const uint64_t *us = algorithm;
    const void *const all[] = {handle, desc, alpha, a,        a_layout, b,         b_layout,
                               beta,   c,    d,     c_layout, d_layout, workspace, stream};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!all[i])
            return INVALID_VALUE;
    if ((uintptr_t)a % STEP || !bytes || !us[0])
        return NOT_SUPPORTED;
    fake_driver_work((int)us[0]);
    return 0;
}
