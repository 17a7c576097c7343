/* SPDX-License-Identifier: Apache-2.0
 *
 * test_requantize.c - fp8_requantize is fp8_quantize of fp8_dequantize, byte for byte, whatever the
 * grids, dtypes and strides; it copies where there is nothing to do; every failed allocation of it
 * and of fp8_quantize ends in NO_MEMORY without a leak. */
#include "number/number.h"
#include "op/quantize.h"
#include "support/counted_alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

enum { R = 300, C = 4000, MOST = R * C }; /* 4.8 MB in fp32: several slabs */

static fp8_context *ctx;
static uint8_t codes[MOST], want[MOST], got[MOST];
static float scales[MOST], want_scales[MOST], got_scales[MOST], real[MOST];

static int setup(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < MOST; i++) {
        seed = seed * 1664525u + 1013904223u;
        const uint8_t code = (uint8_t)(seed >> 17);
        codes[i] = (code & 0x7F) == 0x7F ? 0 : code;
        scales[i] = ldexpf(1 + (float)(seed >> 9 & 7) / 8, (int)(seed >> 20 & 15) - 12);
    }
    return fp8_context_create(NULL, &ctx, NULL) == FP8_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    return 0;
}

static int64_t units(int64_t block, int64_t size)
{
    return block ? (size + block - 1) / block : 1;
}

static fp8_tensor scales_view(float *data, fp8_grid grid, fp8_dtype dtype)
{
    return fp8_matrix(data, dtype, units(grid.rows, R), units(grid.cols, C));
}

static fp8_quantize_desc desc_of(fp8_rule rule, fp8_grid grid)
{
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.rule = rule;
    desc.grid = grid;
    return desc;
}

static void equals_two_steps(void **state)
{
    (void)state;
    static const struct {
        fp8_grid from, to;
        fp8_rule rule;
        fp8_dtype scale;
        int pow2;
    } cases[] = {
        {{1, 0}, {128, 128}, FP8_RULE_BEST, FP8_F32, 0},
        {{128, 128}, {1, 0}, FP8_RULE_BEST, FP8_BF16, 0},
        {{128, 128}, {0, 0}, FP8_RULE_VLLM, FP8_F32, 0},
        {{0, 0}, {1, 32}, FP8_RULE_BEST, FP8_E8M0FNU, 0},
        {{128, 128}, {128, 128}, FP8_RULE_VLLM, FP8_F32, 1},
        {{7, 3}, {0, 1}, FP8_RULE_BEST, FP8_F32, 0},
        {{1, 32}, {1, 32}, FP8_RULE_BEST, FP8_F16, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        fp8_quantize_desc desc = desc_of(cases[k].rule, cases[k].to);
        desc.pow2_scales = cases[k].pow2;
        const fp8_tensor from_codes = fp8_matrix(codes, FP8_E4M3FN, R, C);
        const fp8_tensor from_scales = scales_view(scales, cases[k].from, FP8_F32);
        fp8_tensor x = fp8_matrix(real, FP8_F32, R, C);
        fp8_tensor a = fp8_matrix(want, FP8_E4M3FN, R, C), b = fp8_matrix(got, FP8_E4M3FN, R, C);
        fp8_tensor as = scales_view(want_scales, cases[k].to, cases[k].scale);
        fp8_tensor bs = scales_view(got_scales, cases[k].to, cases[k].scale);
        assert_int_equal(
            fp8_dequantize(ctx, cases[k].from, &from_codes, &from_scales, &x, NULL, NULL), FP8_OK);
        assert_int_equal(fp8_quantize(ctx, &desc, &x, &a, &as, NULL, NULL), FP8_OK);
        assert_int_equal(fp8_requantize(ctx, cases[k].from, &from_codes, &from_scales, &desc, &b,
                                        &bs, NULL, NULL),
                         FP8_OK);
        assert_memory_equal(want, got, MOST);
        assert_memory_equal(want_scales, got_scales,
                            (size_t)(as.shape[0] * as.shape[1] * fp8_dtype_bits(as.dtype) / 8));
    }
}

static void copies_where_nothing_changes(void **state)
{
    (void)state;
    const fp8_grid grid = {128, 128};
    const fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, grid);
    const fp8_tensor from = fp8_matrix(codes, FP8_E4M3FN, R, C);
    const fp8_tensor s = scales_view(scales, grid, FP8_F32);
    fp8_tensor to = fp8_matrix(got, FP8_E4M3FN, R, C), ts = scales_view(got_scales, grid, FP8_F32);
    assert_int_equal(fp8_requantize(ctx, grid, &from, &s, &desc, &to, &ts, NULL, NULL), FP8_OK);
    assert_memory_equal(codes, got, MOST);
    assert_memory_equal(scales, got_scales, (size_t)(s.shape[0] * s.shape[1]) * sizeof(float));
}

