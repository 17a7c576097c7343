/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.c - fp8_quantize: validates, then chains the three steps of quantize.h. Where there are
 * several rows of units, a thread takes some of them through all three steps, so that the second
 * reading of x comes from the cache; else each step is shared by all threads. */
#include "op/quantize.h"
#include "base/size.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"
#include "op/quant_steps.h"
#include "op/rules.h"
#include "op/tensor_check.h"

#include <math.h>
#include <string.h>

static fp8_status check_desc(const fp8_quantize_desc *desc, fp8_error *err)
{
    FP8_FAIL_IF(!desc, err, FP8_E_ARGUMENT, "quantize: the descriptor is NULL");
    FP8_FAIL_IF(desc->struct_bytes != sizeof *desc, err, FP8_E_ARGUMENT,
                "quantize: struct_bytes is %u, this library knows %zu", desc->struct_bytes,
                sizeof *desc);
    FP8_FAIL_IF(desc->grid.rows < 0 || desc->grid.cols < 0, err, FP8_E_ARGUMENT,
                "grid %lld x %lld: extents must be >= 0", (long long)desc->grid.rows,
                (long long)desc->grid.cols);
    FP8_FAIL_IF((unsigned)desc->nan > FP8_NAN_ORIGINAL, err, FP8_E_ARGUMENT,
                "NaN policy %d is not 0..2", (int)desc->nan);
    FP8_FAIL_IF(desc->nan == FP8_NAN_ORIGINAL && desc->rule == FP8_RULE_BEST, err,
                FP8_E_UNSUPPORTED, "rule 'best' has no original to follow for NaN");
    FP8_FAIL_IF(!(desc->scale_ub >= 0 && isfinite(desc->scale_ub)), err, FP8_E_ARGUMENT,
                "scale_ub is %g, must be finite and >= 0", (double)desc->scale_ub);
    FP8_FAIL_IF(desc->static_scales && (desc->pow2_scales || desc->scale_ub > 0), err,
                FP8_E_ARGUMENT, "pow2_scales and scale_ub are for dynamic scales");
    return FP8_OK;
}

static fp8_status check_dtypes(fp8_dtype in, fp8_dtype code, fp8_dtype scale, fp8_error *err)
{
    FP8_FAIL_IF(!fp8_dtype_is_high(in), err, FP8_E_DTYPE, "x is %s (%d), must be F32, F16 or BF16",
                fp8_dtype_word(in), (int)in);
    FP8_FAIL_IF(code != FP8_E4M3FN && code != FP8_E4M3FNUZ && code != FP8_E5M2, err, FP8_E_DTYPE,
                "codes are %s (%d), must be F8_E4M3, F8_E4M3FNUZ or F8_E5M2", fp8_dtype_word(code),
                (int)code);
    FP8_FAIL_IF(!fp8_dtype_is_scale(scale), err, FP8_E_DTYPE,
                "scales are %s (%d), must be F32, BF16, F16 or F8_E8M0", fp8_dtype_word(scale),
                (int)scale);
    return FP8_OK;
}

fp8_status fp8_quant_prepare(fp8_quant *q, const fp8_quantize_desc *desc, fp8_dtype in,
                             fp8_dtype code, fp8_dtype scale, int64_t rows, int64_t cols,
                             fp8_error *err)
{
    int64_t count;
    FP8_TRY(check_desc(desc, err));
    FP8_TRY(check_dtypes(in, code, scale, err));
    FP8_FAIL_IF(rows < 0 || cols < 0 || __builtin_mul_overflow(rows, cols, &count), err,
                FP8_E_SHAPE, "a matrix [%lld,%lld] is impossible", (long long)rows,
                (long long)cols);
    const fp8_rule_key key = {desc->rule,
                              desc->grid,
                              desc->static_scales != 0,
                              desc->pow2_scales || (scale == FP8_E8M0FNU && !desc->static_scales),
                              in,
                              code,
                              scale};
    *q = (fp8_quant){.desc = *desc, .in = in, .code = code, .scale = scale};
    FP8_TRY(fp8_rule_find(&key, &q->row, err));
    /* The reciprocal of a power of two is exact, and so the product is the quotient. */
    q->multiply = q->row->multiply || q->row->exponent;
    if (q->row->refuses_nan && desc->nan == FP8_NAN_ORIGINAL)
        q->desc.nan = FP8_NAN_REFUSE;
    q->rows = rows;
    q->cols = cols;
    q->unit_rows = fp8_grid_extent(desc->grid.rows, rows);
    q->unit_cols = fp8_grid_extent(desc->grid.cols, cols);
    q->grid_rows = fp8_ceil_div(rows, q->unit_rows);
    q->grid_cols = fp8_ceil_div(cols, q->unit_cols);
    FP8_FAIL_IF(desc->scale_ub > 0 && !q->row->scale_ub, err, FP8_E_UNSUPPORTED,
                "rule '%s' knows no scale_ub for this grid", fp8_rule_name(desc->rule));
    FP8_FAIL_IF(q->row->divides && (rows % q->unit_rows || cols % q->unit_cols), err, FP8_E_SHAPE,
                "rule '%s' takes whole blocks only: [%lld,%lld] is no multiple of %lld x %lld",
                fp8_rule_name(desc->rule), (long long)rows, (long long)cols,
                (long long)q->unit_rows, (long long)q->unit_cols);
    return FP8_OK;
}

