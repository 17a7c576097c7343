/* SPDX-License-Identifier: Apache-2.0
 *
 * work.c - one slab X[rows, cols] of a matrix:
 *
 *     SCALES   scales_out = cast(scales_in)
 *     DECODE   y = codes * scales
 *     AMAX     region.amax = max(region.amax, |X|)
 *     ENCODE   one pass: for each tile  amax -> scale -> codes;  second pass: scale -> codes
 *
 * where X = codes * scales in fp32 if the source is FP8. A tile is some whole regions, small enough
 * to stay in the processor's cache between amax and codes. */
#include "convert/work.h"
#include "base/size.h"
#include "convert/choose.h"
#include "convert/measure.h"
#include "op/quantize.h"

#include <string.h>

/* A worker's arrays for one tile or region. */
typedef struct scratch {
    float *amax, *operand;
    char *scales; /* where they are not wanted */
} scratch;

static void run_serial(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    (void)user;
    for (int64_t i = 0; i < n; i++)
        body(arg, i);
}

void fp8_worker_init(fp8_worker *worker, fp8_convert *conv)
{
    *worker = (fp8_worker){.conv = conv, .serial = *conv->ctx};
    worker->serial.threads = 1;
    worker->serial.parallel_for = run_serial;
}

static int64_t dtype_bytes(fp8_dtype dtype)
{
    return fp8_dtype_bits(dtype) / 8;
}

/* X of the slab's rows [row, row + rows), counted from the slab's first. */
static fp8_tensor slab_values(const fp8_job *job, int64_t row, int64_t rows)
{
    const fp8_geometry *g = job->g;
    fp8_dtype dtype = g->reads_codes ? FP8_F32 : g->in;
    char *base = job->memory + (g->reads_codes ? job->map.real : job->map.in);
    return fp8_matrix(base + row * g->m.cols * dtype_bytes(dtype), dtype, rows, g->m.cols);
}

static fp8_tensor slab_codes(const fp8_job *job, int64_t row, int64_t rows)
{
    return fp8_matrix(job->memory + job->map.out + row * job->g->m.cols, job->g->out, rows,
                      job->g->m.cols);
}

/* ---- reading codes ---- */

/* y = codes * scales of the whole slab; y is `dtype` at `dst`. */
static fp8_status decode(fp8_worker *w, const fp8_job *job, char *dst, fp8_dtype dtype,
                         fp8_error *err)
{
    const fp8_geometry *g = job->g;
    int64_t unit = fp8_grid_extent(g->from.rows, g->m.rows);
    char *codes = job->memory + job->map.in;
    if (g->bare)
        return fp8_cast(&w->serial, codes, g->in, dst, dtype, job->rows * g->m.cols, 0, NULL, err);
    fp8_tensor x = fp8_matrix(codes, g->in, job->rows, g->m.cols);
    fp8_tensor scales =
        fp8_matrix(job->memory + job->map.scales_in, g->scale_in, job->scale_rows, g->from_cols);
    fp8_tensor y = fp8_matrix(dst, dtype, job->rows, g->m.cols);
    fp8_grid grid = {unit, g->from.cols};
    return fp8_dequant_rows(&w->serial, grid, &x, &scales, job->row - job->scale_row * unit, &y,
                            err);
}

static fp8_status decode_for_encode(fp8_worker *w, const fp8_job *job, fp8_error *err)
{
    if (!job->g->reads_codes)
        return FP8_OK;
    return decode(w, job, job->memory + job->map.real, FP8_F32, err);
}

/* ---- encoding ---- */

static fp8_status prepare(const fp8_worker *w, const fp8_job *job, int64_t rows, fp8_quant *q,
                          fp8_error *err)
{
    const fp8_geometry *g = job->g;
    fp8_quantize_desc desc = fp8_item_quantize_desc(w->conv, job->item);
    fp8_dtype in = g->reads_codes ? FP8_F32 : g->in;
    return fp8_quant_prepare(q, &desc, in, g->encodes ? g->out : FP8_E4M3FN, g->scale_out, rows,
                             g->m.cols, err);
}

