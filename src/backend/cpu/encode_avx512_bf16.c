/* SPDX-License-Identifier: Apache-2.0
 *
 * encode_avx512_bf16.c - e4m3fn codes of bf16 with one operand for many elements, by a table of
 * significands (VBMI looks up 64 bytes at once). The code of a normal quotient depends on the
 * seven bits of x's significand m and on its exponent E apart from each other:
 *
 *     code(m, E) = code(m, E0) + 8 (E - E0)     limited to 0x7E, the largest number
 *
 * where the quotients of E0 are in [1, 4). The kernels of AVX-512 make that table, so that each
 * kernel here has the bits of its namesake there, which also takes what is not a normal number of
 * e4m3fn, infinities, NaN, and operands for few elements. */
#include "base/size.h"
#include "number/number.h"
#include "op/backend.h"

#include <immintrin.h>

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/cpu/kernels.inc"
#undef FP8_KERNEL

enum {
    GROUP = 64,            /* elements at once */
    LEAST_ELEMENTS = 1024, /* of one operand, that are worth a table */
    MISSES_AT_MOST = 2,    /* groups, and a quarter of all, before the tables are given up */
    TABLES = 64,           /* at a time, 8 KiB */
    SIGNIFICANDS = 128,    /* of bf16 */
    MOST_EXPONENT = 254,   /* biased, of a number of bf16 */
    CODE_OF_1 = 0x38,      /* in e4m3fn */
    BINADES_BELOW_1 = 6,   /* of normal numbers of e4m3fn */
    LARGEST = 0x7E,        /* code of 448 */
    BINADES_AT_MOST = 16,  /* from the least normal number on; more are limited to the largest */
};

typedef struct table {
    uint8_t part[SIGNIFICANDS]; /* code - CODE_OF_1 of a significand */
    uint8_t below;              /* exponent, biased, where all quotients are too small; 255: any */
} table;

/* The exponent of x, biased, for which x times or over the operand is in [1, 2]. */
static int exponent_of_1(float operand, bool divide)
{
    const int exponent = (int)(fp8_bits_of_f32(operand) >> 23);
    return divide ? exponent + 1 : 254 - exponent;
}

static void make_table(table *t, const fp8_encode_run *run, const float *operand, bool divide,
                       fp8_kernel_encode *plain)
{
    const int one = exponent_of_1(*operand, divide);
    t->below = 255;
    if (one <= BINADES_BELOW_1 || one >= MOST_EXPONENT)
        return;
    uint16_t x[SIGNIFICANDS];
    for (int m = 0; m < SIGNIFICANDS; m++)
        x[m] = (uint16_t)(one * SIGNIFICANDS + m);
    fp8_encode_run probe = *run;
    probe.x = x;
    probe.codes = t->part;
    probe.operand = operand;
    probe.rows = 1;
    probe.n = probe.unit = SIGNIFICANDS;
    plain(&probe);
    for (int m = 0; m < SIGNIFICANDS; m++)
        t->part[m] = (uint8_t)(t->part[m] - CODE_OF_1);
    t->below = (uint8_t)(one - BINADES_BELOW_1 - 1);
}

/* The codes of x[64]; false if there is an element that the table does not have. */
static inline bool encode_group(uint8_t *codes, const uint16_t *x, const table *t)
{
    const __m512i first = _mm512_loadu_si512(x), second = _mm512_loadu_si512(x + GROUP / 2);
    __m512i byte = _mm512_set_epi64(0x3E3C3A3836343230, 0x2E2C2A2826242220, 0x1E1C1A1816141210,
                                    0x0E0C0A0806040200, 0x3E3C3A3836343230, 0x2E2C2A2826242220,
                                    0x1E1C1A1816141210, 0x0E0C0A0806040200);
    byte = _mm512_mask_or_epi64(byte, 0xF0, byte, _mm512_set1_epi8(0x40)); /* of the second */
    const __m512i lower = _mm512_permutex2var_epi8(first, byte, second);
    const __m512i odd = _mm512_or_si512(byte, _mm512_set1_epi8(1));
    const __m512i sign = _mm512_permutex2var_epi8(first, odd, second);
    const __m512i exponent = _mm512_permutex2var_epi8(_mm512_add_epi16(first, first), odd,
                                                      _mm512_add_epi16(second, second));
    const __m512i binade = _mm512_subs_epu8(exponent, _mm512_set1_epi8((char)t->below));
    const __mmask64 tiny = _mm512_testn_epi8_mask(binade, binade);
    const __mmask64 special = _mm512_cmpeq_epi8_mask(exponent, _mm512_set1_epi8(-1));
    if (tiny | special)
        return false;
    const __m512i whole =
        _mm512_slli_epi16(_mm512_min_epu8(binade, _mm512_set1_epi8(BINADES_AT_MOST)), 3);
    const __m512i part = _mm512_permutex2var_epi8(_mm512_loadu_si512(t->part), lower,
                                                  _mm512_loadu_si512(t->part + GROUP));
    const __m512i code = _mm512_min_epu8(_mm512_adds_epu8(whole, part), _mm512_set1_epi8(LARGEST));
    /* code | (sign & 0x80) */
    const __m512i mask = _mm512_set1_epi8((char)0x80);
    _mm512_storeu_si512(codes, _mm512_ternarylogic_epi64(code, sign, mask, 0xF8));
    return true;
}

