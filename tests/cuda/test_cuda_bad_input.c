/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_bad_input.c - what callers and machines do wrong to a linear on a GPU, over the fake
 * driver: each has a status of its own, nothing leaks, and the CPU goes on computing. What is wrong
 * with drivers and devices themselves is in test_driver.c and test_cuda_context.c. */
#include "backend/cuda/cuda_linear.h"
#include "base/context.h"

#include "cuda/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "cuda/fake_fixture.h"

enum { N = 128, K = 256, M = 16, SPACE = 1 << 16 };
enum { DESTROYED = 709, LAUNCH_FAILED = 719 };

static uint8_t codes[N * K];
static float scales[N], values[N * K];

/* Codes by codes, a scale a row and a channel: what the fast kernels take. */
static fp8_status create(const fp8_context *ctx, fp8_linear **out, fp8_error *err)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    for (int i = 0; i < N; i++)
        scales[i] = 1;
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, N, K), s = fp8_matrix(scales, FP8_F32, N, 1);
    desc.activation = FP8_ACTIVATION_CODES;
    desc.w.grid = (fp8_grid){1, 0};
    return fp8_linear_create(ctx, &desc, &w, &s, NULL, out, err);
}

/* Where the matrices of a run lie: memory of device 0 of the fake, each far from the others. */
typedef struct matrices {
    fp8_tensor x, x_scales, y;
    char *space;
} matrices;

static char *memory(int64_t at)
{
    return (char *)fake_driver_memory(0) + at;
}

static matrices good(void)
{
    return (matrices){fp8_matrix(memory(0), FP8_E4M3FN, M, K),
                      fp8_matrix(memory(1 << 20), FP8_F32, M, 1),
                      fp8_matrix(memory(2 << 20), FP8_BF16, M, N), memory(3 << 20)};
}

static fp8_status run(const fp8_linear *linear, matrices m, fp8_error *err)
{
    return fp8_linear_run(linear, &m.x, &m.x_scales, &m.y, m.space, SPACE, NULL, err);
}

/* A small product on the CPU, whatever has become of the GPU. */
static void the_cpu_computes(void)
{
    float x[4] = {1, 2, 3, 4}, y[1] = {0}, one[1] = {1};
    uint8_t w[4] = {0x38, 0x38, 0x38, 0x38}; /* 1 */
    const fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    const fp8_tensor tx = fp8_matrix(x, FP8_F32, 1, 4), tw = fp8_matrix(w, FP8_E4M3FN, 1, 4),
                     ts = fp8_matrix(one, FP8_F32, 1, 1);
    fp8_tensor ty = fp8_matrix(y, FP8_F32, 1, 1);
    fp8_context *cpu;
    assert_int_equal(fp8_context_create(NULL, &cpu, NULL), FP8_OK);
    assert_int_equal(fp8_matmul(cpu, &desc, &tx, NULL, &tw, &ts, NULL, &ty, NULL, NULL), FP8_OK);
    assert_true(y[0] == 10);
    fp8_context_free(cpu);
}

static void a_device_without_room_is_no_memory(void **state)
{
    fake_start *t = *state;
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    const fp8_tensor w = fp8_matrix(values, FP8_F32, N, K);
    fp8_linear *linear = NULL;
    fp8_error err;
    t->fake->devices[0].memory_bytes = 1000; /* less than any weight here */
    assert_int_equal(create(t->ctx, &linear, &err), FP8_E_NO_MEMORY);
    assert_non_null(strstr(err.msg, "cuda:0: cuMemAlloc of "));
    assert_null(linear);
    t->fake->devices[0].memory_bytes = N * K + 4096; /* for the codes, which the CPU makes */
    assert_int_equal(fp8_linear_create(t->ctx, &desc, &w, NULL, NULL, &linear, &err), FP8_OK);
    fp8_linear_free(linear);
    t->fake->devices[0].memory_bytes = (size_t)1 << 30;
    assert_int_equal(create(t->ctx, &linear, &err), FP8_OK);
    fp8_linear *clone;
    t->fake->devices[0].memory_bytes = 1000;
    assert_int_equal(fp8_linear_clone(linear, &clone, &err), FP8_E_NO_MEMORY);
    assert_null(clone);
    fp8_linear_free(linear);
    the_cpu_computes();
}

