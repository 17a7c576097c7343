/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_check.c - rank, shape and extent of matrices, and whether their elements overlap. */
#include "op/tensor_check.h"
#include "base/size.h"

#include <stdlib.h>

/* Also of a matrix with negative sizes, which nobody has checked yet. */
static bool is_empty(const fp8_tensor *t)
{
    return t->shape[0] <= 0 || t->shape[1] <= 0;
}

/* out = (n - 1) * stride * bytes; false if it does not fit or is INT64_MIN. */
static bool reach(int64_t n, int64_t stride, int64_t bytes, int64_t *out)
{
    return !__builtin_mul_overflow(n - 1, stride, out) &&
           !__builtin_mul_overflow(*out, bytes, out) && *out != INT64_MIN;
}

static int64_t below_zero(int64_t n)
{
    return n < 0 ? n : 0;
}

/* false if an offset overflows, or passes address 0. t has elements. */
static bool find_extent(const fp8_tensor *t, fp8_extent *e)
{
    const int64_t bytes = fp8_dtype_bits(t->dtype) / 8;
    const intptr_t base = (intptr_t)t->data;
    int64_t down, across, low, high;
    if (!reach(t->shape[0], t->stride[0], bytes, &down) ||
        !reach(t->shape[1], t->stride[1], bytes, &across))
        return false;
    const int64_t low_down = below_zero(down), low_across = below_zero(across);
    e->row_bytes = t->shape[0] > 1 ? llabs(t->stride[0] * bytes) : 0;
    return !__builtin_add_overflow(low_down, low_across, &low) &&
           !__builtin_add_overflow(down - low_down, across - low_across, &high) &&
           !__builtin_add_overflow(high, bytes - 1, &high) &&
           !__builtin_add_overflow(llabs(across), bytes, &e->span_bytes) &&
           !__builtin_add_overflow(base, low, &e->first) && (e->first < 0) == (base < 0) &&
           !__builtin_add_overflow(base, high, &e->last) && (e->last < 0) == (base < 0);
}

static fp8_extent none_of(const char *name)
{
    return (fp8_extent){.name = name, .last = -1};
}

fp8_extent fp8_extent_of(const fp8_tensor *t, const char *name)
{
    fp8_extent e = none_of(name);
    return t && !is_empty(t) && find_extent(t, &e) ? e : none_of(name);
}

fp8_status fp8_check_extent(const fp8_tensor *t, const char *name, int64_t rows, int64_t cols,
                            fp8_extent *out, fp8_error *err)
{
    int64_t count;
    *out = none_of(name);
    FP8_FAIL_IF(!t, err, FP8_E_ARGUMENT, "%s is NULL", name);
    FP8_FAIL_IF(!fp8_dtype_name(t->dtype) || fp8_dtype_bits(t->dtype) % 8, err, FP8_E_DTYPE,
                "%s has dtype %d, which is none", name, (int)t->dtype);
    FP8_FAIL_IF(t->ndim != 2, err, FP8_E_SHAPE, "%s has %d dimensions, must be a matrix", name,
                t->ndim);
    FP8_FAIL_IF(t->shape[0] < 0 || t->shape[1] < 0, err, FP8_E_SHAPE,
                "%s is [%lld,%lld], sizes must be >= 0", name, (long long)t->shape[0],
                (long long)t->shape[1]);
    FP8_FAIL_IF((rows >= 0 && t->shape[0] != rows) || (cols >= 0 && t->shape[1] != cols), err,
                FP8_E_SHAPE, "%s is [%lld,%lld], must be [%lld,%lld] (-1 = any)", name,
                (long long)t->shape[0], (long long)t->shape[1], (long long)rows, (long long)cols);
    if (is_empty(t))
        return FP8_OK;
    FP8_FAIL_IF(!t->data, err, FP8_E_ARGUMENT, "%s has elements but its data is NULL", name);
    FP8_FAIL_IF(__builtin_mul_overflow(t->shape[0], t->shape[1], &count) || !find_extent(t, out),
                err, FP8_E_SHAPE, "%s [%lld,%lld] with strides (%lld,%lld) does not fit in memory",
                name, (long long)t->shape[0], (long long)t->shape[1], (long long)t->stride[0],
                (long long)t->stride[1]);
    return FP8_OK;
}

fp8_status fp8_check_matrix(const fp8_tensor *t, const char *name, int64_t rows, int64_t cols,
                            fp8_error *err)
{
    fp8_extent unused;
    return fp8_check_extent(t, name, rows, cols, &unused, err);
}

fp8_status fp8_check_distinct(const fp8_tensor *t, const char *name, fp8_error *err)
{
    if (is_empty(t))
        return FP8_OK;
    const int64_t rows = t->shape[0], cols = t->shape[1];
    /* The stride of a dimension of one element steps nowhere and may be any number. */
    const int64_t row = rows > 1 ? llabs(t->stride[0]) : 0;
    const int64_t col = cols > 1 ? llabs(t->stride[1]) : 0;
    /* The wider stride must step over the whole extent of the narrower one. */
    const bool rows_outer = cols == 1 || (rows > 1 && row >= col);
    const int64_t outer = rows_outer ? row : col, inner = rows_outer ? col : row;
    const int64_t outer_n = rows_outer ? rows : cols, inner_n = rows_outer ? cols : rows;
    const bool inner_ok = inner_n == 1 || inner > 0;
    const bool outer_ok = outer_n == 1 || outer > (inner_n - 1) * inner;
    FP8_FAIL_IF(!inner_ok || !outer_ok, err, FP8_E_STRIDE,
                "%s [%lld,%lld] with strides (%lld,%lld) overlaps itself", name, (long long)rows,
                (long long)cols, (long long)t->stride[0], (long long)t->stride[1]);
    return FP8_OK;
}

/* Whether the rows of a and b, equally far apart, take different parts of that distance. */
static bool interleave(const fp8_extent *a, const fp8_extent *b)
{
    const int64_t step = a->row_bytes ? a->row_bytes : b->row_bytes;
    if (step == 0 || (a->row_bytes && b->row_bytes && a->row_bytes != b->row_bytes))
        return false;
    int64_t shift = ((int64_t)b->first - a->first) % step; /* b's row start after a's */
    shift = shift < 0 ? shift + step : shift;
    return shift >= a->span_bytes && b->span_bytes <= step - shift;
}

fp8_status fp8_check_extents(const fp8_extent *a, const fp8_extent *b, fp8_error *err)
{
    const bool none = a->last < a->first || b->last < b->first;
    if (none || a->last < b->first || b->last < a->first || interleave(a, b))
        return FP8_OK;
    const intptr_t from = a->first < b->first ? a->first : b->first;
    return fp8_fail(err, FP8_E_STRIDE,
                    "%s and %s overlap in memory: bytes %lld to %lld and %lld to %lld", a->name,
                    b->name, (long long)(a->first - from), (long long)(a->last - from),
                    (long long)(b->first - from), (long long)(b->last - from));
}

fp8_status fp8_check_apart(const fp8_tensor *a, const char *a_name, const fp8_tensor *b,
                           const char *b_name, fp8_error *err)
{
    const fp8_extent ea = fp8_extent_of(a, a_name), eb = fp8_extent_of(b, b_name);
    return fp8_check_extents(&ea, &eb, err);
}
