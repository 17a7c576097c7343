/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_linear_run.c - Y[M,N] = X[M,K] W[N,K]^T + bias and dX[M,K] = dY[M,N] W[N,K] on a CUDA
 * device: one launch, after those that quantize X where that is asked for. All is enqueued into
 * the caller's stream. The workspace:  | codes of X [M, ld] | their scales |. */
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/matrix.h"
#include "base/size.h"
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

/* What a call works with. */
typedef struct call {
    const fp8_linear *linear;
    const fp8_cuda_device *device;
    const fp8_tensor *x, *x_scales;
    fp8_tensor codes, scales; /* of X quantized here, in the workspace */
    void *stream;
} call;

static bool quantizes(const fp8_linear_plan *p)
{
    return p->desc.activation == FP8_ACTIVATION_DYNAMIC ||
           p->desc.activation == FP8_ACTIVATION_STATIC;
}

static int64_t x_scale_cols(const fp8_linear_plan *p)
{
    return fp8_ceil_div(p->k, p->x_unit_cols);
}

/* Bytes of the workspace's parts for m rows. */
static bool size_parts(const fp8_linear_plan *p, int64_t m, uint64_t *codes, uint64_t *scales)
{
    const uint64_t row = (uint64_t)fp8_cuda_row_bytes(p->k);
    *codes = *scales = 0;
    if (!quantizes(p))
        return true;
    return fp8_size_mul((uint64_t)m, row, codes) &&
           fp8_size_mul((uint64_t)m, (uint64_t)x_scale_cols(p) * sizeof(float), scales) &&
           *codes < INT64_MAX / 4 && *scales < INT64_MAX / 4;
}

fp8_status fp8_cuda_linear_workspace(const fp8_linear *linear, int64_t m, uint64_t *bytes,
                                     fp8_error *err)
{
    uint64_t codes, scales;
    FP8_FAIL_IF(!size_parts(&linear->plan, m, &codes, &scales), err, FP8_E_SHAPE,
                "linear: a workspace for %lld rows does not fit in memory", (long long)m);
    *bytes = fp8_cuda_align(codes) + fp8_cuda_align(scales) + FP8_CUDA_ALIGN;
    return FP8_OK;
}

/* ---- the operands ---- */

static int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

static fp8_gemm_operand plain_operand(const fp8_tensor *t)
{
    return (fp8_gemm_operand){.elements = fp8_cuda_matrix_of(t), .unit = {1, 1}};
}

/* X as it is multiplied: codes and scales, or high precision. */
static fp8_gemm_operand x_operand(const call *c)
{
    const fp8_linear_plan *p = &c->linear->plan;
    const bool codes_made = quantizes(p);
    fp8_gemm_operand o = plain_operand(codes_made ? &c->codes : c->x);
    if (!p->x_is_scaled)
        return o;
    o.scales = fp8_cuda_matrix_of(codes_made ? &c->scales : c->x_scales);
    if (p->desc.x.grid.rows == 0)
        o.scales.row = 0;
    o.unit[1] = at_least_one(p->x_unit_cols);
    o.along_k = p->x_along_k;
    return o;
}

/* W[N,K]; rounded: NONE, or the dtype of X. */
static fp8_gemm_operand w_operand(const fp8_linear *l, fp8_dtype rounded)
{
    const fp8_linear_plan *p = &l->plan;
    const bool along_k = p->scale_cols > 1;
    return (fp8_gemm_operand){
        .elements = {l->cuda->codes, l->cuda->ld, 1, (int32_t)p->code, 0},
        .scales = {l->cuda->w_scale, along_k ? p->scale_cols : 1, along_k,
                   (int32_t)l->cuda->w_scale_dtype, 0},
        .unit = {along_k ? p->unit_rows : 1, at_least_one(p->unit_cols)},
        .origin = {along_k ? p->desc.w_origin.rows : 0, along_k ? p->desc.w_origin.cols : 0},
        .along_k = along_k || rounded != FP8_DTYPE_NONE,
        .rounded = (int32_t)rounded,
    };
}

static void swap(int64_t pair[2])
{
    const int64_t first = pair[0];
    pair[0] = pair[1];
    pair[1] = first;
}

/* W^T [K,N], along whose columns all scales vary. */
static fp8_gemm_operand turned_w(const fp8_linear *l)
{
    fp8_gemm_operand o = w_operand(l, FP8_DTYPE_NONE);
    o.elements = (fp8_cuda_matrix){l->cuda->codes, 1, l->cuda->ld, (int32_t)l->plan.code, 0};
    const int64_t row = o.scales.row;
    o.scales.row = o.scales.col;
    o.scales.col = row;
    swap(o.unit);
    swap(o.origin);
    o.along_k = 1;
    return o;
}

