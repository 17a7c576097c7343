/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_dx.c - dX[M,K] = dY[M,N] W[N,K], the gradient of a linear, by the kernels that compute the
 * linear itself: W^T has the columns of W for rows.
 *
 * A task is some rows of dY by a tile of at most 64 columns of W that share their scales, so that a
 * scale belongs to a row of W and can be multiplied into dY, once for all tiles if W's scales do
 * not vary along K:
 *
 *     c[i,k] = sum over n of (dY[i,n] * scale[n]) * code[n,k]
 *
 * Scales that each column of W has for itself (w_into_x) are multiplied into dX instead.
 *
 * For 256 rows of W at a time the codes of the tile are turned into panels of W^T: the 16 bytes of
 * 4 rows x 4 columns in a block are those of 4 x 4 in another, transposed. fp32 throughout.
 *
 * dY comes in slabs of rows. The workspace:  | a slab in fp32, padded | one bench a worker | */
#include "base/size.h"
#include "number/dtype.h"
#include "op/cast.h"
#include "op/crew.h"
#include "op/cuda_calls.h"
#include "op/linear.h"
#include "op/tensor_check.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 256,                /* rows of W that are turned at once */
    PREPARED_ROWS = 16,         /* of dY in a task that prepares */
    SLAB_TASKS = 4,             /* of rows in a slab: so many times those that the kernel takes */
    STRIDE = CHUNK + FP8_X_PAD, /* elements between rows of the scaled dY */
    LANE = 16,                  /* bytes of 4 rows x 4 columns */
    CODE_BYTES = FP8_TILE_COLS * CHUNK,
};

typedef struct dx_job {
    const fp8_linear *linear;
    const fp8_panel_kernel *kernel;
    fp8_kernel_finish *finish;
    fp8_caster caster; /* of dY to fp32 */
    fp8_load_fn load_dy, load_scale;
    fp8_tensor dy, dx; /* a slab of them */
    float *prepared;   /* [slab, stride]: dY */
    int64_t stride;
    int64_t rows;  /* of dY in a task */
    int64_t tiles; /* of columns of W */
    uint8_t *benches;
    uint64_t bench_bytes;
    bool is_nan[256]; /* of W's codes */
} dx_job;

/* A worker's part of the workspace, 64-byte aligned. */
typedef struct bench {
    float *c;       /* [rows, 64] */
    float *dy;      /* [rows, STRIDE], scaled for a tile, if that is to be */
    uint8_t *codes; /* panels of W^T [64, CHUNK] */
    void *scratch;  /* the kernel's */
} bench;

/* Columns [first, end) of the packed weight, all under one column of scales; `col` is the first. */
typedef struct tile {
    int64_t first, end, col, scale_col;
} tile;

/* Whether tiles differ in their scales. */
static bool scales_by_tile(const fp8_linear *l)
{
    return l->plan.w_along_k;
}

/* Elements between rows of the prepared dY. */
static int64_t prepared_stride(const fp8_linear *l)
{
    return fp8_ceil_div(l->plan.n, FP8_X_PAD) * FP8_X_PAD + FP8_X_PAD;
}

/* Floats of a row of a bench. */
static int64_t bench_row(const fp8_linear *l)
{
    return FP8_TILE_COLS + (scales_by_tile(l) ? STRIDE : 0);
}

static uint64_t bench_bytes(const fp8_linear *l, const fp8_panel_kernel *kernel, int64_t rows)
{
    const uint64_t scratch = fp8_align((uint64_t)kernel->scratch_bytes);
    return (uint64_t)(rows * bench_row(l)) * sizeof(float) + CODE_BYTES + scratch;
}

static bench bench_of(const dx_job *job, int64_t worker)
{
    uint8_t *base = job->benches + (uint64_t)worker * job->bench_bytes;
    float *c = (float *)(void *)base;
    float *dy = c + job->rows * FP8_TILE_COLS;
    uint8_t *codes = (uint8_t *)(c + job->rows * bench_row(job->linear));
    return (bench){c, dy, codes, codes + CODE_BYTES};
}

