/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_linear.c - the life of a linear on a CUDA device: create, copy, export, free. Scales and
 * bias go by way of the host, where they are checked and spread; codes from the device stay on it,
 * and a weight in high precision is quantized where it lies. */
#include "backend/cuda/cuda_linear.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

#include <math.h>
#include <string.h>

/* Offsets in the memory of a linear. */
typedef struct places {
    uint64_t codes, scales, w_scale, bias, x_static, end;
} places;

static uint64_t scale_bytes_of(const fp8_linear_plan *p)
{
    return (uint64_t)(p->scale_rows * p->scale_cols * (fp8_dtype_bits(p->scale) / 8));
}

static bool along_k(const fp8_linear_plan *p)
{
    return p->scale_cols > 1;
}

/* Whether kernels read the scales as they are exported. */
static bool read_as_they_are(const fp8_linear_plan *p)
{
    return along_k(p) && (p->scale == FP8_F32 || p->scale == FP8_E8M0FNU);
}

static uint64_t read_count(const fp8_linear_plan *p)
{
    return (uint64_t)(along_k(p) ? p->scale_rows * p->scale_cols : p->n);
}

static uint64_t place(uint64_t *end, uint64_t bytes)
{
    const uint64_t at = *end;
    *end = fp8_cuda_align(at + bytes);
    return at;
}

static places places_of(const fp8_linear_plan *p)
{
    places at = {0};
    at.codes = place(&at.end, (uint64_t)(p->n * fp8_cuda_row_bytes(p->k)));
    at.scales = place(&at.end, scale_bytes_of(p));
    at.w_scale = place(&at.end, read_as_they_are(p) ? 0 : read_count(p) * sizeof(float));
    at.bias = place(&at.end, (uint64_t)p->n * sizeof(float));
    at.x_static = place(&at.end, sizeof(float));
    return at;
}

static void point(fp8_cuda_linear *d, const fp8_linear_plan *p, const places *at)
{
    uint8_t *base = d->memory;
    d->codes = base + at->codes;
    d->ld = fp8_cuda_row_bytes(p->k);
    d->scales = base + at->scales;
    d->w_scale = read_as_they_are(p) ? d->scales : base + at->w_scale;
    d->w_scale_dtype = read_as_they_are(p) ? p->scale : FP8_F32;
    d->bias = (float *)(void *)(base + at->bias);
    d->x_static = (float *)(void *)(base + at->x_static);
}

void fp8_cuda_linear_free(fp8_linear *linear)
{
    const fp8_context *ctx = linear->ctx;
    if (linear->cuda)
        fp8_device_free(ctx, linear->cuda->memory);
    fp8_release(ctx, linear->cuda);
    fp8_release(ctx, linear->memory);
    fp8_release(ctx, linear);
}

/* Its widths are its own; they are all that it has on the host. */
static fp8_status own_widths(fp8_linear *l, fp8_error *err)
{
    fp8_linear_desc *d = &l->plan.desc;
    if (!d->widths)
        return FP8_OK;
    l->memory_bytes = d->width_count * sizeof *d->widths;
    l->memory = fp8_alloc(l->ctx, l->memory_bytes);
    FP8_FAIL_IF(!l->memory, err, FP8_E_NO_MEMORY, "linear: no memory for %llu bytes",
                (unsigned long long)l->memory_bytes);
    memcpy(l->memory, d->widths, (size_t)l->memory_bytes);
    d->widths = l->memory;
    return FP8_OK;
}

fp8_status fp8_cuda_linear_allocate(const fp8_context *ctx, const fp8_linear_plan *plan,
                                    fp8_linear **out, fp8_error *err)
{
    const places at = places_of(plan);
    fp8_linear *l = fp8_alloc_zeroed(ctx, 1, sizeof *l);
    FP8_FAIL_IF(!l, err, FP8_E_NO_MEMORY, "linear: no memory for %zu bytes", sizeof *l);
    l->ctx = ctx;
    l->plan = *plan;
    l->cuda = fp8_alloc_zeroed(ctx, 1, sizeof *l->cuda);
    fp8_status status = l->cuda ? own_widths(l, err) : FP8_E_NO_MEMORY;
    if (!l->cuda)
        status = fp8_fail(err, FP8_E_NO_MEMORY, "linear: no memory for %zu bytes", sizeof *l->cuda);
    if (status == FP8_OK)
        status = fp8_device_alloc(ctx, at.end, &l->cuda->memory, err);
    if (status != FP8_OK) {
        fp8_cuda_linear_free(l);
        return status;
    }
    l->cuda->memory_bytes = at.end;
    point(l->cuda, plan, &at);
    *out = l;
    return FP8_OK;
}

