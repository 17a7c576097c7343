/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_group.h - vectors of any dtype, built on the names that vec_avx2.h and vec_avx512.h share;
 * they include it. `dtype` and `saturate` must be constants at the call, so that the branches fold.
 * No function here reads or writes a byte beyond those named. */
#ifndef FP8_NUMBER_VEC_GROUP_H
#define FP8_NUMBER_VEC_GROUP_H

#include "fp8.h"

/* Bytes an element of the dtypes that vectors know. */
VEC_FN int64_t vec_element_bytes(fp8_dtype dtype)
{
    return dtype == FP8_F32 ? 4 : dtype == FP8_F16 || dtype == FP8_BF16 ? 2 : 1;
}

VEC_FN fp8_format vec_format(fp8_dtype dtype)
{
    return dtype == FP8_E4M3FN     ? fp8_format_e4m3fn()
           : dtype == FP8_E4M3FNUZ ? fp8_format_e4m3fnuz()
           : dtype == FP8_E5M2     ? fp8_format_e5m2()
                                   : fp8_format_e5m2fnuz();
}

/* VEC_LANES elements at p as fp32: of F32, F16, BF16, E8M0FNU or a fnuz format. */
VEC_FN vec_f32 vec_load(const void *p, fp8_dtype dtype)
{
    return dtype == FP8_F32       ? vec_load_f32(p)
           : dtype == FP8_F16     ? vec_load_f16(p)
           : dtype == FP8_BF16    ? vec_load_bf16(p)
           : dtype == FP8_E8M0FNU ? vec_decode_e8m0(p)
                                  : vec_decode_fnuz(p, vec_format(dtype));
}

/* VEC_GROUP elements of any dtype at p as fp32. */
VEC_FN void vec_load_group(vec_f32 x[4], const void *p, fp8_dtype dtype)
{
    if (dtype == FP8_E4M3FN || dtype == FP8_E5M2) {
        vec_decode_fn(x, p, vec_format(dtype));
        return;
    }
    for (int64_t k = 0; k < 4; k++)
        x[k] = vec_load((const char *)p + k * VEC_LANES * vec_element_bytes(dtype), dtype);
}

VEC_FN void vec_store_group_f32(void *p, const vec_f32 x[4])
{
    for (int64_t k = 0; k < 4; k++)
        vec_store_f32((char *)p + k * VEC_LANES * 4, x[k]);
}

VEC_FN void vec_store_group_f16(void *p, const vec_f32 x[4])
{
    for (int64_t k = 0; k < 4; k++)
        vec_store_f16((char *)p + k * VEC_LANES * 2, x[k]);
}

VEC_FN void vec_store_group_bf16(void *p, const vec_f32 x[4], vec_known known)
{
    vec_store_bf16_pair(p, x[0], x[1], known);
    vec_store_bf16_pair((char *)p + (size_t)VEC_LANES * 4, x[2], x[3], known);
}

/* VEC_GROUP elements at p = x rounded to nearest even; overflow as fp8_cast's `saturate`. */
VEC_FN void vec_store_group(void *p, const vec_f32 x[4], fp8_dtype dtype, bool saturate,
                            vec_known known)
{
    if (vec_element_bytes(dtype) == 1) {
        vec_store_codes(p, vec_encode(x, vec_format(dtype), saturate));
        return;
    }
    const float max = dtype == FP8_F32 ? 0x1.fffffep127f : dtype == FP8_F16 ? 65504 : 0x1.fep127f;
    vec_f32 y[4];
    for (int k = 0; k < 4; k++)
        y[k] = saturate ? vec_clamp(x[k], max) : x[k];
    if (dtype == FP8_F32)
        vec_store_group_f32(p, y);
    else if (dtype == FP8_F16)
        vec_store_group_f16(p, y);
    else
        vec_store_group_bf16(p, y, known);
}

/* The last n < VEC_GROUP elements of an array, padded with zeros, and where results for them go
 * before the first n are copied out: kernels treat a tail as a whole group in this memory. */
typedef struct vec_tail {
    _Alignas(float) unsigned char in[VEC_GROUP * 4];
    unsigned char out[VEC_GROUP * 4];
} vec_tail;

VEC_FN void vec_tail_load(vec_tail *tail, const void *src, int64_t n, fp8_dtype dtype)
{
    memset(tail->in, 0, sizeof tail->in);
    memcpy(tail->in, src, (size_t)(n * vec_element_bytes(dtype)));
}

VEC_FN void vec_tail_store(void *dst, const vec_tail *tail, int64_t n, fp8_dtype dtype)
{
    memcpy(dst, tail->out, (size_t)(n * vec_element_bytes(dtype)));
}

#endif