/* Each operand of a run as memory of the host, and of another device, which the driver may let it
 * read. */
static void memory_of_others_is_an_argument(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    static char host[1 << 16];
    void *const places[] = {host, fake_driver_memory(1), fake_driver_memory(1)};
    assert_int_equal(create(t->ctx, &t->linear, &err), FP8_OK);
    t->fake->launches = 0;
    for (int i = 0; i < 3; i++) {
        t->fake->peers = i == 2;
        static const char *const names[] = {"x is", "x_scales is", "y is", "the workspace is"};
        for (int which = 0; which < 4; which++) {
            matrices m = good();
            void **const all[] = {&m.x.data, &m.x_scales.data, &m.y.data, (void **)&m.space};
            *all[which] = places[i];
            assert_int_equal(run(t->linear, m, &err), FP8_E_ARGUMENT);
            assert_non_null(strstr(err.msg, names[which]));
            assert_non_null(strstr(err.msg, "memory that cuda:0 can read"));
            assert_int_equal(strstr(err.msg, "memory of cuda:1") != NULL, i == 2);
        }
        fp8_tensor dy = fp8_matrix(places[i], FP8_BF16, M, N);
        fp8_tensor dx = fp8_matrix(memory(0), FP8_BF16, M, K);
        assert_int_equal(fp8_linear_run_dx(t->linear, &dy, &dx, memory(3 << 20), SPACE, NULL, &err),
                         FP8_E_ARGUMENT);
    }
    assert_int_equal(t->fake->launches, 0);
    the_cpu_computes();
}

/* What may lie on the host as well: a weight, and where it is exported to. */
static void a_weight_of_another_device_is_an_argument(void **state)
{
    fake_start *t = *state;
    const fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *other;
    fp8_error err;
    const fp8_tensor high = fp8_matrix(fake_driver_memory(1), FP8_BF16, N, K);
    fp8_tensor low = fp8_matrix(fake_driver_memory(1), FP8_E4M3FN, N, K);
    float one = 1;
    const fp8_tensor scale = fp8_matrix(&one, FP8_F32, 1, 1);
    assert_int_equal(create(t->ctx, &t->linear, &err), FP8_OK);
    for (t->fake->peers = 0; t->fake->peers < 2; t->fake->peers++) {
        assert_int_equal(fp8_linear_create(t->ctx, &desc, &high, NULL, NULL, &other, &err),
                         FP8_E_ARGUMENT);
        assert_non_null(
            strstr(err.msg, "is memory of cuda:1, must be memory that cuda:0 can read"));
        assert_int_equal(fp8_linear_create(t->ctx, &desc, &low, &scale, NULL, &other, &err),
                         FP8_E_ARGUMENT);
        assert_null(other);
        assert_int_equal(fp8_linear_export(t->linear, &low, NULL, &err), FP8_E_ARGUMENT);
    }
}

/* What bulk copies refuse is done by another kernel. */
static void misaligned_memory_is_computed_with(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    if (!fp8_cuda_has_kernels())
        skip();
    assert_int_equal(create(t->ctx, &t->linear, &err), FP8_OK);
    for (int off = 0; off < 32; off++) {
        static const char *const fast = "gemm_small_channel_";
        matrices m = good();
        m.x.data = memory(off);
        assert_int_equal(run(t->linear, m, &err), FP8_OK);
        assert_int_equal(strncmp(t->fake->kernel, fast, strlen(fast)) == 0, off % 16 == 0);
        m = good();
        m.y.data = memory((2 << 20) + off);
        m.space += off;
        assert_int_equal(run(t->linear, m, &err), FP8_OK);
        assert_int_equal(strncmp(t->fake->kernel, fast, strlen(fast)) == 0, off % 2 == 0);
        m = good();
        m.x_scales.data = memory((1 << 20) + off);
        assert_int_equal(run(t->linear, m, &err), FP8_OK);
    }
}

