/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_context.c - the public side over the fake driver: a context of a CUDA device, what it
 * refuses, and the list of GPUs. */
#include "backend/cuda/module.h"
#include "base/context.h"

#include "cuda/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "cuda/nothing_left.h"

/* An allocator whose call `fail_at` fails, from 1. */
typedef struct scarce {
    int fail_at, calls, live;
} scarce;

static void *scarce_alloc(void *user, size_t bytes)
{
    scarce *s = user;
    if (++s->calls == s->fail_at)
        return NULL;
    s->live++;
    return malloc(bytes);
}

static void scarce_free(void *user, void *ptr)
{
    ((scarce *)user)->live -= ptr != NULL;
    free(ptr);
}

static fp8_status create(scarce *s, int32_t index, fp8_context **ctx, fp8_error *err)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.allocator = (fp8_allocator){scarce_alloc, scarce_free, s};
    desc.device = FP8_DEVICE_CUDA;
    desc.device_index = index;
    return fp8_context_create(&desc, ctx, err);
}

static void neither_memory_is_left(const fake_driver *fake, const scarce *s)
{
    assert_int_equal(s->live, 0);
    nothing_is_left(fake);
}

static void a_context_holds_its_device(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    scarce s = {0};
    fp8_context *a, *b;
    assert_int_equal(create(&s, 0, &a, NULL), FP8_OK);
    assert_int_equal(create(&s, 1, &b, NULL), FP8_OK);
    assert_int_equal(fake->retained, 2);
    assert_string_equal(fp8_cuda_label(a->cuda), "cuda:0");
    assert_string_equal(fp8_cuda_label(b->cuda), "cuda:1");
    fp8_context_free(a);
    assert_int_equal(fake->retained, 1);
    fp8_context_free(b);
    neither_memory_is_left(fake, &s);
}

static void the_cpu_needs_no_driver(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    assert_null(ctx->cuda);
    fp8_context_free(ctx);
    assert_int_equal(fake->calls + fake->lookups, 0);
}

static void every_call_and_allocation_fails_once(void **state)
{
    (void)state;
    fp8_context *ctx;
    int n = 1;
    for (;; n++) {
        fake_driver *fake = fake_driver_reset();
        scarce s = {0};
        fp8_error err = {0};
        fake->fail_at = n;
        fp8_status status = create(&s, 0, &ctx, &err);
        fake->fail_at = 0;
        if (!fake->failed || !strcmp(fake->failed, "cuCtxPopCurrent")) { /* told by the next call */
            assert_int_equal(status, FP8_OK);
            fp8_context_free(ctx);
            neither_memory_is_left(fake, &s);
            if (fake->failed)
                continue;
            break;
        }
        assert_int_equal(status, FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, fake->failed));
        assert_null(ctx);
        neither_memory_is_left(fake, &s);
    }
    assert_true(n > 10);
    for (int k = 1; k <= 2; k++) {
        fake_driver *fake = fake_driver_reset();
        scarce s = {.fail_at = k};
        assert_int_equal(create(&s, 0, &ctx, NULL), FP8_E_NO_MEMORY);
        assert_null(ctx);
        neither_memory_is_left(fake, &s);
    }
}

