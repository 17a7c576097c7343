/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_kernels.c - loading and launching kernels, and memory for callers, over the fake
 * driver: every call fails once, a kernel is missing, memory and streams of others are refused,
 * nothing leaks. A build without kernels says so instead. */
#include "backend/cuda/kernel_args.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sm90_args.h"
#include "base/context.h"

#include "cuda/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "cuda/fake_fixture.h"

static fp8_status create(int32_t index, fp8_context **ctx, fp8_error *err)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.device = FP8_DEVICE_CUDA;
    desc.device_index = index;
    return fp8_context_create(&desc, ctx, err);
}

/* Whether the row is for a device of that compute capability. */
static bool is_for(const fp8_cuda_kernel_row *row, int32_t capability)
{
    return capability >= row->least && capability <= row->most;
}

static void kernels_of_the_device_are_loaded_and_let_go(void **state)
{
    (void)state;
    static const int32_t capability[] = {90, 80};
    for (int32_t index = 0; index < 2; index++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx;
        assert_int_equal(create(index, &ctx, NULL), FP8_OK);
        assert_int_equal(fake->libraries > 0, fp8_cuda_has_kernels());
        for (size_t i = 0; fp8_cuda_kernel_at(i); i++)
            assert_int_equal(ctx->cuda->module.functions[i] != NULL,
                             fp8_cuda_has_kernels() &&
                                 is_for(fp8_cuda_kernel_at(i), capability[index]));
        assert_null(fp8_cuda_kernel_at(FP8_CUDA_KERNELS));
        fp8_context_free(ctx);
        nothing_is_left(fake);
    }
}

static void a_missing_kernel_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; fp8_cuda_kernel_at(i) && fp8_cuda_has_kernels(); i++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx;
        fp8_error err;
        fake->missing_kernel = fp8_cuda_kernel_at(i)->function;
        const fp8_status status = create(0, &ctx, &err);
        assert_int_equal(status, is_for(fp8_cuda_kernel_at(i), 90) ? FP8_E_NO_KERNEL : FP8_OK);
        if (status == FP8_OK)
            fp8_context_free(ctx);
        else
            assert_non_null(strstr(err.msg, fake->missing_kernel));
        nothing_is_left(fake);
    }
}

static fp8_status dequantize(const fp8_context *ctx, void *stream, fp8_error *err)
{
    fp8_tensor codes = on_device(0, FP8_E4M3FN, 130, 260),
               scales = on_device(1 << 20, FP8_F32, 2, 3);
    fp8_tensor y = on_device(2 << 20, FP8_BF16, 130, 260);
    return fp8_dequantize(ctx, (fp8_grid){128, 128}, &codes, &scales, &y, stream, err);
}

