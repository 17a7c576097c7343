/* SPDX-License-Identifier: Apache-2.0
 *
 * test_null.c - every pointer that a public function must be given is refused when it is NULL, by
 * ARGUMENT and words that name it; and outputs that overlap by STRIDE (fp8_cast by ARGUMENT) and
 * words with both tensors and where they lie. Nothing is written. */
#include "fp8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

enum { N = 8 };

/* The arguments of right calls; a case makes one of them NULL, or moves it. */
static fp8_context *ctx;
static fp8_layer *layer;
static fp8_load *load;
static fp8_linear *linear;
static float numbers[N * N], y_numbers[N * N], one = 1;
static uint8_t bytes[N * N], out_bytes[N * N];
static fp8_tensor x, y, w, w_scales, codes, scales, vector, column;
static const fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
static const fp8_linear_desc linear_desc = FP8_LINEAR_DESC_INIT;
static const fp8_verify_desc verify_desc = FP8_VERIFY_DESC_INIT;
static const fp8_convert_desc convert_desc = FP8_CONVERT_DESC_INIT;
static const fp8_fused_desc fused = {sizeof fused, (const int64_t[]){N}, 1, FP8_DTYPE_NONE};
static fp8_error err;

static void make_arguments(void)
{
    for (int i = 0; i < N * N; i++) {
        numbers[i] = (float)(i + 1);
        y_numbers[i] = -1;
        bytes[i] = out_bytes[i] = 0x38;
    }
    x = fp8_matrix(numbers, FP8_F32, N, N);
    y = fp8_matrix(y_numbers, FP8_F32, N, N);
    w = fp8_matrix(bytes, FP8_E4M3FN, N, N);
    w_scales = scales = fp8_matrix(&one, FP8_F32, 1, 1);
    codes = fp8_matrix(out_bytes, FP8_E4M3FN, N, N);
    vector = fp8_vector(&one, FP8_F32, 1);
    column = fp8_matrix(y_numbers, FP8_F32, N, 1);
}

/* A function with one argument NULL, which its words are to name. */
#define REFUSED(name, call)                  \
    do {                                     \
        make_arguments();                    \
        memset(&err, 0, sizeof err);         \
        check_words(__LINE__, name, (call)); \
    } while (0)

static int cases, failures;

static void check_words(int line, const char *name, fp8_status got)
{
    const bool is_null = strstr(err.msg, "NULL") || strstr(err.msg, "(nil)");
    cases++;
    if (got == FP8_E_ARGUMENT && is_null && strstr(err.msg, name))
        return;
    failures++;
    print_error("line %d: %s: %s\n", line, fp8_status_name(got), err.msg);
}

static float most;
static int32_t flag;
static uint64_t size;
static void *memory;
static char space[1 << 18];