/* Columns that follow each other in W and in its packed form, under one column of scales. */
static const fp8_cuts *cuts_of(const fp8_linear *l)
{
    return l->plan.pad == 1 ? &l->w_cuts : &l->cuts;
}

/* Tiles of segment s. */
static int64_t tiles_of(const fp8_cuts *cuts, int64_t s)
{
    return fp8_ceil_div(cuts->at[s + 1] - cuts->at[s], FP8_TILE_COLS);
}

static int64_t count_tiles(const fp8_linear *l)
{
    const fp8_cuts *cuts = cuts_of(l);
    int64_t tiles = 0;
    for (int64_t s = 0; s < cuts->count; s++)
        tiles += tiles_of(cuts, s);
    return tiles;
}

static tile tile_at(const fp8_linear *l, int64_t index)
{
    const fp8_cuts *cuts = cuts_of(l);
    int64_t s = 0, tiles;
    while (index >= (tiles = tiles_of(cuts, s))) {
        index -= tiles;
        s++;
    }
    const int64_t skipped = index * FP8_TILE_COLS, first = cuts->place[s] + skipped;
    const int64_t count = fp8_min_i64(FP8_TILE_COLS, cuts->at[s + 1] - cuts->at[s] - skipped);
    return (tile){first, first + count, cuts->at[s] + skipped,
                  (cuts->at[s] + l->plan.desc.w_origin.cols) / l->plan.unit_cols};
}

/* 4 rows x 4 columns of a block into 4 x 4 of one of the transpose: bytes 1 and 2 of each 4, and
 * the second and third 4 bytes, change places. */
static void turn_lane(uint8_t *to, const uint8_t *from)
{
    static const int source[4] = {0, 2, 1, 3};
    uint32_t word[4];
    memcpy(word, from, LANE);
    for (int64_t i = 0; i < 4; i++) {
        const uint32_t w = word[source[i]];
        const uint32_t turned = (w & 0xFF0000FF) | (w >> 8 & 0xFF00) | (w & 0xFF00) << 8;
        memcpy(to + 4 * i, &turned, sizeof turned);
    }
}

/* The codes of rows [n, n + CHUNK) of W in the columns of a tile, as panels of W^T. */
static void turn_codes(const dx_job *job, const tile *t, int64_t n, uint8_t *to)
{
    const fp8_linear_plan *p = &job->linear->plan;
    const int64_t rows =
        fp8_min_i64(fp8_ceil_div(p->n, FP8_PANEL_ROWS) * FP8_PANEL_ROWS - n, CHUNK);
    memset(to, 0, CODE_BYTES);
    for (int64_t col = t->first; col < t->end; col += 4) {
        const int64_t k = col - t->first;
        for (int64_t row = 0; row < rows; row += 4)
            turn_lane(to + fp8_panel_offset(k, row, CHUNK),
                      job->linear->codes +
                          fp8_panel_offset(n + row, col, job->linear->cuts.columns));
    }
}

/* scale[count] = those of rows n.. of W in one column of scales. */
static void load_scales(const dx_job *job, int64_t scale_col, int64_t n, int64_t count,
                        float *scale)
{
    const fp8_linear *l = job->linear;
    for (int64_t j = 0; j < count;) {
        const int64_t row = fp8_linear_scale_row(&l->plan, n + j);
        const int64_t end = j + fp8_linear_rows_alike(&l->plan, n + j, row, count - j);
        const int64_t at = fp8_linear_scale_index(&l->plan, row, scale_col);
        const float value = job->load_scale(l->scales, at);
        while (j < end)
            scale[j++] = value;
    }
}

/* ---- dY, once a run ---- */