static fp8_status launch(const fp8_cuda_device *device, const fp8_gemm_args *args, void *stream,
                         fp8_error *err)
{
    const int64_t tiles =
        fp8_ceil_div(args->m, FP8_GEMM_TILE) * fp8_ceil_div(args->n, FP8_GEMM_TILE);
    const int64_t blocks = fp8_min_i64(tiles, INT32_MAX); /* a block goes on to the next tile */
    const fp8_cuda_shape shape = {.grid = {(uint32_t)blocks}, .threads = FP8_GEMM_THREADS};
    if (tiles == 0)
        return FP8_OK;
    return fp8_cuda_launch(device, FP8_CUDA_gemm_plain, &shape, args, stream, err);
}

/* ---- X ---- */

/* The parts of the workspace as matrices. */
static void divide_workspace(call *c, void *workspace)
{
    const fp8_linear_plan *p = &c->linear->plan;
    const int64_t m = c->x->shape[0], ld = fp8_cuda_row_bytes(p->k), cols = x_scale_cols(p);
    uint8_t *base = (uint8_t *)(uintptr_t)fp8_cuda_align((uintptr_t)workspace);
    c->codes = fp8_matrix(base, p->desc.x_code, m, p->k);
    c->codes.stride[0] = ld;
    c->scales = fp8_matrix(base + fp8_cuda_align((uint64_t)(m * ld)), p->desc.x_scale,
                           p->desc.x.grid.rows ? m : 1, cols);
    if (p->desc.activation == FP8_ACTIVATION_STATIC)
        c->scales = fp8_matrix(c->linear->cuda->x_static, FP8_F32, 1, cols);
}

static fp8_status prepare_x(call *c, void *workspace, fp8_error *err)
{
    const fp8_linear_plan *p = &c->linear->plan;
    if (!quantizes(p))
        return FP8_OK;
    divide_workspace(c, workspace);
    return fp8_quantize(c->linear->ctx, &p->desc.x, c->x, &c->codes, &c->scales, c->stream, err);
}

static fp8_status check_places(const fp8_cuda_device *device, const fp8_tensor *in,
                               const char *in_name, const fp8_tensor *in_scales,
                               const fp8_tensor *out, const char *out_name, fp8_error *err)
{
    FP8_TRY(fp8_cuda_check_memory(device, in->data, in_name, err));
    if (in_scales)
        FP8_TRY(fp8_cuda_check_memory(device, in_scales->data, "x_scales", err));
    return fp8_cuda_check_memory(device, out->data, out_name, err);
}

static fp8_status multiply(const call *c, const fp8_tensor *y, fp8_error *err)
{
    const fp8_linear *l = c->linear;
    const bool rounds = l->plan.desc.weight_math == FP8_WEIGHT_ROUNDED;
    const fp8_gemm_args args = {
        .x = x_operand(c),
        .w = w_operand(l, rounds ? c->x->dtype : FP8_DTYPE_NONE),
        .y = fp8_cuda_matrix_of(y),
        .bias = l->has_bias ? l->cuda->bias : NULL,
        .m = y->shape[0],
        .n = l->plan.n,
        .k = l->plan.k,
        .epilogue = (int32_t)l->plan.desc.epilogue,
    };
    return launch(c->device, &args, c->stream, err);
}

fp8_status fp8_cuda_linear_run(const fp8_linear *linear, const fp8_tensor *x,
                               const fp8_tensor *x_scales, const fp8_tensor *y, void *workspace,
                               void *stream, fp8_error *err)
{
    call c = {linear, linear->ctx->cuda, x, x_scales, .stream = stream};
    FP8_TRY(fp8_cuda_begin(c.device, stream, err));
    fp8_status status = check_places(c.device, x, "x", x_scales, y, "y", err);
    if (status == FP8_OK)
        status = fp8_cuda_check_memory(c.device, workspace, "the workspace", err);
    if (status == FP8_OK && x->shape[0] > 0)
        status = prepare_x(&c, workspace, err);
    if (status == FP8_OK)
        status = multiply(&c, y, err);
    fp8_cuda_leave(c.device);
    return status;
}

fp8_status fp8_cuda_linear_run_dx(const fp8_linear *linear, const fp8_tensor *dy,
                                  const fp8_tensor *dx, void *stream, fp8_error *err)
{
    const fp8_cuda_device *device = linear->ctx->cuda;
    const fp8_gemm_args args = {
        .x = plain_operand(dy),
        .w = turned_w(linear),
        .y = fp8_cuda_matrix_of(dx),
        .m = dx->shape[0],
        .n = linear->plan.k,
        .k = linear->plan.n,
    };
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    fp8_status status = check_places(device, dy, "dy", NULL, dx, "dx", err);
    if (status == FP8_OK)
        status = launch(device, &args, stream, err);
    fp8_cuda_leave(device);
    return status;
}

fp8_status fp8_cuda_linear_explain(const fp8_linear_plan *plan, int64_t i, fp8_candidate *out,
                                   fp8_error *err)
{
    (void)plan;
    FP8_FAIL_IF(i != 0, err, FP8_E_NOT_FOUND, "explain: there is no candidate %lld", (long long)i);
    *out = (fp8_candidate){
        .kernel = "gemm_plain", .isa = "sm_80", .chosen = 1, .reason = "it does everything"};
    return FP8_OK;
}
