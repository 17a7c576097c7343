/* SPDX-License-Identifier: Apache-2.0
 *
 * values.c - reading slabs, applying scales, spreading slabs over threads. The scales of a matrix
 * stand in the file in the order of their grid [gr, gc] whatever shape the dialect gives them, so
 * those of some rows are one range of bytes. */
#include "convert/values.h"
#include "base/size.h"
#include "op/quantize.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

void fp8_values_of(const fp8_checkpoint *ckpt, const fp8_roles *roles, int64_t i, fp8_values *out)
{
    memset(out, 0, sizeof *out);
    out->ckpt = ckpt;
    out->role = &roles->tensors[i];
    (void)fp8_checkpoint_tensor(ckpt, i, &out->info);
    if (fp8_values_quantized(out))
        (void)fp8_checkpoint_tensor(ckpt, out->role->partner, &out->scale);
}

bool fp8_values_quantized(const fp8_values *v)
{
    return v->role->role == FP8_ROLE_WEIGHT && v->role->partner >= 0 &&
           !(v->role->problem && v->role->problem->unreadable);
}

bool fp8_values_numeric(const fp8_values *v)
{
    return v->info.dtype >= FP8_F32 && v->info.dtype <= FP8_E8M0FNU;
}

int64_t fp8_values_count(const fp8_values *v)
{
    int64_t n = 1;
    for (int32_t d = 0; d < v->info.ndim; d++)
        n *= v->info.shape[d];
    return n;
}

double fp8_sqnr_db(double signal, double noise)
{
    return noise > 0 || isnan(noise) ? 10 * log10(signal / noise) : (double)INFINITY;
}

bool fp8_same_shape(const fp8_tensor_info *a, const fp8_tensor_info *b)
{
    return a->ndim == b->ndim &&
           (a->ndim == 0 || !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape));
}

fp8_slabs fp8_slabs_of(const fp8_values *v, bool by_rows)
{
    fp8_slabs s = {fp8_values_count(v), 1, 0, 0, 0};
    fp8_matrices m = {1, s.rows, 1};
    if (by_rows && s.rows > 0 && fp8_weight_matrices(v->info.ndim, v->info.shape, &m)) {
        s.rows = m.rows;
        s.cols = m.cols;
    }
    int64_t fit = FP8_SLAB_ELEMENTS / s.cols;
    s.slab_rows = fp8_min_i64(fit > 0 ? fit : 1, s.rows > 0 ? s.rows : 1);
    s.per_matrix = fp8_ceil_div(s.rows, s.slab_rows);
    s.count = m.experts * s.per_matrix;
    return s;
}

fp8_slab fp8_slab_at(const fp8_slabs *slabs, int64_t i)
{
    fp8_slab s;
    s.matrix = i / slabs->per_matrix;
    s.row = i % slabs->per_matrix * slabs->slab_rows;
    s.rows = fp8_min_i64(slabs->slab_rows, slabs->rows - s.row);
    s.first = (s.matrix * slabs->rows + s.row) * slabs->cols;
    s.elements = s.rows * slabs->cols;
    return s;
}

int64_t fp8_slabs_extent(const fp8_slabs *slabs)
{
    return slabs->slab_rows * slabs->cols;
}

fp8_status fp8_values_raw(const fp8_values *v, const fp8_slab *slab, void *dst, fp8_error *err)
{
    uint64_t bits = (uint64_t)fp8_dtype_bits(v->info.dtype);
    uint64_t begin = (uint64_t)slab->first * bits / 8;
    uint64_t end = ((uint64_t)(slab->first + slab->elements) * bits + 7) / 8;
    return fp8_checkpoint_read(v->ckpt, &v->info, begin, end - begin, dst, err);
}

/* The scale grid of one matrix: extents of a unit, units a matrix. */
struct units {
    int64_t rows, cols; /* extent */
    int64_t down, across;
};

static struct units units_of(const fp8_values *v)
{
    fp8_matrices m = {1, 1, 1};
    (void)fp8_weight_matrices(v->info.ndim, v->info.shape, &m);
    struct units u = {fp8_grid_extent(v->role->grid.rows, m.rows),
                      fp8_grid_extent(v->role->grid.cols, m.cols), 0, 0};
    u.down = fp8_ceil_div(m.rows, u.rows);
    u.across = fp8_ceil_div(m.cols, u.cols);
    return u;
}

fp8_status fp8_values_scales(const fp8_values *v, const fp8_slab *slab, void *room,
                             fp8_tensor *scales, int64_t *row0, fp8_error *err)
{
    struct units u = units_of(v);
    int64_t unit = slab->row / u.rows;
    int64_t units = fp8_ceil_div(slab->row + slab->rows, u.rows) - unit;
    uint64_t size = (uint64_t)fp8_dtype_bits(v->role->scale) / 8;
    uint64_t begin = (uint64_t)((slab->matrix * u.down + unit) * u.across) * size;
    uint64_t bytes = (uint64_t)(units * u.across) * size;
    *scales = fp8_matrix(room, v->role->scale, units, u.across);
    *row0 = slab->row - unit * u.rows;
    return fp8_checkpoint_read(v->ckpt, &v->scale, begin, bytes, room, err);
}