static void what_will_not_do_is_refused(void **state)
{
    (void)state;
    static const struct {
        int version, count;
        int32_t index;
        fp8_status status;
        const char *says;
    } cases[] = {
        {12040, 2, 2, FP8_E_NO_DEVICE, "index must be in [0, 2)"},
        {12040, 2, -1, FP8_E_NO_DEVICE, "index must be in [0, 2)"},
        {12040, 3, 2, FP8_E_UNSUPPORTED, "Tesla T4) has compute capability 7.5"},
        {12040, 0, 0, FP8_E_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {11080, 2, 0, FP8_E_UNSUPPORTED, "must be 12.0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_driver *fake = fake_driver_reset();
        scarce s = {0};
        fp8_context *ctx;
        fp8_error err;
        fake->version = cases[i].version;
        fake->count = cases[i].count;
        assert_int_equal(create(&s, cases[i].index, &ctx, &err), cases[i].status);
        assert_non_null(strstr(err.msg, cases[i].says));
        neither_memory_is_left(fake, &s);
    }
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx;
    desc.device = (fp8_device)2;
    assert_int_equal(fp8_context_create(&desc, &ctx, NULL), FP8_E_ARGUMENT);
    desc.device = FP8_DEVICE_CPU;
    desc.device_index = 1;
    assert_int_equal(fp8_context_create(&desc, &ctx, NULL), FP8_E_ARGUMENT);
}

static void ignore_finding(void *user, const fp8_finding *finding)
{
    (void)user;
    (void)finding;
}

static void ignore_row(void *user, const fp8_diff_row *row)
{
    (void)user;
    (void)row;
}

#define MODEL "tests/golden/checkpoints/llama_tied_bf16"

/* Arguments that a context of the CPU takes. */
static fp8_status call(int which, const fp8_context *ctx, fp8_error *err)
{
    fp8_convert *convert = NULL;
    fp8_checkpoint *checkpoint = NULL;
    fp8_convert_desc convert_desc = FP8_CONVERT_DESC_INIT;
    fp8_verify_desc verify_desc = FP8_VERIFY_DESC_INIT;
    fp8_verify_summary summary;
    fp8_status status;
    convert_desc.src = verify_desc.path = MODEL;
    convert_desc.dst = "build/never-written";
    switch (which) {
    case 1:
        status = fp8_convert_plan(ctx, &convert_desc, &convert, err);
        fp8_convert_free(convert);
        return status;
    case 2:
        return fp8_verify(ctx, &verify_desc, ignore_finding, NULL, &summary, err);
    case 3:
        return fp8_diff(ctx, MODEL, MODEL, ignore_row, NULL, err);
    default: /* the one that takes it */
        status = fp8_checkpoint_open(ctx, MODEL, &checkpoint, err);
        fp8_checkpoint_close(checkpoint);
        return status;
    }
}

static void what_is_not_built_is_refused(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    scarce s = {0};
    fp8_context *cuda, *cpu;
    assert_int_equal(create(&s, 1, &cuda, NULL), FP8_OK);
    assert_int_equal(fp8_context_create(NULL, &cpu, NULL), FP8_OK);
    for (int i = 1; i < 4; i++) {
        fp8_error err = {0};
        assert_int_equal(call(i, cuda, &err), FP8_E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, ": not built for cuda:1, use a context of the CPU"));
        assert_int_equal(call(i, cpu, &err), FP8_OK);
        assert_int_equal(call(i, NULL, &err), FP8_E_ARGUMENT);
    }
    assert_int_equal(call(4, cuda, NULL), FP8_OK);
    fp8_context_free(cpu);
    fp8_context_free(cuda);
    neither_memory_is_left(fake, &s);
}

/* Reading and copying, by launches and copies of the fake: each call fails once. */
static void peaks_are_those_of_the_device(void **state)
{
    (void)state;
    static const char *const names[] = {"read", "copy"};
    for (int64_t i = fp8_cuda_has_kernels() ? 0 : 1; i < 2; i++)
        for (int n = 1;; n++) {
            fake_driver *fake = fake_driver_reset();
            scarce s = {0};
            fp8_context *ctx;
            fp8_peak peak;
            fp8_error err;
            assert_int_equal(create(&s, 0, &ctx, NULL), FP8_OK);
            fake->fail_at = fake->calls + n;
            const fp8_status status = fp8_machine_peak(ctx, i, 1e-9, &peak, &err);
            const char *failed = fake->failed;
            fake->fail_at = 0;
            if (!failed) {
                assert_int_equal(status, FP8_OK);
                assert_string_equal(peak.name, names[i]);
                assert_true(peak.value > 0);
            } else if (strcmp(failed, "cuCtxPopCurrent") != 0 && status != FP8_OK) {
                assert_int_equal(status, FP8_E_DEVICE);
            }
            assert_int_equal(fp8_machine_peak(ctx, 2, 1e-9, &peak, &err), FP8_E_NOT_FOUND);
            assert_int_equal(fp8_machine_peak(ctx, -1, 1e-9, &peak, &err), FP8_E_NOT_FOUND);
            fp8_context_free(ctx);
            assert_int_equal(fake->confused, 0);
            if (!failed) {
                neither_memory_is_left(fake, &s);
                assert_true(n > 30);
                break;
            }
        }
}

static void gpus_are_listed(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_gpu_info gpu;
    fp8_error err;
    fake->count = 3;
    assert_int_equal(fp8_gpu(0, &gpu, &err), FP8_OK);
    assert_string_equal(gpu.name, "NVIDIA H100 80GB HBM3");
    assert_int_equal(gpu.capability, 90);
    assert_int_equal(gpu.processors, 132);
    assert_true(gpu.memory_bytes == (uint64_t)85 << 30);
    assert_int_equal(gpu.driver_version, 12040);
    assert_non_null(strstr(gpu.runs, fp8_cuda_has_kernels() ? "quantizers" : "no CUDA kernels"));
    assert_int_equal(fp8_gpu(2, &gpu, &err), FP8_OK);
    assert_int_equal(gpu.capability, 75);
    assert_non_null(strstr(gpu.runs, "below 8.0"));
    assert_int_equal(fp8_gpu(3, &gpu, &err), FP8_E_NOT_FOUND);
    assert_int_equal(fp8_gpu(-1, &gpu, &err), FP8_E_NOT_FOUND);
    assert_int_equal(fp8_gpu(0, NULL, &err), FP8_E_ARGUMENT);
    fake->count = 0;
    assert_int_equal(fp8_gpu(0, &gpu, &err), FP8_E_NO_DEVICE);
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->confused, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_holds_its_device),
        cmocka_unit_test(the_cpu_needs_no_driver),
        cmocka_unit_test(every_call_and_allocation_fails_once),
        cmocka_unit_test(what_will_not_do_is_refused),
        cmocka_unit_test(what_is_not_built_is_refused),
        cmocka_unit_test(peaks_are_those_of_the_device),
        cmocka_unit_test(gpus_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
