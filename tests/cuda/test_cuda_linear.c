/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_linear.c - the host's side of linears on a GPU over the fake driver: what they enqueue,
 * every call of create, clone, export and run fails once, what a run refuses; nothing leaks. The
 * fake computes nothing. */
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/sm90_args.h"
#include "base/context.h"

#include "cuda/fake_driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "cuda/fake_fixture.h"

enum { N = 70, K = 50, M = 5 };

static uint8_t codes[N * K];
static float scales[N], bias[N];

/* Weight-only, a scale a channel, of which all but the first are 1, from the host; X is left in
 * bf16. */
static fp8_status create_with(float first, const fp8_context *ctx, fp8_linear **out, fp8_error *err)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, N, K), s = fp8_matrix(scales, FP8_F32, N, 1);
    const fp8_tensor b = fp8_vector(bias, FP8_F32, N);
    for (int i = 0; i < N; i++)
        scales[i] = i ? 1 : first;
    desc.w.grid = (fp8_grid){1, 0};
    return fp8_linear_create(ctx, &desc, &w, &s, &b, out, err);
}

static fp8_status create(const fp8_context *ctx, fp8_linear **out, fp8_error *err)
{
    return create_with(1, ctx, out, err);
}

static fp8_status run(const fp8_linear *linear, void *stream, fp8_error *err)
{
    fp8_tensor x = on_device(0, FP8_BF16, M, K), y = on_device(1 << 16, FP8_BF16, M, N);
    return fp8_linear_run(linear, &x, NULL, &y, (char *)fake_driver_memory(0) + (1 << 20), 1 << 16,
                          stream, err);
}

static fp8_status run_dx(const fp8_linear *linear, void *stream, fp8_error *err)
{
    fp8_tensor dy = on_device(0, FP8_BF16, M, N), dx = on_device(1 << 16, FP8_BF16, M, K);
    return fp8_linear_run_dx(linear, &dy, &dx, (char *)fake_driver_memory(0) + (1 << 20), 1 << 16,
                             stream, err);
}

static fp8_status export_all(const fp8_linear *linear, fp8_error *err)
{
    uint8_t some[N * K];
    float values[N];
    fp8_tensor c = fp8_matrix(some, FP8_E4M3FN, N, K), s = fp8_matrix(values, FP8_F32, N, 1);
    return fp8_linear_export(linear, &c, &s, err);
}

/* The whole life of a linear. */
static fp8_status live(const fp8_context *ctx, fp8_error *err)
{
    fp8_linear *linear, *clone = NULL;
    FP8_TRY(create(ctx, &linear, err));
    fp8_status status = fp8_linear_clone(linear, &clone, err);
    if (status == FP8_OK)
        status = run(clone, fake_driver_stream(0), err);
    if (status == FP8_OK)
        status = run_dx(clone, fake_driver_stream(0), err);
    if (status == FP8_OK)
        status = export_all(clone, err);
    fp8_linear_free(clone);
    fp8_linear_free(linear);
    return status;
}

static void every_call_fails_once(void **state)
{
    (void)state;
    fail_each_call(live, fp8_cuda_has_kernels() ? FP8_OK : FP8_E_NO_KERNEL, 30);
}

static void a_run_is_one_launch_in_the_stream(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    fp8_gemm_args args;
    if (!fp8_cuda_has_kernels())
        skip();
    assert_int_equal(create(t->ctx, &t->linear, &err), FP8_OK);
    t->fake->argument_bytes = sizeof args;
    t->fake->launches = 0;
    const int memories = t->fake->memories;
    assert_int_equal(run(t->linear, fake_driver_stream(0), &err), FP8_OK);
    assert_int_equal(t->fake->launches, 1);
    assert_int_equal(t->fake->memories, memories);
    assert_ptr_equal(t->fake->stream, fake_driver_stream(0));
    assert_string_equal(t->fake->kernel, "gemm_plain");
    assert_int_equal(t->fake->grid, 2);
    memcpy(&args, t->fake->arguments, sizeof args);
    assert_int_equal(args.m, M);
    assert_int_equal(args.n, N);
    assert_int_equal(args.k, K);
    assert_int_equal(args.w.elements.row, t->linear->cuda->ld);
    assert_int_equal(args.w.scales.row, 1);
    assert_ptr_equal(args.bias, t->linear->cuda->bias);
}

/* ---- X and Y as callers have them ---- */

enum { ROWS = 3, SIDE = 256 };

