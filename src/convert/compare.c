/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.c - the pass over a weight. The common case, every code as one correctly rounded division
 * gives it, is settled by quantizing the source again with the scales in the file and comparing
 * bytes; only codes that differ are looked at one by one. */
#include "convert/compare.h"
#include "base/size.h"
#include "op/quantize.h"

#include <math.h>
#include <string.h>

/* Slack of the quotient: two fp32 roundings of the scale's reciprocal and one of the product. */
#define QUOTIENT_SLACK (1.0 / (1 << 21))

/* What codes of a format look like: not finite if ((code ^ flip) & mask) >= low. */
struct code_facts {
    fp8_dtype dtype;
    uint8_t flip, mask, low, largest, magnitude;
};

static const struct code_facts code_table[] = {
    {FP8_E4M3FN, 0x00, 0x7f, 0x7f, 0x7e, 0x7f},
    {FP8_E4M3FNUZ, 0x7f, 0xff, 0xff, 0x7f, 0x7f},
    {FP8_E5M2, 0x00, 0x7f, 0x7c, 0x7b, 0x7f},
    {FP8_E5M2FNUZ, 0x7f, 0xff, 0xff, 0x7f, 0x7f},
};

struct job {
    fp8_slab_pool *pool;
    const fp8_values *w, *source;
    const struct code_facts *format;
    fp8_slabs slabs;
    fp8_weight_facts *parts;              /* [slabs.count] */
    float value[256];                     /* of each code */
    int64_t unit_rows, unit_cols, across; /* of the weight's scale grid */
    /* Sizes in bytes of a worker's pieces. */
    uint64_t codes, reals, raw, scales, source_scales, operands;
};

/* A worker's pieces for one slab. */
struct desk {
    fp8_slab slab;
    int64_t cols, row0;
    uint8_t *codes, *once, *twice; /* in the file; of one rounding, of two */
    float *x, *y, *quotient;       /* source, code * scale, source / scale */
    void *raw, *narrow;            /* source as in the file, quotient in the source's dtype */
    void *scale_bytes, *source_scale_bytes;
    float *scale; /* of the units that the slab touches */
    float *operand;
    fp8_tensor scales; /* view of scale_bytes */
};

static uint64_t lay_out(struct job *job)
{
    uint64_t n = (uint64_t)fp8_slabs_extent(&job->slabs);
    job->codes = fp8_piece_bytes(n);
    job->scales = fp8_piece_bytes(fp8_values_scale_bytes(job->w, &job->slabs));
    if (!job->source)
        return job->codes;
    uint64_t size = (uint64_t)fp8_dtype_bits(job->w->role->scale) / 8;
    job->reals = fp8_piece_bytes(n * sizeof(float));
    job->raw = fp8_piece_bytes(n * (uint64_t)fp8_dtype_bits(job->source->info.dtype) / 8);
    job->source_scales = fp8_piece_bytes(fp8_values_scale_bytes(job->source, &job->slabs));
    job->operands = fp8_piece_bytes(job->scales / size * sizeof(float));
    return 3 * job->codes + 3 * job->reals + 2 * job->raw + job->scales + job->source_scales +
           2 * job->operands;
}

/* The next `bytes` of a worker's memory. */
static void *take(char **memory, uint64_t bytes)
{
    void *piece = *memory;
    *memory += bytes;
    return piece;
}

static struct desk desk_of(const struct job *job, int64_t i, char *memory)
{
    struct desk d = {.slab = fp8_slab_at(&job->slabs, i), .cols = job->slabs.cols};
    d.codes = take(&memory, job->codes);
    if (!job->source)
        return d;
    d.once = take(&memory, job->codes);
    d.twice = take(&memory, job->codes);
    d.x = take(&memory, job->reals);
    d.y = take(&memory, job->reals);
    d.quotient = take(&memory, job->reals);
    d.raw = take(&memory, job->raw);
    d.narrow = take(&memory, job->raw);
    d.scale_bytes = take(&memory, job->scales);
    d.source_scale_bytes = take(&memory, job->source_scales);
    d.scale = take(&memory, job->operands);
    d.operand = take(&memory, job->operands);
    return d;
}

static bool is_bad(const struct code_facts *f, uint8_t code)
{
    return (uint8_t)((code ^ f->flip) & f->mask) >= f->low;
}

