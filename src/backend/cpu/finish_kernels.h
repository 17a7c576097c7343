/* SPDX-License-Identifier: Apache-2.0
 *
 * finish_kernels.h - from a row of fp32 sums to Y, VEC_GROUP at a time, with the bits of
 * ref_finish.c. A finish_<level>.c includes the vec header of its level, defines LEVEL(name) and
 * includes this. */
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

/* x as the dtype holds it. */
VEC_FN vec_f32 round_to(vec_f32 x, fp8_dtype to)
{
    return to == FP8_BF16 ? vec_round_bf16(x) : to == FP8_F16 ? vec_round_f16(x) : x;
}

VEC_FN vec_f32 finish_vector(vec_f32 c, vec_f32 sx, vec_f32 sw, vec_f32 bias, fp8_dtype to,
                             fp8_epilogue epilogue, bool has_bias)
{
    if (epilogue == FP8_EPILOGUE_FUSED)
        return has_bias ? vec_fma(sx, vec_mul(sw, c), bias) : vec_mul(sx, vec_mul(sw, c));
    const vec_f32 product = vec_mul(vec_mul(c, sx), sw);
    if (!has_bias)
        return product;
    return vec_add(epilogue == FP8_EPILOGUE_BIAS_LAST ? round_to(product, to) : product, bias);
}

/* y[VEC_GROUP]; sw and bias may be NULL. */
VEC_FN void finish_group(void *y, const float *c, float x_scale, const float *sw, const float *bias,
                         fp8_dtype to, fp8_epilogue epilogue, bool has_bias)
{
    vec_f32 x[4];
    for (int64_t k = 0; k < 4; k++) {
        const int64_t j = k * VEC_LANES;
        x[k] = finish_vector(
            vec_load_f32(c + j), vec_set1(x_scale), sw ? vec_load_f32(sw + j) : vec_set1(1),
            has_bias ? vec_load_f32(bias + j) : vec_set1(0), to, epilogue, has_bias);
        x[k] = vec_plain_nan(x[k]); /* which NaN an operation gives depends on the processor */
    }
    vec_store_group(y, x, to, false, VEC_PLAIN_NAN);
}

/* The last n elements, from `begin` on, through memory of a whole group. */
VEC_FN void finish_tail(const fp8_finish_run *run, int64_t begin, fp8_dtype to,
                        fp8_epilogue epilogue, bool has_bias)
{
    const int64_t n = run->n - begin;
    const size_t bytes = (size_t)n * sizeof(float);
    float c[VEC_GROUP] = {0}, sw[VEC_GROUP] = {0}, bias[VEC_GROUP] = {0};
    vec_tail tail;
    memcpy(c, run->c + begin, bytes);
    if (run->w_scale)
        memcpy(sw, run->w_scale + begin, bytes);
    if (has_bias)
        memcpy(bias, run->bias + begin, bytes);
    finish_group(tail.out, c, run->x_scale, run->w_scale ? sw : NULL, bias, to, epilogue, has_bias);
    vec_tail_store((char *)run->y + begin * vec_element_bytes(to), &tail, n, to);
}

VEC_FN void finish_row(const fp8_finish_run *run, fp8_dtype to, fp8_epilogue epilogue,
                       bool has_bias)
{
    int64_t j = 0;
    for (; j + VEC_GROUP <= run->n; j += VEC_GROUP)
        finish_group((char *)run->y + j * vec_element_bytes(to), run->c + j, run->x_scale,
                     run->w_scale ? run->w_scale + j : NULL, has_bias ? run->bias + j : NULL, to,
                     epilogue, has_bias);
    if (j < run->n)
        finish_tail(run, j, to, epilogue, has_bias);
}

VEC_FN void finish_epilogue(const fp8_finish_run *run, fp8_dtype to, fp8_epilogue epilogue)
{
    if (run->bias)
        finish_row(run, to, epilogue, true);
    else
        finish_row(run, to, epilogue, false);
}

#define DEFINE_FINISH(NAME, TO)                               \
    void LEVEL(fp8_finish_##NAME)(const fp8_finish_run *run)  \
    {                                                         \
        if (run->epilogue == FP8_EPILOGUE_FUSED)              \
            finish_epilogue(run, TO, FP8_EPILOGUE_FUSED);     \
        else if (run->epilogue == FP8_EPILOGUE_UNFUSED)       \
            finish_epilogue(run, TO, FP8_EPILOGUE_UNFUSED);   \
        else                                                  \
            finish_epilogue(run, TO, FP8_EPILOGUE_BIAS_LAST); \
    }
DEFINE_FINISH(f32, FP8_F32)
DEFINE_FINISH(f16, FP8_F16)
DEFINE_FINISH(bf16, FP8_BF16)
