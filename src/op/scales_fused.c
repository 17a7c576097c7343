/* SPDX-License-Identifier: Apache-2.0
 *
 * scales_fused.c - the scales of a fused weight W[N,K], whose parts (q, k and v; gate and up) came
 * with a scale each: whether they are one, one a row, and codes brought to the largest. No
 * allocation. A linear with `widths` needs none of this. */
#include "base/size.h"
#include "number/dtype.h"
#include "op/merge.h"
#include "op/tensor_check.h"

#include <math.h>
#include <string.h>

/* A slot for a scale is filled with the least fp32 number; vLLM asks only whether the last is above
 * the least number of e4m3fn. */
static const float NOT_LOADED = -448.0F;

static float value_at(const fp8_tensor *column, int64_t i)
{
    return fp8_dtype_facts_of(column->dtype)->load(fp8_element_at(column, i, 0), 0);
}

/* *column[n,1] = a vector [n] of fp32 or 16-bit floats. */
static fp8_status vector_as_column(const fp8_tensor *t, const char *name, fp8_tensor *column,
                                   fp8_error *err)
{
    FP8_FAIL_IF(!t, err, FP8_E_ARGUMENT, "%s is NULL", name);
    FP8_FAIL_IF(t->ndim != 1, err, FP8_E_SHAPE, "%s has %d dimensions, must have 1", name, t->ndim);
    FP8_FAIL_IF(!fp8_dtype_is_high(t->dtype), err, FP8_E_DTYPE,
                "%s is %s, must be F32, F16 or BF16", name, fp8_dtype_word(t->dtype));
    *column = fp8_matrix(t->data, t->dtype, t->shape[0], 1);
    column->stride[0] = t->stride[0];
    return fp8_check_matrix(column, name, -1, 1, err);
}

/* *n = the sum of the widths. */
static fp8_status check_widths(const fp8_fused_desc *d, int64_t *n, fp8_error *err)
{
    FP8_FAIL_IF(!d, err, FP8_E_ARGUMENT, "fused: desc is NULL");
    FP8_FAIL_IF(d->struct_bytes != sizeof *d, err, FP8_E_ARGUMENT,
                "fused: struct_bytes is %u, this library knows %zu", d->struct_bytes, sizeof *d);
    FP8_FAIL_IF(!d->widths && d->width_count, err, FP8_E_ARGUMENT, "fused: widths is NULL");
    *n = 0;
    for (size_t i = 0; i < d->width_count; i++)
        FP8_FAIL_IF(d->widths[i] < 0 || __builtin_add_overflow(*n, d->widths[i], n), err,
                    FP8_E_SHAPE, "fused: widths[%zu] is %lld, must be >= 0 and the sum an int64_t",
                    i, (long long)d->widths[i]);
    return FP8_OK;
}

static fp8_status check_parts(const fp8_fused_desc *d, int64_t scales, fp8_error *err)
{
    FP8_FAIL_IF((uint64_t)scales != d->width_count, err, FP8_E_SHAPE,
                "fused: %lld scales for %zu widths", (long long)scales, d->width_count);
    return FP8_OK;
}

/* ---- fp8_all_close_1d ------------------------------------------------------------------------ */

static bool is_close(float a, float b)
{
    const float far = fabsf(a - b), relative = 1e-5F * b;
    return a == b || (isfinite(far) && far <= 1e-8F + fabsf(relative));
}

fp8_status fp8_all_close_1d(const fp8_tensor *x, int32_t *close, fp8_error *err)
{
    fp8_tensor column;
    FP8_FAIL_IF(!close, err, FP8_E_ARGUMENT, "close is NULL");
    FP8_TRY(vector_as_column(x, "x", &column, err));
    *close = 1;
    for (int64_t i = 0; i < column.shape[0]; i++)
        *close &= is_close(value_at(&column, 0), value_at(&column, i));
    return FP8_OK;
}

/* ---- fp8_channelwise_scales ------------------------------------------------------------------ */

fp8_status fp8_channelwise_scales(const fp8_fused_desc *desc, const fp8_tensor *scales,
                                  fp8_tensor *channelwise, fp8_error *err)
{
    fp8_tensor column;
    int64_t n, row = 0;
    FP8_TRY(check_widths(desc, &n, err));
    FP8_TRY(vector_as_column(scales, "scales", &column, err));
    FP8_TRY(check_parts(desc, column.shape[0], err));
    FP8_TRY(fp8_check_matrix(channelwise, "channelwise", n, 1, err));
    FP8_FAIL_IF(channelwise->dtype != column.dtype, err, FP8_E_DTYPE,
                "channelwise has another dtype than scales, which are %s",
                fp8_dtype_name(column.dtype));
    FP8_TRY(fp8_check_distinct(channelwise, "channelwise", err));
    FP8_TRY(fp8_check_apart(&column, "scales", channelwise, "channelwise", err));
    const size_t bytes = (size_t)fp8_dtype_bits(column.dtype) / 8;
    for (size_t part = 0; part < desc->width_count; part++)
        for (const int64_t end = row + desc->widths[part]; row < end; row++)
            memcpy(fp8_element_at(channelwise, row, 0), fp8_element_at(&column, (int64_t)part, 0),
                   bytes);
    return FP8_OK;
}

