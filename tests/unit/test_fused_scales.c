/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fused_scales.c - the helpers around a fused or cut weight where no other implementation says
 * what is right: misuse, strides, memory shared, numbers at their ends. */
#include "base/status.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const int64_t widths[] = {1, 0, 2};

static fp8_fused_desc three_parts(void)
{
    fp8_fused_desc desc = FP8_FUSED_DESC_INIT;
    desc.widths = widths;
    desc.width_count = 3;
    return desc;
}

/* The status, and that a failure says why. */
static fp8_status said(fp8_status status, const fp8_error *err)
{
    if (status != FP8_OK) {
        assert_int_equal(err->code, status);
        assert_true(err->msg[0] != 0);
    }
    return status;
}

static void all_close_says_what_is_wrong(void **state)
{
    (void)state;
    float x[] = {1, 7, 1.000001F, 7, 1};
    int32_t close = -1;
    fp8_error err;
    fp8_tensor t = fp8_vector(x, FP8_F32, 3);
    t.stride[0] = 2;
    assert_int_equal(fp8_all_close_1d(&t, &close, &err), FP8_OK);
    assert_int_equal(close, 1);
    x[4] = 1.1F;
    assert_int_equal(fp8_all_close_1d(&t, &close, &err), FP8_OK);
    assert_int_equal(close, 0);
    const fp8_tensor matrix = fp8_matrix(x, FP8_F32, 1, 3);
    const fp8_tensor codes = fp8_vector(x, FP8_E4M3FN, 3), none = fp8_vector(NULL, FP8_F32, 3);
    assert_int_equal(said(fp8_all_close_1d(NULL, &close, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_all_close_1d(&t, NULL, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_all_close_1d(&none, &close, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_all_close_1d(&matrix, &close, &err), &err), FP8_E_SHAPE);
    assert_int_equal(said(fp8_all_close_1d(&codes, &close, &err), &err), FP8_E_DTYPE);
}

static void channelwise_keeps_bits_and_refuses(void **state)
{
    (void)state;
    uint16_t in[] = {0x3C00, 0x7FFF, 0x8001}, out[6] = {9, 9, 9, 9, 9, 9};
    fp8_fused_desc desc = three_parts();
    fp8_error err;
    const fp8_tensor scales = fp8_vector(in, FP8_F16, 3);
    fp8_tensor y = fp8_matrix(out, FP8_F16, 3, 1);
    y.stride[0] = 2;
    assert_int_equal(fp8_channelwise_scales(&desc, &scales, &y, &err), FP8_OK);
    assert_memory_equal(out, ((uint16_t[]){0x3C00, 9, 0x8001, 9, 0x8001, 9}), sizeof out);

    fp8_tensor bad = y;
    bad.dtype = FP8_BF16;
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &bad, &err), &err), FP8_E_DTYPE);
    bad = fp8_matrix(out, FP8_F16, 2, 1);
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &bad, &err), &err), FP8_E_SHAPE);
    bad = y;
    bad.stride[0] = 0;
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &bad, &err), &err), FP8_E_STRIDE);
    bad = fp8_matrix(in, FP8_F16, 3, 1);
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &bad, &err), &err), FP8_E_STRIDE);
    desc.width_count = 2;
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &y, &err), &err), FP8_E_SHAPE);
    const int64_t huge[] = {INT64_MAX, 1, 0}, negative[] = {-1, 2, 2};
    desc = three_parts();
    desc.widths = huge;
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &y, &err), &err), FP8_E_SHAPE);
    desc.widths = negative;
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &y, &err), &err), FP8_E_SHAPE);
    desc.widths = NULL;
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &y, &err), &err), FP8_E_ARGUMENT);
    desc.struct_bytes = 1;
    assert_int_equal(said(fp8_channelwise_scales(&desc, &scales, &y, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_channelwise_scales(NULL, &scales, &y, &err), &err), FP8_E_ARGUMENT);
}

static void max_scale_requantizes_strided_codes(void **state)
{
    (void)state;
    uint8_t codes[3][4] = {{0x38, 0x7F, 9, 9}, {0x7E, 0xB8, 9, 9}, {0x01, 0x80, 9, 9}};
    uint8_t out[2][3];
    float scale[] = {2, NAN, 1}, most;
    fp8_fused_desc desc = three_parts();
    fp8_error err;
    fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, 3, 2), y = fp8_matrix(out, FP8_E4M3FN, 3, 2);
    const fp8_tensor scales = fp8_vector(scale, FP8_F32, 3);
    w.stride[0] = 4;
    y.stride[0] = 1;
    y.stride[1] = 3;
    assert_int_equal(fp8_requantize_with_max_scale(&desc, &w, &scales, &y, &most, &err), FP8_OK);
    assert_true(isnan(most)); /* a NaN is the maximum, and all becomes NaN */
    for (int i = 0; i < 6; i++)
        assert_int_equal(out[i / 3][i % 3] & 0x7F, 0x7F);
    scale[1] = 0;
    assert_int_equal(fp8_requantize_with_max_scale(&desc, &w, &scales, &y, &most, &err), FP8_OK);
    assert_true(most == 2);
    /* 1 and NaN to the same scale; 448, -1, 2^-9 and -0 to twice theirs (2^-10 ties to 0). */
    assert_memory_equal(out, ((uint8_t[]){0x38, 0x76, 0x00, 0x7F, 0xB0, 0x80}), 6);
}