static scratch split_scratch(const fp8_worker *w, int64_t units)
{
    scratch s = {(float *)(void *)w->scratch, NULL, NULL};
    s.operand = s.amax + units;
    s.scales = (char *)(s.operand + units);
    return s;
}

/* Memory behind the arrays of `units` units, for two chunks of values. */
static float *chunk_scratch(const fp8_worker *w, int64_t units)
{
    return (float *)(void *)(w->scratch + (units * 3 * 4 + 63) / 64 * 64);
}

/* The error's position in the tensor, and its status where the work met NaN. `row` is the row of
 * the matrix that position 0 stands for. */
static fp8_status place_error(const fp8_job *job, int64_t row, fp8_status status, fp8_error *err)
{
    if (status == FP8_E_NAN && err->pos >= 0)
        err->pos += (job->expert * job->g->m.rows + row) * job->g->m.cols;
    return status;
}

static fp8_status measure(fp8_worker *w, fp8_job *job, int64_t row, int64_t rows,
                          const fp8_tensor *scales, int64_t row0, int64_t units, fp8_error *err)
{
    if (!w->stats)
        return FP8_OK;
    fp8_measure_slab slab = {
        .x = slab_values(job, row, rows),
        .codes = slab_codes(job, row, rows),
        .scales = *scales,
        .grid = job->g->to,
        .row0 = row0,
        .chunk_rows = job->g->chunk_rows,
        .room = chunk_scratch(w, units),
    };
    double *sums = (double *)(void *)(job->memory + job->map.sums) + 2 * job->chunks;
    job->chunks += fp8_ceil_div(rows, job->g->chunk_rows);
    return fp8_measure(&w->serial, &slab, sums, &job->stats, err);
}

/* One tile of a one-pass slab: its rows are whole regions. */
static fp8_status encode_tile(fp8_worker *w, fp8_job *job, int64_t row, int64_t rows,
                              fp8_error *err)
{
    const fp8_geometry *g = job->g;
    fp8_quant q;
    FP8_TRY(prepare(w, job, rows, &q, err));
    int64_t units = q.grid_rows * q.grid_cols;
    scratch s = split_scratch(w, units);
    int64_t first = (row / g->region_rows) * g->to_cols; /* unit of the slab */
    char *out = job->memory + job->map.scales_out + first * dtype_bytes(g->scale_out);
    fp8_tensor x = slab_values(job, row, rows), codes = slab_codes(job, row, rows);
    memset(s.amax, 0, (size_t)units * sizeof *s.amax);
    FP8_TRY(fp8_quant_amax(&w->serial, &q, &x, 0, s.amax, err));
    if (job->kind == FP8_JOB_SCAN)
        return FP8_OK;
    FP8_TRY(fp8_quant_scales(&w->serial, &q, s.amax, units, out, s.operand, err));
    FP8_TRY(fp8_quant_encode(&w->serial, &q, &x, 0, s.operand, &codes, err));
    fp8_tensor scales = fp8_matrix(out, g->scale_out, q.grid_rows, q.grid_cols);
    return measure(w, job, row, rows, &scales, 0, units, err);
}

static fp8_status encode_tiles(fp8_worker *w, fp8_job *job, fp8_error *err)
{
    int64_t tile = job->g->tile_rows;
    for (int64_t row = 0; row < job->rows; row += tile) {
        int64_t rows = fp8_min_i64(tile, job->rows - row);
        fp8_status status = encode_tile(w, job, row, rows, err);
        if (status != FP8_OK)
            return place_error(job, job->row + row, status, err);
    }
    return FP8_OK;
}

/* Rows of the region that the job belongs to. */
static int64_t region_rows(const fp8_job *job)
{
    return fp8_min_i64(job->g->region_rows, job->g->m.rows - job->region_row);
}