/* ---- scales and bias, by way of the host ---- */

static fp8_status check_scales(const fp8_linear_plan *p, const void *scales, fp8_error *err)
{
    const fp8_load_fn load = fp8_dtype_facts_of(p->scale)->load;
    for (int64_t i = 0; i < p->scale_rows * p->scale_cols; i++) {
        const float value = load(scales, i);
        if (!(value > 0 && isfinite(value)))
            return fp8_fail_at(err, FP8_E_SCALE, i,
                               "linear: w_scales[%lld,%lld] is %g, must be finite and positive",
                               (long long)(i / p->scale_cols), (long long)(i % p->scale_cols),
                               (double)value);
    }
    return FP8_OK;
}

/* read[] = the scales as kernels read them. */
static void spread_scales(const fp8_linear_plan *p, const void *scales, float *read)
{
    const fp8_load_fn load = fp8_dtype_facts_of(p->scale)->load;
    for (int64_t i = 0; along_k(p) && i < p->scale_rows * p->scale_cols; i++)
        read[i] = load(scales, i);
    for (int64_t n = 0, same; !along_k(p) && n < p->n; n += same) {
        const int64_t row = fp8_linear_scale_row(p, n);
        const float value = p->scale_cols ? load(scales, row) : 1;
        same = fp8_linear_rows_alike(p, n, row, p->n - n);
        for (int64_t i = n; i < n + same; i++)
            read[i] = value;
    }
}

static fp8_status place_read_scales(const fp8_linear *l, const void *scales, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    const uint64_t bytes = read_count(p) * sizeof(float);
    if (read_as_they_are(p) || bytes == 0)
        return FP8_OK;
    float *read = fp8_alloc(l->ctx, bytes);
    FP8_FAIL_IF(!read, err, FP8_E_NO_MEMORY, "linear: no memory for %llu bytes",
                (unsigned long long)bytes);
    spread_scales(p, scales, read);
    const fp8_tensor row = fp8_matrix(read, FP8_F32, 1, (int64_t)read_count(p));
    const fp8_status status = fp8_cuda_place(l->ctx, &row, l->cuda->w_scale, row.shape[1], err);
    fp8_release(l->ctx, read);
    return status;
}

fp8_status fp8_cuda_linear_place_scales(const fp8_linear *l, const fp8_tensor *given, bool check,
                                        fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    const fp8_tensor made = fp8_matrix(l->cuda->scales, p->scale, p->scale_rows, p->scale_cols);
    void *host = fp8_alloc(l->ctx, scale_bytes_of(p));
    FP8_FAIL_IF(!host, err, FP8_E_NO_MEMORY, "linear: no memory for %llu bytes",
                (unsigned long long)scale_bytes_of(p));
    fp8_status status = fp8_cuda_fetch(l->ctx, given ? given : &made, host, err);
    if (status == FP8_OK && given && check)
        status = check_scales(p, host, err);
    if (status == FP8_OK && given) {
        const fp8_tensor all = fp8_matrix(host, p->scale, p->scale_rows, p->scale_cols);
        status = fp8_cuda_place(l->ctx, &all, l->cuda->scales, p->scale_cols, err);
    }
    if (status == FP8_OK)
        status = place_read_scales(l, host, err);
    fp8_release(l->ctx, host);
    return status;
}

fp8_status fp8_cuda_linear_place_bias(const fp8_linear *l, const fp8_tensor *bias, fp8_error *err)
{
    const int64_t n = l->plan.n;
    if (n == 0)
        return FP8_OK;
    const fp8_tensor row = {bias->data, bias->dtype, 2, {1, n, 0, 0}, {0, bias->stride[0], 0, 0}};
    float *host = fp8_alloc_zeroed(l->ctx, 2 * (uint64_t)n, sizeof *host);
    FP8_FAIL_IF(!host, err, FP8_E_NO_MEMORY, "linear: no memory for %lld elements", (long long)n);
    fp8_status status = fp8_cuda_fetch(l->ctx, &row, host + n, err);
    for (int64_t i = 0; i < n; i++)
        host[i] = fp8_dtype_facts_of(bias->dtype)->load(host + n, i);
    const fp8_tensor values = fp8_matrix(host, FP8_F32, 1, n);
    if (status == FP8_OK)
        status = fp8_cuda_place(l->ctx, &values, l->cuda->bias, n, err);
    fp8_release(l->ctx, host);
    return status;
}

