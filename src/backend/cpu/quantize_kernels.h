/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_kernels.h - the quantizer along contiguous rows, with the bits of ref_quantize.c but
 * for what only the reference does (quant_steps.c decides). A quantize_<level>.c includes the vec
 * header of its level, defines LEVEL(name) and vectors of bits, and includes this.
 *
 * The amax compares magnitudes as integers in the input's own width: they order as the numbers do,
 * and infinity and NaN come out on top without a test. The quotient is a true division where the
 * rule divides: x * (1 / s) rounds twice and is another number about once in a hundred. */
#include "base/size.h"
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

/* Largest magnitude of x[n], in bits of the input's width; `bytes` an element is 2 or 4. */
VEC_FN uint32_t span_magnitude(const char *x, int64_t n, int64_t bytes)
{
    const int64_t lanes = BITS_BYTES / bytes;
    uint32_t top = 0;
    if (n < lanes) {
        for (int64_t j = 0; j < n; j++) {
            uint32_t element = 0;
            memcpy(&element, x + j * bytes, (size_t)bytes);
            element &= bytes == 2 ? 0x7FFF : 0x7FFFFFFF;
            top = element > top ? element : top;
        }
        return top;
    }
    vec_bits m = bits_magnitude(x, bytes);
    for (int64_t j = lanes; j + lanes <= n; j += lanes)
        m = bits_max(m, bits_magnitude(x + j * bytes, bytes), bytes);
    if (n % lanes) /* the last lanes again, some for the second time */
        m = bits_max(m, bits_magnitude(x + (n - lanes) * bytes, bytes), bytes);
    return bits_reduce(m, bytes);
}

/* out[k] = the larger of out[k] and the number of bits top[k], in the width of dtype. */
VEC_FN void raise_amaxes(float out[VEC_LANES], const void *top, fp8_dtype dtype)
{
    const vec_bits found = (vec_bits)vec_plain_nan(vec_load(top, dtype));
    vec_store_f32(out, (vec_f32)bits_max((vec_bits)vec_load_f32(out), found, 4));
}

/* The amaxes of VEC_LANES units at a time. */
VEC_FN void amax_of_units(const fp8_amax_run *run, int64_t unit, fp8_dtype dtype)
{
    const int64_t bytes = vec_element_bytes(dtype), units = fp8_ceil_div(run->n, unit);
    const char *x = run->x;
    for (int64_t k = 0; k < units; k += VEC_LANES) {
        const int64_t count = units - k < VEC_LANES ? units - k : VEC_LANES;
        char top[VEC_LANES * 4] = {0};
        for (int64_t u = 0; u < count; u++) {
            const int64_t at = (k + u) * unit, n = run->n - at < unit ? run->n - at : unit;
            const uint32_t bits = n == unit ? span_magnitude(x + at * bytes, unit, bytes)
                                            : span_magnitude(x + at * bytes, n, bytes);
            memcpy(top + u * bytes, &bits, (size_t)bytes);
        }
        if (count == VEC_LANES) {
            raise_amaxes(run->amax + k, top, dtype);
        } else {
            float last[VEC_LANES] = {0};
            memcpy(last, run->amax + k, (size_t)count * sizeof(float));
            raise_amaxes(last, top, dtype);
            memcpy(run->amax + k, last, (size_t)count * sizeof(float));
        }
    }
}

/* The lengths of MX and of groups are constants, so that their loops unroll. */
VEC_FN void amax(const fp8_amax_run *run, fp8_dtype dtype)
{
    if (run->unit == 32)
        amax_of_units(run, 32, dtype);
    else if (run->unit == 128)
        amax_of_units(run, 128, dtype);
    else
        amax_of_units(run, run->unit, dtype);
}

