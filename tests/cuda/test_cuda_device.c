/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_device.c - devices, primary contexts, memory and streams over the fake driver: every
 * call fails once and nothing leaks, and whose context is current never changes. */
#include "backend/cuda/launch.h"

#include "cuda/fake_driver.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "cuda/nothing_left.h"

/* The driver, and the fake behind it in its first state. */
static fake_driver *set_up(fp8_driver *driver)
{
    fake_driver *fake = fake_driver_reset();
    assert_int_equal(fp8_driver_load(FP8_DRIVER_NAME, driver, NULL), FP8_OK);
    fake->calls = 0;
    return fake;
}

static void devices_are_described(void **state)
{
    (void)state;
    fp8_driver driver;
    fake_driver *fake = set_up(&driver);
    fp8_cuda_facts facts;
    int32_t count;
    assert_int_equal(fp8_cuda_count(&driver, &count, NULL), FP8_OK);
    assert_int_equal(count, 2);
    assert_int_equal(fp8_cuda_describe(&driver, 0, &facts, NULL), FP8_OK);
    assert_string_equal(facts.name, "NVIDIA H100 80GB HBM3");
    assert_int_equal(facts.capability, 90);
    assert_int_equal(facts.processors, 132);
    assert_true(facts.memory_bytes == (uint64_t)85 << 30);
    fake->count = 4;
    assert_int_equal(fp8_cuda_describe(&driver, 3, &facts, NULL), FP8_OK);
    assert_int_equal(facts.capability, 100);
    nothing_is_left(fake);
}

static void a_name_of_any_length_is_cut(void **state)
{
    (void)state;
    fp8_driver driver;
    fp8_cuda_facts facts;
    char name[2 * sizeof facts.name];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    set_up(&driver)->devices[0].name = name;
    assert_int_equal(fp8_cuda_describe(&driver, 0, &facts, NULL), FP8_OK);
    assert_int_equal(strlen(facts.name), sizeof facts.name - 1);
}

static void devices_that_are_not_there_or_too_old_are_refused(void **state)
{
    (void)state;
    fp8_driver driver;
    fake_driver *fake = set_up(&driver);
    fp8_cuda_device device;
    fp8_error err;
    assert_int_equal(fp8_cuda_open(&driver, 2, &device, &err), FP8_E_NO_DEVICE);
    assert_string_equal(err.msg,
                        "cuda:2: the driver shows 2 devices, so the index must be in [0, 2)");
    assert_int_equal(fp8_cuda_open(&driver, -1, &device, &err), FP8_E_NO_DEVICE);
    fake->count = 3;
    assert_int_equal(fp8_cuda_open(&driver, 2, &device, &err), FP8_E_UNSUPPORTED);
    assert_string_equal(err.msg,
                        "cuda:2 (Tesla T4) has compute capability 7.5, must be 8.0 or higher");
    fake->count = 0;
    assert_int_equal(fp8_cuda_open(&driver, 0, &device, &err), FP8_E_NO_DEVICE);
    nothing_is_left(fake);
}

/* fp8_cuda_begin, and back. */
static fp8_status check_stream(const fp8_cuda_device *device, fp8_cu_stream stream, fp8_error *err)
{
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    fp8_cuda_leave(device);
    return FP8_OK;
}

/* One of everything on device 0. */
static fp8_status use(const fp8_driver *driver, fp8_error *err)
{
    fp8_cuda_device device;
    fp8_cu_pointer memory = 0;
    FP8_TRY(fp8_cuda_open(driver, 0, &device, err));
    fp8_status status = fp8_cuda_begin(&device, fake_driver_stream(0), err);
    if (status == FP8_OK) {
        status = fp8_cuda_alloc(&device, 1000, &memory, err);
        fp8_cuda_leave(&device);
    }
    fp8_cuda_free(&device, memory);
    fp8_cuda_close(&device);
    return status;
}

/* Functions that give back. Their errors are those of earlier work, and the caller has no use for
 * them; every other failure must come out. */
static int gives_back(const char *name)
{
    return !strcmp(name, "cuCtxPopCurrent") || !strcmp(name, "cuMemFree") ||
           !strcmp(name, "cuDevicePrimaryCtxRelease");
}

