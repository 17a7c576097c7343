/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_steps.c - amax and encode over the rows of a slab, cut into pieces for the threads. A
 * maximum does not depend on the order in which it is taken, so neither do the bytes. */
#include "op/quant_steps.h"
#include "base/size.h"
#include "number/dtype.h"
#include "number/number.h"
#include "op/quant_kernels.h"

#include <math.h>

enum { PIECE_BYTES = 256 << 10, UNITS_AT_ONCE = 64 };

int64_t fp8_rows_per_piece(const fp8_quant *q)
{
    const int64_t row_bytes = q->cols * (fp8_dtype_bits(q->in) / 8);
    const int64_t rows = PIECE_BYTES / (row_bytes > 0 ? row_bytes : 1);
    return rows > 1 ? rows : 1;
}

static const char *row_of(const fp8_tensor *x, int64_t i)
{
    return (const char *)x->data + i * x->stride[0] * (fp8_dtype_bits(x->dtype) / 8);
}

/* *to = max(*to, value), both >= 0 or NaN, compared as bits. */
static void raise_amax(float *to, float value, bool shared)
{
    const uint32_t bits = fp8_bits_of_f32(value);
    if (!shared) {
        if (bits > fp8_bits_of_f32(*to))
            *to = value;
        return;
    }
    float old;
    __atomic_load(to, &old, __ATOMIC_RELAXED);
    while (bits > fp8_bits_of_f32(old) &&
           !__atomic_compare_exchange(to, &old, &value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Some units side by side in the rows [begin, end) of a slab, all of one row of units. */
typedef struct patch {
    const fp8_slab *slab;
    int64_t begin, end; /* rows of the slab */
    int64_t unit, units;
} patch;

static void patch_amax(const fp8_quant *q, const patch *p, fp8_amax_keep keep, float *amax)
{
    const fp8_tensor *x = p->slab->x;
    const int64_t col = p->unit * q->unit_cols;
    const int64_t offset = col * x->stride[1] * (fp8_dtype_bits(q->in) / 8);
    const fp8_kernel *kernel = p->slab->amax;
    fp8_amax_run run = {.amax = amax,
                        .n = fp8_min_i64(p->units * q->unit_cols, q->cols - col),
                        .unit = q->unit_cols,
                        .stride = x->stride[1],
                        .dtype = q->in};
    for (int64_t k = 0; k < p->units; k++)
        amax[k] = 0;
    for (int64_t i = p->begin; i < p->end; i++) {
        run.x = row_of(x, i) + offset;
        if (keep == FP8_KEEP_ALL)
            kernel->fn.amax(&run);
        else
            fp8_ref_amax_keep(&run, keep);
    }
}

static bool all_finite(const float *amax, int64_t n)
{
    bool finite = true;
    for (int64_t k = 0; k < n; k++)
        finite &= isfinite(amax[k]) != 0;
    return finite;
}

fp8_amax_keep fp8_quant_keep(const fp8_quant *q)
{
    if (q->desc.nan == FP8_NAN_PROPAGATE)
        return FP8_KEEP_NUMBERS;
    return q->desc.nan == FP8_NAN_ORIGINAL && q->row->amax_drops_nan ? FP8_KEEP_NO_NAN
                                                                     : FP8_KEEP_ALL;
}

static int64_t first_nonfinite(const fp8_quant *q, const fp8_slab *slab, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        const int64_t j =
            fp8_ref_find_nonfinite(q->in, row_of(slab->x, i), slab->x->stride[1], q->cols);
        if (j >= 0)
            return (slab->row0 + i) * q->cols + j;
    }
    return -1;
}

/* The rows [begin, end) of a slab, all of one row of units. */
static int64_t band_amax(const fp8_quant *q, const fp8_slab *slab, int64_t begin, int64_t end,
                         bool shared, float *amax)
{
    const bool whole = q->unit_rows == 1; /* these rows are all that the units have */
    float *row = amax + (slab->row0 + begin) / q->unit_rows * q->grid_cols;
    for (int64_t unit = 0; unit < q->grid_cols; unit += UNITS_AT_ONCE) {
        const patch p = {slab, begin, end, unit, fp8_min_i64(UNITS_AT_ONCE, q->grid_cols - unit)};
        float several[UNITS_AT_ONCE];
        float *found = whole ? &row[unit] : several;
        patch_amax(q, &p, FP8_KEEP_ALL, found);
        if (!all_finite(found, p.units)) {
            if (q->desc.nan == FP8_NAN_REFUSE)
                return first_nonfinite(q, slab, begin, end);
            patch_amax(q, &p, fp8_quant_keep(q), found);
        }
        for (int64_t k = 0; k < p.units && !whole; k++)
            raise_amax(&row[unit + k], found[k], shared);
    }
    return -1;
}

/* Whether some rows that follow each other in memory can be taken as one long row: none of their
 * units is shared by two of them, and none is partial. */
static bool is_one_row(const fp8_quant *q, const fp8_slab *slab)
{
    return slab->end - slab->begin > 1 && q->unit_rows == 1 && q->cols % q->unit_cols == 0 &&
           slab->x->stride[0] == q->cols && slab->x->stride[1] == 1;
}

/* The request and the slab of that row; x is where the slab's view goes. */
static fp8_quant one_row(const fp8_quant *q, fp8_slab *slab, fp8_tensor *x)
{
    const int64_t rows = slab->end - slab->begin;
    fp8_quant row = *q;
    row.rows = row.grid_rows = 1;
    row.cols *= rows;
    row.grid_cols *= rows;
    *x = fp8_matrix((char *)slab->x->data + slab->begin * q->cols * (fp8_dtype_bits(q->in) / 8),
                    q->in, 1, row.cols);
    slab->x = x;
    slab->row0 = slab->begin = 0;
    slab->end = 1;
    return row;
}

int64_t fp8_slab_amax(const fp8_quant *q, const fp8_slab *slab, bool shared, float *amax)
{
    if (is_one_row(q, slab)) {
        const int64_t first = slab->row0 + slab->begin;
        fp8_slab all = *slab;
        fp8_tensor x;
        const fp8_quant row = one_row(q, &all, &x);
        const int64_t refused = band_amax(&row, &all, 0, 1, shared, amax + first * q->grid_cols);
        return refused < 0 ? refused : refused + first * q->cols;
    }
    for (int64_t i = slab->begin; i < slab->end;) {
        const int64_t into = (slab->row0 + i) % q->unit_rows; /* rows of the unit before this one */
        const int64_t end = i + fp8_min_i64(slab->end - i, q->unit_rows - into);
        const int64_t refused = band_amax(q, slab, i, end, shared, amax);
        if (refused >= 0)
            return refused;
        i = end;
    }
    return -1;
}

/* What the plain kernels do not do: reciprocals that are infinite. */
static bool can_multiply(const fp8_quant *q, const float *operand)
{
    return !q->multiply || all_finite(operand, q->grid_cols);
}

/* The rows [begin, end) of a slab, all of one row of units. */
static void encode_band(const fp8_quant *q, const fp8_slab *slab, int64_t begin, int64_t end,
                        const float *operand, const fp8_tensor *codes)
{
    uint8_t *out = (uint8_t *)codes->data + begin * codes->stride[0];
    if (slab->encode && codes->stride[1] == 1 && can_multiply(q, operand)) {
        const fp8_encode_run run = {.x = row_of(slab->x, begin),
                                    .codes = out,
                                    .operand = operand,
                                    .rows = end - begin,
                                    .x_step = slab->x->stride[0],
                                    .code_step = codes->stride[0],
                                    .n = q->cols,
                                    .unit = q->unit_cols,
                                    .max = slab->max,
                                    .plus_zero = q->row->plus_zero,
                                    .zero = slab->zero};
        slab->encode->fn.encode(&run);
        return;
    }
    for (int64_t i = begin; i < end; i++, out += codes->stride[0])
        fp8_ref_encode_row(q, row_of(slab->x, i), slab->x->stride[1], operand, out,
                           codes->stride[1]);
}

static void encode_rows(const fp8_quant *q, const fp8_slab *slab, const float *operand,
                        const fp8_tensor *codes)
{
    for (int64_t i = slab->begin; i < slab->end;) {
        const int64_t band = (slab->row0 + i) / q->unit_rows;
        const int64_t end = fp8_min_i64(slab->end, (band + 1) * q->unit_rows - slab->row0);
        encode_band(q, slab, i, end, operand + band * q->grid_cols, codes);
        i = end;
    }
}

void fp8_slab_encode(const fp8_quant *q, const fp8_slab *slab, const float *operand,
                     const fp8_tensor *codes)
{
    const bool is_one = is_one_row(q, slab) && codes->stride[0] == q->cols && codes->stride[1] == 1;
    const float *first = operand + (slab->row0 + slab->begin) / q->unit_rows * q->grid_cols;
    fp8_slab all = *slab;
    fp8_tensor x;
    const fp8_quant row = is_one ? one_row(q, &all, &x) : *q;
    if (!is_one || !can_multiply(&row, first)) { /* one bad unit costs its row, not all */
        encode_rows(q, slab, operand, codes);
        return;
    }
    const fp8_tensor out =
        fp8_matrix((char *)codes->data + slab->begin * q->cols, q->code, 1, row.cols);
    encode_rows(&row, &all, first, &out);
}

/* Bits of the largest number that rounds to zero where the rule rounds a quotient: half of the
 * dtype's least, a tie that goes to the even zero. */
static uint32_t largest_zero(const fp8_quant *q)
{
    if (!q->row->quotient_in_input || q->in == FP8_F32)
        return 0;
    return fp8_bits_of_f32(q->in == FP8_F16 ? 0x1p-25f : 0x1p-134f);
}

/* Whether a quotient is rounded before it is encoded. x over a power of two is a number of x's
 * dtype already, or too small to be other than a zero code, or too large. */
static bool rounds_twice(const fp8_quant *q)
{
    return q->row->quotient_in_input && q->in != FP8_F32 && !q->row->exponent;
}

const fp8_kernel *fp8_round_kernel(fp8_isa isa, const fp8_quant *q)
{
    if (q->desc.nan == FP8_NAN_ORIGINAL || rounds_twice(q) || q->row->plus_zero)
        return NULL;
    const fp8_op op = q->multiply ? FP8_OP_ROUND_MULTIPLY : FP8_OP_ROUND_DIVIDE;
    return fp8_kernel_pick(isa, op, q->in, q->code);
}

/* The encode kernel that does all that q asks for; NULL if only the reference does. */
static const fp8_kernel *encode_kernel(fp8_isa isa, const fp8_quant *q)
{
    if (q->desc.nan == FP8_NAN_ORIGINAL)
        return NULL;
    const fp8_op op = rounds_twice(q) ? FP8_OP_ENCODE_TWICE
                      : q->multiply   ? FP8_OP_ENCODE_MULTIPLY
                                      : FP8_OP_ENCODE_DIVIDE;
    return fp8_kernel_pick(isa, op, q->in, q->code);
}

fp8_slab fp8_slab_of(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x, int64_t row0)
{
    const bool contiguous = x->stride[1] == 1;
    const fp8_isa isa = contiguous ? ctx->isa : FP8_ISA_SCALAR;
    return (fp8_slab){.x = x,
                      .row0 = row0,
                      .end = x->shape[0],
                      .amax = fp8_kernel_pick(isa, FP8_OP_AMAX, q->in, FP8_F32),
                      .encode = contiguous ? encode_kernel(isa, q) : NULL,
                      .max = fp8_rule_code_max(q->row, q->code),
                      .zero = largest_zero(q)};
}

void fp8_clear_padding(const fp8_tensor *codes, int64_t rows)
{
    for (int64_t i = rows; i < codes->shape[0]; i++)
        for (int64_t j = 0; j < codes->shape[1]; j++)
            ((uint8_t *)codes->data)[i * codes->stride[0] + j * codes->stride[1]] = 0;
}

fp8_status fp8_refuse_element(const fp8_quant *q, const fp8_tensor *x, int64_t row0, int64_t index,
                              fp8_error *err)
{
    const int64_t i = index / q->cols, j = index % q->cols;
    const float value = fp8_dtype_facts_of(q->in)->load(row_of(x, i - row0), j * x->stride[1]);
    return fp8_fail_at(err, FP8_E_NAN, index, "element [%lld,%lld] is %s", (long long)i,
                       (long long)j,
                       isnan(value) ? "NaN"
                       : value > 0  ? "infinity"
                                    : "-infinity");
}

void fp8_lower_index(int64_t *to, int64_t value)
{
    int64_t old = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (value < old &&
           !__atomic_compare_exchange_n(to, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* One step over a slab, shared by the threads; piece p is rows [p, p + 1) * rows_each. */
typedef struct step {
    const fp8_quant *q;
    fp8_slab slab;
    int64_t rows_each;
    float *amax;
    const float *operand;
    const fp8_tensor *codes;
    int64_t refused; /* smallest index of an element that is refused, INT64_MAX if there is none */
} step;

static fp8_slab piece_of(const step *s, int64_t piece)
{
    fp8_slab slab = s->slab;
    slab.begin = piece * s->rows_each;
    slab.end = fp8_min_i64(slab.begin + s->rows_each, s->slab.end);
    return slab;
}

static void amax_piece(void *arg, int64_t piece)
{
    step *s = arg;
    const fp8_slab slab = piece_of(s, piece);
    const int64_t refused = fp8_slab_amax(s->q, &slab, true, s->amax);
    if (refused >= 0)
        fp8_lower_index(&s->refused, refused);
}

static void encode_piece(void *arg, int64_t piece)
{
    const step *s = arg;
    const fp8_slab slab = piece_of(s, piece);
    fp8_slab_encode(s->q, &slab, s->operand, s->codes);
}

fp8_status fp8_quant_amax(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x,
                          int64_t row0, float *amax, fp8_error *err)
{
    step s = {.q = q, .slab = fp8_slab_of(ctx, q, x, row0), .amax = amax};
    s.rows_each = fp8_rows_per_piece(q);
    s.refused = INT64_MAX;
    if (q->cols > 0)
        fp8_run_parallel(ctx, fp8_ceil_div(x->shape[0], s.rows_each), amax_piece, &s);
    return s.refused == INT64_MAX ? FP8_OK : fp8_refuse_element(q, x, row0, s.refused, err);
}

fp8_status fp8_quant_encode(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x,
                            int64_t row0, const float *operand, fp8_tensor *codes, fp8_error *err)
{
    (void)err; /* no input can make it fail; the signature is that of the other steps */
    step s = {.q = q, .slab = fp8_slab_of(ctx, q, x, row0), .operand = operand};
    s.rows_each = fp8_rows_per_piece(q);
    s.codes = codes;
    if (q->cols > 0)
        fp8_run_parallel(ctx, fp8_ceil_div(x->shape[0], s.rows_each), encode_piece, &s);
    return FP8_OK;
}
