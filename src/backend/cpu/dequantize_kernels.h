/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize_kernels.h - real = code * scale along a row, VEC_GROUP at a time, with the bits of
 * ref_dequantize.c. A dequantize_<level>.c includes the vec header of its level, defines
 * LEVEL(name) and includes this. */
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

/* y[VEC_GROUP] = codes[VEC_GROUP] * scale[0..3]. */
VEC_FN void dequantize_group(void *y, fp8_dtype to, const void *codes, fp8_dtype from,
                             const vec_f32 scale[4])
{
    vec_f32 x[4];
    vec_load_group(x, codes, from);
    for (int k = 0; k < 4; k++)
        x[k] = vec_plain_nan(vec_mul(x[k], scale[k]));
    vec_store_group(y, x, to, false, VEC_PLAIN_NAN);
}

VEC_FN void load_scales(vec_f32 scale[4], const float *scales, bool one)
{
    for (int64_t k = 0; k < 4; k++)
        scale[k] = one ? vec_set1(scales[0]) : vec_load_f32(scales + k * VEC_LANES);
}

VEC_FN void dequantize(const fp8_dequantize_run *run, fp8_dtype to, fp8_dtype from, bool one)
{
    const int64_t y_bytes = vec_element_bytes(to);
    const char *codes = run->codes;
    char *y = run->y;
    vec_f32 scale[4];
    int64_t j = 0;
    for (; j + VEC_GROUP <= run->n; j += VEC_GROUP) {
        load_scales(scale, run->scales + (one ? 0 : j), one);
        dequantize_group(y + j * y_bytes, to, codes + j, from, scale);
    }
    const int64_t left = run->n - j;
    if (left == 0)
        return;
    vec_tail tail, scale_tail;
    if (!one)
        vec_tail_load(&scale_tail, run->scales + j, left, FP8_F32);
    load_scales(scale, one ? run->scales : (const float *)(const void *)scale_tail.in, one);
    vec_tail_load(&tail, codes + j, left, from);
    dequantize_group(tail.out, to, tail.in, from, scale);
    vec_tail_store(y + j * y_bytes, &tail, left, to);
}

#define DEFINE_DEQUANTIZE_TO(NAME, FROM, TO)                         \
    void LEVEL(fp8_dequantize_##NAME)(const fp8_dequantize_run *run) \
    {                                                                \
        if (run->scale_stride == 0)                                  \
            dequantize(run, TO, FROM, true);                         \
        else                                                         \
            dequantize(run, TO, FROM, false);                        \
    }
#define DEFINE_DEQUANTIZE(NAME, FROM)               \
    DEFINE_DEQUANTIZE_TO(NAME##_f32, FROM, FP8_F32) \
    DEFINE_DEQUANTIZE_TO(NAME##_f16, FROM, FP8_F16) \
    DEFINE_DEQUANTIZE_TO(NAME##_bf16, FROM, FP8_BF16)
DEFINE_DEQUANTIZE(e4m3fn, FP8_E4M3FN)
DEFINE_DEQUANTIZE(e4m3fnuz, FP8_E4M3FNUZ)
DEFINE_DEQUANTIZE(e5m2, FP8_E5M2)
DEFINE_DEQUANTIZE(e5m2fnuz, FP8_E5M2FNUZ)
