/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_plan.c - whether a description of Y[M,N] = X[M,K] W[N,K]^T + bias[N] makes sense, what its
 * defaults mean, and where its scales change along K. Touches no data. */
#include "number/dtype.h"
#include "op/linear.h"
#include "op/quantize.h"
#include "op/tensor_check.h"

#include <math.h>

enum { MOST_MULTIPLE = 128 };

static bool is_code(fp8_dtype dtype)
{
    return dtype == FP8_E4M3FN || dtype == FP8_E4M3FNUZ || dtype == FP8_E5M2;
}

static fp8_status check_enums(const fp8_linear_desc *d, fp8_error *err)
{
    FP8_FAIL_IF(!d, err, FP8_E_ARGUMENT, "linear: the descriptor is NULL");
    FP8_FAIL_IF(d->struct_bytes != sizeof *d, err, FP8_E_ARGUMENT,
                "linear: struct_bytes is %u, this library knows %zu", d->struct_bytes, sizeof *d);
    FP8_FAIL_IF((unsigned)d->activation > FP8_ACTIVATION_CODES, err, FP8_E_ARGUMENT,
                "linear: activation %d is not 0..3", (int)d->activation);
    FP8_FAIL_IF((unsigned)d->epilogue > FP8_EPILOGUE_BIAS_LAST, err, FP8_E_ARGUMENT,
                "linear: epilogue %d is not 0..2", (int)d->epilogue);
    FP8_FAIL_IF((unsigned)d->weight_math > FP8_WEIGHT_ROUNDED, err, FP8_E_ARGUMENT,
                "linear: weight_math %d is not 0..1", (int)d->weight_math);
    FP8_FAIL_IF((unsigned)d->accumulation > FP8_ACCUMULATION_FAST, err, FP8_E_ARGUMENT,
                "linear: accumulation %d is not 0..1", (int)d->accumulation);
    FP8_FAIL_IF(d->weight_math == FP8_WEIGHT_ROUNDED && d->activation != FP8_ACTIVATION_NONE, err,
                FP8_E_UNSUPPORTED,
                "linear: rounded weights are for activations that are not "
                "quantized");
    return FP8_OK;
}

static fp8_status check_grid(fp8_grid grid, const char *name, fp8_error *err)
{
    FP8_FAIL_IF(grid.rows < 0 || grid.cols < 0, err, FP8_E_ARGUMENT,
                "linear: grid %lld x %lld of %s: extents must be >= 0", (long long)grid.rows,
                (long long)grid.cols, name);
    return FP8_OK;
}

static void fill_default(fp8_dtype *dtype, fp8_dtype value)
{
    if (*dtype == FP8_DTYPE_NONE)
        *dtype = value;
}

/* That X of k columns can be quantized so in at least one dtype: some rules take scales of its own
 * alone, which only a run knows. */
static fp8_status check_x_rule(const fp8_linear_desc *d, int64_t k, fp8_error *err)
{
    const fp8_dtype scale = d->x.static_scales ? FP8_F32 : d->x_scale;
    static const fp8_dtype dtypes[] = {FP8_BF16, FP8_F16, FP8_F32};
    fp8_quant q;
    int i = 2;
    while (i > 0 && fp8_quant_prepare(&q, &d->x, dtypes[i], d->x_code, scale, 1, k, NULL) ==
                        FP8_E_UNSUPPORTED)
        i--;
    return fp8_quant_prepare(&q, &d->x, dtypes[i], d->x_code, scale, 1, k, err);
}

