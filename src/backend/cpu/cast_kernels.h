/* SPDX-License-Identifier: Apache-2.0
 *
 * cast_kernels.h - elements to fp32 and back, VEC_GROUP at a time. A cast_<level>.c includes the
 * vec header of its level, defines LEVEL(name) and includes this. */
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

VEC_FN void unpack_group(void *dst, const void *src, fp8_dtype from)
{
    vec_f32 x[4];
    vec_load_group(x, src, from);
    vec_store_group(dst, x, FP8_F32, false);
}

VEC_FN void unpack(float *dst, const void *src, int64_t n, fp8_dtype from)
{
    int64_t i = 0;
    for (; i + VEC_GROUP <= n; i += VEC_GROUP)
        unpack_group(dst + i, (const char *)src + i * vec_element_bytes(from), from);
    if (i == n)
        return;
    vec_tail tail;
    vec_tail_load(&tail, (const char *)src + i * vec_element_bytes(from), n - i, from);
    unpack_group(tail.out, tail.in, from);
    vec_tail_store(dst + i, &tail, n - i, FP8_F32);
}

VEC_FN void pack_group(void *dst, const void *src, fp8_dtype to, bool saturate)
{
    vec_f32 x[4];
    vec_load_group(x, src, FP8_F32);
    vec_store_group(dst, x, to, saturate);
}

VEC_FN void pack(void *dst, const float *src, int64_t n, fp8_dtype to, bool saturate)
{
    int64_t i = 0;
    for (; i + VEC_GROUP <= n; i += VEC_GROUP)
        pack_group((char *)dst + i * vec_element_bytes(to), src + i, to, saturate);
    if (i == n)
        return;
    vec_tail tail;
    vec_tail_load(&tail, src + i, n - i, FP8_F32);
    pack_group(tail.out, tail.in, to, saturate);
    vec_tail_store((char *)dst + i * vec_element_bytes(to), &tail, n - i, to);
}

#define DEFINE_CAST(NAME, DTYPE)                                                       \
    void LEVEL(fp8_unpack_##NAME)(float *dst, const void *src, int64_t n)              \
    {                                                                                  \
        unpack(dst, src, n, DTYPE);                                                    \
    }                                                                                  \
    void LEVEL(fp8_pack_##NAME)(void *dst, const float *src, int64_t n, bool saturate) \
    {                                                                                  \
        if (saturate)                                                                  \
            pack(dst, src, n, DTYPE, true);                                            \
        else                                                                           \
            pack(dst, src, n, DTYPE, false);                                           \
    }
DEFINE_CAST(f16, FP8_F16)
DEFINE_CAST(bf16, FP8_BF16)
DEFINE_CAST(e4m3fn, FP8_E4M3FN)
DEFINE_CAST(e4m3fnuz, FP8_E4M3FNUZ)
DEFINE_CAST(e5m2, FP8_E5M2)
DEFINE_CAST(e5m2fnuz, FP8_E5M2FNUZ)
