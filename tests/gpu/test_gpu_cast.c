/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_cast.c - fp8_cast on GPU 0 against the CPU, bit for bit: all pairs of dtypes, saturating
 * or not; every number of 8 and 16 bits and random ones of 32, aligned and not. */
#include "number/dtype.h"
#include "support/device_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

enum { NUMBERS = 1 << 16, ROOM = NUMBERS * 4 + 16, ARENA_BYTES = 1 << 22 };
static fp8_context *cpu, *gpu;
static device_arena arena;

static const fp8_dtype dtypes[] = {FP8_F32,      FP8_F16,  FP8_BF16,     FP8_E4M3FN,
                                   FP8_E4M3FNUZ, FP8_E5M2, FP8_E5M2FNUZ, FP8_E8M0FNU};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* 0, 1, 2 .. of so many bits; of 32 with random low halves. */
static void fill(unsigned char *bytes, int64_t width)
{
    uint32_t x = 12345;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        x = x * 1664525 + 1013904223;
        const uint32_t number = width == 4 ? i << 16 | x >> 16 : i;
        memcpy(bytes + i * width, &number, (size_t)width);
    }
}

static void check_pair(fp8_dtype from, fp8_dtype to, int saturate, int shift)
{
    static unsigned char src[ROOM], want[ROOM], got[ROOM];
    const int64_t in = fp8_dtype_bits(from) / 8, out = fp8_dtype_bits(to) / 8;
    fill(src + shift, in);
    memset(want, 0xA5, ROOM);
    memset(got, 0xA5, ROOM);
    assert_int_equal(
        fp8_cast(cpu, src + shift, from, want + shift, to, NUMBERS, saturate, NULL, NULL), FP8_OK);
    arena.used = 0;
    const fp8_tensor all_in = fp8_vector(src, FP8_U8, NUMBERS * in + 16);
    const fp8_tensor all_out = fp8_vector(got, FP8_U8, NUMBERS * out + 16);
    const fp8_tensor in_there = device_put(&arena, &all_in), there = device_put(&arena, &all_out);
    fp8_error err;
    if (fp8_cast(gpu, (char *)in_there.data + shift, from, (char *)there.data + shift, to, NUMBERS,
                 saturate, NULL, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    assert_true(device_get(&arena, &all_out, &there));
    for (int64_t i = 0; i < ROOM; i++)
        if (got[i] != want[i])
            fail_msg("%s to %s, saturate %d, shift %d: byte %lld is %02X, want %02X",
                     fp8_dtype_name(from), fp8_dtype_name(to), saturate, shift, (long long)i,
                     got[i], want[i]);
}

static void casts_agree_with_the_cpu(void **state)
{
    (void)state;
    for (int pair = 0; pair < DTYPES * DTYPES; pair++)
        for (int how = 0; how < 4; how++)
            check_pair(dtypes[pair / DTYPES], dtypes[pair % DTYPES], how & 1, how >> 1);
    printf("cast: %d pairs of dtypes, four ways each, equal the CPU's\n", DTYPES * DTYPES);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    float host[4] = {0};
    char *there = arena.memory;
    fp8_error err;
    assert_int_equal(fp8_cast(gpu, there, FP8_F32, there + 4, FP8_E5M2, 4, 0, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(fp8_cast(gpu, host, FP8_F32, there, FP8_E5M2, 4, 0, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "src is no memory that cuda:0 can read"));
    assert_int_equal(fp8_cast(gpu, NULL, FP8_F32, NULL, FP8_E5M2, 0, 0, NULL, &err), FP8_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_agree_with_the_cpu),
        cmocka_unit_test(nonsense_is_refused),
    };
    gpu = device_context_or_skip();
    if (!gpu)
        return DEVICE_SKIPPED;
    if (!device_arena_open(&arena, gpu, ARENA_BYTES) ||
        fp8_context_create(NULL, &cpu, NULL) != FP8_OK)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_arena_close(&arena);
    fp8_context_free(cpu);
    fp8_context_free(gpu);
    return failed;
}