fp8_status fp8_cuda_linear_place_x_static(const fp8_linear *l, fp8_error *err)
{
    float value = l->plan.desc.x_static;
    const fp8_tensor x_static = fp8_matrix(&value, FP8_F32, 1, 1);
    return fp8_cuda_place(l->ctx, &x_static, l->cuda->x_static, 1, err);
}

fp8_status fp8_cuda_linear_set_bias(fp8_linear *l, const fp8_tensor *bias, fp8_error *err)
{
    float zero = 0;
    fp8_tensor none = fp8_vector(&zero, FP8_F32, l->plan.n);
    none.stride[0] = 0;
    FP8_TRY(fp8_cuda_wait_for_all(l->ctx, err));
    FP8_TRY(fp8_cuda_linear_place_bias(l, bias ? bias : &none, err));
    l->has_bias = bias != NULL;
    return FP8_OK;
}

fp8_status fp8_cuda_linear_get_bias(const fp8_linear *l, float *host, fp8_error *err)
{
    const fp8_tensor there = fp8_matrix(l->cuda->bias, FP8_F32, 1, l->plan.n);
    return l->has_bias ? fp8_cuda_fetch(l->ctx, &there, host, err) : FP8_OK;
}

/* ---- create ---- */

/* Codes and scales of w, which is on the device, contiguous or not. */
static fp8_status quantize(const fp8_linear *l, const fp8_tensor *w, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    fp8_tensor codes = fp8_matrix(l->cuda->codes, p->code, p->n, p->k);
    fp8_tensor scales = fp8_matrix(l->cuda->scales, p->scale, p->scale_rows, p->scale_cols);
    codes.stride[0] = l->cuda->ld;
    FP8_TRY(fp8_quantize(l->ctx, &p->desc.w, w, &codes, &scales, NULL, err));
    return fp8_device_wait(l->ctx, NULL, err);
}

fp8_status fp8_cuda_linear_clear_padding(const fp8_linear *l, fp8_error *err)
{
    if (l->cuda->ld == l->plan.k)
        return FP8_OK;
    const fp8_tensor none = fp8_matrix(l->cuda->codes, FP8_U8, l->plan.n, 0);
    return fp8_cuda_place(l->ctx, &none, l->cuda->codes, l->cuda->ld, err);
}

static fp8_status fill_high(const fp8_linear *l, const fp8_tensor *w, fp8_error *err)
{
    FP8_TRY(fp8_cuda_linear_clear_padding(l, err));
    if (l->plan.n * l->plan.k > 0)
        FP8_TRY(quantize(l, w, err));
    return fp8_cuda_linear_place_scales(l, NULL, false, err);
}

static fp8_status fill(fp8_linear *l, const fp8_tensor *w, const fp8_tensor *w_scales,
                       fp8_error *err)
{
    FP8_TRY(fp8_cuda_linear_place_x_static(l, err));
    if (l->plan.high != FP8_DTYPE_NONE)
        return fill_high(l, w, err);
    FP8_TRY(fp8_cuda_linear_place_scales(l, w_scales, true, err));
    return fp8_cuda_place(l->ctx, w, l->cuda->codes, l->cuda->ld, err);
}

/* Of a weight in high precision that the host has. */
static fp8_status quantize_on_host(const fp8_context *ctx, const fp8_linear_plan *plan,
                                   const fp8_tensor *w, fp8_linear **out, fp8_error *err)
{
    fp8_build build;
    FP8_TRY(fp8_build_begin(ctx, plan, &build, err));
    fp8_status status = fp8_build_quantize(&build, w, err);
    if (status == FP8_OK)
        status = fp8_build_finish(&build, err);
    if (status == FP8_OK)
        *out = fp8_build_end(&build);
    else
        fp8_build_drop(&build);
    return status;
}

static fp8_status make(const fp8_context *ctx, const fp8_linear_plan *plan, const fp8_tensor *w,
                       const fp8_tensor *w_scales, fp8_linear **out, fp8_error *err)
{
    bool on_device = true;
    if (plan->high != FP8_DTYPE_NONE && plan->n * plan->k > 0)
        FP8_TRY(fp8_cuda_find(ctx, w->data, &on_device, err));
    if (!on_device)
        return quantize_on_host(ctx, plan, w, out, err);
    FP8_TRY(fp8_cuda_linear_allocate(ctx, plan, out, err));
    const fp8_status status = fill(*out, w, w_scales, err);
    if (status != FP8_OK)
        fp8_cuda_linear_free(*out);
    return status;
}