/* What is asked for X; k columns. */
static fp8_status plan_x(fp8_linear_plan *p, fp8_error *err)
{
    fp8_linear_desc *d = &p->desc;
    p->x_is_scaled = d->activation != FP8_ACTIVATION_NONE;
    p->x_unit_cols = fp8_grid_extent(0, p->k);
    if (!p->x_is_scaled)
        return FP8_OK;
    FP8_TRY(check_grid(d->x.grid, "x", err));
    FP8_FAIL_IF(d->x.grid.rows != 1 && (d->x.grid.rows || d->x.grid.cols), err, FP8_E_UNSUPPORTED,
                "linear: grid %lld x %lld of x, must be 0 x 0 or have 1 row",
                (long long)d->x.grid.rows, (long long)d->x.grid.cols);
    p->x_unit_cols = fp8_grid_extent(d->x.grid.cols, p->k);
    p->x_along_k = p->x_unit_cols < p->k;
    d->x.static_scales = d->activation == FP8_ACTIVATION_STATIC;
    if (d->activation == FP8_ACTIVATION_CODES)
        return FP8_OK;
    FP8_FAIL_IF(d->x.static_scales && d->x.grid.rows, err, FP8_E_UNSUPPORTED,
                "linear: a static scale is one for the tensor, grid of x must be 0 x 0");
    FP8_FAIL_IF(d->x.static_scales && !(d->x_static > 0 && isfinite(d->x_static)), err, FP8_E_SCALE,
                "linear: x_static is %g, must be finite and positive", (double)d->x_static);
    return check_x_rule(d, p->k, err);
}

static fp8_status plan_parts(fp8_linear_plan *p, fp8_error *err)
{
    const fp8_linear_desc *d = &p->desc;
    int64_t sum = 0;
    FP8_FAIL_IF(!d->widths != !d->width_count, err, FP8_E_ARGUMENT,
                "linear: widths is %s and width_count is %zu", d->widths ? "given" : "NULL",
                d->width_count);
    if (!d->widths)
        return FP8_OK;
    FP8_FAIL_IF(p->high != FP8_DTYPE_NONE, err, FP8_E_UNSUPPORTED,
                "linear: widths are for weights that are codes; a fused weight in high precision "
                "gets one scale");
    FP8_FAIL_IF(d->w.grid.rows || d->w.grid.cols, err, FP8_E_UNSUPPORTED,
                "linear: grid %lld x %lld of w with widths, must be 0 x 0",
                (long long)d->w.grid.rows, (long long)d->w.grid.cols);
    for (size_t i = 0; i < d->width_count; i++)
        FP8_FAIL_IF(d->widths[i] < 0 || __builtin_add_overflow(sum, d->widths[i], &sum), err,
                    FP8_E_SHAPE, "linear: width %zu is %lld, must be >= 0 and the sum an int64_t",
                    i, (long long)d->widths[i]);
    FP8_FAIL_IF(sum != p->n, err, FP8_E_SHAPE, "linear: widths sum to %lld, w has %lld rows",
                (long long)sum, (long long)p->n);
    return FP8_OK;
}

static fp8_status plan_origin(const fp8_linear_plan *p, fp8_error *err)
{
    const fp8_grid o = p->desc.w_origin;
    FP8_FAIL_IF((o.rows || o.cols) && p->high != FP8_DTYPE_NONE, err, FP8_E_UNSUPPORTED,
                "linear: w_origin is for weights that are codes");
    FP8_FAIL_IF(o.rows < 0 || o.cols < 0 || (o.rows && o.rows >= p->desc.w.grid.rows) ||
                    (o.cols && o.cols >= p->desc.w.grid.cols),
                err, FP8_E_ARGUMENT,
                "linear: w_origin (%lld,%lld) is not inside a block %lld x %lld", (long long)o.rows,
                (long long)o.cols, (long long)p->desc.w.grid.rows, (long long)p->desc.w.grid.cols);
    FP8_FAIL_IF(o.rows > INT64_MAX - p->n || o.cols > INT64_MAX - p->k, err, FP8_E_SHAPE,
                "linear: w [%lld,%lld] from w_origin (%lld,%lld) on ends above INT64_MAX",
                (long long)p->n, (long long)p->k, (long long)o.rows, (long long)o.cols);
    return FP8_OK;
}