static void of_contexts_and_numbers(void)
{
    REFUSED("out", fp8_context_create(NULL, NULL, &err));
    REFUSED("ctx", fp8_device_alloc(NULL, 1, &memory, &err));
    REFUSED("out", fp8_device_alloc(ctx, 1, NULL, &err));
    REFUSED("ctx", fp8_device_copy(NULL, bytes, out_bytes, 1, NULL, &err));
    REFUSED("to", fp8_device_copy(ctx, NULL, out_bytes, 1, NULL, &err));
    REFUSED("from", fp8_device_copy(ctx, bytes, NULL, 1, NULL, &err));
    REFUSED("ctx", fp8_device_wait(NULL, NULL, &err));
    REFUSED("context", fp8_quantize(NULL, &desc, &x, &codes, &scales, NULL, &err));
    REFUSED("descriptor", fp8_quantize(ctx, NULL, &x, &codes, &scales, NULL, &err));
    REFUSED("x is", fp8_quantize(ctx, &desc, NULL, &codes, &scales, NULL, &err));
    REFUSED("codes", fp8_quantize(ctx, &desc, &x, NULL, &scales, NULL, &err));
    REFUSED("scales", fp8_quantize(ctx, &desc, &x, &codes, NULL, NULL, &err));
    REFUSED("context", fp8_dequantize(NULL, desc.grid, &w, &scales, &y, NULL, &err));
    REFUSED("codes", fp8_dequantize(ctx, desc.grid, NULL, &scales, &y, NULL, &err));
    REFUSED("scales", fp8_dequantize(ctx, desc.grid, &w, NULL, &y, NULL, &err));
    REFUSED("y is", fp8_dequantize(ctx, desc.grid, &w, &scales, NULL, NULL, &err));
    REFUSED("context",
            fp8_requantize(NULL, desc.grid, &w, &w_scales, &desc, &codes, &scales, NULL, &err));
    REFUSED("codes is",
            fp8_requantize(ctx, desc.grid, NULL, &w_scales, &desc, &codes, &scales, NULL, &err));
    REFUSED("scales is",
            fp8_requantize(ctx, desc.grid, &w, NULL, &desc, &codes, &scales, NULL, &err));
    REFUSED("descriptor",
            fp8_requantize(ctx, desc.grid, &w, &w_scales, NULL, &codes, &scales, NULL, &err));
    REFUSED("codes_out",
            fp8_requantize(ctx, desc.grid, &w, &w_scales, &desc, NULL, &scales, NULL, &err));
    REFUSED("scales_out",
            fp8_requantize(ctx, desc.grid, &w, &w_scales, &desc, &codes, NULL, NULL, &err));
    REFUSED("context", fp8_cast(NULL, numbers, FP8_F32, bytes, FP8_E4M3FN, 1, 0, NULL, &err));
    REFUSED("src", fp8_cast(ctx, NULL, FP8_F32, bytes, FP8_E4M3FN, 1, 0, NULL, &err));
    REFUSED("dst", fp8_cast(ctx, numbers, FP8_F32, NULL, FP8_E4M3FN, 1, 0, NULL, &err));
    REFUSED("out", fp8_machine_peak(ctx, 0, 1, NULL, &err));
    REFUSED("context", fp8_machine_peak(NULL, 0, 1, &(fp8_peak){0}, &err));
    REFUSED("out", fp8_gpu(0, NULL, &err));
}

static void of_linears(void)
{
    fp8_linear *made;
    fp8_candidate candidate;
    const fp8_linear_desc *d = &linear_desc;
    REFUSED("context", fp8_matmul(NULL, d, &x, NULL, &w, &w_scales, NULL, &y, NULL, &err));
    REFUSED("descriptor", fp8_matmul(ctx, NULL, &x, NULL, &w, &w_scales, NULL, &y, NULL, &err));
    REFUSED("x is", fp8_matmul(ctx, d, NULL, NULL, &w, &w_scales, NULL, &y, NULL, &err));
    REFUSED("w is", fp8_matmul(ctx, d, &x, NULL, NULL, &w_scales, NULL, &y, NULL, &err));
    REFUSED("w_scales", fp8_matmul(ctx, d, &x, NULL, &w, NULL, NULL, &y, NULL, &err));
    REFUSED("y is", fp8_matmul(ctx, d, &x, NULL, &w, &w_scales, NULL, NULL, NULL, &err));
    REFUSED("x has elements but its data",
            (x.data = NULL, fp8_matmul(ctx, d, &x, NULL, &w, &w_scales, NULL, &y, NULL, &err)));
    REFUSED("context", fp8_linear_check(NULL, d, &w, &w_scales, NULL, &err));
    REFUSED("descriptor", fp8_linear_check(ctx, NULL, &w, &w_scales, NULL, &err));
    REFUSED("w is", fp8_linear_check(ctx, d, NULL, &w_scales, NULL, &err));
    REFUSED("w_scales", fp8_linear_create(ctx, d, &w, NULL, NULL, &made, &err));
    REFUSED("out", fp8_linear_create(ctx, d, &w, &w_scales, NULL, NULL, &err));
    REFUSED("linear is", fp8_linear_clone(NULL, &made, &err));
    REFUSED("out", fp8_linear_clone(linear, NULL, &err));
    REFUSED("linear is", fp8_linear_export(NULL, &codes, &scales, &err));
    REFUSED("linear is", fp8_linear_workspace(NULL, 1, &size, &err));
    REFUSED("bytes", fp8_linear_workspace(linear, 1, NULL, &err));
    REFUSED("linear is", fp8_linear_run(NULL, &x, NULL, &y, NULL, 0, NULL, &err));
    REFUSED("x is", fp8_linear_run(linear, NULL, NULL, &y, NULL, 0, NULL, &err));
    REFUSED("y is", fp8_linear_run(linear, &x, NULL, NULL, space, sizeof space, NULL, &err));
    REFUSED("workspace", fp8_linear_run(linear, &x, NULL, &y, NULL, 1 << 20, NULL, &err));
    REFUSED("linear is", fp8_linear_run_dx(NULL, &x, &y, NULL, 0, NULL, &err));
    REFUSED("dy is", fp8_linear_run_dx(linear, NULL, &y, NULL, 0, NULL, &err));
    REFUSED("dx is", fp8_linear_run_dx(linear, &x, NULL, NULL, 0, NULL, &err));
    REFUSED("context", fp8_explain(NULL, d, 1, N, N, FP8_BF16, FP8_E4M3FN, 0, &candidate, &err));
    REFUSED("descriptor",
            fp8_explain(ctx, NULL, 1, N, N, FP8_BF16, FP8_E4M3FN, 0, &candidate, &err));
    REFUSED("out", fp8_explain(ctx, d, 1, N, N, FP8_BF16, FP8_E4M3FN, 0, NULL, &err));
}

