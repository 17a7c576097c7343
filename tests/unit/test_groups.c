/* SPDX-License-Identifier: Apache-2.0
 *
 * test_groups.c - fp8_quantize with the grids 1 x 32 and 1 x 128, every rule that defines them:
 * each instruction set, number of threads, layout and alignment gives the bytes of the plain code
 * on separate rows; and codes over a power of two are those of a true division. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/quantize.h"
#include "op/rules.h"
#include "support/levels.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

enum { CONTEXTS = 2 * LEVEL_COUNT, MOST = 1 << 20 };
static fp8_context *contexts[CONTEXTS]; /* the first is the plain one */
static int context_count;

static int setup(void **state)
{
    (void)state;
    for (fp8_isa isa = FP8_ISA_SCALAR; isa <= fp8_isa_detect(); isa++)
        for (int threads = 1; threads <= 2; threads++)
            contexts[context_count++] = context_at_level(isa, threads);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < context_count; i++)
        fp8_context_free(contexts[i]);
    return 0;
}

/* A request and where its rows lie: an element is at row * stride + column, from an odd address. */
typedef struct layout {
    int64_t rows, cols, spare; /* stride = cols + spare */
} layout;

typedef struct result {
    fp8_status status;
    unsigned char *codes, *scales;
} result;

/* Finite numbers, whose size changes every 32 columns over most of what the dtype has; among them
 * zero units, zeros of both signs and numbers far below their neighbours. */
static void fill(unsigned char *x, fp8_dtype in, const layout *l)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(in);
    const int range = in == FP8_F16 ? 40 : 180;
    uint32_t seed = (uint32_t)(l->rows * 131 + l->cols);
    int exponent = 0;
    for (int64_t i = 0; i < l->rows; i++)
        for (int64_t j = 0; j < l->cols; j++) {
            const uint32_t r = next_random(&seed);
            if (j % 32 == 0)
                exponent = r % 5 ? -4 : (int)(r / 5 % (uint32_t)range) - range * 5 / 8;
            const int below = r >> 8 & 1 ? 0 : (int)((r >> 9 & 15) * (r >> 13 & 3));
            float value = ldexpf((float)(int32_t)next_random(&seed) * 0x1p-31f, exponent - below);
            if (r >> 20 == 1 || exponent % 13 == 12)
                value = r & 1 ? 0.0f : -0.0f;
            facts->store(x, i * (l->cols + l->spare) + j, value, true);
        }
}

static result quantize(const fp8_context *ctx, const fp8_quantize_desc *desc, const fp8_quant *q,
                       unsigned char *x, const layout *l, unsigned char *codes,
                       unsigned char *scales)
{
    const int64_t stride = l->cols + l->spare;
    fp8_tensor tx = {x, q->in, 2, {l->rows, l->cols}, {stride, 1}};
    fp8_tensor tc = {codes, q->code, 2, {l->rows, l->cols}, {stride, 1}};
    fp8_tensor ts = fp8_matrix(scales, q->scale, q->grid_rows, q->grid_cols);
    memset(codes, 0x5A, (size_t)(l->rows * stride + 64));
    const result r = {fp8_quantize(ctx, desc, &tx, &tc, &ts, NULL, NULL), codes, scales};
    return r;
}

/* Codes by a division, of the scales that were stored. */
static void check_division(const fp8_quant *q, const unsigned char *x, const layout *l,
                           const result *r)
{
    const fp8_dtype_facts *in = fp8_dtype_facts_of(q->in), *code = fp8_dtype_facts_of(q->code);
    const fp8_dtype_facts *scale = fp8_dtype_facts_of(q->scale);
    for (int64_t i = 0; i < l->rows; i++)
        for (int64_t j = 0; j < l->cols; j++) {
            const int64_t at = i * (l->cols + l->spare) + j;
            float s = scale->load(r->scales, i * q->grid_cols + j / q->unit_cols);
            if (s == 0x1p-127f && q->row->divisor_of_min > 0)
                s = q->row->divisor_of_min;
            float y = in->load(x, at) / s;
            uint32_t element = 0;
            if (q->row->quotient_in_input) {
                in->store(&element, 0, y, false);
                y = in->load(&element, 0);
            }
            y = q->row->plus_zero && y == 0 ? 0 : y;
            y = fminf(fmaxf(y, -fp8_rule_code_max(q->row, q->code)),
                      fp8_rule_code_max(q->row, q->code));
            uint8_t want;
            code->store(&want, 0, y, true);
            if (r->codes[at] != want)
                fail_msg("%s, %s: x %a over %a: 0x%02x, want 0x%02x", fp8_rule_name(q->desc.rule),
                         fp8_dtype_name(q->in), (double)in->load(x, at), (double)s, r->codes[at],
                         want);
        }
}

static _Alignas(float) unsigned char x_data[MOST * 4 + 64];
static unsigned char want_codes[MOST + 64], got_codes[MOST + 64];
static unsigned char want_scales[MOST + 64], got_scales[MOST + 64];