/* A whole call. */
typedef struct job {
    const fp8_context *ctx;
    fp8_quant q;
    const fp8_tensor *x, *codes;
    fp8_slab slab;         /* all of x */
    unsigned char *scales; /* contiguous [units], of q.scale: the caller's, if it is so */
    float *amax, *operand; /* [units] */
    int64_t bands_each;    /* rows of units in a piece */
    int64_t refused;       /* smallest index of an element that is refused, else INT64_MAX */
    int32_t scale_failed;
} job;

static int64_t unit_count(const fp8_quant *q)
{
    return q->grid_rows * q->grid_cols;
}

static fp8_status scales_of_bands(job *j, int64_t begin, int64_t end, fp8_error *err)
{
    const int64_t first = begin * j->q.grid_cols, n = (end - begin) * j->q.grid_cols;
    const int64_t bytes = fp8_dtype_bits(j->q.scale) / 8;
    return fp8_quant_scales(j->ctx, &j->q, j->amax + first, n, j->scales + first * bytes,
                            j->operand + first, err);
}

static void quantize_piece(void *arg, int64_t piece)
{
    job *j = arg;
    const fp8_quant *q = &j->q;
    const int64_t begin = piece * j->bands_each;
    const int64_t end = fp8_min_i64(begin + j->bands_each, q->grid_rows);
    fp8_slab slab = j->slab;
    slab.begin = begin * q->unit_rows;
    slab.end = fp8_min_i64(end * q->unit_rows, q->rows);
    const int64_t refused = fp8_slab_amax(q, &slab, false, j->amax);
    if (refused >= 0)
        fp8_lower_index(&j->refused, refused);
    else if (scales_of_bands(j, begin, end, NULL) != FP8_OK)
        __atomic_store_n(&j->scale_failed, 1, __ATOMIC_RELAXED);
    else
        fp8_slab_encode(q, &slab, j->operand, j->codes);
}

static fp8_status quantize_bands(job *j, fp8_error *err)
{
    const int64_t rows = fp8_rows_per_piece(&j->q);
    j->bands_each = fp8_ceil_div(rows, j->q.unit_rows);
    j->slab = fp8_slab_of(j->ctx, &j->q, j->x, 0);
    j->refused = INT64_MAX;
    fp8_run_parallel(j->ctx, fp8_ceil_div(j->q.grid_rows, j->bands_each), quantize_piece, j);
    if (j->refused != INT64_MAX)
        return fp8_refuse_element(&j->q, j->x, 0, j->refused, err);
    return j->scale_failed ? scales_of_bands(j, 0, j->q.grid_rows, err) : FP8_OK;
}

static fp8_status quantize_steps(job *j, fp8_error *err)
{
    fp8_tensor codes = *j->codes;
    FP8_TRY(fp8_quant_amax(j->ctx, &j->q, j->x, 0, j->amax, err));
    FP8_TRY(scales_of_bands(j, 0, j->q.grid_rows, err));
    return fp8_quant_encode(j->ctx, &j->q, j->x, 0, j->operand, &codes, err);
}

