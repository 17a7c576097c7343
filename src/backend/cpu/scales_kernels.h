/* SPDX-License-Identifier: Apache-2.0
 *
 * scales_kernels.h - the formula of backend.h for a vector of units at once, with the bits of
 * scale.c. A scales_<level>.c includes the vec header of its level, defines LEVEL(name), and
 * includes this.
 *
 * Each line is the plain formula; what scale.c does beyond it (subnormal and infinite scales, NaN,
 * the ends of the exponents) shows as a scale outside [low, high], and is left to it. All steps
 * are IEEE operations on fp32 or integers, and the divisions are true ones. */
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

/* Vectors of the compiler's own kind, so that one text serves each level; a comparison gives -1 in
 * the lanes where it holds. */
typedef int32_t lanes_i32 __attribute__((vector_size(4 * VEC_LANES)));

VEC_FN lanes_i32 lanes_set1(int32_t x)
{
    return (lanes_i32)vec_set1(fp8_f32_of_bits((uint32_t)x));
}

VEC_FN vec_f32 lanes_choose(lanes_i32 where, vec_f32 yes, vec_f32 no)
{
    return (vec_f32)((where & (lanes_i32)yes) | (~where & (lanes_i32)no));
}

/* x rounded to a dtype. */
VEC_FN vec_f32 lanes_round(vec_f32 x, fp8_dtype dtype)
{
    return dtype == FP8_F16 ? vec_round_f16(x) : dtype == FP8_BF16 ? vec_round_bf16(x) : x;
}

VEC_FN vec_f32 reckoned_amax(const fp8_scale_formula *f, vec_f32 a)
{
    const vec_f32 upper = vec_set1(f->upper), floor = vec_set1(f->floor);
    a = lanes_choose((lanes_i32)(a > upper), upper, a);
    if (f->zero_is_max)
        a = lanes_choose((lanes_i32)(a > vec_set1(0)), a, vec_set1(f->max));
    return lanes_choose((lanes_i32)(a < floor), floor, a);
}

VEC_FN vec_f32 plain_scale(const fp8_scale_formula *f, vec_f32 a)
{
    const vec_f32 least = vec_set1(f->least);
    vec_f32 s = f->times ? a * vec_set1(1.0f / f->max) : a / vec_set1(f->max);
    s = lanes_round(s, f->quotient);
    return lanes_choose((lanes_i32)(s < least), least, s);
}

/* What a logarithm in fp32 loses of a fraction at exponent k; scale.c says why. */
VEC_FN lanes_i32 absorbed_by_log2(lanes_i32 k)
{
    const lanes_i32 magnitude = (k ^ k >> 31) | 1; /* k, or -k - 1 */
    const lanes_i32 leading = (lanes_i32) __builtin_convertvector(magnitude, vec_f32) >> 23;
    return lanes_set1(45426) << (leading - 127) >> 17;
}

VEC_FN vec_f32 pow2_scale(const fp8_scale_formula *f, vec_f32 value)
{
    const lanes_i32 bits = (lanes_i32)value;
    const lanes_i32 k = (bits >> 23) - 127, fraction = bits & 0x7FFFFF;
    const lanes_i32 threshold = f->log2 ? absorbed_by_log2(k) : lanes_set1((int32_t)f->threshold);
    const lanes_i32 e = k - f->top - (lanes_i32)(fraction > threshold);
    return (vec_f32)((e + 127) << 23);
}

VEC_FN void store_scales(void *p, vec_f32 scale, fp8_dtype dtype)
{
    if (dtype == FP8_F32) {
        vec_store_f32(p, scale);
    } else if (dtype == FP8_F16) {
        vec_store_f16(p, scale);
    } else if (dtype == FP8_BF16) {
        uint16_t both[2 * VEC_LANES];
        vec_store_bf16_pair(both, scale, scale, VEC_EXACT);
        memcpy(p, both, (size_t)VEC_LANES * 2);
    } else {
        const lanes_i32 bits = (lanes_i32)scale;
        for (int lane = 0; lane < VEC_LANES; lane++)
            ((uint8_t *)p)[lane] = (uint8_t)(bits[lane] >> 23);
    }
}

/* VEC_LANES units; false, with nothing stored, if one is for scale.c. */
VEC_FN bool scales_of_vector(const fp8_scales_run *run, int64_t at)
{
    const fp8_scale_formula *f = run->formula;
    const vec_f32 a = reckoned_amax(f, vec_load_f32(run->amax + at));
    vec_f32 scale = plain_scale(f, a);
    if (f->pow2)
        scale = pow2_scale(f, f->of_scale ? scale : a);
    scale = lanes_round(scale, f->scale);
    const lanes_i32 in_range =
        (lanes_i32)(scale >= vec_set1(f->low)) & (lanes_i32)(scale <= vec_set1(f->high));
    if (!vec_all((vec_f32)in_range))
        return false;
    char *scales = run->scales;
    const int64_t bytes = f->scale == FP8_F32 ? 4 : f->scale == FP8_E8M0FNU ? 1 : 2;
    store_scales(scales + at * bytes, scale, f->scale);
    if (f->multiply)
        scale = vec_set1(1) / scale;
    vec_store_f32(run->operand + at, scale);
    return true;
}

int64_t LEVEL(fp8_scales)(const fp8_scales_run *run)
{
    int64_t done = 0;
    while (done + VEC_LANES <= run->n && scales_of_vector(run, done))
        done += VEC_LANES;
    return done;
}