/* A request and the last of the kernels that do it. */
static const struct request {
    fp8_grid grid;
    fp8_dtype in, scale;
    int64_t rows, cols;
    uint64_t shift; /* bytes that x lies off */
    int is_static, launches;
    const char *kernel;
} requests[] = {
    {{1, 0}, FP8_BF16, FP8_F32, 64, 4096, 0, 0, 1, "quantize_held4_bf16"},
    {{128, 128}, FP8_F32, FP8_F32, 130, 264, 0, 0, 1, "quantize_held8_f32"},
    {{1, 0}, FP8_BF16, FP8_F32, 64, 4096, 2, 0, 1, "quantize_units"},
    {{1, 0}, FP8_BF16, FP8_F32, 512, 65536, 0, 0, 1, "quantize_units"},
    {{1, 0}, FP8_BF16, FP8_F32, 64, 65536, 0, 0, 4, "quantize_scales"},
    {{1, 128}, FP8_F16, FP8_F32, 64, 4096, 0, 0, 1, "quantize_groups_f16"},
    {{1, 32}, FP8_BF16, FP8_E8M0FNU, 64, 4096, 0, 0, 1, "quantize_groups_bf16"},
    {{1, 32}, FP8_BF16, FP8_E8M0FNU, 64, 4096, 1, 0, 1, "quantize_small_units"},
    {{1, 128}, FP8_BF16, FP8_F32, 64, 200, 0, 0, 1, "quantize_small_units"},
    {{0, 0}, FP8_BF16, FP8_F32, 512, 4096, 0, 0, 4, "quantize_scales"},
    {{0, 0}, FP8_BF16, FP8_F32, 512, 4097, 1, 0, 4, "quantize_scales"},
    {{0, 0}, FP8_BF16, FP8_BF16, 512, 4096, 0, 0, 1, "quantize_units"},
    {{0, 0}, FP8_BF16, FP8_BF16, 8, 4096, 0, 0, 1, "quantize_held8_bf16"},
    {{0, 0}, FP8_F16, FP8_F32, 512, 4096, 0, 1, 1, "quantize_encode_f16"},
    {{1, 0}, FP8_F16, FP8_F32, 512, 4096, 0, 1, 1, "quantize_given_f16"},
    {{128, 128}, FP8_BF16, FP8_F32, 130, 264, 0, 1, 1, "quantize_given_bf16"},
    {{1, 32}, FP8_F32, FP8_E8M0FNU, 64, 4096, 0, 1, 1, "quantize_given_f32"},
    {{1, 36}, FP8_BF16, FP8_F32, 64, 4096, 0, 1, 1, "quantize_encode"},
    {{1, 0}, FP8_BF16, FP8_F32, 64, 4096, 2, 1, 1, "quantize_encode"},
};

static fp8_status quantize(const fp8_context *ctx, const struct request *r, void *stream,
                           fp8_error *err)
{
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    fp8_tensor x = on_device(r->shift, r->in, r->rows, r->cols);
    fp8_tensor codes = on_device((uint64_t)1 << 32, FP8_E4M3FN, r->rows, r->cols);
    const int64_t gr = r->grid.rows ? r->grid.rows : r->rows;
    const int64_t gc = r->grid.cols ? r->grid.cols : r->cols;
    fp8_tensor scales =
        on_device((uint64_t)1 << 33, r->scale, (r->rows + gr - 1) / gr, (r->cols + gc - 1) / gc);
    desc.grid = r->grid;
    desc.nan = FP8_NAN_PROPAGATE;
    desc.static_scales = r->is_static;
    return fp8_quantize(ctx, &desc, &x, &codes, &scales, stream, err);
}

static void requests_find_their_kernels(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    for (size_t i = 0; i < sizeof requests / sizeof *requests && fp8_cuda_has_kernels(); i++) {
        t->fake->launches = 0;
        assert_int_equal(quantize(t->ctx, &requests[i], NULL, &err), FP8_OK);
        assert_string_equal(t->fake->kernel, requests[i].kernel);
        assert_int_equal(t->fake->launches, requests[i].launches);
    }
}

static fp8_status requantize(const fp8_context *ctx, void *stream, fp8_error *err)
{
    fp8_quantize_desc to = FP8_QUANTIZE_DESC_INIT;
    fp8_tensor codes = on_device(0, FP8_E4M3FN, 130, 260),
               scales = on_device(1 << 20, FP8_F32, 2, 3);
    fp8_tensor codes_out = on_device(2 << 20, FP8_E4M3FN, 132, 260);
    fp8_tensor scales_out = on_device(3 << 20, FP8_F32, 130, 1);
    to.grid = (fp8_grid){1, 0};
    to.nan = FP8_NAN_PROPAGATE;
    return fp8_requantize(ctx, (fp8_grid){128, 128}, &codes, &scales, &to, &codes_out, &scales_out,
                          stream, err);
}

static fp8_status cast(const fp8_context *ctx, void *stream, fp8_error *err)
{
    char *memory = fake_driver_memory(0);
    return fp8_cast(ctx, memory, FP8_BF16, memory + 4096, FP8_E5M2, 1000, 1, stream, err);
}

