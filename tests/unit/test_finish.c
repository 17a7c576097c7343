/* SPDX-License-Identifier: Apache-2.0
 *
 * test_finish.c - the finish kernels: the reference against sums worked out by hand where the
 * epilogues differ, and every kernel that this processor can run against the reference to the bit:
 * all short lengths, operands that end where memory ends, numbers from subnormal to NaN. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/backend.h"
#include "support/guard.h"
#include "support/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static float reference_of(float c, float sx, const float *sw, const float *bias, fp8_dtype y,
                          fp8_epilogue epilogue)
{
    float bits[4] = {0};
    const fp8_finish_run run = {.c = &c,
                                .x_scale = sx,
                                .w_scale = sw,
                                .bias = bias,
                                .y = bits,
                                .n = 1,
                                .y_stride = 1,
                                .y_dtype = y,
                                .epilogue = epilogue};
    fp8_kernel_pick(FP8_ISA_SCALAR, FP8_OP_FINISH, FP8_F32, y)->fn.finish(&run);
    return fp8_dtype_facts_of(y)->load(bits, 0);
}

static void epilogues_differ_where_they_should(void **state)
{
    (void)state;
    const fp8_epilogue fused = FP8_EPILOGUE_FUSED, unfused = FP8_EPILOGUE_UNFUSED,
                       last = FP8_EPILOGUE_BIAS_LAST;
    /* (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24, lost when the product is rounded first. */
    const float near = 1 + 0x1p-12f, minus = -(1 + 0x1p-11f), one = 1;
    assert_true(reference_of(near, near, &one, &minus, FP8_F32, fused) == 0x1p-24f);
    assert_true(reference_of(near, near, &one, &minus, FP8_F32, unfused) == 0);
    /* In bf16 1 + 2^-9 is 1, and 1 + 2^-8 a tie that goes to 1. */
    const float bias = 0x1p-8f;
    assert_true(reference_of(1 + 0x1p-9f, 1, NULL, &bias, FP8_BF16, unfused) == 1 + 0x1p-7f);
    assert_true(reference_of(1 + 0x1p-9f, 1, NULL, &bias, FP8_BF16, last) == 1);
    /* sw * c overflows before sx makes it small, or c * sx does not. */
    const float big = 0x1p100f;
    assert_true(isinf(reference_of(0x1p60f, 0x1p-100f, &big, NULL, FP8_F32, fused)));
    assert_true(reference_of(0x1p60f, 0x1p-100f, &big, NULL, FP8_F32, unfused) == 0x1p60f);
    /* No bias is not a bias of zero. */
    assert_true(signbit(reference_of(-0.0f, 1, NULL, NULL, FP8_F32, fused)));
    assert_true(isinf(reference_of(65520, 1, NULL, NULL, FP8_F16, fused)));
    assert_true(reference_of(65519, 1, NULL, NULL, FP8_F16, fused) == 65504);
    assert_true(isnan(reference_of(NAN, 1, NULL, NULL, FP8_BF16, last)));
}

static void the_reference_takes_any_stride(void **state)
{
    (void)state;
    const float c[3] = {1, 2, 3};
    uint16_t y[9] = {0};
    const fp8_finish_run run = {
        .c = c, .x_scale = 2, .y = y, .n = 3, .y_stride = 4, .y_dtype = FP8_BF16};
    fp8_kernel_pick(FP8_ISA_SCALAR, FP8_OP_FINISH, FP8_F32, FP8_BF16)->fn.finish(&run);
    const uint16_t want[9] = {0x4000, 0, 0, 0, 0x4080, 0, 0, 0, 0x40C0};
    assert_memory_equal(y, want, sizeof y);
}

/* Mostly numbers near 1, sometimes any bits at all. */
static float next_float(uint32_t *state)
{
    const uint32_t r = next_random(state);
    if (r % 5 == 0)
        return fp8_f32_of_bits(next_random(state));
    return fp8_f32_of_bits((r & 0x80FFFFFF) | 0x3F000000);
}

enum { MOST = 1000 };

static float *fill(const guard *g, int64_t n, uint32_t seed)
{
    float *x = guard_at_end(g, (size_t)n * 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = next_float(&seed);
    return x;
}

static void check_alike(const fp8_kernel *kernel, const fp8_finish_run *run, const void *want)
{
    for (int64_t j = 0; j < run->n; j++) {
        const int bytes = fp8_dtype_bits(kernel->to) / 8;
        const fp8_load_fn load = fp8_dtype_facts_of(kernel->to)->load;
        if (memcmp((const char *)want + j * bytes, (const char *)run->y + j * bytes, (size_t)bytes))
            fail_msg("%s: epilogue %d n %lld: y[%lld] of %a is %a, want %a", kernel->name,
                     run->epilogue, (long long)run->n, (long long)j, (double)run->c[j],
                     (double)load(run->y, j), (double)load(want, j));
    }
}

static void check_kernel(const fp8_kernel *kernel, int64_t n, int kind, const guard g[4])
{
    static unsigned char want[MOST * 4];
    const size_t bytes = (size_t)(n * fp8_dtype_bits(kernel->to) / 8);
    uint32_t seed = (uint32_t)(n * 977 + kind);
    fp8_finish_run run = {.c = fill(&g[0], n, seed),
                          .x_scale = kind % 2 ? 0.37f : 0x1.8p-130f,
                          .w_scale = kind & 4 ? fill(&g[1], n, seed + 1) : NULL,
                          .bias = kind & 8 ? fill(&g[2], n, seed + 2) : NULL,
                          .n = n,
                          .y_stride = 1,
                          .y_dtype = kernel->to,
                          .epilogue = (fp8_epilogue)(kind / 16)};
    run.y = want;
    fp8_kernel_pick(FP8_ISA_SCALAR, FP8_OP_FINISH, FP8_F32, kernel->to)->fn.finish(&run);
    unsigned char *y = guard_at_end(&g[3], bytes);
    memset(y - 64, 0x5A, 64);
    run.y = y;
    kernel->fn.finish(&run);
    check_alike(kernel, &run, want);
    for (int i = 1; i <= 64; i++)
        assert_int_equal(y[-i], 0x5A);
}

static void kernels_agree_with_the_reference(void **state)
{
    (void)state;
    const fp8_kernel *kernel;
    guard g[4];
    int kernels = 0;
    for (int i = 0; i < 4; i++)
        g[i] = guard_new(MOST * 4);
    for (size_t i = 0; (kernel = fp8_kernel_at(i)); i++) {
        if (kernel->op != FP8_OP_FINISH || kernel->isa > fp8_isa_detect() || !kernel->to)
            continue;
        kernels++;
        for (int kind = 0; kind < 48; kind++) {
            for (int64_t n = 0; n <= 150; n++)
                check_kernel(kernel, n, kind, g);
            check_kernel(kernel, MOST, kind, g);
        }
    }
    printf("%d kernels\n", kernels);
    assert_true(kernels > 0 || fp8_isa_detect() == FP8_ISA_SCALAR);
    for (int i = 0; i < 4; i++)
        guard_free(&g[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epilogues_differ_where_they_should),
        cmocka_unit_test(the_reference_takes_any_stride),
        cmocka_unit_test(kernels_agree_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
