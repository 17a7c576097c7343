/* SPDX-License-Identifier: Apache-2.0
 *
 * diff.c - fp8_diff: two checkpoints compared tensor by tensor. A quantized weight counts as its
 * real values, so its scales are no tensors of their own here; other tensors count element by
 * element, and byte by byte where their dtype has no value in fp32.
 *
 *     sqnr = 10 log10( sum a^2 / sum (a - b)^2 )   in dB */
#include "convert/values.h"

#include <math.h>
#include <string.h>

/* An open side. */
struct side {
    fp8_checkpoint *ckpt;
    fp8_roles roles;
};

/* What one slab, or a whole tensor, adds up to. Sums are added in slab order, so that they do not
 * depend on the number of threads. */
struct difference {
    int64_t differing;
    double worst;         /* max |a - b| */
    double signal, noise; /* sum a^2, sum (a - b)^2 */
};

struct pair {
    fp8_slab_pool *pool;
    fp8_values a, b;
    fp8_slabs slabs;
    struct difference *parts;                        /* [slabs.count] */
    uint64_t raw_a, raw_b, scales_a, scales_b, real; /* bytes of a worker's pieces */
};

static fp8_status open_side(const fp8_context *ctx, const char *path, struct side *side,
                            fp8_error *err)
{
    FP8_TRY(fp8_checkpoint_open(ctx, path, &side->ckpt, err));
    return fp8_roles_assign(ctx, side->ckpt, &side->roles, err);
}

static void close_side(const fp8_context *ctx, struct side *side)
{
    fp8_roles_free(ctx, &side->roles);
    fp8_checkpoint_close(side->ckpt);
}

/* The scales of a weight that is compared by its values are part of it. */
static bool counts(const struct side *side, int64_t i)
{
    const fp8_role_info *role = &side->roles.tensors[i];
    if (role->role != FP8_ROLE_SCALE)
        return true;
    const fp8_problem *problem = side->roles.tensors[role->partner].problem;
    return problem && problem->unreadable;
}

/* d = a[n] against b[n]. */
static void compare_values(const float *a, const float *b, int64_t n, struct difference *d)
{
    for (int64_t i = 0; i < n; i++) {
        double x = (double)a[i], gap = fabs(x - (double)b[i]);
        bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
        d->signal += isfinite(x) ? x * x : 0;
        if (same)
            continue;
        d->differing++;
        gap = isnan(gap) ? INFINITY : gap;
        d->worst = fmax(d->worst, gap);
        d->noise += gap * gap;
    }
}

/* d = bytes a[n] against b[n] of elements of `bits` bits; an element under 8 bits counts as its
 * byte. */
static void compare_bytes(const char *a, const char *b, uint64_t bytes, int bits,
                          struct difference *d)
{
    uint64_t size = bits >= 8 ? (uint64_t)bits / 8 : 1;
    if (!memcmp(a, b, bytes))
        return;
    for (uint64_t at = 0; at < bytes; at += size)
        d->differing += memcmp(a + at, b + at, size) != 0;
    d->worst = d->noise = NAN;
}

/* One side of a slab in fp32. */
static fp8_status read_real(struct pair *p, const fp8_values *v, const fp8_slab *slab, char *raw,
                            char *room, float *real, fp8_error *err)
{
    fp8_tensor scales;
    int64_t row0 = 0;
    bool quantized = fp8_values_quantized(v);
    FP8_TRY(fp8_values_raw(v, slab, raw, err));
    if (quantized)
        FP8_TRY(fp8_values_scales(v, slab, room, &scales, &row0, err));
    return fp8_values_real(&p->pool->serial, v, slab, raw, quantized ? &scales : NULL, row0, real,
                           err);
}

