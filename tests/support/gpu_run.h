/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_run.h - what linears on a GPU hold and give: a few made-up rows on the device, a run of them,
 * and two linears compared. Include what layer_maker.h needs with it. */
#ifndef FP8_TESTS_GPU_RUN_H
#define FP8_TESTS_GPU_RUN_H

#include "support/gpu.h"
#include "support/layer_maker.h"

/* The same codes and scales, bit for bit. */
static inline void assert_same_weight(const fp8_linear *a, const fp8_linear *b)
{
    exported x = export_of(a), y = export_of(b);
    const int64_t scales = x.info.scale_rows * x.info.scale_cols;
    assert_int_equal(x.info.n, y.info.n);
    assert_int_equal(x.info.k, y.info.k);
    assert_int_equal(x.info.scale, y.info.scale);
    assert_int_equal(scales, y.info.scale_rows * y.info.scale_cols);
    assert_memory_equal(x.codes.data, y.codes.data, (size_t)(x.info.n * x.info.k));
    assert_memory_equal(x.scales.data, y.scales.data,
                        (size_t)(scales * fp8_dtype_bits(x.info.scale) / 8));
    exported_free(&x);
    exported_free(&y);
}

enum { GPU_ROWS = 3 };

/* Made-up rows on the device, and what a run of them needs. */
typedef struct gpu_running {
    gpu_tensor x, y, space;
    fp8_tensor host;
    uint64_t bytes;
} gpu_running;

static inline gpu_running gpu_running_new(const fp8_context *on, const fp8_linear *linear)
{
    fp8_linear_info info;
    gpu_running r;
    assert_int_equal(fp8_linear_get_info(linear, &info), FP8_OK);
    assert_done(fp8_linear_workspace(linear, GPU_ROWS, &r.bytes, &err));
    fp8_tensor x = made_matrix(FP8_BF16, GPU_ROWS, info.k, 77);
    const fp8_tensor room = fp8_matrix(NULL, FP8_U8, 1, (int64_t)r.bytes);
    r.host = fp8_matrix(malloc((size_t)(GPU_ROWS * info.n) * 4), FP8_F32, GPU_ROWS, info.n);
    r.x = gpu_tensor_new(on, &x, 0);
    r.y = gpu_tensor_new(on, &r.host, 1);
    r.space = gpu_tensor_new(on, &room, 1);
    free(x.data);
    return r;
}

static inline void gpu_running_free(gpu_running *r)
{
    gpu_tensor_free(&r->x);
    gpu_tensor_free(&r->y);
    gpu_tensor_free(&r->space);
    free(r->host.data);
}

static inline void gpu_run(gpu_running *r, const fp8_linear *linear, void *stream)
{
    assert_done(
        fp8_linear_run(linear, &r->x.t, NULL, &r->y.t, r->space.t.data, r->bytes, stream, &err));
}

/* Y of the made-up rows. Free it. */
static inline float *gpu_output(const fp8_context *on, const fp8_linear *linear)
{
    gpu_running r = gpu_running_new(on, linear);
    gpu_run(&r, linear, NULL);
    gpu_tensor_read(&r.y, &r.host);
    float *y = r.host.data;
    r.host.data = NULL;
    gpu_running_free(&r);
    return y;
}

static inline void assert_same_output(const fp8_context *on, const fp8_linear *a,
                                      const fp8_linear *b)
{
    fp8_linear_info info;
    float *x = gpu_output(on, a), *y = gpu_output(on, b);
    assert_int_equal(fp8_linear_get_info(a, &info), FP8_OK);
    assert_memory_equal(x, y, (size_t)(GPU_ROWS * info.n) * sizeof *x);
    free(x);
    free(y);
}

#endif