/* Of a weight [SIDE, SIDE] of a scale a row, and X in bf16 that is quantized or left as it is. */
static fp8_linear *create_square(const fp8_context *ctx, fp8_activation activation)
{
    static uint8_t w_codes[SIDE * SIDE];
    static float w_scales[SIDE];
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *linear;
    fp8_error err;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, SIDE, SIDE);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, SIDE, 1);
    for (int i = 0; i < SIDE; i++)
        w_scales[i] = 1;
    desc.activation = activation;
    desc.w.grid = (fp8_grid){1, 0};
    assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, &err), FP8_OK);
    return linear;
}

/* Of a weight [SIDE, SIDE] with 128x128 scales, and X in codes with 1x128. */
static fp8_linear *create_blocks(const fp8_context *ctx)
{
    static uint8_t w_codes[SIDE * SIDE];
    static float w_scales[] = {1, 1, 1, 1};
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *linear;
    fp8_error err;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, SIDE, SIDE);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_F32, SIDE / 128, SIDE / 128);
    desc.activation = FP8_ACTIVATION_CODES;
    desc.x.grid = (fp8_grid){1, 128};
    desc.w.grid = (fp8_grid){128, 128};
    assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, &err), FP8_OK);
    return linear;
}

/* Of MXFP8: a weight [SIDE, SIDE] with 1x32 scales, and X that is quantized likewise. */
static fp8_linear *create_mxfp8(const fp8_context *ctx)
{
    static uint8_t w_codes[SIDE * SIDE], w_scales[SIDE * SIDE / 32];
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *linear;
    fp8_error err;
    const fp8_tensor w = fp8_matrix(w_codes, FP8_E4M3FN, SIDE, SIDE);
    const fp8_tensor s = fp8_matrix(w_scales, FP8_E8M0FNU, SIDE, SIDE / 32);
    desc.activation = FP8_ACTIVATION_DYNAMIC;
    desc.x_scale = FP8_E8M0FNU;
    desc.x.pow2_scales = 1;
    desc.x.grid = desc.w.grid = (fp8_grid){1, 32};
    assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, &err), FP8_OK);
    return linear;
}

/* Runs rows of X in a dtype, so many elements apart, those of Y in bf16 as far. */
static fp8_status run_with_stride(const fp8_linear *linear, fp8_dtype dtype, int64_t rows,
                                  int64_t x_stride, int64_t y_stride, fp8_error *err)
{
    fp8_tensor x = on_device((uint64_t)1 << 38, dtype, rows, SIDE);
    fp8_tensor y = on_device((uint64_t)1 << 36, FP8_BF16, rows, SIDE);
    const fp8_tensor x_scales = on_device(1 << 30, FP8_F32, rows, 1);
    x.stride[0] = x_stride;
    y.stride[0] = y_stride;
    return fp8_linear_run(linear, &x, dtype == FP8_E4M3FN ? &x_scales : NULL, &y,
                          fake_driver_memory(0), 1 << 20, fake_driver_stream(0), err);
}

/* Rows that go backwards, lie between 16 bytes or are 2^40 bytes apart, of X and of Y: other
 * kernels take X, and Y is stored without them. Rows that overlap, or are one, are read. */
static void rows_that_bulk_copies_cannot_take_are_left_to_others(void **state)
{
    fake_start *t = *state;
    static const int64_t strides[] = {-SIDE, -16, (int64_t)1 << 40};
    fp8_error err;
    if (!fp8_cuda_has_kernels())
        skip();
    for (int wide = 0; wide < 2; wide++) {
        fp8_linear *linear =
            create_square(t->ctx, wide ? FP8_ACTIVATION_NONE : FP8_ACTIVATION_CODES);
        const fp8_dtype dtype = wide ? FP8_BF16 : FP8_E4M3FN;
        assert_int_equal(run_with_stride(linear, dtype, ROWS, SIDE, SIDE, &err), FP8_OK);
        assert_int_equal(strncmp(t->fake->kernel, "gemm_mma", 8) != 0, 1);
        for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
            assert_int_equal(run_with_stride(linear, dtype, ROWS, strides[i], SIDE, &err), FP8_OK);
            assert_int_equal(strncmp(t->fake->kernel, "gemm_mma", 8), 0);
        }
        for (int64_t stride = 0; stride < SIDE; stride += 16) {
            assert_int_equal(run_with_stride(linear, dtype, ROWS, stride, SIDE, &err), FP8_OK);
            assert_int_equal(strncmp(t->fake->kernel, "gemm_mma", 8) != 0, 1);
        }
        assert_int_equal(run_with_stride(linear, dtype, 200, SIDE, -SIDE, &err), FP8_OK);
        assert_int_equal(strncmp(t->fake->kernel, "gemm_mma", 8) != 0, 1);
        fp8_linear_free(linear);
    }
}