/* Counts of up to 255 codes, in bytes, which vectors hold most of. */
static void count_few(const struct code_facts *f, const uint8_t *codes, int n,
                      fp8_weight_facts *out)
{
    uint8_t zero = 0, largest = 0, bad = 0;
    for (int i = 0; i < n; i++) {
        uint8_t magnitude = codes[i] & f->magnitude;
        zero = (uint8_t)(zero + (magnitude == 0));
        largest = (uint8_t)(largest + (magnitude == f->largest));
        bad = (uint8_t)(bad + is_bad(f, codes[i]));
    }
    out->nonzero += n - zero;
    out->saturated += largest;
    out->not_finite += bad;
}

static void count_codes(const struct code_facts *f, const uint8_t *codes, int64_t n, int64_t first,
                        fp8_weight_facts *out)
{
    enum { FEW = 240 };
    out->elements = n;
    for (int64_t i = 0; i < n; i += FEW)
        count_few(f, codes + i, (int)fp8_min_i64(FEW, n - i), out);
    for (int64_t i = 0; out->not_finite && i < n; i++)
        if (is_bad(f, codes[i])) {
            out->first_not_finite = first + i;
            break;
        }
}

/* x[n] = the source of a slab in fp32. */
static fp8_status read_source(const struct job *job, struct desk *d, fp8_error *err)
{
    fp8_tensor scales;
    int64_t row0 = 0;
    bool quantized = fp8_values_quantized(job->source);
    FP8_TRY(fp8_values_raw(job->source, &d->slab, d->raw, err));
    if (quantized)
        FP8_TRY(
            fp8_values_scales(job->source, &d->slab, d->source_scale_bytes, &scales, &row0, err));
    return fp8_values_real(&job->pool->serial, job->source, &d->slab, d->raw,
                           quantized ? &scales : NULL, row0, d->x, err);
}

/* once[rows, cols] = codes of the source with the scales in the file, one division and one
 * rounding. *usable = false if a scale is not finite and positive. */
static fp8_status encode_again(const struct job *job, struct desk *d, bool *usable, fp8_error *err)
{
    const fp8_context *ctx = &job->pool->serial;
    bool quantized = fp8_values_quantized(job->source);
    fp8_dtype in = quantized ? FP8_F32 : job->source->info.dtype;
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    fp8_quant q;
    desc.grid = job->w->role->grid;
    desc.nan = FP8_NAN_PROPAGATE;
    desc.static_scales = 1;
    /* A matrix that ends with the slab and begins with the unit that the slab begins in. */
    FP8_TRY(fp8_quant_prepare(&q, &desc, in, job->w->info.dtype, job->w->role->scale,
                              d->row0 + d->slab.rows, d->cols, err));
    fp8_status status = fp8_quant_static(&q, &d->scales, d->operand, err);
    *usable = status != FP8_E_SCALE;
    if (status != FP8_OK)
        return *usable ? status : FP8_OK;
    fp8_tensor x = fp8_matrix(quantized ? (void *)d->x : d->raw, in, d->slab.rows, d->cols);
    fp8_tensor codes = fp8_matrix(d->once, job->w->info.dtype, d->slab.rows, d->cols);
    return fp8_quant_encode(ctx, &q, &x, d->row0, d->operand, &codes, err);
}

/* Sums over x[n] and y[n]; the order of addition is the compiler's, the same on every run. */
static void sum_errors(const float *x, const float *y, int64_t n, fp8_weight_facts *out)
{
    double signal = 0, noise = 0;
    float worst = 0;
#pragma omp simd reduction(+ : signal, noise) reduction(max : worst)
    for (int64_t i = 0; i < n; i++) {
        float gap = fabsf(x[i] - y[i]);
        signal += (double)x[i] * (double)x[i];
        noise += (double)gap * (double)gap;
        worst = gap > worst ? gap : worst;
    }
    out->signal = signal;
    out->noise = noise;
    out->worst = (double)worst;
}

/* Index of the scale of element i of the slab. */
static int64_t unit_of(const struct job *job, const struct desk *d, int64_t i)
{
    int64_t row = (d->row0 + i / d->cols) / job->unit_rows;
    return row * job->across + i % d->cols / job->unit_cols;
}