/* amax is taken only for what it finds: elements that the policy refuses. */
static fp8_status quantize_static(job *j, const fp8_tensor *scales, fp8_error *err)
{
    fp8_tensor codes = *j->codes;
    FP8_TRY(fp8_quant_static(&j->q, scales, j->operand, err));
    if (j->q.desc.nan == FP8_NAN_REFUSE)
        FP8_TRY(fp8_quant_amax(j->ctx, &j->q, j->x, 0, j->amax, err));
    return fp8_quant_encode(j->ctx, &j->q, j->x, 0, j->operand, &codes, err);
}

static bool is_contiguous(const fp8_tensor *t)
{
    return (t->stride[1] == 1 || t->shape[1] == 1) &&
           (t->stride[0] == t->shape[1] || t->shape[0] == 1);
}

/* The scales of a job into a view of any strides. */
static void scatter_scales(const job *j, fp8_tensor *scales)
{
    const int64_t bytes = fp8_dtype_bits(j->q.scale) / 8;
    const unsigned char *from = j->scales;
    for (int64_t r = 0; r < j->q.grid_rows; r++)
        for (int64_t c = 0; c < j->q.grid_cols; c++, from += bytes)
            memcpy((char *)scales->data + (r * scales->stride[0] + c * scales->stride[1]) * bytes,
                   from, (size_t)bytes);
}

static fp8_status check_call(fp8_quant *q, const fp8_quantize_desc *desc, const fp8_tensor *x,
                             const fp8_tensor *codes, const fp8_tensor *scales, fp8_error *err)
{
    FP8_TRY(fp8_check_matrix(x, "x", -1, -1, err));
    FP8_TRY(fp8_check_matrix(codes, "codes", -1, x->shape[1], err));
    FP8_TRY(fp8_check_matrix(scales, "scales", -1, -1, err));
    FP8_TRY(fp8_quant_prepare(q, desc, x->dtype, codes->dtype, scales->dtype, x->shape[0],
                              x->shape[1], err));
    FP8_TRY(fp8_check_matrix(scales, "scales", q->grid_rows, q->grid_cols, err));
    FP8_FAIL_IF(codes->shape[0] < q->rows, err, FP8_E_SHAPE, "codes has %lld rows, x has %lld",
                (long long)codes->shape[0], (long long)q->rows);
    FP8_TRY(fp8_check_distinct(codes, "codes", err));
    FP8_TRY(fp8_check_apart(x, "x", codes, "codes", err));
    if (!desc->static_scales) {
        FP8_TRY(fp8_check_distinct(scales, "scales", err));
        FP8_TRY(fp8_check_apart(x, "x", scales, "scales", err));
    }
    return fp8_check_apart(codes, "codes", scales, "scales", err);
}

static fp8_status run_job(job *j, fp8_tensor *scales, fp8_error *err)
{
    if (j->q.desc.static_scales)
        FP8_TRY(quantize_static(j, scales, err));
    else
        FP8_TRY(j->q.grid_rows > 1 ? quantize_bands(j, err) : quantize_steps(j, err));
    if (!j->q.desc.static_scales && j->scales != scales->data)
        scatter_scales(j, scales);
    fp8_clear_padding(j->codes, j->q.rows);
    return FP8_OK;
}

fp8_status fp8_quantize(const fp8_context *ctx, const fp8_quantize_desc *desc, const fp8_tensor *x,
                        fp8_tensor *codes, fp8_tensor *scales, void *stream, fp8_error *err)
{
    job j = {.ctx = ctx, .x = x, .codes = codes};
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "quantize: the context is NULL");
    FP8_TRY(check_call(&j.q, desc, x, codes, scales, err));
    if (ctx->cuda)
        return fp8_cuda_quantize(ctx, &j.q, x, codes, scales, stream, err);
    FP8_TRY(fp8_need_no_stream(stream, "quantize", err));
    if (!j.q.cols)
        return FP8_OK; /* however many rows there are */
    const uint64_t units = (uint64_t)unit_count(&j.q);
    const bool in_place = is_contiguous(scales);
    float *work = fp8_alloc_zeroed(ctx, units, (in_place ? 2 : 3) * sizeof(float));
    FP8_FAIL_IF(!work, err, FP8_E_NO_MEMORY, "quantize: no memory for %llu scales",
                (unsigned long long)units);
    j.amax = work;
    j.operand = work + units;
    j.scales = in_place ? scales->data : (unsigned char *)(work + 2 * units);
    const fp8_status status = run_job(&j, scales, err);
    fp8_release(ctx, work);
    return status;
}