#define DEFINE_AMAX(NAME, DTYPE)                         \
    void LEVEL(fp8_amax_##NAME)(const fp8_amax_run *run) \
    {                                                    \
        amax(run, DTYPE);                                \
    }
DEFINE_AMAX(f32, FP8_F32)
DEFINE_AMAX(f16, FP8_F16)
DEFINE_AMAX(bf16, FP8_BF16)

/* What the compiler knows of an encode. */
typedef struct encoding {
    fp8_dtype from, to;
    fp8_op op;
} encoding;

/* codes[VEC_GROUP] of x[VEC_GROUP]; one operand a vector. */
VEC_FN void encode_group(uint8_t *codes, const void *x, encoding e, const vec_f32 operand[4],
                         const fp8_encode_run *run)
{
    vec_f32 y[4];
    vec_load_group(y, x, e.from);
    for (int k = 0; k < 4; k++) {
        y[k] =
            e.op == FP8_OP_ENCODE_MULTIPLY ? vec_mul(y[k], operand[k]) : vec_div(y[k], operand[k]);
        if (e.to == FP8_E4M3FNUZ) /* the only format whose maximum a rule may lower */
            y[k] = vec_clamp(y[k], run->max);
        if (e.to == FP8_E4M3FN && run->plus_zero)
            y[k] = vec_plus_zero(y[k], run->zero);
    }
    const int first = e.op != FP8_OP_ENCODE_TWICE ? 23 : e.from == FP8_F16 ? 10 : 7;
    vec_store_codes(codes, vec_encode_twice(y, vec_format(e.to), true, first));
}

VEC_FN void encode_tail(uint8_t *codes, const void *x, int64_t n, encoding e,
                        const vec_f32 operand[4], const fp8_encode_run *run)
{
    vec_tail tail;
    vec_tail_load(&tail, x, n, e.from);
    encode_group(tail.out, tail.in, e, operand, run);
    vec_tail_store(codes, &tail, n, e.to);
}

/* n elements of one unit. */
VEC_FN void encode_unit(const fp8_encode_run *run, int64_t at, int64_t n, encoding e, float operand)
{
    const int64_t bytes = vec_element_bytes(e.from);
    const char *x = (const char *)run->x + at * bytes;
    uint8_t *codes = run->codes + at;
    const vec_f32 one = vec_set1(operand);
    const vec_f32 operands[4] = {one, one, one, one};
    int64_t j = 0;
    for (; j + VEC_GROUP <= n; j += VEC_GROUP)
        encode_group(codes + j, x + j * bytes, e, operands, run);
    if (j < n)
        encode_tail(codes + j, x + j * bytes, n - j, e, operands, run);
}

/* One unit after the other. */
VEC_FN void encode_units(const fp8_encode_run *run, int64_t unit, encoding e)
{
    const float *operand = run->operand;
    int64_t at = 0;
    for (; at + unit <= run->n; at += unit)
        encode_unit(run, at, unit, e, *operand++);
    if (at < run->n)
        encode_unit(run, at, run->n - at, e, *operand);
}

/* Units of one or a few whole vectors: a group of vectors takes from several. */
VEC_FN void encode_small_units(const fp8_encode_run *run, encoding e)
{
    const int64_t bytes = vec_element_bytes(e.from), last = (run->n - 1) / run->unit;
    int64_t unit = 0, into = 0; /* of the next vector */
    for (int64_t j = 0; j < run->n; j += VEC_GROUP) {
        const char *x = (const char *)run->x + j * bytes;
        vec_f32 operands[4];
        for (int k = 0; k < 4; k++) {
            operands[k] = vec_set1(run->operand[unit < last ? unit : last]);
            into += VEC_LANES;
            unit += into == run->unit;
            into = into == run->unit ? 0 : into;
        }
        if (run->n - j >= VEC_GROUP)
            encode_group(run->codes + j, x, e, operands, run);
        else
            encode_tail(run->codes + j, x, run->n - j, e, operands, run);
    }
}

VEC_FN void encode_row(const fp8_encode_run *run, encoding e)
{
    if (run->unit == VEC_GROUP) /* MX, or half of it: a constant, so that there is no loop */
        encode_units(run, VEC_GROUP, e);
    else if (run->unit % VEC_GROUP && run->unit % VEC_LANES == 0)
        encode_small_units(run, e);
    else
        encode_units(run, run->unit, e);
}

VEC_FN void encode(const fp8_encode_run *given, encoding e)
{
    fp8_encode_run run = *given; /* a copy, which no store of a code can change */
    for (int64_t i = 0; i < run.rows; i++) {
        run.x = (const char *)given->x + i * given->x_step * vec_element_bytes(e.from);
        run.codes = given->codes + i * given->code_step;
        encode_row(&run, e);
    }
}

#define DEFINE_ENCODE_ONE(NAME, FROM, TO, OP)                  \
    void LEVEL(fp8_encode_##NAME)(const fp8_encode_run *run)   \
    {                                                          \
        encode(run, (encoding){FROM, TO, FP8_OP_ENCODE_##OP}); \
    }
#define DEFINE_ENCODE_TO(NAME, FROM, TO)               \
    DEFINE_ENCODE_ONE(divide_##NAME, FROM, TO, DIVIDE) \
    DEFINE_ENCODE_ONE(multiply_##NAME, FROM, TO, MULTIPLY)
#define DEFINE_ENCODE(NAME, FROM)                         \
    DEFINE_ENCODE_TO(NAME##_e4m3fn, FROM, FP8_E4M3FN)     \
    DEFINE_ENCODE_TO(NAME##_e4m3fnuz, FROM, FP8_E4M3FNUZ) \
    DEFINE_ENCODE_TO(NAME##_e5m2, FROM, FP8_E5M2)
DEFINE_ENCODE(f32, FP8_F32)
DEFINE_ENCODE(f16, FP8_F16)
DEFINE_ENCODE(bf16, FP8_BF16)
DEFINE_ENCODE_ONE(twice_f16_e4m3fn, FP8_F16, FP8_E4M3FN, TWICE)
DEFINE_ENCODE_ONE(twice_bf16_e4m3fn, FP8_BF16, FP8_E4M3FN, TWICE)
