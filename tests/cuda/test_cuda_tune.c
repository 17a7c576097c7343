/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_tune.c - `fp8 tune`'s timing of a product over the fake driver: a kernel that fails is
 * named, every call fails once, nothing leaks. All kernels take the same time there. */
#include "backend/cuda/module.h"
#include "cli/tune_case.h"

#include "cuda/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "cuda/nothing_left.h"

static const cli_shape shape = {16, 128, 256};

/* The whole of it, from the context on; all that was made is given back. */
static fp8_status tune(cli_tune_result *result, fp8_error *err)
{
    fp8_context *ctx;
    cli_gpu gpu;
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.device = FP8_DEVICE_CUDA;
    fp8_status status = fp8_context_create(&desc, &ctx, err);
    if (status != FP8_OK)
        return status;
    status = cli_gpu_open(&gpu, 0, err);
    if (status == FP8_OK)
        status = cli_tune_case(ctx, &gpu, cli_linear_scheme_find("gemm"), false, shape, 1e-4,
                               result, err);
    cli_gpu_close(&gpu);
    fp8_context_free(ctx);
    return status;
}

static void the_choice_is_among_the_candidates(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    cli_tune_result result;
    fp8_error err = {.msg = ""};
    const fp8_status status = tune(&result, &err);
    if (fp8_cuda_has_kernels()) {
        if (status != FP8_OK)
            fail_msg("%s", err.msg);
        assert_true(result.candidates > 5 && result.timed == result.candidates);
        assert_non_null(result.kernel);
        assert_non_null(result.chosen);
        assert_true(result.seconds > 0 && result.seconds == result.chosen_seconds);
    } else {
        assert_int_equal(status, FP8_E_NO_KERNEL);
        assert_non_null(strstr(err.msg, "no CUDA kernels"));
    }
    nothing_is_left(fake);
}

/* Whether a failing call of that name is a kernel's. */
static bool is_of_a_kernel(const char *call)
{
    static const char *const calls[] = {"cuLaunchKernelEx", "cuGraphLaunch", "cuEventSynchronize",
                                        "cuStreamEndCapture"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i], call))
            return true;
    return false;
}

static void a_kernel_that_fails_is_named(void **state)
{
    (void)state;
    enum { STEP = 37 }; /* some of the calls */
    int failures = 0, named = 0;
    fake_driver *fake = fake_driver_reset();
    if (!fp8_cuda_has_kernels())
        skip();
    for (int at = 1;; at += STEP) {
        cli_tune_result result;
        fp8_error err = {.msg = ""};
        fake = fake_driver_reset();
        fake->fail_at = at;
        const fp8_status status = tune(&result, &err);
        assert_int_equal(fake->confused, 0);
        if (!fake->failed)
            break;
        if (!is_of_a_kernel(fake->failed))
            continue;
        assert_int_equal(status, FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, "999"));
        failures++;
        named += strstr(err.msg, "tune: gemm_small_channel_") != NULL ||
                 strstr(err.msg, "tune: gemm_large_channel_") != NULL;
    }
    assert_true(failures > 10 && named > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_is_among_the_candidates),
        cmocka_unit_test(a_kernel_that_fails_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
