/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quantize_kernels.c - every amax and encode kernel of the backends' tables that this
 * processor can run, against the reference: all 65536 inputs of 16 bits, fp32 from every binade,
 * operands from subnormal to huge, all short lengths, units that do and do not fill vectors, and no
 * byte written or read outside. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/quant_kernels.h"
#include "support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

/* n elements of a dtype in memory of exactly that size, so that a sanitizer sees what is beyond. */
static unsigned char *random_elements(fp8_dtype dtype, int64_t n, uint32_t seed)
{
    const int64_t bytes = n * fp8_dtype_bits(dtype) / 8;
    unsigned char *data = malloc((size_t)bytes + !bytes);
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(next_random(&seed) >> 9);
    return data;
}

/* The quantizer whose reference is the plain formula of an encode kernel. */
static fp8_quant plain_quant(const fp8_rule_row *row, const fp8_kernel *kernel, int64_t n,
                             int64_t unit)
{
    fp8_quant q = {.row = row, .in = kernel->from, .code = kernel->to, .cols = n};
    q.unit_cols = unit;
    q.multiply = row->multiply;
    q.desc.nan = FP8_NAN_PROPAGATE;
    return q;
}

static bool is_encode(const fp8_kernel *kernel)
{
    return kernel->op == FP8_OP_ENCODE_DIVIDE || kernel->op == FP8_OP_ENCODE_MULTIPLY ||
           kernel->op == FP8_OP_ENCODE_TWICE;
}

/* One row through an encode kernel and the reference. */
static void check_encode_of(const fp8_kernel *kernel, const void *x, int64_t n, int64_t unit,
                            const float *operand, float fnuz_max, bool plus_zero)
{
    const fp8_rule_row row = {.multiply = kernel->op == FP8_OP_ENCODE_MULTIPLY,
                              .quotient_in_input = kernel->op == FP8_OP_ENCODE_TWICE,
                              .fnuz_max = fnuz_max,
                              .plus_zero = plus_zero};
    const fp8_quant q = plain_quant(&row, kernel, n, unit);
    uint8_t *want = malloc((size_t)n + 1), *got = malloc((size_t)n + 2);
    got[n] = 0x5A;
    const uint32_t zero = kernel->op != FP8_OP_ENCODE_TWICE ? 0
                          : kernel->from == FP8_F16         ? 0x33000000
                                                            : 0x8000;
    const fp8_encode_run run = {.x = x,
                                .codes = got,
                                .operand = operand,
                                .rows = 1,
                                .n = n,
                                .unit = unit,
                                .max = fp8_rule_code_max(&row, kernel->to),
                                .plus_zero = plus_zero,
                                .zero = zero};
    fp8_ref_encode_row(&q, x, 1, operand, want, 1);
    kernel->fn.encode(&run);
    for (int64_t j = 0; j < n; j++)
        if (got[j] != want[j])
            fail_msg("%s: n %lld unit %lld: x %a operand %a: 0x%02x, want 0x%02x", kernel->name,
                     (long long)n, (long long)unit,
                     (double)fp8_dtype_facts_of(kernel->from)->load(x, j),
                     (double)operand[j / unit], got[j], want[j]);
    assert_int_equal(got[n], 0x5A);
    free(want);
    free(got);
}

static void check_encode(const fp8_kernel *kernel, const void *x, int64_t n, int64_t unit,
                         const float *operand, float fnuz_max)
{
    check_encode_of(kernel, x, n, unit, operand, fnuz_max, false);
    if (kernel->to == FP8_E4M3FN)
        check_encode_of(kernel, x, n, unit, operand, fnuz_max, true);
}

static void check_amax(const fp8_kernel *kernel, fp8_dtype dtype, const void *x, int64_t n,
                       int64_t unit)
{
    enum { UNITS = 300 };
    float want[UNITS], got[UNITS];
    for (int k = 0; k < UNITS; k++)
        want[k] = got[k] = k % 3 ? 0 : 1e-3f; /* what was found before */
    fp8_amax_run run = {.x = x, .amax = want, .n = n, .unit = unit, .stride = 1, .dtype = dtype};
    fp8_ref_amax(&run);
    run.amax = got;
    kernel->fn.amax(&run);
    for (int k = 0; k < UNITS; k++)
        if (memcmp(&want[k], &got[k], sizeof *got))
            fail_msg("%s: n %lld unit %lld: amax[%d] %a, want %a", kernel->name, (long long)n,
                     (long long)unit, k, (double)got[k], (double)want[k]);
}

#define EACH_KERNEL(k)                                         \
    for (size_t i_ = 0; (k = fp8_kernel_at(i_)) != NULL; i_++) \
        if (k->isa <= fp8_isa_detect())

static const float operands[] = {1,         3e-39f,   0x1p-149f, 0x1p-126f, 1.7e-5f, 0.3f,
                                 0.997861f, 1.0f / 3, 117.25f,   2.1e20f,   3e38f};
enum { OPERANDS = sizeof operands / sizeof *operands };

