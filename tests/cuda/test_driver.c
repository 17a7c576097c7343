/* SPDX-License-Identifier: Apache-2.0
 *
 * test_driver.c - loading the driver: what is missing, too old or failing has a status and words
 * with the numbers. The driver is the fake one. */
#include "backend/cuda/driver.h"

#include "cuda/fake_driver.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

/* How many functions are in the list. */
static int count(void)
{
    int n = 0;
    while (fp8_driver_function_at((size_t)n))
        n++;
    return n;
}

static int is_null(const fp8_driver *driver, const fp8_driver_function *function)
{
    void *pointer;
    memcpy(&pointer, (const char *)driver + function->offset, sizeof pointer);
    return pointer == NULL;
}

static void finds_every_function(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_driver driver;
    fp8_error err;
    assert_int_equal(fp8_driver_load(FP8_DRIVER_NAME, &driver, &err), FP8_OK);
    assert_int_equal(driver.version, 12040);
    assert_int_equal(fake->lookups, count());
    for (size_t i = 0; fp8_driver_function_at(i); i++)
        assert_false(is_null(&driver, fp8_driver_function_at(i)));
    assert_int_equal(fake->confused, 0);
}

static void a_missing_function_is_named_or_done_without(void **state)
{
    (void)state;
    const fp8_driver_function *function;
    for (size_t i = 0; (function = fp8_driver_function_at(i)); i++) {
        fake_driver *fake = fake_driver_reset();
        fp8_driver driver;
        fp8_error err;
        char since[64];
        fake->missing = function->name;
        fp8_status status = fp8_driver_load(FP8_DRIVER_NAME, &driver, &err);
        if (!function->required) {
            assert_int_equal(status, FP8_OK);
            assert_true(is_null(&driver, function));
            continue;
        }
        assert_int_equal(status, FP8_E_UNSUPPORTED);
        snprintf(since, sizeof since, "%s of CUDA %d.%d ", function->name, function->since / 1000,
                 function->since % 1000 / 10);
        assert_non_null(strstr(err.msg, since));
        assert_non_null(strstr(err.msg, "CUDA 12.4"));
    }
}

static void every_call_fails_once(void **state)
{
    (void)state;
    int n = 1;
    for (;; n++) {
        fake_driver *fake = fake_driver_reset();
        fp8_driver driver;
        fp8_error err;
        fake->fail_at = n;
        fp8_status status = fp8_driver_load(FP8_DRIVER_NAME, &driver, &err);
        assert_int_equal(fake->confused, 0);
        if (fake->calls < n) {
            assert_int_equal(status, FP8_OK);
            break;
        }
        assert_int_equal(status, FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, "(999)"));
    }
    assert_int_equal(n - 1, 2); /* cuDriverGetVersion, cuInit */
}

static void refused(const char *file, fp8_status expected, const char *a, const char *b)
{
    fp8_driver driver;
    fp8_error err;
    assert_int_equal(fp8_driver_load(file, &driver, &err), expected);
    assert_int_equal(err.code, expected);
    assert_non_null(strstr(err.msg, a));
    assert_non_null(strstr(err.msg, b));
    assert_int_equal(fp8_driver_load(file, &driver, NULL), expected);
}

static void what_is_no_driver_is_refused(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    refused("libfp8-none.so.1", FP8_E_NO_DEVICE, "no CUDA driver: ", "libfp8-none.so.1");
    refused("libm.so.6", FP8_E_NO_DEVICE, "libm.so.6", "no cuDriverGetVersion");
    fake->version = 11080;
    refused(FP8_DRIVER_NAME, FP8_E_UNSUPPORTED, "supports CUDA 11.8", "must be 12.0 or later");
    assert_int_equal(fake->lookups, 0);
    refused(OLD_LOOKUP_PATH, FP8_E_UNSUPPORTED, "CUDA 12.4", "no cuGetProcAddress_v2");
}

static void a_driver_without_devices_says_so(void **state)
{
    (void)state;
    fake_driver_reset()->count = 0;
    refused(FP8_DRIVER_NAME, FP8_E_NO_DEVICE, "cuInit: CUDA_ERROR_NO_DEVICE (100)",
            "no CUDA-capable device");
}

static void results_have_statuses_and_words(void **state)
{
    (void)state;
    static const struct {
        fp8_cu_result result;
        fp8_status status;
    } pinned[] = {
        {1, FP8_E_ARGUMENT},     {2, FP8_E_NO_MEMORY},   {3, FP8_E_STATE},
        {4, FP8_E_STATE},        {5, FP8_E_DEVICE},      {34, FP8_E_NO_DEVICE},
        {36, FP8_E_UNSUPPORTED}, {46, FP8_E_NO_DEVICE},  {100, FP8_E_NO_DEVICE},
        {101, FP8_E_NO_DEVICE},  {200, FP8_E_NO_KERNEL}, {201, FP8_E_STATE},
        {209, FP8_E_NO_KERNEL},  {214, FP8_E_DEVICE},    {222, FP8_E_NO_KERNEL},
        {400, FP8_E_ARGUMENT},   {500, FP8_E_NO_KERNEL}, {700, FP8_E_DEVICE},
        {709, FP8_E_STATE},      {719, FP8_E_DEVICE},    {801, FP8_E_UNSUPPORTED},
        {803, FP8_E_NO_DEVICE},  {900, FP8_E_STATE},     {908, FP8_E_STATE},
        {909, FP8_E_DEVICE},     {999, FP8_E_DEVICE},    {123456, FP8_E_DEVICE},
    };
    fake_driver *fake = fake_driver_reset();
    fp8_driver driver;
    fp8_error err;
    assert_int_equal(fp8_driver_load(FP8_DRIVER_NAME, &driver, &err), FP8_OK);
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        assert_int_equal(fp8_driver_fail(&driver, pinned[i].result, &err, "x"), pinned[i].status);
    assert_string_equal(err.msg, "x: ? (123456): ?");
    fp8_driver_fail(&driver, 2, &err, "cuda:%d", 1);
    assert_string_equal(err.msg, "cuda:1: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
    fake->wordless = 1;
    fp8_driver_fail(&driver, 2, &err, "y");
    assert_string_equal(err.msg, "y: ? (2): ?");
    fake->missing = "cuGetErrorString";
    fake->wordless = 0;
    assert_int_equal(fp8_driver_load(FP8_DRIVER_NAME, &driver, &err), FP8_OK);
    fp8_driver_fail(&driver, 2, &err, "z");
    assert_string_equal(err.msg, "z: CUDA_ERROR_OUT_OF_MEMORY (2): ?");
}

static void *load_often(void *bad)
{
    for (int i = 0; i < 50; i++) {
        fp8_driver driver;
        if (fp8_driver_load(FP8_DRIVER_NAME, &driver, NULL) != FP8_OK || driver.version != 12040)
            ++*(int *)bad;
    }
    return NULL;
}

static void threads_load_at_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    fake_driver *fake = fake_driver_reset();
    pthread_t threads[THREADS];
    int bad[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_often, &bad[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(bad[i], 0);
    }
    assert_int_equal(fake->lookups, THREADS * 50 * count());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_function),
        cmocka_unit_test(a_missing_function_is_named_or_done_without),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(what_is_no_driver_is_refused),
        cmocka_unit_test(a_driver_without_devices_says_so),
        cmocka_unit_test(results_have_statuses_and_words),
        cmocka_unit_test(threads_load_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