/* A code stands for the same number as one of the two codes near it: -0 is +0, a NaN a NaN. */
static bool same_value(const struct job *job, uint8_t code, const uint8_t near[2])
{
    float v = job->value[code], a = job->value[near[0]], b = job->value[near[1]];
    return v == a || v == b || (isnan(v) && (isnan(a) || isnan(b)));
}

/* Element i fits if its quotient may be a little off; narrow: the source's dtype, to which the
 * quotient is rounded first, or F32. */
static fp8_status nearly_fits(const struct job *job, const struct desk *d, int64_t i,
                              fp8_dtype narrow, bool *fits, fp8_error *err)
{
    const fp8_context *ctx = &job->pool->serial;
    double q = (double)d->x[i] / (double)d->scale[unit_of(job, d, i)];
    float ends[2] = {(float)(q * (1 - QUOTIENT_SLACK)), (float)(q * (1 + QUOTIENT_SLACK))};
    uint32_t room[2];
    uint8_t near[2];
    void *from = ends;
    if (narrow != FP8_F32) {
        FP8_TRY(fp8_cast(ctx, ends, FP8_F32, room, narrow, 2, 0, NULL, err));
        from = room;
    }
    FP8_TRY(fp8_cast(ctx, from, narrow, near, job->w->info.dtype, 2, 1, NULL, err));
    *fits = same_value(job, d->codes[i], near);
    return FP8_OK;
}

/* Counts the codes that do not fit; in want[], those that do are made equal to the file's. */
static fp8_status judge(const struct job *job, const struct desk *d, uint8_t *want,
                        fp8_dtype narrow, int64_t *misfits, fp8_error *err)
{
    *misfits = 0;
    for (int64_t i = 0; i < d->slab.elements; i++) {
        bool fits;
        if (want[i] == d->codes[i])
            continue;
        FP8_TRY(nearly_fits(job, d, i, narrow, &fits, err));
        if (fits)
            want[i] = d->codes[i];
        else
            ++*misfits;
    }
    return FP8_OK;
}

/* quotient[rows, cols] = x / scale, unit by unit. */
static void divide(const struct job *job, struct desk *d)
{
    for (int64_t row = 0; row < d->slab.rows; row++) {
        const float *scale = d->scale + unit_of(job, d, row * d->cols);
        int64_t at = row * d->cols, end = at + d->cols;
        for (; at < end; scale++)
            for (int64_t stop = fp8_min_i64(at + job->unit_cols, end); at < stop; at++)
                d->quotient[at] = d->x[at] / *scale;
    }
}

/* twice[rows, cols]: the quotient rounded to the source's dtype, then to a code. */
static fp8_status encode_twice(const struct job *job, struct desk *d, fp8_error *err)
{
    const fp8_context *ctx = &job->pool->serial;
    fp8_dtype narrow = job->source->info.dtype;
    divide(job, d);
    FP8_TRY(fp8_cast(ctx, d->quotient, FP8_F32, d->narrow, narrow, d->slab.elements, 0, NULL, err));
    return fp8_cast(ctx, d->narrow, narrow, d->twice, job->w->info.dtype, d->slab.elements, 1, NULL,
                    err);
}

