/* SPDX-License-Identifier: Apache-2.0
 *
 * requantize.c - fp8_requantize: codes * scales in fp32, a slab of rows at a time, through the
 * quantizer's steps. Two passes, amax and encode, so that no more than a slab is ever in high
 * precision; the second dequantizes again. */
#include "base/size.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"
#include "op/quant_steps.h"
#include "op/quantize.h"
#include "op/rules.h"
#include "op/tensor_check.h"

#include <string.h>

enum { SLAB_BYTES = 2 << 20 };

typedef struct job {
    const fp8_context *ctx;
    fp8_quant q;
    fp8_grid from;
    const fp8_tensor *codes, *scales;
    fp8_tensor *codes_out, *scales_out;
    int64_t slab_rows;
    float *slab;                 /* [slab_rows, cols] */
    float *amax, *operand;       /* [units] */
    unsigned char *scales_bytes; /* contiguous [units], of q.scale */
} job;

/* Rows [row0, row0 + n) of a matrix. */
static fp8_tensor rows_of(const fp8_tensor *t, int64_t row0, int64_t n)
{
    fp8_tensor part = *t;
    part.data = (char *)t->data + row0 * t->stride[0] * (fp8_dtype_bits(t->dtype) / 8);
    part.shape[0] = n;
    return part;
}

typedef fp8_status slab_step(job *j, const fp8_tensor *x, int64_t row0, fp8_error *err);

/* step(x) for each slab x[n, cols] of the real values. */
static fp8_status each_slab(job *j, slab_step *step, fp8_error *err)
{
    for (int64_t row0 = 0; row0 < j->q.rows; row0 += j->slab_rows) {
        const int64_t n = fp8_min_i64(j->slab_rows, j->q.rows - row0);
        const fp8_tensor codes = rows_of(j->codes, row0, n);
        fp8_tensor x = fp8_matrix(j->slab, FP8_F32, n, j->q.cols);
        FP8_TRY(fp8_dequant_rows(j->ctx, j->from, &codes, j->scales, row0, &x, err));
        FP8_TRY(step(j, &x, row0, err));
    }
    return FP8_OK;
}

static fp8_status amax_step(job *j, const fp8_tensor *x, int64_t row0, fp8_error *err)
{
    return fp8_quant_amax(j->ctx, &j->q, x, row0, j->amax, err);
}

static fp8_status encode_step(job *j, const fp8_tensor *x, int64_t row0, fp8_error *err)
{
    fp8_tensor codes = rows_of(j->codes_out, row0, x->shape[0]);
    return fp8_quant_encode(j->ctx, &j->q, x, row0, j->operand, &codes, err);
}

/* dst = src element by element; equal shapes and dtypes. */
static void copy_matrix(const fp8_tensor *dst, const fp8_tensor *src)
{
    const int64_t bytes = fp8_dtype_bits(src->dtype) / 8;
    for (int64_t i = 0; i < src->shape[0]; i++)
        for (int64_t k = 0; k < src->shape[1]; k++)
            memcpy((char *)dst->data + (i * dst->stride[0] + k * dst->stride[1]) * bytes,
                   (char *)src->data + (i * src->stride[0] + k * src->stride[1]) * bytes,
                   (size_t)bytes);
}

static fp8_status find_operands(job *j, fp8_error *err)
{
    const bool is_static = j->q.desc.static_scales != 0;
    if (!is_static || j->q.desc.nan == FP8_NAN_REFUSE)
        FP8_TRY(each_slab(j, amax_step, err));
    if (is_static)
        return fp8_quant_static(&j->q, j->scales_out, j->operand, err);
    const int64_t units = j->q.grid_rows * j->q.grid_cols;
    FP8_TRY(fp8_quant_scales(j->ctx, &j->q, j->amax, units, j->scales_bytes, j->operand, err));
    const fp8_tensor contiguous =
        fp8_matrix(j->scales_bytes, j->q.scale, j->q.grid_rows, j->q.grid_cols);
    copy_matrix(j->scales_out, &contiguous);
    return FP8_OK;
}

static fp8_status run_job(job *j, fp8_error *err)
{
    const int64_t row_bytes = j->q.cols * (int64_t)sizeof(float);
    j->slab_rows = row_bytes && row_bytes < SLAB_BYTES ? SLAB_BYTES / row_bytes : 1;
    j->slab_rows = fp8_min_i64(j->slab_rows, j->q.rows);
    const uint64_t units = (uint64_t)(j->q.grid_rows * j->q.grid_cols);
    const uint64_t slab = (uint64_t)(j->slab_rows * j->q.cols);
    float *work = fp8_alloc_zeroed(j->ctx, 3 * units + slab, sizeof(float));
    FP8_FAIL_IF(!work, err, FP8_E_NO_MEMORY, "requantize: no memory for %llu numbers",
                (unsigned long long)(3 * units + slab));
    j->amax = work;
    j->operand = work + units;
    j->scales_bytes = (unsigned char *)(work + 2 * units);
    j->slab = work + 3 * units;
    fp8_status status = find_operands(j, err);
    if (status == FP8_OK)
        status = each_slab(j, encode_step, err);
    fp8_release(j->ctx, work);
    return status;
}