static fp8_status plan_w(fp8_linear_plan *p, fp8_error *err)
{
    const fp8_linear_desc *d = &p->desc;
    FP8_TRY(check_grid(d->w.grid, "w", err));
    FP8_TRY(plan_parts(p, err));
    FP8_TRY(plan_origin(p, err));
    p->unit_rows = fp8_grid_extent(d->w.grid.rows, p->n);
    p->unit_cols = fp8_grid_extent(d->w.grid.cols, p->k);
    p->scale_rows =
        d->widths ? (int64_t)d->width_count : fp8_ceil_div(p->n + d->w_origin.rows, p->unit_rows);
    p->scale_cols = fp8_ceil_div(p->k + d->w_origin.cols, p->unit_cols);
    p->scale_tile = p->unit_rows == 1 && !d->widths ? FP8_TILE_COLS : 1;
    p->w_along_k = p->scale_cols > 1;
    if (p->high == FP8_DTYPE_NONE)
        return FP8_OK;
    FP8_FAIL_IF(d->w.static_scales, err, FP8_E_UNSUPPORTED,
                "linear: a weight in high precision is quantized with scales of its own, "
                "w.static_scales must be 0");
    fp8_quant q;
    return fp8_quant_prepare(&q, &d->w, p->high, p->code, p->scale, p->n, p->k, err);
}

/* The greatest power of two up to `multiple`, one itself, that divides every border in (0,k) of
 * units of `unit` columns whose first lacks `origin`. */
static int64_t border_multiple(int64_t multiple, int64_t k, int64_t unit, int64_t origin)
{
    const int64_t first = unit - origin;
    while (first < k && first % multiple)
        multiple /= 2;
    while (unit < k - first && unit % multiple)
        multiple /= 2;
    return multiple;
}

/* Few columns of W, at whose end no kernel can cut, and that have the same scale in all rows, lend
 * it to X: segments would be padded to several times their columns. Weights that are rounded with
 * their scales need them. */
static void plan_columns(fp8_linear_plan *p)
{
    const int64_t multiple =
        border_multiple(FP8_PANEL_COLS, p->k, p->unit_cols, p->desc.w_origin.cols);
    p->w_into_x = p->w_along_k && p->scale_rows == 1 && p->unit_cols < FP8_X_PAD &&
                  multiple < FP8_PANEL_COLS && p->desc.weight_math == FP8_WEIGHT_EXACT;
    if (p->w_into_x)
        p->w_along_k = false;
}

/* The units of W that segments are made of, as plan.unit_cols and w_origin.cols. */
static int64_t cut_unit(const fp8_linear_plan *p)
{
    return p->w_into_x ? p->k : p->unit_cols;
}

static int64_t cut_origin(const fp8_linear_plan *p)
{
    return p->w_into_x ? 0 : p->desc.w_origin.cols;
}

/* What places segments get. Padding to 32 is for all kernels, and costs nothing if only the first
 * segment is not a multiple of it; padding to 4 is for all but those of tiles. */
static void plan_places(fp8_linear_plan *p)
{
    const int64_t origin = cut_origin(p), unit = cut_unit(p);
    const bool shifted = !p->x_along_k && unit % FP8_X_PAD == 0;
    const int64_t pad = shifted ? FP8_X_PAD : FP8_PANEL_COLS;
    p->w_multiple = border_multiple(MOST_MULTIPLE, p->k, unit, origin);
    p->both_multiple = border_multiple(p->w_multiple, p->k, p->x_unit_cols, 0);
    p->pad = p->both_multiple % pad ? pad : 1;
    if (p->pad > 1)
        p->w_multiple = p->both_multiple = pad;
}

static fp8_status check_size(int64_t n, int64_t k, fp8_error *err)
{
    int64_t bytes;
    FP8_FAIL_IF(n < 0 || k < 0 || n > INT64_MAX - 64 || k > INT64_MAX / 16 ||
                    __builtin_mul_overflow(n + 64, 4 * (k + 64), &bytes),
                err, FP8_E_SHAPE, "linear: a weight [%lld,%lld] is impossible", (long long)n,
                (long long)k);
    return FP8_OK;
}

