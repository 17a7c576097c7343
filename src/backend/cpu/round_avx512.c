/* SPDX-License-Identifier: Apache-2.0
 *
 * round_avx512.c - bf16 numbers rounded to e4m3fn and back, as encoding and decoding would, 32 at a
 * time: magnitudes of even and odd columns are fp32 in the lanes of two vectors, and the signs wait
 * in x.
 *
 * A division takes ten cycles a vector; x / s is x * h + x * l instead, where h = 1 / s, and l is
 * what h lacks of it. Over all significands of a bf16 x and of an fp32 s this is the quotient's
 * fp32 number but for 11 pairs, in 10 of which both round to the same code; in the last one, all
 * bits of s are ones, which who calls leaves out. */
#include "op/backend.h"

#include <immintrin.h>

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

enum {
    LANES = 32,
    INF_BITS = 0x7F80,
    NAN_BITS = 0x7FC0,
    SMALLEST = 121 << 23, /* 2^-6 in fp32, the least normal number */
    SHIFT = 20 << 23,     /* of an exponent: adding 2^20 times the binade leaves 3 bits */
};

/* What the elements of a unit are multiplied by. */
typedef struct factor {
    __m512 high, low;
    __m512i most; /* magnitude between 448, and what rounds to 480, times the scale; in bf16 */
} factor;

static inline __attribute__((always_inline)) factor factor_of(float operand, bool divide)
{
    const float scale = divide ? operand : 1 / operand, high = divide ? 1 / operand : operand;
    const __m128 low = _mm_fnmadd_ss(_mm_set_ss(high), _mm_set_ss(scale), _mm_set_ss(1));
    const int most = _mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(456 * scale)));
    return (factor){_mm512_set1_ps(high), _mm512_set1_ps(_mm_cvtss_f32(low) * high),
                    _mm512_set1_epi16((short)(most >> 16))};
}

/* The code's number of the quotient of x >= 0. */
static inline __attribute__((always_inline)) __m512i round_lanes(__m512i x, const factor *f,
                                                                 bool divide)
{
    __m512 q = _mm512_castsi512_ps(x);
    if (divide)
        q = _mm512_fmadd_ps(q, f->high, _mm512_mul_ps(q, f->low));
    else
        q = _mm512_mul_ps(q, f->high);
    const __m512i own = _mm512_and_si512(_mm512_castps_si512(q), _mm512_set1_epi32(0x7F800000));
    const __m512i binade = _mm512_max_epi32(own, _mm512_set1_epi32(SMALLEST));
    const __m512 shifter = _mm512_castsi512_ps(_mm512_add_epi32(binade, _mm512_set1_epi32(SHIFT)));
    return _mm512_castps_si512(_mm512_sub_ps(_mm512_add_ps(q, shifter), shifter));
}

static inline __attribute__((always_inline)) __m512i round_all(__m512i x, const factor *f,
                                                               bool divide)
{
    const __m512i sign = _mm512_set1_epi16(INT16_MIN), magnitude = _mm512_andnot_si512(sign, x);
    const __mmask32 is_nan = _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(INF_BITS));
    const __m512i kept = _mm512_min_epu16(magnitude, f->most);
    const __m512i sixteen = _mm512_set1_epi32(16), upper = _mm512_set1_epi32((int)0xFFFF0000);
    const __m512i even = round_lanes(_mm512_sllv_epi32(kept, sixteen), f, divide);
    const __m512i odd = round_lanes(_mm512_and_si512(kept, upper), f, divide);
    __m512i both = _mm512_or_si512(_mm512_srlv_epi32(even, sixteen), odd);
    both = _mm512_mask_mov_epi16(both, is_nan, _mm512_set1_epi16(NAN_BITS));
    return _mm512_ternarylogic_epi32(both, x, sign, 0xF8); /* both | (x & sign) */
}

static inline __attribute__((always_inline)) void round_unit(uint16_t *y, const uint16_t *x,
                                                             int64_t n, float operand, bool divide)
{
    const factor f = factor_of(operand, divide);
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES)
        _mm512_storeu_si512(y + j, round_all(_mm512_loadu_si512(x + j), &f, divide));
    if (j < n) {
        const __mmask32 rest = (__mmask32)((1ULL << (n - j)) - 1);
        const __m512i last = _mm512_maskz_loadu_epi16(rest, x + j);
        _mm512_mask_storeu_epi16(y + j, rest, round_all(last, &f, divide));
    }
}

static inline __attribute__((always_inline)) void round_row(const fp8_round_run *run, bool divide)
{
    const float *operand = run->operand;
    for (int64_t at = 0; at < run->n; at += run->unit) {
        const int64_t n = run->n - at < run->unit ? run->n - at : run->unit;
        round_unit(run->y + at, run->x + at, n, *operand++, divide);
    }
}

void fp8_round_divide_avx512(const fp8_round_run *run)
{
    round_row(run, true);
}

void fp8_round_multiply_avx512(const fp8_round_run *run)
{
    round_row(run, false);
}