/* to[count] = dY[i, n..n + count) in fp32. */
static void load_dy(const dx_job *job, int64_t i, int64_t n, int64_t count, float *to)
{
    const fp8_tensor *dy = &job->dy;
    if (dy->stride[1] == 1)
        fp8_caster_run(&job->caster, to, fp8_element_at(dy, i, n), count, false);
    for (int64_t j = 0; j < count && dy->stride[1] != 1; j++)
        to[j] = job->load_dy(fp8_element_at(dy, i, n + j), 0);
}

/* Some rows of job->rows_dy, times the scales of W if there is one column of them. */
static void prepare_task(void *arg, int64_t task, int64_t worker)
{
    const dx_job *job = arg;
    const int64_t first = task * PREPARED_ROWS, n = job->linear->plan.n;
    const int64_t end = fp8_min_i64(first + PREPARED_ROWS, job->dy.shape[0]);
    const bool scaled = !scales_by_tile(job->linear) && !job->linear->plan.w_into_x;
    (void)worker;
    for (int64_t from = 0; from < n; from += CHUNK) {
        const int64_t count = fp8_min_i64(CHUNK, n - from);
        float scale[CHUNK] = {0};
        if (scaled)
            load_scales(job, 0, from, count, scale);
        for (int64_t i = first; i < end; i++) {
            float *to = job->prepared + i * job->stride + from;
            load_dy(job, i, from, count, to);
            for (int64_t j = 0; j < count && scaled; j++)
                to[j] *= scale[j];
        }
    }
    for (int64_t i = first; i < end; i++)
        memset(job->prepared + i * job->stride + n, 0, (size_t)(job->stride - n) * sizeof(float));
}

/* ---- a tile of dX ---- */

/* dy[rows, STRIDE] = columns n.. of the prepared rows, times the tile's scales. */
static void scale_dy(const dx_job *job, const tile *t, int64_t row, int64_t rows, int64_t n,
                     float *dy)
{
    const int64_t count = fp8_min_i64(CHUNK, job->linear->plan.n - n);
    float scale[CHUNK] = {0};
    load_scales(job, t->scale_col, n, count, scale);
    for (int64_t i = 0; i < rows; i++) {
        const float *from = job->prepared + (row + i) * job->stride + n;
        float *to = dy + i * STRIDE;
        for (int64_t j = 0; j < count; j++)
            to[j] = from[j] * scale[j];
        memset(to + count, 0, (size_t)(STRIDE - count) * sizeof *to);
    }
}

/* A NaN code makes NaN of its column of dX. */
static void mark_nan(const dx_job *job, const tile *t, int64_t rows, float *c)
{
    const fp8_linear *l = job->linear;
    for (int64_t col = t->first; col < t->end; col++) {
        bool found = false;
        for (int64_t n = 0; n < l->plan.n && !found; n++)
            found = job->is_nan[l->codes[fp8_panel_offset(n, col, l->cuts.columns)]];
        for (int64_t i = 0; i < rows && found; i++)
            c[i * FP8_TILE_COLS + col - t->first] = NAN;
    }
}

/* c[rows, 64] += dY[rows, n..) of a tile, CHUNK rows of W at most. */
static void multiply(const dx_job *job, const tile *t, int64_t row, int64_t rows, int64_t n,
                     const bench *b)
{
    const int64_t left = job->linear->plan.n - n;
    const bool scaled = scales_by_tile(job->linear);
    turn_codes(job, t, n, b->codes);
    if (scaled)
        scale_dy(job, t, row, rows, n, b->dy);
    job->kernel->fn(&(fp8_panel_run){
        .x = scaled ? b->dy : job->prepared + row * job->stride + n,
        .x_stride = scaled ? STRIDE : job->stride,
        .w = b->codes,
        .w_stride = fp8_panel_stride(CHUNK),
        .c = b->c,
        .m = rows,
        .k = fp8_min_i64(CHUNK, fp8_ceil_div(left, FP8_PANEL_COLS) * FP8_PANEL_COLS),
        .panels = fp8_ceil_div(t->end - t->first, FP8_PANEL_ROWS),
        .accumulate = n > 0,
        .code = job->linear->plan.code,
        .scratch = b->scratch});
}