/* One of several operations, the n-th. */
static fp8_status operate(int n, const fp8_context *ctx, void *stream, fp8_error *err)
{
    return n == 0   ? dequantize(ctx, stream, err)
           : n == 1 ? requantize(ctx, stream, err)
           : n == 2 ? cast(ctx, stream, err)
                    : quantize(ctx, &requests[n == 3 ? 0 : 8], stream, err);
}

/* With every call of the operation failing once. */
static void fail_operation(int operation)
{
    int n = 1, launched = 0;
    for (;; n++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = fake_context();
        fp8_error err;
        fake->fail_at = fake->calls + n;
        fp8_status status = operate(operation, ctx, fake_driver_stream(0), &err);
        const char *failed = fake->failed;
        launched = fake->launches;
        fake->fail_at = 0;
        fp8_context_free(ctx);
        nothing_is_left(fake);
        if (!failed) {
            assert_int_equal(status, fp8_cuda_has_kernels() ? FP8_OK : FP8_E_NO_KERNEL);
            break;
        }
        if (strcmp(failed, "cuCtxPopCurrent") == 0)
            continue; /* tells of earlier work, which the next call tells as well */
        assert_int_equal(status, FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, "(999)"));
        assert_true(launched < 4);
    }
    assert_true(n > 6);
    assert_int_equal(launched > 0, fp8_cuda_has_kernels());
}

static void every_call_of_an_operation_fails_once(void **state)
{
    (void)state;
    for (int operation = 0; operation < 5; operation++)
        fail_operation(operation);
}

/* With a policy that needs an answer. */
static fp8_status refuse(const fp8_context *ctx, void *stream, fp8_error *err)
{
    const fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    fp8_tensor x = on_device(0, FP8_BF16, 2, 2), codes = on_device(64, FP8_E4M3FN, 2, 2);
    fp8_tensor scales = on_device(128, FP8_F32, 1, 1);
    return fp8_quantize(ctx, &desc, &x, &codes, &scales, stream, err);
}

static void a_policy_that_needs_an_answer_waits(void **state)
{
    (void)state;
    if (!fp8_cuda_has_kernels())
        skip();
    for (unsigned int capturing = 0; capturing < 2; capturing++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = fake_context();
        fp8_error err;
        fake->capturing = capturing;
        assert_int_equal(refuse(ctx, fake_driver_stream(0), &err), FP8_OK);
        assert_int_equal(fake->launches, capturing ? 1 : 2);
        assert_int_equal(fake->waits, capturing ? 0 : 1);
        assert_int_equal(fake->copied, capturing ? 0 : 16);
        fp8_context_free(ctx);
        nothing_is_left(fake);
    }
}

static void launches_carry_what_they_are_given(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    const fp8_cuda_dequantize_args given = {.rows = 7, .unit_cols = 9};
    fp8_cuda_shape shape = {.grid = {5}, .threads = 96};
    t->fake->argument_bytes = sizeof given;
    for (int i = 0; i < 4 && fp8_cuda_has_kernels(); i++) {
        shape.cluster = i & 1 ? 4 : 0;
        shape.dependent = i >> 1;
        shape.balanced = i == 1 || i == 2;
        assert_int_equal(fp8_cuda_begin(t->ctx->cuda, fake_driver_stream(0), &err), FP8_OK);
        assert_int_equal(fp8_cuda_launch(t->ctx->cuda, FP8_CUDA_dequantize_elements, &shape, &given,
                                         fake_driver_stream(0), &err),
                         FP8_OK);
        fp8_cuda_leave(t->ctx->cuda);
        assert_string_equal(t->fake->kernel, "dequantize_elements");
        assert_int_equal(t->fake->grid, 5);
        assert_int_equal(t->fake->threads, 96);
        assert_int_equal(t->fake->cluster, shape.cluster);
        assert_int_equal(t->fake->policy, shape.balanced ? FP8_CU_POLICY_BALANCE : 0);
        assert_int_equal(t->fake->dependent, shape.dependent);
        assert_ptr_equal(t->fake->stream, fake_driver_stream(0));
        assert_memory_equal(t->fake->arguments, &given, sizeof given);
    }
}

