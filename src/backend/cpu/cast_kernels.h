/* SPDX-License-Identifier: Apache-2.0
 *
 * cast_kernels.h - elements to fp32 and back, VEC_GROUP at a time. A cast_<level>.c includes the
 * vec header of its level, defines LEVEL(name) and includes this. */
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

VEC_FN void cast_group(void *dst, fp8_dtype to, const void *src, fp8_dtype from, bool saturate)
{
    vec_f32 x[4];
    vec_load_group(x, src, from);
    const bool exact = vec_element_bytes(from) == 1; /* in bf16 */
    vec_store_group(dst, x, to, saturate, exact ? VEC_EXACT : VEC_NOTHING);
}

VEC_FN void cast(void *dst, fp8_dtype to, const void *src, fp8_dtype from, int64_t n, bool saturate)
{
    const int64_t src_bytes = vec_element_bytes(from), dst_bytes = vec_element_bytes(to);
    const char *in = src;
    char *out = dst;
    for (; n >= VEC_GROUP; n -= VEC_GROUP) {
        cast_group(out, to, in, from, saturate);
        in += VEC_GROUP * src_bytes;
        out += VEC_GROUP * dst_bytes;
    }
    if (n == 0)
        return;
    vec_tail tail;
    vec_tail_load(&tail, in, n, from);
    cast_group(tail.out, to, tail.in, from, saturate);
    vec_tail_store(out, &tail, n, to);
}

#define DEFINE_CAST_ONE_WAY(NAME, TO, FROM)                                           \
    void LEVEL(fp8_cast_##NAME)(void *dst, const void *src, int64_t n, bool saturate) \
    {                                                                                 \
        if (saturate)                                                                 \
            cast(dst, TO, src, FROM, n, true);                                        \
        else                                                                          \
            cast(dst, TO, src, FROM, n, false);                                       \
    }
#define DEFINE_CAST(NAME, DTYPE)                    \
    DEFINE_CAST_ONE_WAY(NAME##_f32, FP8_F32, DTYPE) \
    DEFINE_CAST_ONE_WAY(f32_##NAME, DTYPE, FP8_F32)
DEFINE_CAST(f16, FP8_F16)
DEFINE_CAST(bf16, FP8_BF16)
DEFINE_CAST(e4m3fn, FP8_E4M3FN)
DEFINE_CAST(e4m3fnuz, FP8_E4M3FNUZ)
DEFINE_CAST(e5m2, FP8_E5M2)
DEFINE_CAST(e5m2fnuz, FP8_E5M2FNUZ)

/* Scales. */
DEFINE_CAST_ONE_WAY(e8m0fnu_f32, FP8_F32, FP8_E8M0FNU)
DEFINE_CAST_ONE_WAY(f32_f32, FP8_F32, FP8_F32)

/* Pairs often used, in one step. */
DEFINE_CAST_ONE_WAY(bf16_e4m3fn, FP8_E4M3FN, FP8_BF16)
DEFINE_CAST_ONE_WAY(bf16_e5m2, FP8_E5M2, FP8_BF16)
DEFINE_CAST_ONE_WAY(f16_e4m3fn, FP8_E4M3FN, FP8_F16)
DEFINE_CAST_ONE_WAY(f16_e5m2, FP8_E5M2, FP8_F16)
DEFINE_CAST_ONE_WAY(e4m3fn_bf16, FP8_BF16, FP8_E4M3FN)
DEFINE_CAST_ONE_WAY(e5m2_bf16, FP8_BF16, FP8_E5M2)
DEFINE_CAST_ONE_WAY(e4m3fn_f16, FP8_F16, FP8_E4M3FN)
DEFINE_CAST_ONE_WAY(e5m2_f16, FP8_F16, FP8_E5M2)