static void of_helpers(void)
{
    fp8_kernel_class class;
    const fp8_dispatch_desc dispatch = FP8_DISPATCH_DESC_INIT;
    REFUSED("x is", fp8_all_close_1d(NULL, &flag, &err));
    REFUSED("close", fp8_all_close_1d(&vector, NULL, &err));
    REFUSED("desc", fp8_channelwise_scales(NULL, &vector, &column, &err));
    REFUSED("scales", fp8_channelwise_scales(&fused, NULL, &column, &err));
    REFUSED("channelwise", fp8_channelwise_scales(&fused, &vector, NULL, &err));
    REFUSED("desc", fp8_requantize_with_max_scale(NULL, &w, &vector, &codes, &most, &err));
    REFUSED("codes is", fp8_requantize_with_max_scale(&fused, NULL, &vector, &codes, &most, &err));
    REFUSED("scales", fp8_requantize_with_max_scale(&fused, &w, NULL, &codes, &most, &err));
    REFUSED("codes_out", fp8_requantize_with_max_scale(&fused, &w, &vector, NULL, &most, &err));
    REFUSED("max_scale", fp8_requantize_with_max_scale(&fused, &w, &vector, &codes, NULL, &err));
    REFUSED("codes", fp8_normalize_e4m3fn_to_e4m3fnuz(NULL, &scales, NULL, &err));
    REFUSED("out", fp8_block_shard_of(0, 1, 1, NULL, &err));
    REFUSED("desc", fp8_validate_block_shape(NULL, &err));
    REFUSED("desc", fp8_dispatch_scaled_mm(NULL, &class, &err));
    REFUSED("out", fp8_dispatch_scaled_mm(&dispatch, NULL, &err));
}

static void of_layers_and_loads(void)
{
    fp8_layer *made;
    fp8_load *begun;
    const fp8_linear *held;
    fp8_linear_desc online;
    const fp8_layer_desc layer_desc = FP8_LAYER_DESC_INIT;
    const fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    REFUSED("scheme", fp8_online_linear(NULL, 0, &online, &err));
    REFUSED("linear", fp8_online_linear("tensor", 0, NULL, &err));
    REFUSED("context", fp8_layer_create(NULL, &layer_desc, &made, &err));
    REFUSED("desc", fp8_layer_create(ctx, NULL, &made, &err));
    REFUSED("out", fp8_layer_create(ctx, &layer_desc, NULL, &err));
    REFUSED("layer is", fp8_layer_clone(NULL, ctx, &made, &err));
    REFUSED("out", fp8_layer_clone(layer, ctx, NULL, &err));
    REFUSED("layer is", fp8_layer_set_source(NULL, &x, NULL, 0, &err));
    REFUSED("weight", fp8_layer_set_source(layer, NULL, NULL, 0, &err));
    REFUSED("layer is", fp8_layer_set_bias(NULL, NULL, &err));
    REFUSED("layer is", fp8_layer_invalidate(NULL, &err));
    REFUSED("layer is", fp8_layer_acquire(NULL, 0, &held, &err));
    REFUSED("linear", fp8_layer_acquire(layer, 0, NULL, &err));
    REFUSED("context", fp8_load_create(NULL, NULL, &begun, &err));
    REFUSED("out", fp8_load_create(ctx, NULL, NULL, &err));
    REFUSED("load is", fp8_load_add(NULL, layer, &err));
    REFUSED("layer is", fp8_load_add(load, NULL, &err));
    REFUSED("load is", fp8_load_write(NULL, layer, &piece, &err));
    REFUSED("layer is", fp8_load_write(load, NULL, &piece, &err));
    REFUSED("piece", fp8_load_write(load, layer, NULL, &err));
    REFUSED("load is", fp8_load_dummy(NULL, layer, 0, &err));
    REFUSED("layer is", fp8_load_dummy(load, NULL, 0, &err));
    REFUSED("load is", fp8_load_checkpoint(NULL, ".", &err));
    REFUSED("path", fp8_load_checkpoint(load, NULL, &err));
    REFUSED("load is", fp8_load_finish(NULL, &err));
}

