/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_kernels.h - the quantizer along a contiguous row, with the bits of ref_quantize.c but
 * for what only the reference does (quant_steps.c decides). A quantize_<level>.c includes the vec
 * header of its level, defines LEVEL(name) and vectors of bits, and includes this.
 *
 * The amax compares magnitudes as integers in the input's own width: they order as the numbers do,
 * and infinity and NaN come out on top without a test. The quotient is a true division where the
 * rule divides: x * (1 / s) rounds twice and is another number about once in a hundred. */
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

/* fp32 bits of that, NaN without its payload. */
VEC_FN uint32_t f32_magnitude(uint32_t bits, fp8_dtype dtype)
{
    if (dtype == FP8_BF16)
        bits <<= 16;
    if (dtype == FP8_F16)
        bits = fp8_bits_of_f32(fp8_f16_to_f32((uint16_t)bits));
    return bits > 0x7F800000 ? 0x7FC00000 : bits;
}

VEC_FN void amax(const fp8_amax_run *run, fp8_dtype dtype)
{
    const int64_t bytes = vec_element_bytes(dtype);
    const char *x = run->x;
    float *out = run->amax;
    for (int64_t j = 0; j < run->n; j += run->unit, out++) {
        const int64_t n = run->n - j < run->unit ? run->n - j : run->unit;
        const uint32_t top = f32_magnitude(span_magnitude(x + j * bytes, n, bytes), dtype);
        if (top > fp8_bits_of_f32(*out))
            *out = fp8_f32_of_bits(top);
    }
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

/* y rounded to a dtype of 16 bits. */
VEC_FN void round_group(vec_f32 y[4], fp8_dtype dtype)
{
    char rounded[VEC_GROUP * 2];
    vec_store_group(rounded, y, dtype, false, VEC_NOTHING);
    vec_load_group(y, rounded, dtype);
}

/* codes[VEC_GROUP] of x[VEC_GROUP]; one operand a vector. */
VEC_FN void encode_group(uint8_t *codes, const void *x, encoding e, const vec_f32 operand[4],
                         float max)
{
    vec_f32 y[4];
    vec_load_group(y, x, e.from);
    for (int k = 0; k < 4; k++) {
        y[k] =
            e.op == FP8_OP_ENCODE_MULTIPLY ? vec_mul(y[k], operand[k]) : vec_div(y[k], operand[k]);
        if (e.to == FP8_E4M3FNUZ) /* the only format whose maximum a rule may lower */
            y[k] = vec_clamp(y[k], max);
    }
    if (e.op == FP8_OP_ENCODE_TWICE)
        round_group(y, e.from);
    vec_store_codes(codes, vec_encode(y, vec_format(e.to), true));
}

VEC_FN void encode_tail(uint8_t *codes, const void *x, int64_t n, encoding e,
                        const vec_f32 operand[4], float max)
{
    vec_tail tail;
    vec_tail_load(&tail, x, n, e.from);
    encode_group(tail.out, tail.in, e, operand, max);
    vec_tail_store(codes, &tail, n, e.to);
}

/* One unit after the other. */
VEC_FN void encode_units(const fp8_encode_run *run, encoding e)
{
    const int64_t bytes = vec_element_bytes(e.from);
    const char *x = run->x;
    uint8_t *codes = run->codes;
    const float *operand = run->operand;
    for (int64_t left = run->n; left > 0; operand++) {
        const vec_f32 one = vec_set1(*operand);
        const vec_f32 operands[4] = {one, one, one, one};
        const int64_t n = left < run->unit ? left : run->unit;
        int64_t j = 0;
        for (; j + VEC_GROUP <= n; j += VEC_GROUP)
            encode_group(codes + j, x + j * bytes, e, operands, run->max);
        if (j < n)
            encode_tail(codes + j, x + j * bytes, n - j, e, operands, run->max);
        x += n * bytes;
        codes += n;
        left -= n;
    }
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
            encode_group(run->codes + j, x, e, operands, run->max);
        else
            encode_tail(run->codes + j, x, run->n - j, e, operands, run->max);
    }
}

VEC_FN void encode(const fp8_encode_run *run, encoding e)
{
    if (run->unit % VEC_GROUP && run->unit % VEC_LANES == 0)
        encode_small_units(run, e);
    else
        encode_units(run, e);
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