/* X that packets can be made of becomes bf16 in one launch; else it takes two, by way of codes. */
static void mxfp8_is_two_launches(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_linear *linear = create_mxfp8(t->ctx);
    for (int odd = 0; odd < 2; odd++) {
        const int before = t->fake->launches;
        const int64_t stride = SIDE + odd;
        assert_int_equal(run_with_stride(linear, FP8_BF16, ROWS, stride, SIDE, &err), FP8_OK);
        assert_int_equal(t->fake->launches - before, 2 + odd);
        assert_int_equal(strncmp(t->fake->kernel, "gemm_wide", 9), 0);
    }
    fp8_linear_free(linear);
}

/* The stride of one row steps nowhere. */
static void one_row_may_have_any_stride(void **state)
{
    fake_start *t = *state;
    static const int64_t strides[] = {1, 0, -7, INT64_MAX, INT64_MIN};
    fp8_error err;
    char kernel[sizeof t->fake->kernel];
    if (!fp8_cuda_has_kernels())
        skip();
    for (int wide = 0; wide < 2; wide++) {
        fp8_linear *linear =
            create_square(t->ctx, wide ? FP8_ACTIVATION_NONE : FP8_ACTIVATION_CODES);
        const fp8_dtype dtype = wide ? FP8_BF16 : FP8_E4M3FN;
        assert_int_equal(run_with_stride(linear, dtype, 1, SIDE, SIDE, &err), FP8_OK);
        memcpy(kernel, t->fake->kernel, sizeof kernel);
        for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
            assert_int_equal(run_with_stride(linear, dtype, 1, strides[i], strides[i], &err),
                             FP8_OK);
            assert_string_equal(t->fake->kernel, kernel);
        }
        fp8_linear_free(linear);
    }
}

/* Tiles one below the other read the same W: their blocks go side by side, in clusters of two,
 * where that leaves none over. */
static void tiles_that_share_w_lie_side_by_side(void **state)
{
    fake_start *t = *state;
    static const struct {
        const char *kernel;
        int64_t m;
        unsigned int grid, cluster;
    } runs[] = {{"gemm_large_channel_128x96_1x1", 128, 3, 1},
                {"gemm_large_channel_128x96_1x1", 129, 6, 2},
                {"gemm_large_channel_128x96_1x1", 384, 9, 1},
                {"gemm_large_channel_128x112_2x1", 256, 6, 2},
                {"gemm_large_channel_128x64_k2", 128, 8, 2}};
    if (!fp8_cuda_has_kernels())
        skip();
    t->linear = create_square(t->ctx, FP8_ACTIVATION_CODES);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        fp8_error err;
        const fp8_tensor x = on_device((uint64_t)1 << 38, FP8_E4M3FN, runs[i].m, SIDE),
                         x_scales = on_device(1 << 30, FP8_F32, runs[i].m, 1);
        fp8_tensor y = on_device((uint64_t)1 << 36, FP8_BF16, runs[i].m, SIDE);
        assert_int_equal(fp8_linear_run_kernel(t->linear, runs[i].kernel, &x, &x_scales, &y,
                                               fake_driver_memory(0), 1 << 20,
                                               fake_driver_stream(0), &err),
                         FP8_OK);
        assert_string_equal(t->fake->kernel, runs[i].kernel);
        assert_int_equal(t->fake->grid, runs[i].grid);
        assert_int_equal(t->fake->cluster, runs[i].cluster);
    }
}

enum { BLOCKS = SIDE / 128 };

/* Scales of blocks for 64 tokens: there is no version for two blocks a processor, and one of few
 * stages takes more than half of its shared memory, too. */
static void wide_blocks_are_alone(void **state)
{
    fake_start *t = *state;
    enum { HALF = 233472 / 2 };
    fp8_error err;
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_linear *linear = t->linear = create_blocks(t->ctx);
    const fp8_tensor x = on_device((uint64_t)1 << 38, FP8_E4M3FN, 64, SIDE),
                     x_scales = on_device(1 << 30, FP8_F32, 64, BLOCKS);
    fp8_tensor y = on_device((uint64_t)1 << 36, FP8_BF16, 64, SIDE);
    assert_int_equal(fp8_linear_run_kernel(linear, "gemm_small_block_64x64_1_2", &x, &x_scales, &y,
                                           fake_driver_memory(0), 1 << 20, fake_driver_stream(0),
                                           &err),
                     FP8_E_NO_KERNEL);
    assert_int_equal(fp8_linear_run_kernel(linear, "gemm_small_block_64x64_1_1", &x, &x_scales, &y,
                                           fake_driver_memory(0), 1 << 20, fake_driver_stream(0),
                                           &err),
                     FP8_OK);
    assert_true(t->fake->shared >= HALF);
}

