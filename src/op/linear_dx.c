/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_dx.c - dX[M,K] = dY[M,N] W[N,K], the gradient of a linear, by the kernels that compute the
 * linear itself: W^T has the columns of W for rows.
 *
 * A task is some rows of dY by a tile of at most 64 columns of W that share their scales, so that a
 * scale belongs to a row of W and can be multiplied into dY:
 *
 *     c[i,k] = sum over n of (dY[i,n] * scale[n]) * code[n,k]
 *
 * For 256 rows of W at a time the codes of the tile are turned into panels of W^T: the 16 bytes of
 * 4 rows x 4 columns in a block are those of 4 x 4 in another, transposed. fp32 throughout. */
#include "base/size.h"
#include "number/dtype.h"
#include "op/cast.h"
#include "op/crew.h"
#include "op/linear.h"
#include "op/tensor_check.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK = 256,                /* rows of W that are turned at once */
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
    const fp8_tensor *dy;
    fp8_tensor *dx;
    int64_t rows;  /* of dY in a task */
    int64_t tiles; /* of columns of W */
    uint8_t *benches;
    uint64_t bench_bytes;
    bool is_nan[256]; /* of W's codes */
} dx_job;

/* A worker's part of the workspace, 64-byte aligned. */
typedef struct bench {
    float *c;       /* [rows, 64] */
    float *dy;      /* [rows, STRIDE], scaled */
    uint8_t *codes; /* panels of W^T [64, CHUNK] */
    void *scratch;  /* the kernel's */
} bench;

/* Columns [first, end) of the packed weight, all under one column of scales; `col` is the first. */
typedef struct tile {
    int64_t first, end, col, scale_col;
} tile;

static uint64_t bench_bytes(const fp8_panel_kernel *kernel, int64_t rows)
{
    const uint64_t scratch = fp8_align((uint64_t)kernel->scratch_bytes);
    return (uint64_t)rows * (FP8_TILE_COLS + STRIDE) * sizeof(float) + CODE_BYTES + scratch;
}