/* The result may take the place of a scale. */
static void max_scale_may_lie_among_the_scales(void **state)
{
    (void)state;
    uint8_t codes[] = {0x38, 0x38, 0x38}, out[3], expected[3];
    float scale[] = {1, 2, 4}, most;
    const fp8_fused_desc desc = three_parts();
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, 3, 1), s = fp8_vector(scale, FP8_F32, 3);
    fp8_tensor y = fp8_matrix(expected, FP8_E4M3FN, 3, 1);
    assert_int_equal(fp8_requantize_with_max_scale(&desc, &w, &s, &y, &most, NULL), FP8_OK);
    y.data = out;
    assert_int_equal(fp8_requantize_with_max_scale(&desc, &w, &s, &y, scale, NULL), FP8_OK);
    assert_memory_equal(out, expected, sizeof out);
    assert_true(most == 4 && scale[0] == 4);
}

static void max_scale_refuses(void **state)
{
    (void)state;
    uint8_t codes[8] = {0};
    float scale[] = {2, 2, 1}, most;
    fp8_fused_desc desc = three_parts();
    fp8_error err;
    fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, 3, 2), y = fp8_matrix(codes + 1, FP8_E4M3FN, 3, 2);
    fp8_tensor scales = fp8_vector(scale, FP8_F32, 3);
#define REFUSED(status) \
    assert_int_equal(   \
        said(fp8_requantize_with_max_scale(&desc, &w, &scales, &y, &most, &err), &err), status)
    REFUSED(FP8_E_STRIDE); /* moved by one byte, not in place */
    y = w;
    assert_int_equal(fp8_requantize_with_max_scale(&desc, &w, &scales, &y, &most, &err), FP8_OK);
    y.dtype = FP8_E4M3FNUZ;
    REFUSED(FP8_E_DTYPE);
    y = fp8_matrix(scale, FP8_E4M3FN, 3, 2);
    REFUSED(FP8_E_STRIDE); /* the codes would be written over the scales */
    y = w;
    scales.dtype = FP8_F16;
    REFUSED(FP8_E_DTYPE);
    scales.dtype = FP8_F32;
    scales.shape[0] = 2;
    REFUSED(FP8_E_SHAPE);
    scales.shape[0] = 3;
    desc.scale_math = FP8_BF16;
    REFUSED(FP8_E_DTYPE);
    desc.scale_math = FP8_F16;
    w.shape[0] = 2;
    REFUSED(FP8_E_SHAPE);
    w.shape[0] = 3;
    desc.width_count = 0;
    desc.widths = NULL;
    w.shape[0] = y.shape[0] = 0;
    scales.shape[0] = 0;
    REFUSED(FP8_E_SHAPE); /* no scale is the largest */
#undef REFUSED
    assert_int_equal(said(fp8_requantize_with_max_scale(&desc, &w, NULL, &y, &most, &err), &err),
                     FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_requantize_with_max_scale(&desc, &w, &scales, &y, NULL, &err), &err),
                     FP8_E_ARGUMENT);
}

static void fnuz_doubles_every_dtype_or_nothing(void **state)
{
    (void)state;
    uint8_t codes[] = {0x80, 0x7F, 0x01}, e8m0[] = {0, 253, 254, 255};
    uint16_t half[] = {0x3C00, 0x7BFF};
    fp8_error err;
    fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, 1, 3), s = fp8_matrix(e8m0, FP8_E8M0FNU, 2, 2);
    fp8_tensor x = fp8_matrix(half, FP8_I16, 1, 2);
    assert_int_equal(said(fp8_normalize_e4m3fn_to_e4m3fnuz(&w, &s, &x, &err), &err), FP8_E_DTYPE);
    assert_int_equal(codes[0], 0x80);
    assert_int_equal(e8m0[0], 0);
    x.dtype = FP8_F16; /* scales are doubled once: not two that are one, nor codes */
    fp8_tensor codes_too = fp8_matrix(codes + 2, FP8_E8M0FNU, 1, 1);
    assert_int_equal(said(fp8_normalize_e4m3fn_to_e4m3fnuz(&w, &s, &s, &err), &err), FP8_E_STRIDE);
    assert_int_equal(said(fp8_normalize_e4m3fn_to_e4m3fnuz(&w, NULL, &codes_too, &err), &err),
                     FP8_E_STRIDE);
    assert_int_equal(codes[0], 0x80);
    assert_int_equal(e8m0[0], 0);
    assert_int_equal(fp8_normalize_e4m3fn_to_e4m3fnuz(&w, &s, &x, &err), FP8_OK);
    assert_memory_equal(codes, ((uint8_t[]){0, 0x7F, 0x01}), 3);
    assert_memory_equal(e8m0, ((uint8_t[]){1, 254, 254, 255}), 4);
    assert_memory_equal(half, ((uint16_t[]){0x4000, 0x7C00}), 4);
    assert_int_equal(w.dtype, FP8_E4M3FNUZ);
    assert_int_equal(said(fp8_normalize_e4m3fn_to_e4m3fnuz(&w, NULL, NULL, &err), &err),
                     FP8_E_DTYPE);
    assert_int_equal(said(fp8_normalize_e4m3fn_to_e4m3fnuz(NULL, NULL, NULL, &err), &err),
                     FP8_E_ARGUMENT);
}