/* Runs m rows of codes, scales of 1x128 lying `at` bytes behind 2^30 with such strides; how many
 * kernels that took. */
static int run_blocks(const fp8_linear *linear, fake_driver *fake, int64_t m, uint64_t at,
                      int64_t row, int64_t col)
{
    fp8_error err;
    const fp8_tensor x = on_device((uint64_t)1 << 38, FP8_E4M3FN, m, SIDE);
    fp8_tensor y = on_device((uint64_t)1 << 36, FP8_BF16, m, SIDE);
    fp8_tensor x_scales = on_device(((uint64_t)1 << 30) + at, FP8_F32, m, BLOCKS);
    x_scales.stride[0] = row;
    x_scales.stride[1] = col;
    fake->launches = 0;
    assert_int_equal(fp8_linear_run(linear, &x, &x_scales, &y, fake_driver_memory(0), 1 << 20,
                                    fake_driver_stream(0), &err),
                     FP8_OK);
    return fake->launches;
}

/* Columns of a wider matrix: the descriptor ends where they do, whichever kernel reads them. */
static void scales_are_not_read_past_their_end(void **state)
{
    fake_start *t = *state;
    fake_driver *fake = t->fake;
    enum { STRIDE = 1000, AT = 64 };
    static const struct {
        int64_t m;
        const char *kernel;
        size_t map;
    } runs[] = {{30, "gemm_small", offsetof(fp8_small_args, x_scales)},
                {900, "gemm_large", offsetof(fp8_large_args, x_scales)}};
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_linear *linear = t->linear = create_blocks(t->ctx);
    fake->argument_bytes = sizeof fake->arguments;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        fake_map map;
        assert_int_equal(run_blocks(linear, fake, runs[i].m, AT, 1, STRIDE), 1);
        assert_memory_equal(fake->kernel, runs[i].kernel, strlen(runs[i].kernel));
        memcpy(&map, fake->arguments + runs[i].map, sizeof map);
        assert_ptr_equal(map.data, (char *)fake_driver_memory(0) + (1 << 30) + AT);
        assert_int_equal(map.stride, STRIDE * sizeof(float));
        assert_int_equal(map.extent[0], runs[i].m);
        assert_int_equal(map.extent[1], BLOCKS);
    }
}

/* A copy is made only of scales that the kernel cannot read: up to 16 rows it reads columns of any
 * stride, more by descriptors. */
static void scales_are_read_where_they_lie(void **state)
{
    fake_start *t = *state;
    fake_driver *fake = t->fake;
    static const struct {
        int64_t m, at, row, col;
        bool copied;
    } runs[] = {
        {1, 0, BLOCKS, 1, false}, {1, 4, -7, 5, false},    {1, 2, BLOCKS, 1, true},
        {1, 0, BLOCKS, -1, true}, {8, 4, 1, 9, false},     {16, 0, BLOCKS, 1, true},
        {30, 0, 1, 32, false},    {30, 4, 1, 32, true},    {30, 0, 1, 33, true},
        {30, 0, 1, 28, false},    {200, 0, 1, 200, false},
    };
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_linear *linear = t->linear = create_blocks(t->ctx);
    fake->keeps = "gemm_";
    fake->argument_bytes = sizeof fake->arguments;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *place = (char *)fake_driver_memory(0) + (1 << 30) + runs[i].at;
        const bool small = runs[i].m < 64;
        fp8_sm90_scales told;
        assert_int_equal(
            run_blocks(linear, fake, runs[i].m, (uint64_t)runs[i].at, runs[i].row, runs[i].col),
            1 + runs[i].copied);
        memcpy(&told,
               fake->arguments +
                   (small ? offsetof(fp8_small_args, scales) : offsetof(fp8_large_args, scales)),
               sizeof told);
        assert_int_equal((const char *)told.x == place, !runs[i].copied);
        if (!runs[i].copied)
            assert_int_equal(told.x_stride, runs[i].col);
    }
}