static void every_call_fails_once(void **state)
{
    (void)state;
    fp8_driver driver;
    int hidden = 0, lost = 0;
    for (int n = 1;; n++) {
        fake_driver *fake = set_up(&driver);
        fp8_error err = {0};
        fake->fail_at = n;
        fp8_status status = use(&driver, &err);
        if (!fake->failed) {
            assert_int_equal(status, FP8_OK);
            nothing_is_left(fake);
            assert_int_equal(fake->calls, n - 1);
            assert_true(n > 17);
            break;
        }
        if (status == FP8_OK && !strcmp(fake->failed, "cuCtxPushCurrent")) {
            /* freeing: a context that cannot be entered has lost its memory already */
            assert_int_equal(fake->memories, 1);
            lost++;
            continue;
        }
        nothing_is_left(fake);
        if (status == FP8_OK) {
            assert_true(gives_back(fake->failed));
            hidden++;
            continue;
        }
        assert_int_equal(status, FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, fake->failed));
        assert_non_null(strstr(err.msg, ": CUDA_ERROR_UNKNOWN (999): unknown error"));
    }
    assert_int_equal(lost, 1);
    assert_int_equal(hidden, 5); /* three pops, one free, one release */
}

static void whose_context_is_current_does_not_change(void **state)
{
    (void)state;
    fp8_driver driver;
    fake_driver *fake = set_up(&driver);
    fp8_cuda_device devices[2];
    fp8_cu_pointer memory[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(fp8_cuda_open(&driver, i, &devices[i], NULL), FP8_OK);
    assert_null(fake_driver_current());
    fake_driver_push_foreign();
    void *foreign = fake_driver_current();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fp8_cuda_alloc(&devices[i], 64, &memory[i], NULL), FP8_OK);
        assert_ptr_equal(fake_driver_current(), foreign);
        assert_int_equal(check_stream(&devices[i], fake_driver_stream(i), NULL), FP8_OK);
        assert_ptr_equal(fake_driver_current(), foreign);
    }
    assert_int_equal(fake->bytes, 128);
    assert_int_equal(fp8_cuda_enter(&devices[0], NULL), FP8_OK);
    assert_ptr_equal(fake_driver_current(), fake_driver_primary(0));
    fp8_cuda_free(&devices[1], memory[1]); /* the other device's, meanwhile */
    assert_ptr_equal(fake_driver_current(), fake_driver_primary(0));
    fp8_cuda_leave(&devices[0]);
    assert_ptr_equal(fake_driver_current(), foreign);
    fp8_cuda_free(&devices[0], memory[0]);
    for (int i = 0; i < 2; i++)
        fp8_cuda_close(&devices[i]);
    assert_ptr_equal(fake_driver_current(), foreign);
    fake_driver_pop_foreign();
    nothing_is_left(fake);
}