static void all_short_inputs_encode_alike(void **state)
{
    (void)state;
    enum { N = 65536 };
    uint16_t *x = malloc(N * sizeof *x);
    const fp8_kernel *kernel;
    int kernels = 0;
    for (int i = 0; i < N; i++)
        x[i] = (uint16_t)i;
    EACH_KERNEL(kernel)
    if (is_encode(kernel) && fp8_dtype_bits(kernel->from) == 16) {
        kernels++;
        for (int k = 0; k < OPERANDS; k++)
            check_encode(kernel, x, N, N, &operands[k], k % 2 ? 224 : 240);
    }
    free(x);
    assert_true(kernels > 0 || fp8_isa_detect() == FP8_ISA_SCALAR);
}

/* The quotients that decide: codes' midpoints times the operand, and both neighbours. */
static void quotients_at_midpoints_encode_alike(void **state)
{
    (void)state;
    enum { N = 3 * 2 * 128 };
    const fp8_kernel *kernel;
    EACH_KERNEL(kernel)
    {
        if (!is_encode(kernel) || kernel->from != FP8_F32)
            continue;
        const fp8_load_fn load = fp8_dtype_facts_of(kernel->to)->load;
        for (int k = 0; k < OPERANDS; k++) {
            float x[N];
            int n = 0;
            for (uint8_t code = 0; code < 0x7B; code++) {
                const uint8_t next = (uint8_t)(code + 1);
                float middle = (load(&code, 0) + load(&next, 0)) / 2;
                middle = kernel->op == FP8_OP_ENCODE_DIVIDE ? middle * operands[k]
                                                            : middle / operands[k];
                for (int d = -1; d <= 1; d++) {
                    const uint32_t bits = fp8_bits_of_f32(middle) + (uint32_t)d;
                    x[n++] = fp8_f32_of_bits(bits);
                    x[n++] = -fp8_f32_of_bits(bits);
                }
            }
            check_encode(kernel, x, n, n, &operands[k], 240);
        }
    }
}

static void all_lengths_and_units_encode_alike(void **state)
{
    (void)state;
    static const int64_t units[] = {1, 3, 8, 16, 32, 48, 64, 96, 100, 128, 400};
    const fp8_kernel *kernel;
    float row_operands[400];
    for (int j = 0; j < 400; j++)
        row_operands[j] = operands[j % OPERANDS];
    EACH_KERNEL(kernel)
    {
        if (!is_encode(kernel))
            continue;
        for (int64_t n = 0; n < 300; n += n < 140 ? 1 : 7) {
            unsigned char *x = random_elements(kernel->from, n, (uint32_t)n);
            for (size_t u = 0; u < sizeof units / sizeof *units; u++)
                check_encode(kernel, x, n, units[u], row_operands, 224);
            free(x);
        }
    }
}

/* Long rows of one operand: all magnitudes whose quotients are normal numbers or more, so that no
 * group of them differs from the next, with operands of many significands. */
static void long_units_encode_alike(void **state)
{
    (void)state;
    enum { N = 2 * 32768 };
    uint16_t *x = malloc(N * sizeof *x);
    const fp8_kernel *kernel;
    uint32_t seed = 7;
    EACH_KERNEL(kernel)
    {
        if (!is_encode(kernel) || kernel->from != FP8_BF16 || kernel->to != FP8_E4M3FN)
            continue;
        for (int k = 0; k < 120; k++) {
            const int exponent = k < 100 ? 90 + k % 75 : 1 + (k - 100) * 13; /* biased */
            const float operand =
                fp8_f32_of_bits((uint32_t)exponent << 23 | (next_random(&seed) & 0x7FFFFF));
            const bool multiply = kernel->op == FP8_OP_ENCODE_MULTIPLY;
            const double scale = multiply ? 1 / (double)operand : (double)operand;
            int64_t n = 0;
            for (uint32_t bits = 0; bits < 0x7F80; bits++)
                if ((double)fp8_f32_of_bits(bits << 16) >= scale * 0x1p-6) {
                    x[n++] = (uint16_t)bits;
                    x[n++] = (uint16_t)(bits | 0x8000);
                }
            check_encode(kernel, x, n, n + 1, &operand, 240);
        }
    }
    free(x);
}

/* Among ordinary elements a few that are tiny, infinite or NaN, alone or one after the other. */
static void odd_elements_of_long_units_encode_alike(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    static const uint16_t odd[] = {0, 0x8000, 0x8001, 0x3800, 0x7F80, 0xFF80, 0x7FC0, 0xFF81};
    static const float some[] = {0.7f, 1.3f, 2, 0.011f, 1, 0.9f};
    const fp8_kernel *kernel;
    uint32_t seed = 11;
    EACH_KERNEL(kernel)
    {
        if (!is_encode(kernel) || kernel->from != FP8_BF16)
            continue;
        for (int64_t n = 1000; n < MOST; n += 37) {
            uint16_t *x = (uint16_t *)random_elements(FP8_BF16, n, (uint32_t)n);
            for (int64_t j = 0; j < n; j++) {
                x[j] = (uint16_t)((x[j] & 0x83FF) | 0x3C00);
                const bool is_odd =
                    n % 4 == 0 && j > n / 3 ? j % 900 < 500 : next_random(&seed) % 200 == 0;
                if (is_odd)
                    x[j] = odd[next_random(&seed) % 8];
            }
            check_encode(kernel, x, n, n, &some[n % 6], 240);
            check_encode(kernel, x, n, 1024 + n % 91, some, 224);
            free(x);
        }
    }
}