static bench bench_of(const dx_job *job, int64_t worker)
{
    uint8_t *base = job->benches + (uint64_t)worker * job->bench_bytes;
    float *c = (float *)(void *)base;
    float *dy = c + job->rows * FP8_TILE_COLS;
    uint8_t *codes = (uint8_t *)(dy + job->rows * STRIDE);
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

/* dy[rows, STRIDE] = dY[row.., n..n + CHUNK) times the scales of those rows of W. */
static void scale_dy(const dx_job *job, const tile *t, int64_t row, int64_t rows, int64_t n,
                     float *dy)
{
    const fp8_linear *l = job->linear;
    const fp8_tensor *from = job->dy;
    const int64_t count = fp8_min_i64(CHUNK, l->plan.n - n);
    float scale[CHUNK];
    for (int64_t j = 0; j < count; j++) {
        const int64_t scale_row = fp8_linear_scale_row(&l->plan, n + j);
        scale[j] =
            job->load_scale(l->scales, fp8_linear_scale_index(&l->plan, scale_row, t->scale_col));
    }
    for (int64_t i = 0; i < rows; i++) {
        float *to = dy + i * STRIDE;
        const int64_t at = (row + i) * from->stride[0] + n * from->stride[1];
        if (from->stride[1] == 1)
            fp8_caster_run(&job->caster, to, (char *)from->data + at * job->caster.src_bytes, count,
                           false);
        for (int64_t j = 0; j < count && from->stride[1] != 1; j++)
            to[j] = job->load_dy(from->data, at + j * from->stride[1]);
        for (int64_t j = 0; j < count; j++)
            to[j] *= scale[j];
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

static void dx_task(void *arg, int64_t task, int64_t worker)
{
    const dx_job *job = arg;
    const bench b = bench_of(job, worker);
    const tile t = tile_at(job->linear, task % job->tiles);
    const int64_t row = task / job->tiles * job->rows;
    const int64_t rows = fp8_min_i64(job->rows, job->dx->shape[0] - row);
    const int64_t panels = fp8_ceil_div(t.end - t.first, FP8_PANEL_ROWS);
    memset(b.c, 0, (size_t)rows * FP8_TILE_COLS * sizeof *b.c);
    for (int64_t n = 0; n < job->linear->plan.n; n += CHUNK) {
        turn_codes(job, &t, n, b.codes);
        scale_dy(job, &t, row, rows, n, b.dy);
        job->kernel->fn(&(fp8_panel_run){.x = b.dy,
                                         .x_stride = STRIDE,
                                         .w = b.codes,
                                         .w_stride = fp8_panel_stride(CHUNK),
                                         .c = b.c,
                                         .m = rows,
                                         .k = CHUNK,
                                         .panels = panels,
                                         .accumulate = true,
                                         .code = job->linear->plan.code,
                                         .scratch = b.scratch});
    }
    if (job->linear->has_nan)
        mark_nan(job, &t, rows, b.c);
    const int64_t bytes = fp8_dtype_bits(job->dx->dtype) / 8;
    for (int64_t i = 0; i < rows; i++)
        job->finish(&(fp8_finish_run){
            .c = b.c + i * FP8_TILE_COLS,
            .x_scale = 1,
            .y = (char *)job->dx->data +
                 ((row + i) * job->dx->stride[0] + t.col * job->dx->stride[1]) * bytes,
            .n = t.end - t.first,
            .y_stride = job->dx->stride[1],
            .y_dtype = job->dx->dtype});
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

uint64_t fp8_linear_dx_bytes(const fp8_linear *l, int64_t m)
{
    const fp8_panel_kernel *kernel;
    uint64_t most = 0;
    for (size_t i = 0; (kernel = fp8_panel_kernel_at(i)); i++) {
        const uint64_t bytes = bench_bytes(kernel, rows_each(kernel, m));
        if (kernel->x == FP8_F32 && kernel->isa <= l->ctx->isa && bytes > most)
            most = bytes;
    }
    return FP8_ALIGN + (uint64_t)l->ctx->threads * most;
}

static fp8_status check_call(const fp8_linear *l, const fp8_tensor *dy, const fp8_tensor *dx,
                             void *workspace, uint64_t bytes, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    FP8_TRY(fp8_check_matrix(dy, "dy", -1, p->n, err));
    FP8_TRY(fp8_check_matrix(dx, "dx", dy->shape[0], p->k, err));
    FP8_FAIL_IF(!fp8_dtype_is_high(dy->dtype) || !fp8_dtype_is_high(dx->dtype), err, FP8_E_DTYPE,
                "linear: dy is %s and dx %s, must be F32, F16 or BF16", fp8_dtype_name(dy->dtype),
                fp8_dtype_name(dx->dtype));
    FP8_FAIL_IF(p->desc.weight_math == FP8_WEIGHT_ROUNDED, err, FP8_E_UNSUPPORTED,
                "linear: dx is defined for exact weights, not for rounded ones");
    FP8_TRY(fp8_check_distinct(dx, "dx", err));
    FP8_TRY(fp8_check_apart(dy, "dy", dx, "dx", err));
    return fp8_linear_check_workspace(l, dy, "dy", dx, "dx", workspace, bytes, err);
}

fp8_status fp8_linear_run_dx(const fp8_linear *linear, const fp8_tensor *dy, fp8_tensor *dx,
                             void *workspace, uint64_t workspace_bytes, void *stream,
                             fp8_error *err)
{
    FP8_FAIL_IF(!linear, err, FP8_E_ARGUMENT, "linear: linear is NULL");
    FP8_FAIL_IF(stream, err, FP8_E_ARGUMENT, "linear: stream must be NULL on the CPU");
    FP8_TRY(check_call(linear, dy, dx, workspace, workspace_bytes, err));
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
        .dy = dy,
        .dx = dx,
        .rows = rows_each(kernel, m),
        .tiles = count_tiles(linear),
        .benches = (uint8_t *)fp8_align((uintptr_t)workspace),
    };
    job.bench_bytes = bench_bytes(kernel, job.rows);
    for (uint32_t code = 0; code < 256; code++)
        job.is_nan[code] = fp8_dtype_is_nan(linear->plan.code, code);
    fp8_run_crew(linear->ctx, linear->ctx->threads, fp8_ceil_div(m, job.rows) * job.tiles, dx_task,
                 &job);
    return FP8_OK;
}