static fp8_status compare_slab(void *arg, int64_t i, char *memory, fp8_error *err)
{
    struct pair *p = arg;
    fp8_slab slab = fp8_slab_at(&p->slabs, i);
    float *real_a = (float *)(void *)memory, *real_b = (float *)(void *)(memory + p->real);
    char *raw_a = memory + 2 * p->real, *raw_b = raw_a + p->raw_a;
    char *scales_a = raw_b + p->raw_b, *scales_b = scales_a + p->scales_a;
    if (p->real) {
        FP8_TRY(read_real(p, &p->a, &slab, raw_a, scales_a, real_a, err));
        FP8_TRY(read_real(p, &p->b, &slab, raw_b, scales_b, real_b, err));
        compare_values(real_a, real_b, slab.elements, &p->parts[i]);
        return FP8_OK;
    }
    FP8_TRY(fp8_values_raw(&p->a, &slab, raw_a, err));
    FP8_TRY(fp8_values_raw(&p->b, &slab, raw_b, err));
    int bits = fp8_dtype_bits(p->a.info.dtype);
    uint64_t bytes = ((uint64_t)slab.elements * (uint64_t)bits + 7) / 8;
    compare_bytes(raw_a, raw_b, bytes, bits, &p->parts[i]);
    return FP8_OK;
}

static uint64_t raw_bytes(const fp8_values *v, int64_t elements)
{
    return fp8_piece_bytes(((uint64_t)elements * (uint64_t)fp8_dtype_bits(v->info.dtype) + 7) / 8);
}

/* Compares two tensors of one shape; *sum must be zero. Different dtypes without fp32 values are
 * not compared: every element differs. */
static fp8_status compare_tensors(const fp8_context *ctx, struct pair *p, struct difference *sum,
                                  fp8_error *err)
{
    bool numeric = fp8_values_numeric(&p->a) && fp8_values_numeric(&p->b);
    if (!numeric && p->a.info.dtype != p->b.info.dtype) {
        *sum = (struct difference){fp8_values_count(&p->a), NAN, NAN, NAN};
        return FP8_OK;
    }
    p->slabs = fp8_slabs_of(&p->a, fp8_values_quantized(&p->a) || fp8_values_quantized(&p->b));
    int64_t extent = fp8_slabs_extent(&p->slabs);
    p->real = numeric ? fp8_piece_bytes((uint64_t)extent * sizeof(float)) : 0;
    p->raw_a = raw_bytes(&p->a, extent);
    p->raw_b = raw_bytes(&p->b, extent);
    p->scales_a = fp8_piece_bytes(fp8_values_scale_bytes(&p->a, &p->slabs));
    p->scales_b = fp8_piece_bytes(fp8_values_scale_bytes(&p->b, &p->slabs));
    uint64_t bytes = 2 * p->real + p->raw_a + p->raw_b + p->scales_a + p->scales_b;
    p->parts = fp8_alloc_zeroed(ctx, (uint64_t)p->slabs.count, sizeof *p->parts);
    FP8_FAIL_IF(!p->parts, err, FP8_E_NO_MEMORY, "diff: no memory");
    fp8_status status = fp8_slab_run(p->pool, p->slabs.count, bytes, compare_slab, p, err);
    for (int64_t i = 0; i < p->slabs.count; i++) {
        sum->differing += p->parts[i].differing;
        sum->worst = isnan(p->parts[i].worst) ? NAN : fmax(sum->worst, p->parts[i].worst);
        sum->signal += p->parts[i].signal;
        sum->noise += p->parts[i].noise;
    }
    fp8_release(ctx, p->parts);
    return status;
}

/* A static activation scale is one number, which some dialects store as [] and others as [1]. */
static bool both_input_scales(const struct side *a, int64_t ia, const struct side *b, int64_t ib)
{
    return a->roles.tensors[ia].role == FP8_ROLE_INPUT_SCALE &&
           b->roles.tensors[ib].role == FP8_ROLE_INPUT_SCALE;
}