static void merge_amax(fp8_worker *w, fp8_job *job, const float *amax, int64_t units)
{
    pthread_mutex_lock(w->lock);
    for (int64_t i = 0; i < units; i++)
        if (amax[i] > job->region->amax[i])
            job->region->amax[i] = amax[i];
    pthread_mutex_unlock(w->lock);
}

static fp8_status first_pass(fp8_worker *w, fp8_job *job, fp8_error *err)
{
    fp8_quant q;
    FP8_TRY(prepare(w, job, region_rows(job), &q, err));
    int64_t units = q.grid_rows * q.grid_cols;
    scratch s = split_scratch(w, units);
    fp8_tensor x = slab_values(job, 0, job->rows);
    memset(s.amax, 0, (size_t)units * sizeof *s.amax);
    fp8_status status = fp8_quant_amax(&w->serial, &q, &x, job->row - job->region_row, s.amax, err);
    if (status != FP8_OK)
        return place_error(job, job->region_row, status, err);
    merge_amax(w, job, s.amax, units);
    return FP8_OK;
}

static fp8_status second_pass(fp8_worker *w, fp8_job *job, fp8_error *err)
{
    const fp8_geometry *g = job->g;
    fp8_quant q;
    FP8_TRY(prepare(w, job, region_rows(job), &q, err));
    int64_t units = q.grid_rows * q.grid_cols, row0 = job->row - job->region_row;
    scratch s = split_scratch(w, units);
    char *out = row0 ? s.scales : job->memory + job->map.scales_out;
    fp8_tensor x = slab_values(job, 0, job->rows), codes = slab_codes(job, 0, job->rows);
    FP8_TRY(fp8_quant_scales(&w->serial, &q, job->region->amax, units, out, s.operand, err));
    FP8_TRY(fp8_quant_encode(&w->serial, &q, &x, row0, s.operand, &codes, err));
    fp8_tensor scales = fp8_matrix(out, g->scale_out, q.grid_rows, q.grid_cols);
    return measure(w, job, 0, job->rows, &scales, row0, units, err);
}

uint64_t fp8_job_scales_out(const fp8_job *job, uint64_t *offset)
{
    const fp8_geometry *g = job->g;
    int64_t unit = g->region_rows, units = g->to_cols;
    if (job->region && job->row != job->region_row)
        return 0;
    if (!job->region)
        units *= fp8_ceil_div(job->rows, unit);
    int64_t first = (job->expert * g->to_rows + job->row / unit) * g->to_cols;
    *offset = (uint64_t)(first * dtype_bytes(g->scale_out));
    return (uint64_t)(units * dtype_bytes(g->scale_out));
}

/* ---- every kind ---- */

static fp8_status cast_scales(fp8_worker *w, const fp8_job *job, fp8_error *err)
{
    const fp8_role_info *role = &w->conv->roles.tensors[job->item];
    return fp8_cast(&w->serial, job->memory + job->map.in, role->scale, job->memory + job->map.out,
                    (fp8_dtype)w->conv->items[job->item].scale, job->rows, 0, NULL, err);
}

static fp8_status work(fp8_worker *w, fp8_job *job, fp8_error *err)
{
    switch (job->kind) {
    case FP8_JOB_COPY:
        return FP8_OK; /* the writer's */
    case FP8_JOB_SCALES:
        return cast_scales(w, job, err);
    case FP8_JOB_DECODE:
        return decode(w, job, job->memory + job->map.out, job->g->out, err);
    case FP8_JOB_AMAX:
        FP8_TRY(decode_for_encode(w, job, err));
        return first_pass(w, job, err);
    case FP8_JOB_ENCODE:
        FP8_TRY(decode_for_encode(w, job, err));
        return job->region ? second_pass(w, job, err) : encode_tiles(w, job, err);
    case FP8_JOB_SCAN:
        FP8_TRY(decode_for_encode(w, job, err));
        return encode_tiles(w, job, err);
    }
    return FP8_OK;
}

void fp8_work(fp8_worker *w, fp8_job *job)
{
    job->status = work(w, job, &job->err);
}