/* How the unit of element i, as far as it lies in the slab, relates to the source. */
static void describe_unit(const struct job *job, const struct desk *d, const uint8_t *want,
                          int64_t i, fp8_weight_facts *out)
{
    int64_t unit = unit_of(job, d, i), down = unit / job->across * job->unit_rows - d->row0;
    int64_t row = down > 0 ? down : 0, column = unit % job->across * job->unit_cols;
    int64_t row_end = fp8_min_i64(down + job->unit_rows, d->slab.rows);
    int64_t column_end = fp8_min_i64(column + job->unit_cols, d->cols);
    int64_t nonzero = 0, misfits = 0;
    double xx = 0, yy = 0, xy = 0;
    for (; row < row_end; row++)
        for (int64_t at = row * d->cols + column; at < row * d->cols + column_end; at++) {
            double x = (double)d->x[at], y = (double)d->y[at];
            xx += x * x;
            yy += y * y;
            xy += x * y;
            nonzero += y != 0;
            misfits += want[at] != d->codes[at];
        }
    out->unit_misfits = (double)misfits / (double)(nonzero ? nonzero : 1);
    out->ratio = yy > 0 ? xy / yy : 0;
    out->correlation = xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

static void describe_first(const struct job *job, const struct desk *d, const uint8_t *want,
                           fp8_weight_facts *out)
{
    int64_t i = 0;
    while (want[i] == d->codes[i])
        i++;
    out->first = d->slab.first + i;
    out->code = d->codes[i];
    out->fitting = want[i];
    out->source = (double)d->x[i];
    out->value = (double)d->y[i];
    describe_unit(job, d, want, i, out);
}

/* Misfits under the two arithmetics; -1: not looked at. */
struct misfits {
    int64_t once, twice;
};

static fp8_status judge_once(const struct job *job, struct desk *d, struct misfits *m,
                             fp8_error *err)
{
    return judge(job, d, d->once, FP8_F32, &m->once, err);
}

static fp8_status judge_twice(const struct job *job, struct desk *d, struct misfits *m,
                              fp8_error *err)
{
    fp8_dtype dtype = job->source->info.dtype;
    if (dtype != FP8_BF16 && dtype != FP8_F16)
        return FP8_OK;
    FP8_TRY(encode_twice(job, d, err));
    return judge(job, d, d->twice, dtype, &m->twice, err);
}

/* More than one code in 256 is not as one rounding gives it: two roundings change one in 40, a
 * reciprocal one in thousands. */
static bool looks_twice(const struct desk *d)
{
    int64_t differing = 0;
    for (int64_t i = 0; i < d->slab.elements; i++)
        differing += d->once[i] != d->codes[i];
    return differing > d->slab.elements / 256;
}

/* Counts the misfits of a slab whose bytes are not all as one rounding gives them. The likelier
 * arithmetic is tried first, the other only if that leaves misfits. */
static fp8_status find_misfits(const struct job *job, struct desk *d, fp8_weight_facts *out,
                               fp8_error *err)
{
    struct misfits m = {-1, -1};
    bool twice_first = looks_twice(d);
    if (twice_first)
        FP8_TRY(judge_twice(job, d, &m, err));
    if (m.twice != 0)
        FP8_TRY(judge_once(job, d, &m, err));
    if (m.once > 0 && !twice_first)
        FP8_TRY(judge_twice(job, d, &m, err));
    bool twice = m.twice >= 0 && (m.once < 0 || m.twice < m.once);
    out->misfits = twice ? m.twice : m.once;
    if (out->misfits)
        describe_first(job, d, twice ? d->twice : d->once, out);
    return FP8_OK;
}

static fp8_status compare_slab(void *arg, int64_t i, char *memory, fp8_error *err)
{
    struct job *job = arg;
    struct desk d = desk_of(job, i, memory);
    fp8_weight_facts *out = &job->parts[i];
    const fp8_context *ctx = &job->pool->serial;
    out->first = out->first_not_finite = -1;
    FP8_TRY(fp8_values_raw(job->w, &d.slab, d.codes, err));
    count_codes(job->format, d.codes, d.slab.elements, d.slab.first, out);
    if (!job->source)
        return FP8_OK;
    FP8_TRY(fp8_values_scales(job->w, &d.slab, d.scale_bytes, &d.scales, &d.row0, err));
    FP8_TRY(read_source(job, &d, err));
    FP8_TRY(encode_again(job, &d, &out->compared, err));
    if (!out->compared)
        return FP8_OK;
    FP8_TRY(fp8_values_real(ctx, job->w, &d.slab, d.codes, &d.scales, d.row0, d.y, err));
    sum_errors(d.x, d.y, d.slab.elements, out);
    if (!memcmp(d.codes, d.once, (size_t)d.slab.elements))
        return FP8_OK;
    FP8_TRY(fp8_cast(ctx, d.scale_bytes, job->w->role->scale, d.scale, FP8_F32,
                     d.scales.shape[0] * d.scales.shape[1], 0, NULL, err));
    return find_misfits(job, &d, out, err);
}

/* Adds the facts of the next slab. */
static void add_part(fp8_weight_facts *sum, const fp8_weight_facts *part)
{
    if (sum->first_not_finite < 0)
        sum->first_not_finite = part->first_not_finite;
    if (sum->first < 0 && part->first >= 0) {
        fp8_weight_facts before = *sum;
        *sum = *part;
        sum->elements = before.elements;
        sum->nonzero = before.nonzero;
        sum->saturated = before.saturated;
        sum->not_finite = before.not_finite;
        sum->first_not_finite = before.first_not_finite;
        sum->compared = before.compared;
        sum->misfits = before.misfits;
        sum->signal = before.signal;
        sum->noise = before.noise;
        sum->worst = before.worst;
    }
    sum->elements += part->elements;
    sum->nonzero += part->nonzero;
    sum->saturated += part->saturated;
    sum->not_finite += part->not_finite;
    sum->compared = sum->compared && part->compared;
    sum->misfits += part->misfits;
    sum->signal += part->signal;
    sum->noise += part->noise;
    sum->worst = fmax(sum->worst, part->worst);
}

/* Everything of a job but its parts. */
static fp8_status begin(struct job *job, fp8_slab_pool *pool, const fp8_values *weight,
                        const fp8_values *source, fp8_error *err)
{
    uint8_t codes[256];
    memset(job, 0, sizeof *job);
    job->pool = pool;
    job->w = weight;
    bool plain = source && source->info.dtype <= FP8_BF16;
    job->source = source && (plain || fp8_values_quantized(source)) ? source : NULL;
    for (size_t i = 0; i < sizeof code_table / sizeof *code_table; i++)
        if (code_table[i].dtype == weight->info.dtype)
            job->format = &code_table[i];
    FP8_FAIL_IF(!job->format, err, FP8_E_DTYPE, "%s: no codes of an FP8 format", weight->info.name);
    fp8_matrices m = {1, 1, 1};
    FP8_FAIL_IF(!fp8_weight_matrices(weight->info.ndim, weight->info.shape, &m), err, FP8_E_SHAPE,
                "%s: the shape overflows", weight->info.name);
    job->unit_rows = fp8_grid_extent(weight->role->grid.rows, m.rows);
    job->unit_cols = fp8_grid_extent(weight->role->grid.cols, m.cols);
    job->across = fp8_ceil_div(m.cols, job->unit_cols);
    job->slabs = fp8_slabs_of(weight, true);
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    return fp8_cast(&pool->serial, codes, weight->info.dtype, job->value, FP8_F32, 256, 0, NULL,
                    err);
}

fp8_status fp8_compare_weight(fp8_slab_pool *pool, const fp8_values *weight,
                              const fp8_values *source, fp8_weight_facts *out, fp8_error *err)
{
    struct job job;
    FP8_TRY(begin(&job, pool, weight, source, err));
    job.parts = fp8_alloc_zeroed(pool->ctx, (uint64_t)job.slabs.count, sizeof *job.parts);
    FP8_FAIL_IF(!job.parts, err, FP8_E_NO_MEMORY, "%s: no memory", weight->info.name);
    fp8_status status = fp8_slab_run(pool, job.slabs.count, lay_out(&job), compare_slab, &job, err);
    memset(out, 0, sizeof *out);
    out->first = out->first_not_finite = -1;
    out->compared = job.source != NULL;
    for (int64_t i = 0; i < job.slabs.count && status == FP8_OK; i++)
        add_part(out, &job.parts[i]);
    fp8_release(pool->ctx, job.parts);
    return status;
}

/* The slab that a job of one slab looks at. */
struct single {
    struct job job;
    fp8_weight_facts facts;
    int64_t slab;
};

static fp8_status compare_single(void *arg, int64_t i, char *memory, fp8_error *err)
{
    struct single *single = arg;
    single->job.parts = &single->facts - single->slab;
    return compare_slab(&single->job, single->slab + i, memory, err);
}

fp8_status fp8_compare_fits(fp8_slab_pool *pool, const fp8_values *weight, const fp8_values *source,
                            int64_t at, bool *fits, fp8_error *err)
{
    struct single single = {.slab = 0};
    FP8_TRY(begin(&single.job, pool, weight, source, err));
    const fp8_slabs *slabs = &single.job.slabs;
    int64_t row = at / slabs->cols;
    single.slab = row / slabs->rows * slabs->per_matrix + row % slabs->rows / slabs->slab_rows;
    FP8_TRY(fp8_slab_run(pool, 1, lay_out(&single.job), compare_single, &single, err));
    *fits = single.facts.compared && !single.facts.misfits && single.facts.nonzero;
    return FP8_OK;
}