static void memory_of_no_bytes_and_of_too_many(void **state)
{
    (void)state;
    fp8_driver driver;
    fake_driver *fake = set_up(&driver);
    fp8_cuda_device device;
    fp8_cu_pointer memory = 1;
    fp8_error err;
    assert_int_equal(fp8_cuda_open(&driver, 1, &device, NULL), FP8_OK);
    assert_int_equal(fp8_cuda_alloc(&device, 0, &memory, &err), FP8_OK);
    assert_true(memory == 0);
    fp8_cuda_free(&device, memory);
    memory = 1;
    assert_int_equal(fp8_cuda_alloc(&device, (uint64_t)41 << 30, &memory, &err), FP8_E_NO_MEMORY);
    assert_string_equal(err.msg, "cuda:1: cuMemAlloc of 44023414784 bytes: "
                                 "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
    assert_true(memory == 0);
    fp8_cuda_close(&device);
    nothing_is_left(fake);
}

static void streams_of_others_are_refused(void **state)
{
    (void)state;
    fp8_driver driver;
    fake_driver *fake = set_up(&driver);
    fp8_cuda_device device, other;
    fp8_error err;
    int unknown;
    assert_int_equal(fp8_cuda_open(&driver, 0, &device, NULL), FP8_OK);
    assert_int_equal(fp8_cuda_open(&driver, 1, &other, NULL), FP8_OK);
    for (uintptr_t constant = 0; constant < 3; constant++)
        assert_int_equal(check_stream(&device, (fp8_cu_stream)constant, &err), FP8_OK);
    assert_int_equal(check_stream(&device, fake_driver_stream(0), &err), FP8_OK);
    assert_int_equal(check_stream(&other, fake_driver_stream(1), &err), FP8_OK);
    assert_int_equal(check_stream(&other, fake_driver_stream(0), &err), FP8_E_ARGUMENT);
    assert_int_equal(check_stream(&device, fake_driver_stream(-1), &err), FP8_E_ARGUMENT);
    assert_string_equal(err.msg,
                        "cuda:0: the stream belongs to another device or to a context of its own");
    assert_int_equal(check_stream(&device, (fp8_cu_stream)(void *)&unknown, &err), FP8_E_ARGUMENT);
    assert_string_equal(err.msg, "cuda:0: cuStreamGetCtx: CUDA_ERROR_INVALID_HANDLE (400): "
                                 "invalid resource handle");
    fp8_cuda_close(&other);
    fp8_cuda_close(&device);
    nothing_is_left(fake);
}

static void a_context_destroyed_by_others_and_a_device_that_failed(void **state)
{
    (void)state;
    fp8_driver driver;
    fake_driver *fake = set_up(&driver);
    fp8_cuda_device device;
    fp8_cu_pointer memory, more;
    fp8_error err;
    assert_int_equal(fp8_cuda_open(&driver, 0, &device, NULL), FP8_OK);
    assert_int_equal(fp8_cuda_alloc(&device, 10, &memory, NULL), FP8_OK);
    fake->fail_name = "cuCtxPushCurrent";
    fake->fail_with = 709;
    assert_int_equal(fp8_cuda_enter(&device, &err), FP8_E_STATE);
    assert_string_equal(err.msg, "cuda:0: cuCtxPushCurrent: CUDA_ERROR_CONTEXT_IS_DESTROYED (709): "
                                 "context is destroyed");
    assert_int_equal(fp8_cuda_alloc(&device, 10, &more, &err), FP8_E_STATE);
    assert_int_equal(check_stream(&device, fake_driver_stream(0), &err), FP8_E_STATE);
    fp8_cuda_free(&device, memory);
    fake->fail_name = "cuMemAlloc"; /* tells of a launch before it */
    fake->fail_with = 719;
    assert_int_equal(fp8_cuda_alloc(&device, 10, &more, &err), FP8_E_DEVICE);
    assert_non_null(strstr(err.msg, "CUDA_ERROR_LAUNCH_FAILED (719)"));
    fake->fail_name = NULL;
    fp8_cuda_free(&device, memory);
    fp8_cuda_close(&device);
    nothing_is_left(fake);
}

typedef struct worker {
    pthread_t thread;
    const fp8_driver *driver;
    int index, bad;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    for (int i = 0; i < 100; i++) {
        fp8_cuda_device device;
        fp8_cu_pointer memory[3] = {0};
        if (fp8_cuda_open(w->driver, w->index, &device, NULL) != FP8_OK) {
            w->bad++;
            continue;
        }
        for (int k = 0; k < 3; k++)
            w->bad += fp8_cuda_alloc(&device, 100, &memory[k], NULL) != FP8_OK;
        w->bad += fake_driver_depth() != 0;
        for (int k = 0; k < 3; k++)
            fp8_cuda_free(&device, memory[k]);
        fp8_cuda_close(&device);
    }
    return NULL;
}

static void threads_and_devices_at_once(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    fp8_driver driver;
    fake_driver *fake = set_up(&driver);
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.driver = &driver, .index = i % 2};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].bad, 0);
    }
    nothing_is_left(fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_described),
        cmocka_unit_test(a_name_of_any_length_is_cut),
        cmocka_unit_test(devices_that_are_not_there_or_too_old_are_refused),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(whose_context_is_current_does_not_change),
        cmocka_unit_test(memory_of_no_bytes_and_of_too_many),
        cmocka_unit_test(streams_of_others_are_refused),
        cmocka_unit_test(a_context_destroyed_by_others_and_a_device_that_failed),
        cmocka_unit_test(threads_and_devices_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