static void ignore_weight(void *user, const fp8_weight_info *weight)
{
    (void)user;
    (void)weight;
}

static void ignore_row(void *user, const fp8_diff_row *row)
{
    (void)user;
    (void)row;
}

static void of_checkpoints(void)
{
    fp8_checkpoint *ckpt;
    fp8_convert *conv;
    fp8_verify_summary summary;
    fp8_convert_desc patterns = convert_desc;
    patterns.src = patterns.dst = "nowhere";
    patterns.pattern_count = 1;
    REFUSED("out", fp8_checkpoint_open(ctx, ".", NULL, &err));
    REFUSED("ctx", fp8_checkpoint_open(NULL, ".", &ckpt, &err));
    REFUSED("path", fp8_checkpoint_open(ctx, NULL, &ckpt, &err));
    REFUSED("ckpt", fp8_checkpoint_read(NULL, &(fp8_tensor_info){0}, 0, 1, bytes, &err));
    REFUSED("ckpt", fp8_checkpoint_weights(NULL, ignore_weight, NULL, &err));
    REFUSED("desc", fp8_convert_plan(ctx, NULL, &conv, &err));
    REFUSED("out", fp8_convert_plan(ctx, &convert_desc, NULL, &err));
    REFUSED("context", fp8_convert_plan(NULL, &convert_desc, &conv, &err));
    REFUSED("patterns", fp8_convert_plan(ctx, &patterns, &conv, &err));
    REFUSED("conv", fp8_convert_run(NULL, NULL, NULL, &err));
    REFUSED("context", fp8_verify(NULL, &verify_desc, NULL, NULL, &summary, &err));
    REFUSED("desc", fp8_verify(ctx, NULL, NULL, NULL, &summary, &err));
    REFUSED("out", fp8_verify(ctx, &verify_desc, NULL, NULL, NULL, &err));
    REFUSED("path", fp8_verify(ctx, &verify_desc, NULL, NULL, &summary, &err));
    REFUSED("context", fp8_diff(NULL, ".", ".", ignore_row, NULL, &err));
    REFUSED("a is", fp8_diff(ctx, NULL, ".", ignore_row, NULL, &err));
    REFUSED("b is", fp8_diff(ctx, ".", NULL, ignore_row, NULL, &err));
    REFUSED("fn", fp8_diff(ctx, ".", ".", NULL, NULL, &err));
    REFUSED("ctx", fp8_scheme_config(NULL, "hf-block", NULL, 0, NULL, 0, &size, &err));
    REFUSED("scheme is", fp8_scheme_config(ctx, NULL, NULL, 0, NULL, 0, &size, &err));
    REFUSED("bytes", fp8_scheme_config(ctx, "hf-block", NULL, 0, NULL, 0, NULL, &err));
    REFUSED("kept", fp8_scheme_config(ctx, "hf-block", NULL, 1, NULL, 0, &size, &err));
    assert_int_equal(fp8_scheme_config(ctx, "hf-block", NULL, -3, NULL, 0, &size, &err),
                     FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "kept_count is -3"));
}