/* The row of tensor ia of a and ib of b. */
static fp8_status compare_pair(const fp8_context *ctx, fp8_slab_pool *pool, const struct side *a,
                               int64_t ia, const struct side *b, int64_t ib, fp8_diff_row *row,
                               fp8_error *err)
{
    struct pair p = {.pool = pool};
    struct difference sum = {0, 0, 0, 0};
    fp8_values_of(a->ckpt, &a->roles, ia, &p.a);
    fp8_values_of(b->ckpt, &b->roles, ib, &p.b);
    *row =
        (fp8_diff_row){p.a.info.name, FP8_DIFF_SHAPE, p.a.info.dtype, p.b.info.dtype, 0, NAN, NAN};
    bool one_number = both_input_scales(a, ia, b, ib) && fp8_values_count(&p.a) == 1 &&
                      fp8_values_count(&p.b) == 1;
    if (!one_number && !fp8_same_shape(&p.a.info, &p.b.info))
        return FP8_OK;
    FP8_TRY(compare_tensors(ctx, &p, &sum, err));
    row->differing = sum.differing;
    row->max_abs_error = sum.worst;
    row->sqnr_db = sum.differing ? fp8_sqnr_db(sum.signal, sum.noise) : (double)INFINITY;
    if (p.a.info.dtype != p.b.info.dtype)
        row->kind = FP8_DIFF_DTYPE;
    else
        row->kind = sum.differing ? FP8_DIFF_VALUES : FP8_DIFF_SAME;
    return FP8_OK;
}

/* The row of a tensor that only one side has. */
static void report_only(const fp8_tensor_info *info, fp8_diff_kind kind, fp8_diff_fn fn, void *user)
{
    fp8_diff_row row = {info->name, kind, FP8_DTYPE_NONE, FP8_DTYPE_NONE, 0, NAN, NAN};
    if (kind == FP8_DIFF_ONLY_A)
        row.dtype_a = info->dtype;
    else
        row.dtype_b = info->dtype;
    fn(user, &row);
}

/* Index in `side` of the tensor that counts and is called as info says; -1 if there is none. */
static int64_t counterpart(const struct side *side, const fp8_tensor_info *info)
{
    int64_t i = fp8_checkpoint_index(side->ckpt, info->name, info->name_bytes);
    return i >= 0 && counts(side, i) ? i : -1;
}

static fp8_status report_rows(const fp8_context *ctx, const struct side *a, const struct side *b,
                              fp8_slab_pool *pool, fp8_diff_fn fn, void *user, fp8_error *err)
{
    fp8_tensor_info info;
    for (int64_t i = 0; i < fp8_checkpoint_count(a->ckpt); i++) {
        (void)fp8_checkpoint_tensor(a->ckpt, i, &info);
        int64_t j = counterpart(b, &info);
        fp8_diff_row row;
        if (!counts(a, i))
            continue;
        if (j < 0) {
            report_only(&info, FP8_DIFF_ONLY_A, fn, user);
            continue;
        }
        FP8_TRY(compare_pair(ctx, pool, a, i, b, j, &row, err));
        fn(user, &row);
    }
    for (int64_t j = 0; j < fp8_checkpoint_count(b->ckpt); j++) {
        (void)fp8_checkpoint_tensor(b->ckpt, j, &info);
        if (counts(b, j) && counterpart(a, &info) < 0)
            report_only(&info, FP8_DIFF_ONLY_B, fn, user);
    }
    return FP8_OK;
}

fp8_status fp8_diff(const fp8_context *ctx, const char *a, const char *b, fp8_diff_fn fn,
                    void *user, fp8_error *err)
{
    FP8_TRY(fp8_need_cpu(ctx, "diff", err));
    FP8_FAIL_IF(!a || !b || !fn, err, FP8_E_ARGUMENT, "diff: %s is NULL",
                !a   ? "a"
                : !b ? "b"
                     : "fn");
    struct side sides[2] = {{0}, {0}};
    fp8_slab_pool pool;
    fp8_slab_pool_init(ctx, &pool);
    fp8_status status = open_side(ctx, a, &sides[0], err);
    if (status == FP8_OK)
        status = open_side(ctx, b, &sides[1], err);
    if (status == FP8_OK)
        status = report_rows(ctx, &sides[0], &sides[1], &pool, fn, user, err);
    fp8_slab_pool_free(&pool);
    close_side(ctx, &sides[1]);
    close_side(ctx, &sides[0]);
    return status;
}