static void static_scales_are_kept(void **state)
{
    (void)state;
    const fp8_grid whole = {0, 0};
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, whole);
    desc.static_scales = 1;
    uint8_t in[3] = {0x38, 0xB8, 0x40}, out[6]; /* 1, -1, 2 */
    float s = 3, t = 6;
    const fp8_tensor from = fp8_matrix(in, FP8_E4M3FN, 1, 3), fs = fp8_matrix(&s, FP8_F32, 1, 1);
    fp8_tensor to = fp8_matrix(out, FP8_E5M2, 2, 3), ts = fp8_matrix(&t, FP8_F32, 1, 1);
    memset(out, 0xAA, sizeof out);
    assert_int_equal(fp8_requantize(ctx, whole, &from, &fs, &desc, &to, &ts, NULL, NULL), FP8_OK);
    assert_float_equal(t, 6, 0);
    assert_memory_equal(out, ((const uint8_t[]){0x38, 0xB8, 0x3C, 0, 0, 0}), 6); /* .5, -.5, 1 */
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    const fp8_grid row = {1, 0};
    const fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, (fp8_grid){0, 0});
    uint8_t in[6] = {0x38, 0x7F, 0x40, 1, 2, 3}, out[6];
    float s[2] = {1, 2}, t;
    fp8_error err;
    const fp8_tensor from = fp8_matrix(in, FP8_E4M3FN, 2, 3), fs = fp8_matrix(s, FP8_F32, 2, 1);
    fp8_tensor to = fp8_matrix(out, FP8_E4M3FN, 2, 3), ts = fp8_matrix(&t, FP8_F32, 1, 1);
    assert_int_equal(fp8_requantize(ctx, row, &from, &fs, &desc, &to, &ts, NULL, &err), FP8_E_NAN);
    assert_int_equal(err.pos, 1);
    fp8_tensor wrong = fp8_matrix(s, FP8_F32, 1, 2);
    assert_int_equal(fp8_requantize(ctx, row, &from, &wrong, &desc, &to, &ts, NULL, &err),
                     FP8_E_SHAPE);
    wrong = fp8_matrix(s, FP8_F32, 2, 3);
    assert_int_equal(fp8_requantize(ctx, row, &wrong, &fs, &desc, &to, &ts, NULL, &err),
                     FP8_E_DTYPE);
    wrong = fp8_matrix(out, FP8_E4M3FN, 1, 3);
    assert_int_equal(fp8_requantize(ctx, row, &from, &fs, &desc, &wrong, &ts, NULL, &err),
                     FP8_E_SHAPE);
    wrong = fp8_matrix(in + 1, FP8_E4M3FN, 2, 3);
    assert_int_equal(fp8_requantize(ctx, row, &from, &fs, &desc, &wrong, &ts, NULL, &err),
                     FP8_E_STRIDE);
    assert_string_equal(err.msg, "codes_out and codes overlap in memory: bytes 1 to 6 and 0 to 5");
    wrong = fp8_matrix(s, FP8_F32, 1, 1);
    assert_int_equal(fp8_requantize(ctx, row, &from, &fs, &desc, &to, &wrong, NULL, &err),
                     FP8_E_STRIDE);
    assert_int_equal(
        fp8_requantize(ctx, (fp8_grid){-1, 0}, &from, &fs, &desc, &to, &ts, NULL, &err),
        FP8_E_ARGUMENT);
    assert_int_equal(fp8_requantize(NULL, row, &from, &fs, &desc, &to, &ts, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(fp8_requantize(ctx, row, &from, &fs, NULL, &to, &ts, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(fp8_requantize(ctx, row, NULL, &fs, &desc, &to, &ts, NULL, &err),
                     FP8_E_ARGUMENT);
}

static fp8_status quantize_and_requantize(const fp8_context *c)
{
    const fp8_grid row = {1, 0}, block = {128, 128};
    fp8_quantize_desc desc = desc_of(FP8_RULE_BEST, row);
    fp8_tensor x = fp8_matrix(real, FP8_F32, 64, 64);
    fp8_tensor a = fp8_matrix(want, FP8_E4M3FN, 64, 64), b = fp8_matrix(got, FP8_E4M3FN, 64, 64);
    fp8_tensor s = fp8_matrix(want_scales, FP8_F32, 64, 1);
    fp8_tensor t = fp8_matrix(got_scales, FP8_F32, 1, 1);
    fp8_status status = fp8_quantize(c, &desc, &x, &a, &s, NULL, NULL);
    desc.grid = block;
    return status == FP8_OK ? fp8_requantize(c, row, &a, &s, &desc, &b, &t, NULL, NULL) : status;
}

static void memory_that_runs_out_is_reported(void **state)
{
    (void)state;
    int64_t n = 1;
    for (;; n++) {
        counted_alloc a = {.fail_at = n};
        fp8_context *counted = counted_context(&a);
        assert_non_null(counted);
        const fp8_status status = quantize_and_requantize(counted);
        fp8_context_free(counted);
        assert_int_equal(a.live, 0);
        assert_int_equal(status, a.calls < n ? FP8_OK : FP8_E_NO_MEMORY);
        if (a.calls < n)
            break;
    }
    assert_true(n > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_two_steps),
        cmocka_unit_test(copies_where_nothing_changes),
        cmocka_unit_test(static_scales_are_kept),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(memory_that_runs_out_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