static void null_is_refused_by_name(void **state)
{
    fp8_context_desc one_thread = FP8_CONTEXT_DESC_INIT; /* whose workspace is small */
    const fp8_layer_desc layer_desc = {
        .struct_bytes = sizeof layer_desc, .n = N, .k = N, .linear = FP8_LINEAR_DESC_INIT};
    (void)state;
    one_thread.threads = 1;
    make_arguments();
    assert_int_equal(fp8_context_create(&one_thread, &ctx, NULL), FP8_OK);
    assert_int_equal(fp8_linear_create(ctx, &linear_desc, &w, &w_scales, NULL, &linear, NULL),
                     FP8_OK);
    assert_int_equal(fp8_layer_create(ctx, &layer_desc, &layer, NULL), FP8_OK);
    assert_int_equal(fp8_load_create(ctx, NULL, &load, NULL), FP8_OK);
    of_contexts_and_numbers();
    of_linears();
    of_helpers();
    of_layers_and_loads();
    of_checkpoints();
    printf("%d NULLs, %d not refused by name\n", cases, failures);
    assert_int_equal(failures, 0);
    for (int i = 0; i < N * N; i++)
        assert_true(y_numbers[i] == -1.0F && out_bytes[i] == 0x38);
    fp8_load_free(load);
    fp8_layer_free(layer);
    fp8_linear_free(linear);
    fp8_context_free(ctx);
}

/* ---- overlaps -------------------------------------------------------------------------------- */

#define OVERLAPS(status, words, call)                                             \
    do {                                                                          \
        memset(&err, 0, sizeof err);                                              \
        const fp8_status got = (call);                                            \
        if (got != (status) || !strstr(err.msg, words))                           \
            fail_msg("line %d: %s: %s", __LINE__, fp8_status_name(got), err.msg); \
    } while (0)

static void overlaps_are_refused_with_their_bytes(void **state)
{
    (void)state;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    make_arguments();
    fp8_tensor in = fp8_matrix(numbers, FP8_F32, 2, 4),
               out = fp8_matrix(numbers + 7, FP8_F32, 2, 4);
    fp8_tensor c = fp8_matrix((char *)numbers + 31, FP8_E4M3FN, 2, 4);
    const fp8_tensor square = fp8_matrix(bytes, FP8_E4M3FN, 4, 4);
    OVERLAPS(FP8_E_STRIDE, "x and y overlap in memory: bytes 0 to 31 and 28 to 59",
             fp8_matmul(ctx, &linear_desc, &in, NULL, &square, &w_scales, NULL, &out, NULL, &err));
    OVERLAPS(FP8_E_STRIDE, "x and y overlap in memory: bytes 28 to 59 and 0 to 31",
             fp8_matmul(ctx, &linear_desc, &out, NULL, &square, &w_scales, NULL, &in, NULL, &err));
    OVERLAPS(FP8_E_STRIDE, "x and codes overlap in memory: bytes 0 to 31 and 31 to 38",
             fp8_quantize(ctx, &desc, &in, &c, &scales, NULL, &err));
    out.data = numbers;
    OVERLAPS(FP8_E_STRIDE, "y and codes overlap in memory: bytes 0 to 31 and 31 to 38",
             fp8_dequantize(ctx, desc.grid, &c, &scales, &out, NULL, &err));
    out.stride[0] = 3;
    c.data = bytes;
    OVERLAPS(FP8_E_STRIDE, "y [2,4] with strides (3,1) overlaps itself",
             fp8_dequantize(ctx, desc.grid, &c, &scales, &out, NULL, &err));
    OVERLAPS(FP8_E_ARGUMENT, "dst is 3 bytes behind src, and n is 4",
             fp8_cast(ctx, bytes, FP8_E4M3FN, bytes + 3, FP8_E5M2, 4, 0, NULL, &err));
    OVERLAPS(FP8_E_ARGUMENT, "dst is -4 bytes behind src, and n is 2",
             fp8_cast(ctx, numbers + 1, FP8_F32, numbers, FP8_F32, 2, 0, NULL, &err));
    for (int i = 0; i < N * N; i++)
        assert_true(numbers[i] == (float)(i + 1) && bytes[i] == 0x38);
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_is_refused_by_name),
        cmocka_unit_test(overlaps_are_refused_with_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