/* Several rows, with gaps between them that stay what they were, as one after the other. */
static void rows_encode_as_one_after_the_other(void **state)
{
    (void)state;
    enum { ROWS = 21, GAP = 3 };
    static const int64_t lengths[] = {1, 32, 64, 127, 128, 200, 256, 300, 1024};
    static const int64_t units[] = {32, 64, 100, 128, 1024};
    static const float some[] = {0.7f, 1.3f, 2, 0.011f, 1, 0.9f, 3e-39f, 5, 17, 1e-3f};
    const fp8_kernel *kernel;
    float row_operands[32];
    for (int j = 0; j < 32; j++)
        row_operands[j] = some[j % 10];
    EACH_KERNEL(kernel)
    {
        for (size_t l = 0; l < 9 && is_encode(kernel); l++) {
            const int64_t n = lengths[l], step = n + GAP;
            unsigned char *x = random_elements(kernel->from, ROWS * step, (uint32_t)n);
            uint8_t *got = malloc((size_t)(ROWS * step)), *want = malloc((size_t)(ROWS * step));
            for (size_t u = 0; u < 5; u++) {
                memset(got, 0x5A, (size_t)(ROWS * step));
                memset(want, 0x5A, (size_t)(ROWS * step));
                fp8_encode_run run = {.x = x,
                                      .codes = got,
                                      .operand = row_operands,
                                      .rows = ROWS,
                                      .x_step = step,
                                      .code_step = step,
                                      .n = n,
                                      .unit = units[u],
                                      .max = 240};
                kernel->fn.encode(&run);
                run.rows = 1;
                for (int64_t i = 0; i < ROWS; i++) {
                    run.x = x + i * step * fp8_dtype_bits(kernel->from) / 8;
                    run.codes = want + i * step;
                    kernel->fn.encode(&run);
                }
                if (memcmp(got, want, (size_t)(ROWS * step)))
                    fail_msg("%s: %d rows of %lld, unit %lld", kernel->name, ROWS, (long long)n,
                             (long long)units[u]);
            }
            free(x);
            free(got);
            free(want);
        }
    }
}

static void all_lengths_and_units_have_the_same_amax(void **state)
{
    (void)state;
    static const fp8_dtype dtypes[] = {FP8_F32, FP8_F16, FP8_BF16};
    static const int64_t units[] = {1, 3, 16, 31, 32, 33, 64, 100, 128, 400};
    const fp8_kernel *kernel;
    EACH_KERNEL(kernel)
    {
        for (size_t d = 0; d < 3 && kernel->op == FP8_OP_AMAX; d++) {
            if (kernel->from != FP8_DTYPE_NONE && kernel->from != dtypes[d])
                continue;
            for (int64_t n = 0; n < 300; n += n < 140 ? 1 : 7) {
                unsigned char *x = random_elements(dtypes[d], n, (uint32_t)n + 17);
                for (size_t u = 0; u < sizeof units / sizeof *units; u++)
                    check_amax(kernel, dtypes[d], x, n, units[u]);
                free(x);
            }
        }
    }
}

/* Each place of a row can hold the largest, be it a number, infinity or NaN. */
static void the_largest_is_found_everywhere(void **state)
{
    (void)state;
    static const uint16_t tops[] = {0x7BFF, 0xFBFF, 0x7C00, 0xFE01};
    const fp8_kernel *kernel;
    EACH_KERNEL(kernel)
    {
        if (kernel->op != FP8_OP_AMAX || (kernel->from != FP8_F16 && kernel->from != FP8_BF16))
            continue;
        for (int at = 0; at < 150; at++)
            for (int t = 0; t < 4; t++) {
                uint16_t x[150];
                for (int j = 0; j < 150; j++)
                    x[j] = (uint16_t)(j * 37 % 0x1000);
                x[at] = tops[t];
                check_amax(kernel, kernel->from, x, 150, 150);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_short_inputs_encode_alike),
        cmocka_unit_test(quotients_at_midpoints_encode_alike),
        cmocka_unit_test(all_lengths_and_units_encode_alike),
        cmocka_unit_test(long_units_encode_alike),
        cmocka_unit_test(rows_encode_as_one_after_the_other),
        cmocka_unit_test(odd_elements_of_long_units_encode_alike),
        cmocka_unit_test(all_lengths_and_units_have_the_same_amax),
        cmocka_unit_test(the_largest_is_found_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