/* ---- fp8_requantize_with_max_scale ----------------------------------------------------------- */

static float round_to_half(float value)
{
    const fp8_dtype_facts *half = fp8_dtype_facts_of(FP8_F16);
    uint16_t bits;
    half->store(&bits, 0, value, false);
    return half->load(&bits, 0);
}

void fp8_merge_table(float scale, float most, uint8_t to[256])
{
    const fp8_dtype_facts *e4m3fn = fp8_dtype_facts_of(FP8_E4M3FN);
    const float inverse = 1.0F / most;
    for (int i = 0; i < 256; i++) {
        const uint8_t code = (uint8_t)i;
        const float y = round_to_half(e4m3fn->load(&code, 0) * scale) * inverse;
        e4m3fn->store(to, i, y, true);
    }
}

static void map_rows(const fp8_tensor *codes, int64_t first, int64_t rows, const uint8_t *to,
                     const fp8_tensor *out)
{
    for (int64_t i = first; i < first + rows; i++)
        for (int64_t j = 0; j < codes->shape[1]; j++)
            *(uint8_t *)fp8_element_at(out, i, j) =
                to[*(const uint8_t *)fp8_element_at(codes, i, j)];
}

static void copy_rows(const fp8_tensor *codes, const fp8_tensor *out)
{
    for (int64_t i = 0; i < codes->shape[0]; i++)
        for (int64_t j = 0; j < codes->shape[1]; j++)
            *(uint8_t *)fp8_element_at(out, i, j) = *(const uint8_t *)fp8_element_at(codes, i, j);
}

static fp8_status check_codes(const fp8_tensor *codes, const fp8_tensor *scales,
                              const fp8_tensor *out, int64_t n, fp8_error *err)
{
    FP8_TRY(fp8_check_matrix(codes, "codes", n, -1, err));
    FP8_TRY(fp8_check_matrix(out, "codes_out", n, codes->shape[1], err));
    FP8_FAIL_IF(codes->dtype != FP8_E4M3FN || out->dtype != FP8_E4M3FN, err, FP8_E_DTYPE,
                "codes and codes_out must be F8_E4M3");
    FP8_TRY(fp8_check_distinct(out, "codes_out", err));
    FP8_TRY(fp8_check_apart(scales, "scales", out, "codes_out", err));
    if (codes->data == out->data && !memcmp(codes->stride, out->stride, 2 * sizeof(int64_t)))
        return FP8_OK;
    return fp8_check_apart(codes, "codes", out, "codes_out", err);
}

/* *column = the scales, a scalar as one. */
static fp8_status check_scales(const fp8_fused_desc *d, const fp8_tensor *scales,
                               fp8_tensor *column, fp8_error *err)
{
    FP8_FAIL_IF(!scales, err, FP8_E_ARGUMENT, "scales is NULL");
    fp8_tensor vector = *scales;
    if (scales->ndim == 0)
        vector = fp8_vector(scales->data, scales->dtype, 1);
    FP8_TRY(vector_as_column(&vector, "scales", column, err));
    FP8_FAIL_IF(scales->dtype != FP8_F32, err, FP8_E_DTYPE, "scales is %s, must be F32",
                fp8_dtype_name(scales->dtype));
    FP8_FAIL_IF(column->shape[0] == 0, err, FP8_E_SHAPE, "fused: no scale to take the largest of");
    return scales->ndim == 0 ? FP8_OK : check_parts(d, column->shape[0], err);
}

static float largest_of(const fp8_tensor *column)
{
    float most = value_at(column, 0);
    for (int64_t i = 1; i < column->shape[0]; i++) {
        const float value = value_at(column, i);
        most = value > most || isnan(value) ? value : most;
    }
    return most;
}

fp8_status fp8_requantize_with_max_scale(const fp8_fused_desc *desc, const fp8_tensor *codes,
                                         const fp8_tensor *scales, fp8_tensor *codes_out,
                                         float *max_scale, fp8_error *err)
{
    fp8_tensor column;
    int64_t n, row = 0;
    FP8_TRY(check_widths(desc, &n, err));
    FP8_FAIL_IF(desc->scale_math != FP8_DTYPE_NONE && desc->scale_math != FP8_F32 &&
                    desc->scale_math != FP8_F16,
                err, FP8_E_DTYPE, "fused: scale_math must be F32 or F16");
    FP8_FAIL_IF(!max_scale, err, FP8_E_ARGUMENT, "max_scale is NULL");
    FP8_TRY(check_scales(desc, scales, &column, err));
    FP8_TRY(check_codes(codes, &column, codes_out, n, err));
    const float most = largest_of(&column);
    if (scales->ndim == 0 || !(value_at(&column, column.shape[0] - 1) > NOT_LOADED)) {
        copy_rows(codes, codes_out);
        *max_scale = most;
        return FP8_OK;
    }
    for (size_t part = 0; part < desc->width_count; row += desc->widths[part++]) {
        uint8_t to[256];
        const float scale = value_at(&column, (int64_t)part);
        fp8_merge_table(desc->scale_math == FP8_F16 ? round_to_half(scale) : scale, most, to);
        map_rows(codes, row, desc->widths[part], to, codes_out);
    }
    *max_scale = most; /* last, as it may lie among the scales */
    return FP8_OK;
}
