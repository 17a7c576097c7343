/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_cast.c - elements to fp32 and back, one at a time, by the table of dtypes. */
#include "number/dtype.h"
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/ref/kernels.inc"

static void unpack(float *dst, const void *src, int64_t n, fp8_load_fn load)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = load(src, i);
}

static void pack(void *dst, const float *src, int64_t n, bool saturate, fp8_store_fn store)
{
    for (int64_t i = 0; i < n; i++)
        store(dst, i, src[i], saturate);
}

#define DEFINE_CAST(NAME, DTYPE)                                                    \
    void fp8_ref_unpack_##NAME(float *dst, const void *src, int64_t n)              \
    {                                                                               \
        unpack(dst, src, n, fp8_dtype_facts_of(DTYPE)->load);                       \
    }                                                                               \
    void fp8_ref_pack_##NAME(void *dst, const float *src, int64_t n, bool saturate) \
    {                                                                               \
        pack(dst, src, n, saturate, fp8_dtype_facts_of(DTYPE)->store);              \
    }
DEFINE_CAST(f32, FP8_F32)
DEFINE_CAST(f16, FP8_F16)
DEFINE_CAST(bf16, FP8_BF16)
DEFINE_CAST(e4m3fn, FP8_E4M3FN)
DEFINE_CAST(e4m3fnuz, FP8_E4M3FNUZ)
DEFINE_CAST(e5m2, FP8_E5M2)
DEFINE_CAST(e5m2fnuz, FP8_E5M2FNUZ)
DEFINE_CAST(e8m0fnu, FP8_E8M0FNU)