/* scale[64] = those of the columns of a tile, where each has its own. */
static void load_column_scales(const dx_job *job, const tile *t, float scale[FP8_TILE_COLS])
{
    const fp8_linear_plan *p = &job->linear->plan;
    for (int64_t c = 0; c < t->end - t->first; c++) {
        const int64_t col = (t->col + c + p->desc.w_origin.cols) / p->unit_cols;
        scale[c] = job->load_scale(job->linear->scales, fp8_linear_scale_index(p, 0, col));
    }
}

static void dx_task(void *arg, int64_t task, int64_t worker)
{
    const dx_job *job = arg;
    const bench b = bench_of(job, worker);
    const tile t = tile_at(job->linear, task % job->tiles);
    const int64_t row = task / job->tiles * job->rows;
    const int64_t rows = fp8_min_i64(job->rows, job->dx.shape[0] - row);
    if (job->linear->plan.n == 0)
        memset(b.c, 0, (size_t)rows * FP8_TILE_COLS * sizeof *b.c);
    for (int64_t n = 0; n < job->linear->plan.n; n += CHUNK)
        multiply(job, &t, row, rows, n, &b);
    _Alignas(FP8_ALIGN) float scale[FP8_TILE_COLS];
    const bool by_column = job->linear->plan.w_into_x;
    if (by_column)
        load_column_scales(job, &t, scale);
    if (job->linear->has_nan)
        mark_nan(job, &t, rows, b.c);
    for (int64_t i = 0; i < rows; i++)
        job->finish(&(fp8_finish_run){.c = b.c + i * FP8_TILE_COLS,
                                      .x_scale = 1,
                                      .w_scale = by_column ? scale : NULL,
                                      .y = fp8_element_at(&job->dx, row + i, t.col),
                                      .n = t.end - t.first,
                                      .y_stride = job->dx.stride[1],
                                      .y_dtype = job->dx.dtype});
}

static const fp8_panel_kernel *kernel_for(const fp8_linear *l, int64_t m)
{
    const fp8_panel_problem problem = {.isa = l->ctx->isa,
                                       .m = m,
                                       .w_multiple = CHUNK,
                                       .both_multiple = CHUNK,
                                       .any_m = l->ctx->flags & FP8_BATCH_INVARIANT};
    return fp8_panel_pick(&problem);
}

static int64_t rows_each(const fp8_panel_kernel *kernel, int64_t m)
{
    return fp8_min_i64(kernel->rows, m > 0 ? m : 1);
}

static int64_t slab_rows(const fp8_panel_kernel *kernel, int64_t m)
{
    return fp8_min_i64(kernel->rows * SLAB_TASKS, m > 0 ? m : 1);
}

static uint64_t prepared_bytes(const fp8_linear *l, const fp8_panel_kernel *kernel, int64_t m)
{
    return (uint64_t)(slab_rows(kernel, m) * prepared_stride(l)) * sizeof(float);
}

uint64_t fp8_linear_dx_bytes(const fp8_linear *l, int64_t m)
{
    const fp8_panel_kernel *kernel;
    uint64_t most = 0;
    for (size_t i = 0; (kernel = fp8_panel_kernel_at(i)); i++) {
        const uint64_t benches =
            (uint64_t)l->ctx->threads * bench_bytes(l, kernel, rows_each(kernel, m));
        const uint64_t bytes = prepared_bytes(l, kernel, m) + benches;
        if (kernel->x == FP8_F32 && kernel->isa <= l->ctx->isa && bytes > most)
            most = bytes;
    }
    return FP8_ALIGN + most;
}