static void streams_of_others_are_arguments(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    char no_stream = 0;
    void *const streams[] = {fake_driver_stream(1), fake_driver_stream(-1), &no_stream};
    assert_int_equal(create(t->ctx, &t->linear, &err), FP8_OK);
    t->fake->launches = 0;
    for (int i = 0; i < 3; i++) {
        matrices m = good();
        assert_int_equal(
            fp8_linear_run(t->linear, &m.x, &m.x_scales, &m.y, m.space, SPACE, streams[i], &err),
            FP8_E_ARGUMENT);
        assert_non_null(strstr(err.msg, i < 2 ? "the stream belongs to" : "(400)"));
        assert_int_equal(fp8_device_wait(t->ctx, streams[i], &err), FP8_E_ARGUMENT);
    }
    assert_int_equal(t->fake->launches, 0);
}

/* cudaDeviceReset by the application: every call says so until the process ends. The memory went
 * with the context: nobody can free it any more. */
static void a_context_that_was_destroyed_is_a_state(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_context *ctx = fake_context();
    fp8_linear *linear, *other;
    fp8_error err;
    uint8_t out[N * K];
    fp8_tensor exported = fp8_matrix(out, FP8_E4M3FN, N, K);
    assert_int_equal(create(ctx, &linear, &err), FP8_OK);
    fake->fail_name = "cuCtxPushCurrent";
    fake->fail_with = DESTROYED;
    assert_int_equal(run(linear, good(), &err), FP8_E_STATE);
    assert_non_null(strstr(err.msg, "context is destroyed"));
    assert_int_equal(create(ctx, &other, &err), FP8_E_STATE);
    assert_null(other);
    assert_int_equal(fp8_linear_clone(linear, &other, &err), FP8_E_STATE);
    assert_int_equal(fp8_linear_export(linear, &exported, NULL, &err), FP8_E_STATE);
    assert_int_equal(fp8_device_wait(ctx, NULL, &err), FP8_E_STATE);
    fp8_linear_free(linear);
    the_cpu_computes();
    fp8_context_free(ctx);
    assert_int_equal(fake->retained, 0);
    assert_int_equal(fake->libraries, 0);
    assert_int_equal(fake->pinned, 0);
    assert_int_equal(fake->confused, 0);
    assert_int_equal(fake_driver_depth(), 0);
}

/* A kernel that failed on the device is told by whichever call of the driver comes next. */
static void a_failed_launch_is_told_by_a_later_call(void **state)
{
    (void)state;
    static const char *const tellers[] = {"cuStreamSynchronize", "cuMemcpyAsync",
                                          "cuPointerGetAttribute"};
    for (int i = 0; i < 3; i++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = fake_context();
        fp8_linear *linear, *other;
        fp8_error err;
        assert_int_equal(create(ctx, &linear, &err), FP8_OK);
        fake->fail_name = tellers[i];
        fake->fail_with = LAUNCH_FAILED;
        if (i == 0)
            assert_int_equal(fp8_device_wait(ctx, NULL, &err), FP8_E_DEVICE);
        else if (i == 1)
            assert_int_equal(fp8_linear_clone(linear, &other, &err), FP8_E_DEVICE);
        else
            assert_int_equal(run(linear, good(), &err), FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, "CUDA_ERROR_LAUNCH_FAILED (719)"));
        the_cpu_computes();
        fp8_linear_free(linear);
        fp8_context_free(ctx);
        nothing_is_left(fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fake_test(a_device_without_room_is_no_memory),
        fake_test(memory_of_others_is_an_argument),
        fake_test(a_weight_of_another_device_is_an_argument),
        fake_test(misaligned_memory_is_computed_with),
        fake_test(streams_of_others_are_arguments),
        cmocka_unit_test(a_context_that_was_destroyed_is_a_state),
        cmocka_unit_test(a_failed_launch_is_told_by_a_later_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
