/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cast.c - fp8_cast between all pairs of dtypes at every level and with several threads,
 * against the table of dtypes element by element; and what it refuses. */
#include "number/dtype.h"
#include "number/number.h"
#include "support/levels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const fp8_dtype dtypes[] = {FP8_F32,      FP8_F16,  FP8_BF16,     FP8_E4M3FN,
                                   FP8_E4M3FNUZ, FP8_E5M2, FP8_E5M2FNUZ, FP8_E8M0FNU};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void fill_random(unsigned char *bytes, size_t n)
{
    uint32_t x = 12345;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(x >> 24);
    }
}

static void expect(unsigned char *want, fp8_dtype to, const unsigned char *src, fp8_dtype from,
                   int64_t n, bool saturate)
{
    if (from == to && !saturate) {
        memcpy(want, src, (size_t)n * (size_t)fp8_dtype_bits(to) / 8);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        fp8_dtype_facts_of(to)->store(want, i, fp8_dtype_facts_of(from)->load(src, i), saturate);
}

/* All pairs of dtypes for n random elements, misaligned by `shift` bytes. */
static void check_pairs(const fp8_context *ctx, int64_t n, size_t shift)
{
    const size_t room = (size_t)n * 4 + 16;
    unsigned char *src = malloc(room), *got = malloc(room), *want = malloc(room);
    assert_true(src && got && want);
    fill_random(src, room);
    for (int pair = 0; pair < DTYPES * DTYPES * 2; pair++) {
        const fp8_dtype from = dtypes[pair / 2 % DTYPES], to = dtypes[pair / 2 / DTYPES];
        const size_t bytes = (size_t)n * (size_t)fp8_dtype_bits(to) / 8;
        memset(got, 0xA5, room);
        memset(want, 0xA5, room);
        expect(want + shift, to, src + shift, from, n, pair & 1);
        assert_int_equal(fp8_cast(ctx, src + shift, from, got + shift, to, n, pair & 1, NULL, NULL),
                         FP8_OK);
        if (memcmp(got, want, room))
            fail_msg("%s to %s, saturate %d, n %lld, %zu bytes, level %s", fp8_dtype_name(from),
                     fp8_dtype_name(to), pair & 1, (long long)n, bytes, fp8_isa_name(ctx->isa));
    }
    free(src);
    free(got);
    free(want);
}

static void casts_agree_with_the_table_at_every_level(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 31, 32, 33, 63, 64, 65, 127, 129, 2047, 2048, 2049, 5000};
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 1);
        if (!ctx)
            continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_pairs(ctx, sizes[i], i % 4);
        fp8_context_free(ctx);
    }
}

static void casts_are_the_same_with_threads(void **state)
{
    (void)state;
    fp8_context *ctx = context_at_level(fp8_isa_detect(), 3);
    check_pairs(ctx, 3 * 65536 + 17, 1);
    fp8_context_free(ctx);
}

static void casts_refuse_nonsense(void **state)
{
    (void)state;
    fp8_context *ctx = context_at_level(FP8_ISA_SCALAR, 1);
    fp8_error err;
    float x[4] = {0};
    uint8_t y[4];
    assert_int_equal(fp8_cast(NULL, x, FP8_F32, y, FP8_E5M2, 4, 0, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_cast(ctx, NULL, FP8_F32, y, FP8_E5M2, 4, 0, NULL, &err), FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "src is NULL and n is 4"));
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, NULL, FP8_E5M2, 4, 0, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, y, FP8_E5M2, -1, 0, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, y, FP8_E5M2, INT64_MAX, 0, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(fp8_cast(ctx, x, FP8_F64, y, FP8_E5M2, 1, 0, NULL, &err), FP8_E_DTYPE);
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, y, FP8_U8, 1, 0, NULL, &err), FP8_E_DTYPE);
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, y, FP8_DTYPE_NONE, 1, 0, NULL, NULL), FP8_E_DTYPE);
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, x, FP8_F16, 1, 0, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, x + 1, FP8_F16, 2, 0, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_cast(ctx, x, FP8_F32, x + 2, FP8_F16, 2, 0, NULL, &err), FP8_OK);
    assert_int_equal(fp8_cast(ctx, NULL, FP8_F32, NULL, FP8_E5M2, 0, 0, NULL, &err), FP8_OK);
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_agree_with_the_table_at_every_level),
        cmocka_unit_test(casts_are_the_same_with_threads),
        cmocka_unit_test(casts_refuse_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