/* One request in one layout; returns 0 if the rule does not define it for this shape. */
static int check_layout(const fp8_quantize_desc *desc, const fp8_dtype dtypes[3], const layout *l)
{
    fp8_quant q;
    unsigned char *x = x_data + 1;
    if (fp8_quant_prepare(&q, desc, dtypes[0], dtypes[1], dtypes[2], l->rows, l->cols, NULL))
        return 0;
    fill(x, q.in, l);
    const size_t code_bytes = (size_t)(l->rows * (l->cols + l->spare) + 64);
    const size_t scale_bytes = (size_t)(q.grid_rows * q.grid_cols * fp8_dtype_bits(q.scale) / 8);
    const result want = quantize(contexts[0], desc, &q, x, l, want_codes + 1, want_scales + 1);
    if (want.status == FP8_OK && q.row->exponent && l->rows * l->cols < 20000)
        check_division(&q, x, l, &want);
    for (int k = 1; k < context_count; k++) {
        const result got = quantize(contexts[k], desc, &q, x, l, got_codes + 1, got_scales + 1);
        assert_int_equal(got.status, want.status);
        if (got.status != FP8_OK)
            continue;
        assert_memory_equal(got.codes, want.codes, code_bytes);
        assert_memory_equal(got.scales, want.scales, scale_bytes);
    }
    return 1;
}

/* Calls check_layout for all dtypes of a rule and grid; returns how many it defines. */
static int each_dtype(fp8_rule rule, int64_t group, const layout *l)
{
    static const fp8_dtype reals[] = {FP8_F32, FP8_F16, FP8_BF16};
    static const fp8_dtype codes[] = {FP8_E4M3FN, FP8_E4M3FNUZ, FP8_E5M2};
    static const fp8_dtype scales[] = {FP8_F32, FP8_F16, FP8_BF16, FP8_E8M0FNU};
    int defined = 0;
    for (int k = 0; k < 3 * 3 * 4 * 2; k++) {
        const fp8_dtype dtypes[3] = {reals[k / 2 % 3], codes[k / 6 % 3], scales[k / 18]};
        fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
        desc.rule = rule;
        desc.grid = (fp8_grid){1, group};
        desc.pow2_scales = k % 2;
        defined += check_layout(&desc, dtypes, l);
    }
    return defined;
}

static void each_length_and_layout_gives_the_same_bytes(void **state)
{
    (void)state;
    static const int64_t lengths[] = {0, 1, 31, 32, 33, 64, 127, 128, 129, 160, 544, 2048 + 128};
    int defined = 0;
    for (int rule = 0; fp8_rule_name(rule); rule++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
            for (int64_t rows = 1; rows <= 3; rows += 2)
                for (int64_t spare = 0; spare <= 5; spare += 5) {
                    const layout l = {rows, lengths[k], spare};
                    defined += each_dtype((fp8_rule)rule, 32, &l);
                    defined += each_dtype((fp8_rule)rule, 128, &l);
                }
    assert_in_range(defined, 5000, 20000);
}

/* Long enough for several pieces and for rows that are taken as one. */
static void large_matrices_give_the_same_bytes(void **state)
{
    (void)state;
    static const layout layouts[] = {{2051, 128, 0}, {2051, 128, 3}, {1, 128 * 1025, 0}};
    static const fp8_dtype inputs[] = {FP8_F32, FP8_F16, FP8_BF16};
    int defined = 0;
    for (int rule = 0; fp8_rule_name(rule); rule++)
        for (int k = 0; k < 3 * 3 * 4; k++) {
            fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
            const fp8_dtype in = inputs[k % 3];
            const fp8_dtype scale = k / 9 == 3 ? in : k / 9 == 2 ? FP8_E8M0FNU : FP8_F32;
            const fp8_dtype dtypes[3] = {in, FP8_E4M3FN, scale};
            desc.rule = (fp8_rule)rule;
            desc.grid = (fp8_grid){1, k / 9 == 2 ? 32 : 128};
            desc.pow2_scales = k / 9 == 1;
            defined += check_layout(&desc, dtypes, &layouts[k / 3 % 3]);
        }
    assert_in_range(defined, 100, 1000);
}

/* An element that is refused is named by its place, also where rows are taken as one. */
static void refused_elements_have_their_place(void **state)
{
    (void)state;
    enum { ROWS = 3000, COLS = 64 };
    float *x = (float *)(void *)x_data;
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = 1;
    x[2999 * COLS + 60] = INFINITY;
    x[1234 * COLS + 5] = NAN;
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.grid = (fp8_grid){1, 32};
    for (int k = 0; k < context_count; k++) {
        fp8_error err;
        fp8_tensor tx = fp8_matrix(x_data, FP8_F32, ROWS, COLS);
        fp8_tensor tc = fp8_matrix(got_codes, FP8_E4M3FN, ROWS, COLS);
        fp8_tensor ts = fp8_matrix(got_scales, FP8_E8M0FNU, ROWS, 2);
        assert_int_equal(fp8_quantize(contexts[k], &desc, &tx, &tc, &ts, NULL, &err), FP8_E_NAN);
        assert_int_equal(err.pos, 1234 * COLS + 5);
        assert_non_null(strstr(err.msg, "[1234,5] is NaN"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_length_and_layout_gives_the_same_bytes),
        cmocka_unit_test(large_matrices_give_the_same_bytes),
        cmocka_unit_test(refused_elements_have_their_place),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