fp8_status fp8_linear_plan_shape(fp8_linear_plan *plan, const fp8_linear_desc *desc, int64_t n,
                                 int64_t k, fp8_dtype w_dtype, fp8_error *err)
{
    FP8_TRY(check_enums(desc, err));
    FP8_TRY(check_size(n, k, err));
    FP8_FAIL_IF(!is_code(w_dtype) && !fp8_dtype_is_high(w_dtype), err, FP8_E_DTYPE,
                "linear: w is %s (%d), must be F8_E4M3, F8_E4M3FNUZ, F8_E5M2, BF16, F16 or F32",
                fp8_dtype_word(w_dtype), (int)w_dtype);
    *plan = (fp8_linear_plan){.desc = *desc, .n = n, .k = k};
    fill_default(&plan->desc.x_code, FP8_E4M3FN);
    fill_default(&plan->desc.x_scale, FP8_F32);
    fill_default(&plan->desc.w_code, FP8_E4M3FN);
    fill_default(&plan->desc.w_scale, FP8_F32);
    plan->high = fp8_dtype_is_high(w_dtype) ? w_dtype : FP8_DTYPE_NONE;
    plan->code = fp8_dtype_is_high(w_dtype) ? plan->desc.w_code : w_dtype;
    plan->scale = plan->desc.w_scale;
    FP8_TRY(plan_x(plan, err));
    FP8_TRY(plan_w(plan, err));
    plan_columns(plan);
    plan_places(plan);
    return FP8_OK;
}

fp8_status fp8_linear_plan_takes(const fp8_linear_plan *plan, fp8_dtype x, fp8_error *err)
{
    const bool codes = plan->desc.activation == FP8_ACTIVATION_CODES;
    FP8_FAIL_IF(codes ? !is_code(x) : !fp8_dtype_is_high(x), err, FP8_E_DTYPE,
                "linear: x is %s (%d), must be %s", fp8_dtype_word(x), (int)x,
                codes ? "F8_E4M3, F8_E4M3FNUZ or F8_E5M2" : "F32, F16 or BF16");
    FP8_FAIL_IF(plan->desc.weight_math == FP8_WEIGHT_ROUNDED && x == FP8_F32, err, FP8_E_DTYPE,
                "linear: x is F32, must be BF16 or F16 with rounded weights");
    return FP8_OK;
}

fp8_status fp8_linear_check_x_scales(const fp8_linear_plan *p, int64_t m,
                                     const fp8_tensor *x_scales, fp8_error *err)
{
    const fp8_dtype dtype = x_scales ? x_scales->dtype : FP8_DTYPE_NONE;
    const bool codes = p->desc.activation == FP8_ACTIVATION_CODES;
    FP8_FAIL_IF(codes != (x_scales != NULL), err, FP8_E_ARGUMENT,
                "linear: x_scales must %sbe NULL for this activation", codes ? "not " : "");
    if (!codes || m == 0)
        return FP8_OK;
    FP8_FAIL_IF(!fp8_dtype_is_scale(dtype), err, FP8_E_DTYPE,
                "linear: x_scales are %s (%d), must be F32, BF16, F16 or F8_E8M0",
                fp8_dtype_word(dtype), (int)dtype);
    return fp8_check_matrix(x_scales, "x_scales", p->desc.x.grid.rows ? m : 1,
                            fp8_ceil_div(p->k, p->x_unit_cols), err);
}

fp8_status fp8_linear_check_bias(const fp8_tensor *bias, int64_t n, fp8_error *err)
{
    if (!bias)
        return FP8_OK;
    FP8_FAIL_IF(!fp8_dtype_is_high(bias->dtype), err, FP8_E_DTYPE,
                "linear: bias is %s (%d), must be F32, BF16 or F16", fp8_dtype_word(bias->dtype),
                (int)bias->dtype);
    FP8_FAIL_IF(bias->ndim != 1 || bias->shape[0] != n, err, FP8_E_SHAPE,
                "linear: bias has %d dimensions and %lld elements, must have 1 and %lld",
                bias->ndim, (long long)(bias->ndim == 1 ? bias->shape[0] : -1), (long long)n);
    const fp8_tensor row = {bias->data, bias->dtype, 2, {1, n, 0, 0}, {0, bias->stride[0], 0, 0}};
    return fp8_check_matrix(&row, "bias", 1, n, err);
}

