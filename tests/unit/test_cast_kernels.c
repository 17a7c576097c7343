/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cast_kernels.c - every cast kernel of every backend that this machine can run,
 * against the table of dtypes element by element, bit for bit: all codes and all 16-bit patterns,
 * fp32 bits chosen around each code and at random, every length around the group sizes, at a page
 * end and at a page start. FP8_TEST_EXHAUSTIVE=1 adds all 2^32 fp32 bits. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/backend.h"
#include "support/guard.h"
#include "support/random.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

typedef void (*kernel_test)(const fp8_kernel *kernel);

/* Runs `test` for each cast kernel; says what this machine cannot run. */
static void for_each_kernel(kernel_test test)
{
    const fp8_kernel *kernel;
    int run = 0, skipped = 0;
    for (size_t i = 0; (kernel = fp8_kernel_at(i)); i++) {
        if (kernel->op != FP8_OP_CAST)
            continue;
        if (kernel->isa > fp8_isa_detect()) {
            print_message("skipped: %s (no %s here)\n", kernel->name, fp8_isa_name(kernel->isa));
            skipped++;
            continue;
        }
        test(kernel);
        run++;
    }
    print_message("kernels: %d run, %d skipped\n", run, skipped);
    assert_true(run >= (fp8_isa_detect() > FP8_ISA_SCALAR ? 16 : 8));
}

static size_t element_bytes(fp8_dtype dtype)
{
    return (size_t)fp8_dtype_bits(dtype) / 8;
}

static void fail_if_different(const char *name, const void *got, const void *want, size_t bytes,
                              int64_t n)
{
    const unsigned char *a = got, *b = want;
    if (!memcmp(a, b, bytes))
        return;
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            fail_msg("%s, n = %lld: byte %zu is 0x%02x, the reference has 0x%02x", name,
                     (long long)n, i, a[i], b[i]);
}

static void by_the_table(void *dst, const void *src, int64_t n, bool saturate,
                         const fp8_kernel *kernel)
{
    const fp8_load_fn load = fp8_dtype_facts_of(kernel->from)->load;
    const fp8_store_fn store = fp8_dtype_facts_of(kernel->to)->store;
    for (int64_t i = 0; i < n; i++)
        store(dst, i, load(src, i), saturate);
}

/* n inputs -> n outputs at both ends of guarded pages, compared with the reference. */
static void check_guarded(const fp8_kernel *kernel, const void *input, int64_t n)
{
    const size_t in_bytes = (size_t)n * element_bytes(kernel->from);
    const size_t out_bytes = (size_t)n * element_bytes(kernel->to);
    guard in = guard_new(in_bytes), out = guard_new(out_bytes);
    void *want = malloc(out_bytes + 1);
    assert_non_null(want);
    for (int round = 0; round < 4; round++) {
        const bool saturate = round & 1;
        void *src = round & 2 ? guard_at_start(&in) : guard_at_end(&in, in_bytes);
        void *dst = round & 2 ? guard_at_start(&out) : guard_at_end(&out, out_bytes);
        if (in_bytes)
            memcpy(src, input, in_bytes);
        kernel->fn.cast(dst, src, n, saturate);
        by_the_table(want, src, n, saturate, kernel);
        fail_if_different(kernel->name, dst, want, out_bytes, n);
    }
    free(want);
    guard_free(&in);
    guard_free(&out);
}

static void check_lengths(const fp8_kernel *kernel, const void *input)
{
    for (int64_t n = 0; n <= 200; n++)
        check_guarded(kernel, input, n);
}

static void cast_all_codes(const fp8_kernel *kernel)
{
    const size_t bytes = element_bytes(kernel->from);
    const int64_t n = bytes == 1 ? 256 : 65536;
    unsigned char *codes = malloc((size_t)n * bytes);
    assert_non_null(codes);
    for (int64_t i = 0; i < n; i++) {
        const uint16_t code = (uint16_t)i;
        memcpy(codes + (size_t)i * bytes, &code, bytes);
    }
    check_guarded(kernel, codes, n);
    check_lengths(kernel, codes + (size_t)(n / 2 - 100) * bytes);
    free(codes);
}

/* fp32 bits at and next to each value, each midpoint and each power of two of `to`, both signs,
 * then random ones up to *n. */