static fp8_status check_call(const fp8_linear *l, const fp8_tensor *dy, const fp8_tensor *dx,
                             void *workspace, uint64_t bytes, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    const fp8_extent none = fp8_extent_of(NULL, "scales");
    fp8_extent in, out;
    FP8_TRY(fp8_check_extent(dy, "dy", -1, p->n, &in, err));
    FP8_TRY(fp8_check_extent(dx, "dx", dy->shape[0], p->k, &out, err));
    FP8_FAIL_IF(!fp8_dtype_is_high(dy->dtype) || !fp8_dtype_is_high(dx->dtype), err, FP8_E_DTYPE,
                "linear: dy is %s and dx %s, must be F32, F16 or BF16", fp8_dtype_name(dy->dtype),
                fp8_dtype_name(dx->dtype));
    FP8_FAIL_IF(p->desc.weight_math == FP8_WEIGHT_ROUNDED, err, FP8_E_UNSUPPORTED,
                "linear: dx is defined for exact weights, not for rounded ones");
    FP8_TRY(fp8_check_distinct(dx, "dx", err));
    return fp8_linear_check_memory(l, dy->shape[0], &in, &none, &out, workspace, bytes, err);
}

/* Rows [first, first + count) of a matrix. */
static fp8_tensor rows_of(const fp8_tensor *t, int64_t first, int64_t count)
{
    fp8_tensor rows = *t;
    rows.data = fp8_element_at(t, first, 0);
    rows.shape[0] = count;
    return rows;
}

static void run_slab(dx_job *job)
{
    const fp8_context *ctx = job->linear->ctx;
    const int64_t m = job->dy.shape[0];
    fp8_run_crew(ctx, ctx->threads, fp8_ceil_div(m, PREPARED_ROWS), prepare_task, job);
    fp8_run_crew(ctx, ctx->threads, fp8_ceil_div(m, job->rows) * job->tiles, dx_task, job);
}

fp8_status fp8_linear_run_dx(const fp8_linear *linear, const fp8_tensor *dy, fp8_tensor *dx,
                             void *workspace, uint64_t workspace_bytes, void *stream,
                             fp8_error *err)
{
    FP8_FAIL_IF(!linear, err, FP8_E_ARGUMENT, "linear: linear is NULL");
    if (!linear->cuda)
        FP8_TRY(fp8_need_no_stream(stream, "linear", err));
    FP8_TRY(check_call(linear, dy, dx, workspace, workspace_bytes, err));
    if (linear->cuda)
        return fp8_cuda_linear_run_dx(linear, dy, dx, stream, err);
    const int64_t m = dy->shape[0];
    const fp8_isa isa = dx->stride[1] == 1 ? linear->ctx->isa : FP8_ISA_SCALAR;
    const fp8_panel_kernel *kernel = kernel_for(linear, m);
    dx_job job = {
        .linear = linear,
        .kernel = kernel,
        .finish = fp8_kernel_pick(isa, FP8_OP_FINISH, FP8_F32, dx->dtype)->fn.finish,
        .caster = fp8_caster_of(linear->ctx->isa, dy->dtype, FP8_F32, false),
        .load_dy = fp8_dtype_facts_of(dy->dtype)->load,
        .load_scale = fp8_dtype_facts_of(linear->plan.scale)->load,
        .rows = rows_each(kernel, m),
        .tiles = count_tiles(linear),
        .prepared = (float *)fp8_align((uintptr_t)workspace),
        .stride = prepared_stride(linear),
    };
    job.benches = (uint8_t *)job.prepared + prepared_bytes(linear, kernel, m);
    job.bench_bytes = bench_bytes(linear, kernel, job.rows);
    for (uint32_t code = 0; code < 256; code++)
        job.is_nan[code] = fp8_dtype_is_nan(linear->plan.code, code);
    const int64_t slab = slab_rows(kernel, m);
    for (int64_t row = 0; row < m; row += slab) {
        job.dy = rows_of(dy, row, fp8_min_i64(slab, m - row));
        job.dx = rows_of(dx, row, fp8_min_i64(slab, m - row));
        run_slab(&job);
    }
    return FP8_OK;
}