static fp8_status check_outputs(const job *j, fp8_error *err)
{
    const fp8_tensor *in[] = {j->codes, j->scales}, *out[] = {j->codes_out, j->scales_out};
    static const char *const in_names[] = {"codes", "scales"};
    static const char *const out_names[] = {"codes_out", "scales_out"};
    for (int o = 0; o < 2; o++) {
        if (o == 1 && j->q.desc.static_scales)
            break; /* an input */
        FP8_TRY(fp8_check_distinct(out[o], out_names[o], err));
        for (int i = 0; i < 2; i++)
            FP8_TRY(fp8_check_apart(out[o], out_names[o], in[i], in_names[i], err));
    }
    return fp8_check_apart(j->codes_out, "codes_out", j->scales_out, "scales_out", err);
}

static fp8_status check_call(job *j, const fp8_quantize_desc *to, fp8_error *err)
{
    const fp8_grid from = j->from;
    FP8_FAIL_IF(from.rows < 0 || from.cols < 0, err, FP8_E_ARGUMENT,
                "grid %lld x %lld: extents must be >= 0", (long long)from.rows,
                (long long)from.cols);
    FP8_TRY(fp8_check_matrix(j->codes, "codes", -1, -1, err));
    const int64_t rows = j->codes->shape[0], cols = j->codes->shape[1];
    FP8_FAIL_IF(!fp8_dtype_is_fp8(j->codes->dtype), err, FP8_E_DTYPE,
                "codes are %s, must be an 8-bit float", fp8_dtype_name(j->codes->dtype));
    FP8_TRY(fp8_check_matrix(j->scales, "scales",
                             fp8_ceil_div(rows, fp8_grid_extent(from.rows, rows)),
                             fp8_ceil_div(cols, fp8_grid_extent(from.cols, cols)), err));
    FP8_TRY(fp8_check_matrix(j->codes_out, "codes_out", -1, cols, err));
    FP8_TRY(fp8_check_matrix(j->scales_out, "scales_out", -1, -1, err));
    FP8_FAIL_IF(j->codes_out->shape[0] < rows, err, FP8_E_SHAPE,
                "codes_out has %lld rows, codes has %lld", (long long)j->codes_out->shape[0],
                (long long)rows);
    FP8_TRY(fp8_quant_prepare(&j->q, to, FP8_F32, j->codes_out->dtype, j->scales_out->dtype, rows,
                              cols, err));
    FP8_TRY(fp8_check_matrix(j->scales_out, "scales_out", j->q.grid_rows, j->q.grid_cols, err));
    return check_outputs(j, err);
}

/* Nothing to convert: the same grid and dtypes, and no rule to follow. */
static bool is_copy(const job *j)
{
    const fp8_quantize_desc *to = &j->q.desc;
    return to->rule == FP8_RULE_BEST && !to->static_scales && !to->pow2_scales &&
           !(to->scale_ub > 0) && to->grid.rows == j->from.rows && to->grid.cols == j->from.cols &&
           j->codes->dtype == j->q.code && j->scales->dtype == j->q.scale;
}

fp8_status fp8_requantize(const fp8_context *ctx, fp8_grid from, const fp8_tensor *codes,
                          const fp8_tensor *scales, const fp8_quantize_desc *to,
                          fp8_tensor *codes_out, fp8_tensor *scales_out, void *stream,
                          fp8_error *err)
{
    job j = {.ctx = ctx, .from = from, .codes = codes, .scales = scales};
    j.codes_out = codes_out;
    j.scales_out = scales_out;
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "requantize: the context is NULL");
    FP8_TRY(check_call(&j, to, err));
    if (ctx->cuda)
        return fp8_cuda_requantize(ctx, &j.q, is_copy(&j), from, codes, scales, codes_out,
                                   scales_out, stream, err);
    FP8_TRY(fp8_need_no_stream(stream, "requantize", err));
    if (!j.q.cols)
        return FP8_OK; /* however many rows there are */
    if (is_copy(&j)) {
        copy_matrix(codes_out, codes);
        copy_matrix(scales_out, scales);
    } else {
        FP8_TRY(run_job(&j, err));
    }
    fp8_clear_padding(codes_out, j.q.rows);
    return FP8_OK;
}
