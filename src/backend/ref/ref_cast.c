/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_cast.c - elements to fp32 and back, one at a time, by the table of dtypes. */
#include "number/dtype.h"
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/ref/kernels.inc"

static void cast(void *dst, fp8_dtype to, const void *src, fp8_dtype from, int64_t n, bool saturate)
{
    const fp8_load_fn load = fp8_dtype_facts_of(from)->load;
    const fp8_store_fn store = fp8_dtype_facts_of(to)->store;
    for (int64_t i = 0; i < n; i++)
        store(dst, i, load(src, i), saturate);
}

void fp8_ref_cast_f32_f32(void *dst, const void *src, int64_t n, bool saturate)
{
    cast(dst, FP8_F32, src, FP8_F32, n, saturate);
}

#define DEFINE_CAST(NAME, DTYPE)                                                         \
    void fp8_ref_cast_##NAME##_f32(void *dst, const void *src, int64_t n, bool saturate) \
    {                                                                                    \
        cast(dst, FP8_F32, src, DTYPE, n, saturate);                                     \
    }                                                                                    \
    void fp8_ref_cast_f32_##NAME(void *dst, const void *src, int64_t n, bool saturate)   \
    {                                                                                    \
        cast(dst, DTYPE, src, FP8_F32, n, saturate);                                     \
    }
DEFINE_CAST(f16, FP8_F16)
DEFINE_CAST(bf16, FP8_BF16)
DEFINE_CAST(e4m3fn, FP8_E4M3FN)
DEFINE_CAST(e4m3fnuz, FP8_E4M3FNUZ)
DEFINE_CAST(e5m2, FP8_E5M2)
DEFINE_CAST(e5m2fnuz, FP8_E5M2FNUZ)
DEFINE_CAST(e8m0fnu, FP8_E8M0FNU)
