/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_maker.h - made-up weights, layers that hold them, and whether two linears are the same.
 * Failures end the test. Includes cmocka's needs itself. */
#ifndef LAYER_MAKER_H
#define LAYER_MAKER_H

#include "base/size.h"
#include "number/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

/* Number i of a sequence in [-1, 1). */
static inline float made_number(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return (float)((double)(x >> 40) * 0x1p-23 - 1);
}

/* A contiguous matrix of made-up numbers; `salt` tells matrices apart. Free its data. */
static inline fp8_tensor made_matrix(fp8_dtype dtype, int64_t rows, int64_t cols, uint64_t salt)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    void *data = malloc((size_t)(rows * cols * facts->bits / 8) + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < rows * cols; i++)
        facts->store(data, i, made_number(salt * 0x10000000 + (uint64_t)i) * (1 + (float)(i % 7)),
                     true);
    return fp8_matrix(data, dtype, rows, cols);
}

static inline fp8_tensor made_vector(fp8_dtype dtype, int64_t n, uint64_t salt)
{
    fp8_tensor t = made_matrix(dtype, n, 1, salt);
    return fp8_vector(t.data, dtype, n);
}

/* Rows and columns of a matrix. */
static inline fp8_tensor view_of(fp8_tensor t, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
    t.data =
        (char *)t.data + (row * t.stride[0] + col * t.stride[1]) * (fp8_dtype_bits(t.dtype) / 8);
    t.shape[0] = rows;
    t.shape[1] = cols;
    return t;
}

/* What a linear exports. Free with exported_free. */
typedef struct exported {
    fp8_linear_info info;
    fp8_tensor codes, scales;
} exported;

static inline exported export_of(const fp8_linear *linear)
{
    exported e;
    assert_int_equal(fp8_linear_get_info(linear, &e.info), FP8_OK);
    const int64_t gr = e.info.scale_rows, gc = e.info.scale_cols;
    e.codes =
        fp8_matrix(calloc((size_t)(e.info.n * e.info.k + 1), 1), e.info.code, e.info.n, e.info.k);
    e.scales = fp8_matrix(calloc((size_t)(gr * gc + 1), 4), e.info.scale, gr, gc);
    assert_int_equal(fp8_linear_export(linear, &e.codes, &e.scales, NULL), FP8_OK);
    return e;
}

static inline void exported_free(exported *e)
{
    free(e->codes.data);
    free(e->scales.data);
}

/* Y of a few made-up rows in F32. Free it. */
static inline float *output_of(const fp8_linear *linear, int64_t m)
{
    fp8_linear_info info;
    fp8_error err = {0};
    uint64_t bytes;
    assert_int_equal(fp8_linear_get_info(linear, &info), FP8_OK);
    fp8_tensor x = made_matrix(FP8_BF16, m, info.k, 77);
    fp8_tensor y = fp8_matrix(calloc((size_t)(m * info.n + 1), 4), FP8_F32, m, info.n);
    assert_int_equal(fp8_linear_workspace(linear, m, &bytes, NULL), FP8_OK);
    void *workspace = malloc(bytes + 1);
    const fp8_status status = fp8_linear_run(linear, &x, NULL, &y, workspace, bytes, NULL, &err);
    if (status != FP8_OK)
        fail_msg("%s", err.msg);
    free(workspace);
    free(x.data);
    return y.data;
}

/* The same codes, scales, and results, bias included. */
static inline void assert_same_linear(const fp8_linear *a, const fp8_linear *b)
{
    exported x = export_of(a), y = export_of(b);
    assert_int_equal(x.info.n, y.info.n);
    assert_int_equal(x.info.k, y.info.k);
    assert_int_equal(x.info.scale_rows, y.info.scale_rows);
    assert_int_equal(x.info.scale_cols, y.info.scale_cols);
    assert_memory_equal(x.codes.data, y.codes.data, (size_t)(x.info.n * x.info.k));
    assert_memory_equal(
        x.scales.data, y.scales.data,
        (size_t)(x.info.scale_rows * x.info.scale_cols * fp8_dtype_bits(x.info.scale) / 8));
    float *u = output_of(a, 3), *v = output_of(b, 3);
    assert_memory_equal(u, v, (size_t)(3 * x.info.n) * sizeof(float));
    free(u);
    free(v);
    exported_free(&x);
    exported_free(&y);
}

/* The layer's linear is what fp8_linear_create makes of w and bias (data NULL: none). */
static inline void assert_layer_is(fp8_layer *layer, const fp8_context *ctx,
                                   const fp8_linear_desc *desc, const fp8_tensor *w,
                                   const fp8_tensor *bias)
{
    const fp8_linear *mine;
    fp8_linear *want;
    fp8_error err = {0};
    if (fp8_linear_create(ctx, desc, w, NULL, bias, &want, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    if (fp8_layer_acquire(layer, 0, &mine, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    assert_same_linear(mine, want);
    fp8_layer_release(layer);
    fp8_linear_free(want);
}

/* expr ends with `status` and words that hold `words`. */
#define assert_refused(expr, status_wanted, words)                \
    do {                                                          \
        fp8_error err = {0};                                      \
        const fp8_status got_ = (expr);                           \
        if (got_ != (status_wanted) || !strstr(err.msg, (words))) \
            fail_msg("%s: %s", fp8_status_name(got_), err.msg);   \
    } while (0)
#define assert_done(expr)                                       \
    do {                                                        \
        fp8_error err = {0};                                    \
        const fp8_status got_ = (expr);                         \
        if (got_ != FP8_OK)                                     \
            fail_msg("%s: %s", fp8_status_name(got_), err.msg); \
    } while (0)

/* A layer in a load. */
typedef struct loading {
    fp8_layer *layer;
    fp8_load *load;
} loading;

static inline loading begin_loading(const fp8_context *ctx, const fp8_layer_desc *d,
                                    const fp8_load_desc *options)
{
    loading l;
    assert_done(fp8_layer_create(ctx, d, &l.layer, &err));
    assert_done(fp8_load_create(ctx, options, &l.load, &err));
    assert_done(fp8_load_add(l.load, l.layer, &err));
    return l;
}

/* A piece of a part, at its place in it. */
static inline fp8_status write_at(const loading *l, fp8_load_param param, int32_t part,
                                  fp8_tensor data, int64_t row, int64_t col, fp8_error *err)
{
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.param = param;
    piece.part = part;
    piece.data = data;
    piece.row = row;
    piece.col = col;
    return fp8_load_write(l->load, l->layer, &piece, err);
}

static inline void end_loading(loading *l)
{
    fp8_load_free(l->load);
    fp8_layer_free(l->layer);
}

#endif