/* By divisors of tiles, 16 * 1187 and 32 * 2374 among them: groups of tiles of a vocabulary of
 * 151936, where tile 265887 and tile 151935 of a kernel lie just before the border of a group. */
static void tiles_are_divided_exactly(void **state)
{
    (void)state;
    static const int32_t divisors[] = {1,     2,     3,     16,    127,   1187,    18992,   37984,
                                       65535, 65536, 65537, 75968, 96000, 1048577, 33554431};
    for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
        const fp8_divider by = fp8_divider_of(divisors[i]);
        const int64_t d = divisors[i], step = INT32_MAX / d / 10000 + 1;
        for (int64_t at = 0; at + d <= INT32_MAX; at += step * d) {
            assert_int_equal(fp8_divide((int32_t)at, by), at / d);
            assert_int_equal(fp8_divide((int32_t)(at + d - 1), by), at / d);
        }
        assert_int_equal(fp8_divide(INT32_MAX, by), INT32_MAX / d);
    }
}

static void memory_and_streams_of_others_are_refused(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    float host[4] = {0};
    fp8_tensor codes = on_device(0, FP8_E4M3FN, 2, 2), scale = on_device(64, FP8_F32, 1, 1);
    fp8_tensor y = on_device(128, FP8_F32, 2, 2);
    const fp8_grid tensor = {0, 0};
    void *const places[] = {host, fake_driver_memory(1)};
    for (int i = 0; i < 2; i++) {
        fp8_tensor bad = fp8_matrix(places[i], FP8_F32, 2, 2);
        assert_int_equal(fp8_dequantize(t->ctx, tensor, &codes, &scale, &bad, NULL, &err),
                         FP8_E_ARGUMENT);
        assert_non_null(strstr(err.msg, "y is no memory that cuda:0 can read"));
    }
    assert_int_equal(
        fp8_dequantize(t->ctx, tensor, &codes, &scale, &y, fake_driver_stream(1), &err),
        FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "stream belongs to another device"));
    assert_int_equal(t->fake->launches, 0);
    y.shape[0] = codes.shape[0] = scale.shape[0] = 0; /* nothing to do, nothing launched */
    assert_int_equal(fp8_dequantize(t->ctx, tensor, &codes, &scale, &y, NULL, &err), FP8_OK);
    assert_int_equal(t->fake->launches, 0);
}

/* Allocates, copies both ways, waits, frees. */
static fp8_status use_memory(const fp8_context *ctx, void *stream, fp8_error *err)
{
    char bytes[100] = {0};
    void *memory;
    FP8_TRY(fp8_device_alloc(ctx, sizeof bytes, &memory, err));
    fp8_status status = fp8_device_copy(ctx, memory, bytes, sizeof bytes, stream, err);
    if (status == FP8_OK)
        status = fp8_device_copy(ctx, bytes, memory, sizeof bytes, stream, err);
    if (status == FP8_OK)
        status = fp8_device_wait(ctx, stream, err);
    fp8_device_free(ctx, memory);
    return status;
}

/* Every call of something that takes memory for a while fails once. */
static void fail_with_memory(fp8_status (*operation)(const fp8_context *, void *, fp8_error *),
                             fp8_status done, long long copied)
{
    for (int n = 1;; n++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = fake_context();
        fp8_error err;
        fake->fail_at = fake->calls + n;
        fp8_status status = operation(ctx, fake_driver_stream(0), &err);
        const char *failed = fake->failed;
        fake->fail_at = 0;
        if (!failed) {
            assert_int_equal(status, done);
            assert_true(fake->copied == copied);
            assert_ptr_equal(fake->stream, fake_driver_stream(0));
        } else if (strcmp(failed, "cuCtxPopCurrent") != 0 && strcmp(failed, "cuMemFree") != 0 &&
                   !(status == done && fake->memories)) { /* entering, to free, failed */
            assert_int_equal(status, FP8_E_DEVICE);
            assert_non_null(strstr(err.msg, "(999)"));
        }
        fp8_context_free(ctx);
        assert_int_equal(fake->confused, 0);
        if (!failed) {
            nothing_is_left(fake);
            break;
        }
    }
}