static void shards_have_ends(void **state)
{
    (void)state;
    fp8_block_shard s;
    fp8_error err;
    assert_int_equal(fp8_block_shard_of(INT64_MAX, 0, 128, &s, &err), FP8_OK);
    assert_int_equal(s.count, 0);
    assert_int_equal(fp8_block_shard_of(0, INT64_MAX, 1, &s, &err), FP8_OK);
    assert_true(s.first == 0 && s.count == INT64_MAX && s.origin == 0);
    assert_int_equal(said(fp8_block_shard_of(1, INT64_MAX, 128, &s, &err), &err), FP8_E_SHAPE);
    assert_int_equal(said(fp8_block_shard_of(-1, 1, 128, &s, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_block_shard_of(0, -1, 128, &s, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_block_shard_of(0, 1, 0, &s, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_block_shard_of(0, 1, 128, NULL, &err), &err), FP8_E_ARGUMENT);
}

static void block_shapes_are_checked(void **state)
{
    (void)state;
    const int64_t none[] = {0, 0}, negative[] = {-1};
    fp8_block_shape_desc desc = FP8_BLOCK_SHAPE_DESC_INIT;
    fp8_error err;
    desc.n = desc.k = 256;
    desc.tp = 2;
    desc.widths = none; /* nothing is cut from nothing: no division by zero */
    desc.width_count = 2;
    assert_int_equal(fp8_validate_block_shape(&desc, &err), FP8_OK);
    desc.widths = negative;
    desc.width_count = 1;
    assert_int_equal(said(fp8_validate_block_shape(&desc, &err), &err), FP8_E_ARGUMENT);
    desc.widths = none;
    desc.block.cols = 0;
    assert_int_equal(said(fp8_validate_block_shape(&desc, &err), &err), FP8_E_ARGUMENT);
    desc.struct_bytes = 0;
    assert_int_equal(said(fp8_validate_block_shape(&desc, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_validate_block_shape(NULL, &err), &err), FP8_E_ARGUMENT);
}

static void predicates_take_anything(void **state)
{
    (void)state;
    fp8_dispatch_desc desc = FP8_DISPATCH_DESC_INIT;
    fp8_kernel_class out;
    fp8_error err;
    assert_int_equal(fp8_gpu_supports(FP8_GPU_FP8, -1, 13000), 0);
    assert_int_equal(fp8_gpu_supports((fp8_gpu_feature)99, 90, 13000), 0);
    assert_int_equal(fp8_gpu_supports(FP8_GPU_SPARSE_24, 90, 12020), 1);
    assert_int_equal(fp8_gpu_supports(FP8_GPU_SPARSE_24, 90, 12010), 0);
    assert_int_equal(fp8_gpu_supports(FP8_GPU_SPARSE_24, 89, 12020), 0);
    assert_int_equal(fp8_marlin_supports_shape(64, 128, 128, 0), 1);
    assert_int_equal(fp8_marlin_supports_shape(64, 128, 4096, 96), 0);
    assert_int_equal(said(fp8_dispatch_scaled_mm(NULL, &out, &err), &err), FP8_E_ARGUMENT);
    assert_int_equal(said(fp8_dispatch_scaled_mm(&desc, NULL, &err), &err), FP8_E_ARGUMENT);
    desc.struct_bytes = 0;
    assert_int_equal(said(fp8_dispatch_scaled_mm(&desc, &out, &err), &err), FP8_E_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_close_says_what_is_wrong),
        cmocka_unit_test(channelwise_keeps_bits_and_refuses),
        cmocka_unit_test(max_scale_requantizes_strided_codes),
        cmocka_unit_test(max_scale_may_lie_among_the_scales),
        cmocka_unit_test(max_scale_refuses),
        cmocka_unit_test(fnuz_doubles_every_dtype_or_nothing),
        cmocka_unit_test(shards_have_ends),
        cmocka_unit_test(block_shapes_are_checked),
        cmocka_unit_test(predicates_take_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