/* The rows from `row` on and n columns from `at` on, all by the plain kernel. */
static void encode_plain(const fp8_encode_run *run, int64_t row, int64_t rows, int64_t at,
                         int64_t n, fp8_kernel_encode *plain)
{
    fp8_encode_run part = *run;
    part.x = (const uint16_t *)run->x + row * run->x_step + at;
    part.codes += row * run->code_step + at;
    part.operand += at / run->unit;
    part.rows = rows;
    part.n = n;
    plain(&part);
}

/* The columns [at, end) of a row, which are of one unit and at least a group; how many groups the
 * table did not have, which the plain kernel took. */
static int64_t encode_unit(const fp8_encode_run *run, int64_t row, int64_t at, int64_t end,
                           const table *t, fp8_kernel_encode *plain)
{
    const uint16_t *x = (const uint16_t *)run->x + row * run->x_step;
    uint8_t *codes = run->codes + row * run->code_step;
    int64_t misses = 0;
    for (; at < end; at += GROUP) {
        const int64_t j = at + GROUP <= end ? at : end - GROUP; /* some for the second time */
        if (encode_group(codes + j, x + j, t))
            continue;
        encode_plain(run, row, 1, j, GROUP, plain);
        misses++;
    }
    return misses;
}

/* The columns [at, end), of at most TABLES units. Row after row, as memory has them. Where many
 * groups are not in the tables, the plain kernel takes what is left. */
static void encode_units(const fp8_encode_run *run, int64_t at, int64_t end, bool divide,
                         fp8_kernel_encode *plain)
{
    table tables[TABLES];
    int64_t groups = 0, misses = 0;
    for (int64_t j = at; j < end; j += run->unit)
        make_table(&tables[(j - at) / run->unit], run, run->operand + j / run->unit, divide, plain);
    for (int64_t i = 0; i < run->rows; i++)
        for (int64_t j = at; j < end; j += run->unit) {
            const int64_t last = j + run->unit < end ? j + run->unit : end;
            if (misses > MISSES_AT_MOST + groups / 4 || last - j < GROUP) {
                encode_plain(run, i, 1, j, last - j, plain);
                continue;
            }
            misses += encode_unit(run, i, j, last, &tables[(j - at) / run->unit], plain);
            groups += (last - j) / GROUP;
        }
}

static void encode(const fp8_encode_run *run, bool divide, fp8_kernel_encode *plain)
{
    fp8_encode_run within = *run;
    within.unit = fp8_min_i64(run->unit, run->n); /* it may be as large as an int64_t is */
    if (within.unit < GROUP || within.unit * run->rows < LEAST_ELEMENTS) {
        plain(run);
        return;
    }
    const int64_t step = TABLES * within.unit;
    for (int64_t at = 0; at < run->n; at += step)
        encode_units(&within, at, run->n - at < step ? run->n : at + step, divide, plain);
}

void fp8_encode_divide_bf16_e4m3fn_avx512_bf16(const fp8_encode_run *run)
{
    encode(run, true, fp8_encode_divide_bf16_e4m3fn_avx512);
}

void fp8_encode_twice_bf16_e4m3fn_avx512_bf16(const fp8_encode_run *run)
{
    encode(run, true, fp8_encode_twice_bf16_e4m3fn_avx512);
}

void fp8_encode_multiply_bf16_e4m3fn_avx512_bf16(const fp8_encode_run *run)
{
    encode(run, false, fp8_encode_multiply_bf16_e4m3fn_avx512);
}