static void memory_for_a_while_fails_at_every_call(void **state)
{
    (void)state;
    const bool kernels = fp8_cuda_has_kernels();
    fail_with_memory(use_memory, FP8_OK, 200);
    fail_with_memory(refuse, kernels ? FP8_OK : FP8_E_NO_KERNEL, kernels ? 16 : 8);
}

static void memory_calls_check_their_arguments(void **state)
{
    fake_start *t = *state;
    fp8_context *cpu;
    void *memory;
    char a[4] = {1, 2, 3, 4}, b[4];
    assert_int_equal(fp8_context_create(NULL, &cpu, NULL), FP8_OK);
    assert_int_equal(fp8_device_alloc(NULL, 1, &memory, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_device_alloc(t->ctx, 1, NULL, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_device_alloc(t->ctx, (uint64_t)1 << 60, &memory, NULL), FP8_E_NO_MEMORY);
    assert_null(memory);
    assert_int_equal(fp8_device_copy(NULL, a, b, 1, NULL, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_device_copy(t->ctx, NULL, b, 1, NULL, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_device_copy(t->ctx, a, NULL, 1, NULL, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_device_copy(t->ctx, NULL, NULL, 0, NULL, NULL), FP8_OK);
    assert_int_equal(fp8_device_wait(NULL, NULL, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_device_wait(t->ctx, fake_driver_stream(1), NULL), FP8_E_ARGUMENT);
    fp8_device_free(NULL, a);
    fp8_device_free(t->ctx, NULL);

    assert_int_equal(use_memory(cpu, NULL, NULL), FP8_OK);
    assert_int_equal(fp8_device_copy(cpu, b, a, 4, NULL, NULL), FP8_OK);
    assert_memory_equal(a, b, 4);
    assert_int_equal(fp8_device_copy(cpu, b, a, 4, a, NULL), FP8_E_ARGUMENT);
    assert_int_equal(fp8_device_wait(cpu, a, NULL), FP8_E_ARGUMENT);
    fp8_context_free(cpu);
}

/* Work that failed on the device is told by a later call. */
static void a_device_that_failed_is_told_later(void **state)
{
    (void)state;
    static const char *const tellers[] = {"cuLaunchKernelEx", "cuStreamSynchronize",
                                          "cuMemcpyAsync"};
    for (int i = fp8_cuda_has_kernels() ? 0 : 1; i < 3; i++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = fake_context();
        fp8_error err;
        fake->fail_name = tellers[i];
        fake->fail_with = 719;
        const fp8_status status = i ? use_memory(ctx, NULL, &err) : dequantize(ctx, NULL, &err);
        assert_int_equal(status, FP8_E_DEVICE);
        assert_non_null(strstr(err.msg, "CUDA_ERROR_LAUNCH_FAILED (719)"));
        fp8_context_free(ctx);
        nothing_is_left(fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_the_device_are_loaded_and_let_go),
        cmocka_unit_test(a_missing_kernel_is_named),
        fake_test(requests_find_their_kernels),
        cmocka_unit_test(every_call_of_an_operation_fails_once),
        cmocka_unit_test(a_policy_that_needs_an_answer_waits),
        fake_test(launches_carry_what_they_are_given),
        cmocka_unit_test(tiles_are_divided_exactly),
        fake_test(memory_and_streams_of_others_are_refused),
        cmocka_unit_test(memory_for_a_while_fails_at_every_call),
        fake_test(memory_calls_check_their_arguments),
        cmocka_unit_test(a_device_that_failed_is_told_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