fp8_status fp8_cuda_linear_create(const fp8_context *ctx, const fp8_linear_plan *plan,
                                  const fp8_tensor *w, const fp8_tensor *w_scales,
                                  const fp8_tensor *bias, fp8_linear **out, fp8_error *err)
{
    fp8_linear *l;
    FP8_TRY(make(ctx, plan, w, w_scales, &l, err));
    l->has_bias = bias != NULL;
    const fp8_status status = bias ? fp8_cuda_linear_place_bias(l, bias, err) : FP8_OK;
    if (status == FP8_OK)
        *out = l;
    else
        fp8_cuda_linear_free(l);
    return status;
}

/* ---- copies on the device ---- */

bool fp8_cuda_is_same(const fp8_context *a, const fp8_context *b)
{
    return a->cuda->handle == b->cuda->handle;
}

/* Part by part: what lies between them has never been written. */
static fp8_status copy_memory(const fp8_linear *to, const fp8_linear *from, fp8_error *err)
{
    const fp8_linear_plan *p = &from->plan;
    const fp8_cuda_linear *a = to->cuda, *b = from->cuda;
    const uint64_t n = (uint64_t)p->n;
    const struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } parts[] = {
        {a->codes, b->codes, n * (uint64_t)b->ld},
        {a->scales, b->scales, scale_bytes_of(p)},
        {a->w_scale, b->w_scale, read_as_they_are(p) ? 0 : read_count(p) * sizeof(float)},
        {a->bias, b->bias, from->has_bias ? n * sizeof(float) : 0},
        {a->x_static, b->x_static, sizeof(float)},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        FP8_TRY(fp8_device_copy(to->ctx, parts[i].to, parts[i].from, parts[i].bytes, NULL, err));
    return fp8_device_wait(to->ctx, NULL, err);
}

fp8_status fp8_cuda_linear_copy(const fp8_context *ctx, const fp8_linear *from, fp8_linear **out,
                                fp8_error *err)
{
    fp8_linear *l;
    FP8_TRY(fp8_cuda_linear_allocate(ctx, &from->plan, &l, err));
    l->has_bias = from->has_bias;
    const fp8_status status = copy_memory(l, from, err);
    if (status == FP8_OK)
        *out = l;
    else
        fp8_cuda_linear_free(l);
    return status;
}

fp8_status fp8_cuda_linear_assign(fp8_linear *to, const fp8_linear *from, fp8_error *err)
{
    FP8_TRY(fp8_cuda_wait_for_all(to->ctx, err));
    return copy_memory(to, from, err);
}

/* ---- what it holds ---- */

void fp8_cuda_linear_sizes(const fp8_linear *l, fp8_linear_info *out)
{
    out->code_bytes = (uint64_t)(l->plan.n * l->cuda->ld);
    out->scale_bytes = scale_bytes_of(&l->plan);
    out->other_bytes = sizeof *l + sizeof *l->cuda + l->memory_bytes + l->cuda->memory_bytes -
                       out->code_bytes - out->scale_bytes;
}

/* to = from, contiguous rows on the device; to lies on either side. */
static fp8_status export_matrix(const fp8_context *ctx, const fp8_tensor *from,
                                const fp8_tensor *to, fp8_error *err)
{
    const int64_t rows = to->shape[0], cols = to->shape[1], bytes = fp8_dtype_bits(to->dtype) / 8;
    bool on_device;
    if (rows * cols == 0)
        return FP8_OK;
    FP8_TRY(fp8_cuda_find(ctx, to->data, &on_device, err));
    if (on_device)
        return fp8_cuda_rearrange(ctx, from, to, err);
    char *host = fp8_alloc(ctx, (uint64_t)(rows * cols * bytes));
    FP8_FAIL_IF(!host, err, FP8_E_NO_MEMORY, "linear: no memory for %lld bytes",
                (long long)(rows * cols * bytes));
    const fp8_status status = fp8_cuda_fetch(ctx, from, host, err);
    for (int64_t i = 0; i < rows && status == FP8_OK; i++)
        for (int64_t j = 0; j < cols; j++)
            memcpy(fp8_element_at(to, i, j), host + (i * cols + j) * bytes, (size_t)bytes);
    fp8_release(ctx, host);
    return status;
}

fp8_status fp8_cuda_linear_export(const fp8_linear *l, const fp8_tensor *codes,
                                  const fp8_tensor *scales, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    fp8_tensor from_codes = fp8_matrix(l->cuda->codes, p->code, p->n, p->k);
    const fp8_tensor from_scales =
        fp8_matrix(l->cuda->scales, p->scale, p->scale_rows, p->scale_cols);
    from_codes.stride[0] = l->cuda->ld;
    if (codes)
        FP8_TRY(export_matrix(l->ctx, &from_codes, codes, err));
    return scales ? export_matrix(l->ctx, &from_scales, scales, err) : FP8_OK;
}