/* Y of more tiles than 32 bits count is left to the kernels that count in 64. */
static void too_many_tiles_are_left_to_others(void **state)
{
    fake_start *t = *state;
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_candidate first;
    fp8_error err;
    const int64_t most = (int64_t)1 << 27;
    if (!fp8_cuda_has_kernels())
        skip();
    desc.w.grid = (fp8_grid){1, 0};
    for (int scaled = 0; scaled < 2; scaled++) {
        desc.activation = scaled ? FP8_ACTIVATION_DYNAMIC : FP8_ACTIVATION_NONE;
        for (int many = 0; many < 2; many++) {
            assert_int_equal(fp8_explain(t->ctx, &desc, many ? most : 4096, most, 16, FP8_BF16,
                                         FP8_E4M3FN, 0, &first, &err),
                             FP8_OK);
            assert_string_equal(first.isa, many ? "sm_80" : "sm_90a");
            assert_int_equal(first.chosen, 1);
        }
    }
}

/* Without columns no product of sizes tells that there are too many. */
static void too_many_rows_have_no_workspace(void **state)
{
    fake_start *t = *state;
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_error err;
    uint64_t bytes;
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, N, 0), s = fp8_matrix(scales, FP8_F32, 1, 0);
    desc.activation = FP8_ACTIVATION_DYNAMIC;
    assert_int_equal(fp8_linear_create(t->ctx, &desc, &w, &s, NULL, &t->linear, &err), FP8_OK);
    assert_int_equal(fp8_linear_workspace(t->linear, 1 << 20, &bytes, &err), FP8_OK);
    assert_int_equal(fp8_linear_workspace(t->linear, INT64_MAX, &bytes, &err), FP8_E_SHAPE);
}

static void sizes_are_those_of_the_device(void **state)
{
    fake_start *t = *state;
    fp8_linear_info info;
    fp8_error err;
    assert_int_equal(create(t->ctx, &t->linear, &err), FP8_OK);
    assert_int_equal(fp8_linear_get_info(t->linear, &info), FP8_OK);
    assert_int_equal(info.code_bytes, N * 64);
    assert_int_equal(info.scale_bytes, sizeof scales);
    assert_true(info.other_bytes >= 2 * sizeof scales && info.other_bytes < 4096);
    assert_int_equal(t->fake->memories, 1);
}

static void what_a_run_cannot_do_is_refused(void **state)
{
    fake_start *t = *state;
    fp8_error err;
    uint16_t host[M * N];
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, N, K),
                     one = fp8_matrix(scales, FP8_F32, 1, 1);
    assert_int_equal(create(t->ctx, &t->linear, &err), FP8_OK);
    fp8_tensor x = on_device(0, FP8_BF16, M, K), y = fp8_matrix(host, FP8_BF16, M, N);
    void *space = (char *)fake_driver_memory(0) + (1 << 20);
    assert_int_equal(fp8_linear_run(t->linear, &x, NULL, &y, space, 1 << 16, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "y is no memory that cuda:0 can read"));
    y = on_device(1 << 16, FP8_BF16, M, N);
    assert_int_equal(fp8_linear_run(t->linear, &x, NULL, &y, host, sizeof host, NULL, &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(run(t->linear, fake_driver_stream(1), &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_linear_run(t->linear, &x, &one, &y, space, 1 << 16, NULL, &err),
                     FP8_E_ARGUMENT);
    desc.activation = FP8_ACTIVATION_DYNAMIC;
    desc.x.nan = FP8_NAN_REFUSE;
    assert_int_equal(fp8_linear_check(t->ctx, &desc, &w, &one, NULL, &err), FP8_OK);
    fp8_linear *other;
    assert_int_equal(create_with(0, t->ctx, &other, &err), FP8_E_SCALE);
    assert_int_equal(err.pos, 0);
    assert_null(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_fails_once),
        fake_test(a_run_is_one_launch_in_the_stream),
        fake_test(rows_that_bulk_copies_cannot_take_are_left_to_others),
        fake_test(mxfp8_is_two_launches),
        fake_test(one_row_may_have_any_stride),
        fake_test(tiles_that_share_w_lie_side_by_side),
        fake_test(scales_are_not_read_past_their_end),
        fake_test(scales_are_read_where_they_lie),
        fake_test(wide_blocks_are_alone),
        fake_test(too_many_tiles_are_left_to_others),
        fake_test(too_many_rows_have_no_workspace),
        fake_test(sizes_are_those_of_the_device),
        fake_test(what_a_run_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