static uint32_t *hard_bits(fp8_dtype to, int64_t n)
{
    uint32_t *bits = malloc((size_t)n * sizeof *bits), x = 7;
    assert_non_null(bits);
    const fp8_load_fn decode = fp8_dtype_facts_of(to)->load;
    const int64_t codes = to == FP8_F32 ? 0 : (int64_t)1 << fp8_dtype_bits(to);
    int64_t used = 0;
    for (int64_t c = 0; c < codes && used + 6 <= n; c++) {
        const uint16_t wide[2] = {(uint16_t)c, (uint16_t)(c + 1)};
        const uint8_t narrow[2] = {(uint8_t)c, (uint8_t)(c + 1)};
        const void *pair = fp8_dtype_bits(to) == 8 ? (const void *)narrow : wide;
        const float value[2] = {decode(pair, 0), decode(pair, 1)};
        const float middle = value[0] / 2 + value[1] / 2;
        for (int step = -1; step <= 1; step++) {
            bits[used++] = fp8_bits_of_f32(value[0]) + (uint32_t)step;
            bits[used++] = fp8_bits_of_f32(middle) + (uint32_t)step;
        }
    }
    for (; used < n; used++)
        bits[used] = next_random(&x);
    return bits;
}

static void cast_hard_bits(const fp8_kernel *kernel)
{
    const int64_t n = 1 << 19;
    uint32_t *bits = hard_bits(kernel->to, n);
    check_guarded(kernel, bits, n);
    check_lengths(kernel, bits + 1000);
    check_lengths(kernel, bits + n - 200);
    free(bits);
}

static void check_kernel(const fp8_kernel *kernel)
{
    if (kernel->from == FP8_F32)
        cast_hard_bits(kernel);
    else
        cast_all_codes(kernel);
}

static void cast_kernels_give_the_reference_bits(void **state)
{
    (void)state;
    for_each_kernel(check_kernel);
}

static void flushing_subnormals_changes_nothing(void **state)
{
    (void)state;
#if defined(__x86_64__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* flush to zero, denormals are zero */
    for_each_kernel(check_kernel);
    _mm_setcsr(before);
#else
    skip();
#endif
}

enum { SLICE = 1 << 16 };

/* All vector kernels from fp32 to `to` on one slice of inputs. */
static void check_slice(const float *in, fp8_dtype to, bool saturate)
{
    static unsigned char got[4 * SLICE], want[4 * SLICE];
    const fp8_kernel *kernel;
    by_the_table(want, in, SLICE, saturate,
                 fp8_kernel_pick(FP8_ISA_SCALAR, FP8_OP_CAST, FP8_F32, to));
    for (size_t i = 0; (kernel = fp8_kernel_at(i)); i++) {
        if (kernel->op != FP8_OP_CAST || kernel->from != FP8_F32 || kernel->to != to ||
            kernel->isa == FP8_ISA_SCALAR || kernel->isa > fp8_isa_detect())
            continue;
        kernel->fn.cast(got, in, SLICE, saturate);
        fail_if_different(kernel->name, got, want, SLICE * element_bytes(to), SLICE);
    }
}

static void every_fp32_number_is_cast_as_by_the_table(void **state)
{
    (void)state;
    static const fp8_dtype to[] = {FP8_F16,      FP8_BF16, FP8_E4M3FN,
                                   FP8_E4M3FNUZ, FP8_E5M2, FP8_E5M2FNUZ};
    static float in[SLICE];
    if (!getenv("FP8_TEST_EXHAUSTIVE")) {
        print_message("skipped: set FP8_TEST_EXHAUSTIVE=1\n");
        skip();
    }
    for (uint32_t high = 0; high < 1 << 16; high++) {
        for (uint32_t low = 0; low < SLICE; low++)
            in[low] = fp8_f32_of_bits(high << 16 | low);
        for (size_t k = 0; k < 2 * sizeof to / sizeof *to; k++)
            check_slice(in, to[k / 2], k % 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cast_kernels_give_the_reference_bits),
        cmocka_unit_test(flushing_subnormals_changes_nothing),
        cmocka_unit_test(every_fp32_number_is_cast_as_by_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
