/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize.c - fp8_dequantize, whole or by rows.
 *
 *     y[i,j] = round_to_y(codes[i,j] * scales[i / grid.rows, j / grid.cols])    the product in fp32
 *
 * The matrix is cut into pieces of whole rows times PIECE_COLS columns. In a piece the scales of
 * one row of the grid are brought to fp32 once, and a kernel runs along each row. */
#include "base/size.h"
#include "number/dtype.h"
#include "op/backend.h"
#include "op/cuda_calls.h"
#include "op/quantize.h"
#include "op/tensor_check.h"

enum {
    PIECE_COLS = 4096,       /* 32 KiB of scales on the stack */
    TASK_ELEMENTS = 1 << 16, /* what a thread takes at once, about */
    SHORT_UNIT = 64, /* from here on a kernel call a unit is cheaper than a scale an element */
};

typedef struct dequantize_job {
    const fp8_tensor *codes, *scales;
    fp8_tensor *y;
    int64_t row0, unit_rows, unit_cols;
    int64_t task_rows, task_cols; /* extent of a task */
    int64_t tasks_across;
    fp8_kernel_cast *cast_scales; /* to fp32, of scales side by side */
    fp8_kernel_dequantize *kernel;
} dequantize_job;

/* scale[0..n) = fp32 of the scales of units [unit0, unit0 + n) in row `grid_row` of the grid. */
static void load_scales(const dequantize_job *job, int64_t grid_row, int64_t unit0, int64_t n,
                        float *scale)
{
    const fp8_tensor *t = job->scales;
    const void *first = fp8_element_at(t, grid_row, unit0);
    if (t->stride[1] == 1) {
        job->cast_scales(scale, first, n, false);
        return;
    }
    const fp8_load_fn load = fp8_dtype_facts_of(t->dtype)->load;
    for (int64_t k = 0; k < n; k++)
        scale[k] = load(first, k * t->stride[1]);
}

/* wide[0..n) = the scale of each column [col0, col0 + n), which lie in `units` units of `unit`
 * columns; scale[0] belongs to col0's unit. */
static void widen_scales(const float *scale, int64_t units, int64_t unit, int64_t col0, int64_t n,
                         float *wide)
{
    int64_t j = 0, next = unit - col0 % unit;
    for (int64_t u = 0; u < units; u++, next += unit) {
        const float one = scale[u];
        for (const int64_t end = fp8_min_i64(next, n); j < end; j++)
            wide[j] = one;
    }
}

/* Columns [col0, col0 + n) of one row, a kernel call for each unit. */
static void run_units(const dequantize_job *job, int64_t row, int64_t col0, int64_t n,
                      const float *scale)
{
    const fp8_tensor *codes = job->codes, *y = job->y;
    for (int64_t end = col0 + n; col0 < end; scale++) {
        const int64_t left = job->unit_cols - col0 % job->unit_cols;
        const int64_t count = fp8_min_i64(left, end - col0);
        job->kernel(&(fp8_dequantize_run){
            fp8_element_at(y, row, col0), fp8_element_at(codes, row, col0), scale, count,
            y->stride[1], codes->stride[1], 0, y->dtype, codes->dtype});
        col0 += count;
    }
}

/* The same with a scale for each element, in one call. */
static void run_elements(const dequantize_job *job, int64_t row, int64_t col0, int64_t n,
                         const float *wide)
{
    const fp8_tensor *codes = job->codes, *y = job->y;
    job->kernel(&(fp8_dequantize_run){fp8_element_at(y, row, col0),
                                      fp8_element_at(codes, row, col0), wide, n, y->stride[1],
                                      codes->stride[1], 1, y->dtype, codes->dtype});
}

static void dequantize_piece(const dequantize_job *job, int64_t row, int64_t end, int64_t col0,
                             int64_t n)
{
    float scale[PIECE_COLS], wide[PIECE_COLS];
    const int64_t unit0 = col0 / job->unit_cols;
    const int64_t units = (col0 + n - 1) / job->unit_cols - unit0 + 1; /* <= n <= PIECE_COLS */
    const bool by_element = job->unit_cols < SHORT_UNIT;
    for (int64_t loaded = -1; row < end; row++) {
        const int64_t grid_row = (job->row0 + row) / job->unit_rows;
        if (grid_row != loaded) {
            load_scales(job, grid_row, unit0, units, scale);
            if (by_element)
                widen_scales(scale, units, job->unit_cols, col0, n, wide);
            loaded = grid_row;
        }
        if (by_element)
            run_elements(job, row, col0, n, wide);
        else
            run_units(job, row, col0, n, scale);
    }
}

static void dequantize_task(void *arg, int64_t task)
{
    const dequantize_job *job = arg;
    const int64_t row = task / job->tasks_across * job->task_rows;
    const int64_t end = fp8_min_i64(row + job->task_rows, job->codes->shape[0]);
    const int64_t col = task % job->tasks_across * job->task_cols;
    const int64_t col_end = fp8_min_i64(col + job->task_cols, job->codes->shape[1]);
    for (int64_t c = col; c < col_end; c += PIECE_COLS)
        dequantize_piece(job, row, end, c, fp8_min_i64(PIECE_COLS, col_end - c));
}