fp8_status fp8_linear_plan_make(fp8_linear_plan *plan, const fp8_context *ctx,
                                const fp8_linear_desc *desc, const fp8_tensor *w,
                                const fp8_tensor *w_scales, const fp8_tensor *bias, fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "linear: the context is NULL");
    FP8_TRY(check_enums(desc, err));
    FP8_TRY(fp8_check_matrix(w, "w", -1, -1, err));
    FP8_TRY(fp8_linear_plan_shape(plan, desc, w->shape[0], w->shape[1], w->dtype, err));
    FP8_TRY(fp8_linear_check_bias(bias, plan->n, err));
    const bool has_codes = plan->high == FP8_DTYPE_NONE;
    FP8_FAIL_IF(has_codes != (w_scales != NULL), err, FP8_E_ARGUMENT,
                "linear: w is %s, so w_scales must %sbe NULL", fp8_dtype_word(w->dtype),
                has_codes ? "not " : "");
    if (!has_codes)
        return FP8_OK;
    FP8_FAIL_IF(!fp8_dtype_is_scale(w_scales->dtype), err, FP8_E_DTYPE,
                "linear: w_scales are %s (%d), must be F32, BF16, F16 or F8_E8M0",
                fp8_dtype_word(w_scales->dtype), (int)w_scales->dtype);
    plan->scale = w_scales->dtype;
    return fp8_check_matrix(w_scales, "w_scales", plan->scale_rows, plan->scale_cols, err);
}

fp8_status fp8_linear_check(const fp8_context *ctx, const fp8_linear_desc *desc,
                            const fp8_tensor *w, const fp8_tensor *w_scales, const fp8_tensor *bias,
                            fp8_error *err)
{
    fp8_linear_plan plan;
    return fp8_linear_plan_make(&plan, ctx, desc, w, w_scales, bias, err);
}

/* The first border after `at` of units of `unit` columns whose first lacks `origin`. */
static int64_t next_border(int64_t at, int64_t unit, int64_t origin, int64_t k)
{
    const int64_t left = unit - (at + origin) % unit;
    return left < k - at ? at + left : k;
}

void fp8_cuts_find(fp8_cuts *cuts, const fp8_linear_plan *p, bool with_x)
{
    const int64_t origin = cut_origin(p), unit = cut_unit(p);
    const bool whole = p->n == 0; /* nothing is multiplied: no matter how many cuts K would have */
    int64_t count = 0, place = 0;
    for (int64_t at = 0, end; at < p->k || count == 0; at = end) {
        if (with_x || at == 0 || (at + origin) % unit == 0) {
            if (cuts->at) {
                cuts->at[count] = at;
                cuts->place[count] = place;
            }
            count++;
        }
        end = whole ? p->k
                    : fp8_min_i64(next_border(at, unit, origin, p->k),
                                  next_border(at, p->x_unit_cols, 0, p->k));
        place += fp8_ceil_div(end - at, p->pad) * p->pad;
    }
    if (cuts->at) {
        cuts->at[count] = p->k;
        cuts->place[count] = place;
    }
    cuts->count = count;
    cuts->columns = place;
}

int64_t fp8_linear_scale_row(const fp8_linear_plan *plan, int64_t n)
{
    if (!plan->desc.widths)
        return (n + plan->desc.w_origin.rows) / plan->unit_rows;
    int64_t part = 0, end = plan->desc.widths[0];
    while (n >= end)
        end += plan->desc.widths[++part];
    return part;
}

int64_t fp8_linear_rows_alike(const fp8_linear_plan *plan, int64_t n, int64_t row, int64_t limit)
{
    int64_t same = 1;
    if (!plan->desc.widths)
        same = plan->unit_rows - (n + plan->desc.w_origin.rows) % plan->unit_rows;
    else
        while (same < limit && fp8_linear_scale_row(plan, n + same) == row)
            same++;
    return fp8_min_i64(same, limit);
}
