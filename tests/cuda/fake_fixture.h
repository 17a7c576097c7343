/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_fixture.h - a context over the fake driver, and what must hold whichever of its calls fails.
 * Include what cmocka.h needs, and string.h, before. */
#ifndef FAKE_FIXTURE_H
#define FAKE_FIXTURE_H

#include "fp8.h"

#include "cuda/nothing_left.h"

/* Of device 0. */
static inline fp8_context *fake_context(void)
{
    fp8_context *ctx;
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.device = FP8_DEVICE_CUDA;
    assert_int_equal(fp8_context_create(&desc, &ctx, NULL), FP8_OK);
    return ctx;
}

/* A matrix on device 0, `at` bytes from the beginning of its memory. */
static inline fp8_tensor on_device(uint64_t at, fp8_dtype dtype, int64_t rows, int64_t cols)
{
    return fp8_matrix((char *)fake_driver_memory(0) + at, dtype, rows, cols);
}

/* What a test starts with: the fake as it begins, and a context of its device 0. */
typedef struct fake_start {
    fake_driver *fake;
    fp8_context *ctx;
    fp8_linear *linear; /* NULL, or what the test makes */
} fake_start;

static inline int fake_begin(void **state)
{
    static fake_start start;
    start.fake = fake_driver_reset();
    start.ctx = fake_context();
    start.linear = NULL;
    *state = &start;
    return 0;
}

/* Frees both; nothing may be left. */
static inline int fake_end(void **state)
{
    fake_start *t = *state;
    fp8_linear_free(t->linear);
    fp8_context_free(t->ctx);
    nothing_is_left(t->fake);
    return 0;
}
#define fake_test(function) cmocka_unit_test_setup_teardown(function, fake_begin, fake_end)

/* live(ctx, err) again and again, each time another of its calls of the driver failing, until none
 * does: then it returns `done`. It makes at least `least` calls, tells of what failed, and leaves
 * nothing behind. */
static inline void fail_each_call(fp8_status (*live)(const fp8_context *ctx, fp8_error *err),
                                  fp8_status done, int least)
{
    int n = 1;
    for (;; n++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = fake_context();
        fp8_error err = {.msg = ""};
        fake->fail_at = fake->calls + n;
        const fp8_status status = live(ctx, &err);
        const char *failed = fake->failed;
        fake->fail_at = 0;
        fp8_context_free(ctx);
        assert_int_equal(fake->confused, 0);
        if (!failed || strcmp(failed, "cuCtxPushCurrent") != 0)
            nothing_is_left(fake); /* else entering, to free, may be what failed */
        if (!failed) {
            if (status != done)
                fail_msg("%s", err.msg);
            break;
        }
        if (may_fail_unnoticed(failed) || (status == done && fake->memories))
            continue;
        assert_int_equal(status, FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, "(999)"));
    }
    assert_true(n > least);
}

#endif