static void run_job(const fp8_context *ctx, dequantize_job *job)
{
    const int64_t rows = job->codes->shape[0], cols = job->codes->shape[1];
    const bool contiguous = job->codes->stride[1] == 1 && job->y->stride[1] == 1;
    if (rows == 0 || cols == 0)
        return;
    job->kernel = fp8_kernel_pick(contiguous ? ctx->isa : FP8_ISA_SCALAR, FP8_OP_DEQUANTIZE,
                                  job->codes->dtype, job->y->dtype)
                      ->fn.dequantize;
    job->cast_scales = fp8_kernel_pick(ctx->isa, FP8_OP_CAST, job->scales->dtype, FP8_F32)->fn.cast;
    job->task_cols = fp8_min_i64(cols, TASK_ELEMENTS);
    job->task_rows = fp8_ceil_div(TASK_ELEMENTS, job->task_cols);
    job->tasks_across = fp8_ceil_div(cols, job->task_cols);
    fp8_run_parallel(ctx, fp8_ceil_div(rows, job->task_rows) * job->tasks_across, dequantize_task,
                     job);
}

static fp8_status check_dtypes(const fp8_tensor *codes, const fp8_tensor *scales,
                               const fp8_tensor *y, fp8_error *err)
{
    FP8_FAIL_IF(!fp8_dtype_is_fp8(codes->dtype), err, FP8_E_DTYPE,
                "dequantize: codes are %s, must be an 8-bit float", fp8_dtype_name(codes->dtype));
    const fp8_dtype s = scales->dtype, t = y->dtype;
    FP8_FAIL_IF(s != FP8_F32 && s != FP8_BF16 && s != FP8_F16 && s != FP8_E8M0FNU, err, FP8_E_DTYPE,
                "dequantize: scales are %s, must be F32, BF16, F16 or F8_E8M0", fp8_dtype_name(s));
    FP8_FAIL_IF(t != FP8_F32 && t != FP8_BF16 && t != FP8_F16, err, FP8_E_DTYPE,
                "dequantize: y is %s, must be F32, BF16 or F16", fp8_dtype_name(t));
    return FP8_OK;
}

/* Everything but the number of rows of the scales, which only the caller knows. */
static fp8_status check_job(fp8_grid grid, const fp8_tensor *codes, const fp8_tensor *scales,
                            const fp8_tensor *y, fp8_error *err)
{
    FP8_FAIL_IF(grid.rows < 0 || grid.cols < 0, err, FP8_E_ARGUMENT,
                "dequantize: grid {%lld,%lld} must not be negative", (long long)grid.rows,
                (long long)grid.cols);
    FP8_TRY(fp8_check_matrix(codes, "codes", -1, -1, err));
    const int64_t cols = codes->shape[1];
    FP8_TRY(fp8_check_matrix(scales, "scales", -1,
                             fp8_ceil_div(cols, fp8_grid_extent(grid.cols, cols)), err));
    FP8_TRY(fp8_check_matrix(y, "y", codes->shape[0], cols, err));
    FP8_TRY(check_dtypes(codes, scales, y, err));
    FP8_TRY(fp8_check_distinct(y, "y", err));
    FP8_TRY(fp8_check_apart(y, "y", codes, "codes", err));
    return fp8_check_apart(y, "y", scales, "scales", err);
}

fp8_status fp8_dequant_rows(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                            const fp8_tensor *scales, int64_t row0, fp8_tensor *y, fp8_error *err)
{
    FP8_TRY(fp8_need_cpu(ctx, "dequantize", err));
    FP8_TRY(check_job(grid, codes, scales, y, err));
    const int64_t rows = codes->shape[0], unit_rows = grid.rows ? grid.rows : INT64_MAX;
    FP8_FAIL_IF(row0 < 0 || row0 > INT64_MAX - rows, err, FP8_E_ARGUMENT,
                "dequantize: row0 is %lld with %lld rows", (long long)row0, (long long)rows);
    FP8_FAIL_IF(rows > 0 && (row0 + rows - 1) / unit_rows >= scales->shape[0], err, FP8_E_SHAPE,
                "dequantize: scales have %lld rows of %lld rows each, row %lld lies outside",
                (long long)scales->shape[0], (long long)unit_rows, (long long)(row0 + rows - 1));
    dequantize_job job = {.codes = codes,
                          .scales = scales,
                          .y = y,
                          .row0 = row0,
                          .unit_rows = unit_rows,
                          .unit_cols = fp8_grid_extent(grid.cols, codes->shape[1])};
    run_job(ctx, &job);
    return FP8_OK;
}

fp8_status fp8_dequantize(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                          const fp8_tensor *scales, fp8_tensor *y, void *stream, fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "dequantize: the context is NULL");
    FP8_TRY(check_job(grid, codes, scales, y, err));
    const int64_t rows = codes->shape[0];
    const int64_t grid_rows = fp8_ceil_div(rows, fp8_grid_extent(grid.rows, rows));
    FP8_FAIL_IF(scales->shape[0] != grid_rows, err, FP8_E_SHAPE,
                "dequantize: scales have %lld rows, must have %lld for %lld rows of codes",
                (long long)scales->shape[0], (long long)grid_rows, (long long)rows);
    if (ctx->cuda)
        return fp8_cuda_dequantize(ctx, grid, codes, scales, y, stream, err);
    FP8_TRY(fp8_need_no_stream(stream, "dequantize", err));
    return fp8_dequant_rows(ctx, grid, codes, scales, 0, y, err);
}