uint64_t fp8_values_scale_bytes(const fp8_values *v, const fp8_slabs *slabs)
{
    if (!fp8_values_quantized(v))
        return 0;
    struct units u = units_of(v);
    /* A slab of n rows touches at most ceil(n / extent) + 1 rows of units. */
    int64_t units = fp8_min_i64(fp8_ceil_div(slabs->slab_rows, u.rows) + 1, u.down);
    return (uint64_t)(units * u.across) * (uint64_t)fp8_dtype_bits(v->role->scale) / 8;
}

/* real[rows, cols] = codes[rows, cols] * scales, or the plain elements in fp32. */
fp8_status fp8_values_real(const fp8_context *ctx, const fp8_values *v, const fp8_slab *slab,
                           void *raw, const fp8_tensor *scales, int64_t row0, float *real,
                           fp8_error *err)
{
    if (!scales)
        return fp8_cast(ctx, raw, v->info.dtype, real, FP8_F32, slab->elements, 0, NULL, err);
    int64_t cols = slab->elements / slab->rows;
    fp8_tensor codes = fp8_matrix(raw, v->info.dtype, slab->rows, cols);
    fp8_tensor y = fp8_matrix(real, FP8_F32, slab->rows, cols);
    return fp8_dequant_rows(ctx, v->role->grid, &codes, scales, row0, &y, err);
}

uint64_t fp8_piece_bytes(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void run_in_place(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    (void)user;
    for (int64_t i = 0; i < n; i++)
        body(arg, i);
}

void fp8_slab_pool_init(const fp8_context *ctx, fp8_slab_pool *pool)
{
    memset(pool, 0, sizeof *pool);
    pool->ctx = ctx;
    pool->serial = *ctx;
    pool->serial.threads = 1;
    pool->serial.parallel_for = run_in_place;
    pool->workers = ctx->threads;
}

void fp8_slab_pool_free(fp8_slab_pool *pool)
{
    if (pool->ctx)
        fp8_release(pool->ctx, pool->memory);
    pool->memory = NULL;
}

/* One run over the slabs of a tensor, shared by its workers. */
struct run {
    fp8_slab_pool *pool;
    fp8_slab_fn fn;
    void *arg;
    int64_t n;
    atomic_int_fast64_t next; /* slab to begin */
    atomic_flag lock;         /* of the three below */
    int64_t failed;           /* lowest slab that failed, n if none */
    fp8_status status;
    fp8_error err;
};

static void note_failure(struct run *run, int64_t i, fp8_status status, const fp8_error *err)
{
    atomic_store(&run->next, run->n);
    while (atomic_flag_test_and_set(&run->lock)) {
    }
    if (i < run->failed) {
        run->failed = i;
        run->status = status;
        run->err = *err;
    }
    atomic_flag_clear(&run->lock);
}

static void work(void *arg, int64_t worker)
{
    struct run *run = arg;
    char *memory = run->pool->memory + (uint64_t)worker * run->pool->bytes;
    for (;;) {
        int64_t i = atomic_fetch_add(&run->next, 1);
        if (i >= run->n)
            return;
        fp8_error err = {FP8_OK, 0, -1, ""};
        fp8_status status = run->fn(run->arg, i, memory, &err);
        if (status != FP8_OK) {
            note_failure(run, i, status, &err);
            return;
        }
    }
}

static fp8_status grow(fp8_slab_pool *pool, uint64_t bytes, fp8_error *err)
{
    bytes = fp8_piece_bytes(bytes);
    if (pool->memory && bytes <= pool->bytes)
        return FP8_OK;
    fp8_release(pool->ctx, pool->memory);
    pool->bytes = bytes;
    pool->memory = fp8_alloc_zeroed(pool->ctx, (uint64_t)pool->workers, bytes);
    FP8_FAIL_IF(!pool->memory, err, FP8_E_NO_MEMORY, "no memory for %d slabs of %llu bytes",
                pool->workers, (unsigned long long)bytes);
    return FP8_OK;
}

fp8_status fp8_slab_run(fp8_slab_pool *pool, int64_t n, uint64_t bytes, fp8_slab_fn fn, void *arg,
                        fp8_error *err)
{
    FP8_TRY(grow(pool, bytes, err));
    struct run run = {pool, fn, arg, n, 0, ATOMIC_FLAG_INIT, n, FP8_OK, {FP8_OK, 0, -1, ""}};
    fp8_run_parallel(pool->ctx, fp8_min_i64(pool->workers, n), work, &run);
    if (run.status != FP8_OK && err)
        *err = run.err;
    return run.status;
}
