/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_launch.c - `fp8 bench`'s launch_us over the fake driver: what it repeats is what the
 * call launched, every call fails once, and what it cannot know it leaves out. */
#include "backend/cuda/module.h"
#include "cli/gpu_launch.h"
#include "cli/gpu_linear.h"

#include "cuda/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "cuda/fake_fixture.h"

enum { LEAST_REPEATS = 3 * 50 };

/* What the last of some launches was. */
typedef struct seen {
    char kernel[sizeof((fake_driver *)0)->kernel];
    unsigned int grid, threads, cluster, policy, dependent;
} seen;

static seen last_of(const fake_driver *fake)
{
    seen s;
    memset(&s, 0, sizeof s);
    strcpy(s.kernel, fake->kernel);
    s.grid = fake->grid;
    s.threads = fake->threads;
    s.cluster = fake->cluster;
    s.policy = fake->policy;
    s.dependent = fake->dependent;
    return s;
}

/* A linear from bf16, what a call of it launches, and its bare launches. */
typedef struct timed {
    seen last; /* of a call */
    int launches, repeated;
    double seconds;
} timed;

static fp8_status time_both(fake_driver *fake, cli_gpu *gpu, cli_gpu_linear *c, timed *out,
                            fp8_error *err)
{
    fake->launches = 0;
    CLI_TRY(cli_gpu_linear_whole(c, 0, gpu->stream, err));
    out->launches = fake->launches;
    out->last = last_of(fake);
    fake->launches = 0;
    const fp8_status status = cli_gpu_bare(gpu, cli_gpu_linear_whole, c, &out->seconds, err);
    out->repeated = fake->launches;
    return status;
}

static fp8_status time_linear(fake_driver *fake, const fp8_context *ctx, cli_shape shape,
                              const char *scheme, timed *out, fp8_error *err)
{
    cli_gpu gpu;
    cli_gpu_linear c = {0};
    fp8_status status = cli_gpu_open(&gpu, 0, err);
    if (status == FP8_OK)
        status =
            cli_gpu_linear_make(&c, ctx, &gpu, cli_linear_scheme_find(scheme), shape, false, err);
    if (status == FP8_OK)
        status = time_both(fake, &gpu, &c, out, err);
    cli_gpu_linear_free(&c);
    cli_gpu_close(&gpu);
    return status;
}

/* X quantized by the kernel that multiplies, by one before it, and by several. */
static void what_is_repeated_is_what_was_launched(void **state)
{
    static const struct {
        cli_shape shape;
        const char *scheme;
        int launches;
        unsigned int policy; /* of the last one */
    } cases[] = {{{1, 256, 256}, "channel", 1, FP8_CU_POLICY_BALANCE},
                 {{64, 256, 256}, "channel", 2, 0},
                 {{64, 4096, 4096}, "tensor", 5, FP8_CU_POLICY_BALANCE}};
    fake_start *t = *state;
    if (!fp8_cuda_has_kernels())
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        timed r;
        fp8_error err = {.msg = ""};
        if (time_linear(t->fake, t->ctx, cases[i].shape, cases[i].scheme, &r, &err) != FP8_OK)
            fail_msg("%s", err.msg);
        const seen last = last_of(t->fake);
        assert_true(r.seconds > 0);
        assert_int_equal(r.launches, cases[i].launches);
        assert_true(r.repeated >= (2 + LEAST_REPEATS) * cases[i].launches);
        assert_int_equal(r.repeated % cases[i].launches, 0);
        assert_memory_equal(&last, &r.last, sizeof last);
        assert_int_equal(last.policy, cases[i].policy);
        assert_int_equal(last.dependent, 1);
    }
}

static void older_drivers_do_not_tell(void **state)
{
    fake_start *t = *state;
    timed r;
    fp8_error err = {.msg = ""};
    if (!fp8_cuda_has_kernels())
        skip();
    t->fake->missing = "cuGraphNodeGetDependencies";
    assert_int_equal(time_linear(t->fake, t->ctx, (cli_shape){1, 256, 256}, "channel", &r, &err),
                     FP8_OK);
    assert_true(r.seconds == 0);
    assert_int_equal(r.repeated, 0);
}

static void a_call_that_fails_leaves_nothing(void **state)
{
    (void)state;
    enum { STEP = 7 };
    int failures = 0;
    if (!fp8_cuda_has_kernels())
        skip();
    for (int at = 1; at < 400; at += STEP) {
        timed r;
        fp8_error err = {.msg = ""};
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = fake_context();
        fake->fail_at = fake->calls + at;
        failures +=
            time_linear(fake, ctx, (cli_shape){64, 256, 256}, "channel", &r, &err) != FP8_OK;
        assert_non_null(fake->failed);
        assert_int_equal(fake->confused, 0);
        fp8_context_free(ctx);
        if (strcmp(fake->failed, "cuCtxPushCurrent") != 0)
            nothing_is_left(fake); /* else entering, to free, may be what failed */
    }
    assert_true(failures > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fake_test(what_is_repeated_is_what_was_launched),
        fake_test(older_drivers_do_not_tell),
        cmocka_unit_test(a_call_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
