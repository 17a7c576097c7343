/* SPDX-License-Identifier: Apache-2.0
 *
 * mma_run.c - see mma_run.h. */
#include "backend/cuda/mma_run.h"
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/matrix.h"
#include "base/size.h"

#include <string.h>

/* ---- the operands ---- */

static int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

static fp8_gemm_operand plain_operand(const fp8_tensor *t)
{
    return (fp8_gemm_operand){.elements = fp8_cuda_matrix_of(t), .unit = {1, 1}};
}

static fp8_gemm_operand x_operand(const fp8_linear_plan *p, const fp8_tensor *x,
                                  const fp8_tensor *scales)
{
    fp8_gemm_operand o = plain_operand(x);
    if (!scales)
        return o;
    o.scales = fp8_cuda_matrix_of(scales);
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

/* Whether its scales change at columns that gemm_mma.cu can cut at. */
static bool cuts_well(const fp8_gemm_operand *o)
{
    return !o->along_k || (o->unit[1] % FP8_MMA_DEPTH == 0 && o->origin[1] % FP8_MMA_DEPTH == 0);
}

static bool is_mma_code(int32_t dtype)
{
    return dtype == FP8_E4M3FN || dtype == FP8_E5M2;
}

/* The kernel of gemm_mma.cu for these dtypes and scales, the plain one if there is none. */
static fp8_cuda_kernel mma_kernel(const fp8_gemm_args *a)
{
    enum { BF16, CODES, F16 };
    static const fp8_cuda_kernel kernels[3][2] = {
        {FP8_CUDA_gemm_mma_bf16, FP8_CUDA_gemm_mma_bf16_segments},
        {FP8_CUDA_gemm_mma_codes, FP8_CUDA_gemm_mma_codes_segments},
        {FP8_CUDA_gemm_mma_f16, FP8_CUDA_gemm_mma_f16_segments}};
    const int32_t x = a->x.elements.dtype;
    const bool rounds = a->w.rounded != FP8_DTYPE_NONE;
    if (rounds || a->k == 0 || a->k % 16 || !is_mma_code(a->w.elements.dtype) ||
        !(is_mma_code(x) || x == FP8_BF16 || x == FP8_F16) || !cuts_well(&a->x) ||
        !cuts_well(&a->w))
        return FP8_CUDA_gemm_plain;
    return kernels[x == FP8_BF16 ? BF16 : x == FP8_F16 ? F16 : CODES][a->x.along_k || a->w.along_k];
}

/* Whether the rows of both lie side by side, aligned to 16 bytes. */
static bool lies_well(const fp8_gemm_operand *o)
{
    const int64_t bytes = fp8_dtype_bits((fp8_dtype)o->elements.dtype) / 8;
    return o->elements.col == 1 && (uintptr_t)o->elements.data % 16 == 0 &&
           fp8_cuda_divides(16, (uint64_t)o->elements.row * (uint64_t)bytes);
}

/* The kernel of gemm_dx.cu for a gradient, the plain one if there is none. Scales that do not vary
 * along K are known for each row of W: if they differ, they go to dY. */
static fp8_cuda_kernel dx_kernel(const fp8_linear *l, fp8_gemm_args *a)
{
    const fp8_linear_plan *p = &l->plan;
    const bool along_k = p->scale_cols > 1, one = !along_k && p->scale_rows == 1;
    const int32_t dy = a->x.elements.dtype;
    const bool terms = dy == FP8_F32 || !(along_k || one);
    if (p->n == 0 || p->n % 16 || !lies_well(&a->x) || !is_mma_code(a->w.elements.dtype) ||
        (along_k && !cuts_well(&a->w)) || (terms && a->w.elements.dtype != FP8_E4M3FN))
        return FP8_CUDA_gemm_plain;
    if (!along_k) {
        a->w.along_k = 0;
        a->w.scales.row = a->w.scales.col = 0; /* the first is the one */
    }
    if (!along_k && !one) {
        a->x_columns = l->cuda->w_scale;
        a->w.scales.data = NULL;
    }
    return terms            ? FP8_CUDA_gemm_dx_terms
           : dy == FP8_BF16 ? FP8_CUDA_gemm_dx_bf16
                            : FP8_CUDA_gemm_dx_f16;
}

/* shared_bytes: of a kernel of tensor cores. */
static fp8_status launch(const fp8_cuda_device *device, fp8_cuda_kernel kernel,
                         uint32_t shared_bytes, const fp8_gemm_args *args, void *stream,
                         fp8_error *err)
{
    const bool plain = kernel == FP8_CUDA_gemm_plain;
    const int64_t tile = plain ? FP8_GEMM_TILE : FP8_MMA_TILE;
    const int64_t tiles = fp8_ceil_div(args->m, tile) * fp8_ceil_div(args->n, tile);
    const int64_t blocks = fp8_min_i64(tiles, INT32_MAX); /* a block goes on to the next tile */
    const fp8_cuda_shape shape = {
        .grid = {(uint32_t)blocks},
        .threads = plain ? FP8_GEMM_THREADS : FP8_MMA_THREADS,
        .shared_bytes = plain ? 0 : shared_bytes,
    };
    if (tiles == 0)
        return FP8_OK;
    return fp8_cuda_launch(device, kernel, &shape, args, stream, err);
}

/* ---- runs ---- */

static bool is_called(fp8_cuda_kernel kernel, const char *name)
{
    return name && !strcmp(name, fp8_cuda_kernel_at(kernel)->function);
}

fp8_status fp8_mma_run(const fp8_linear *l, const fp8_tensor *x, const fp8_tensor *scales,
                       const fp8_tensor *y, const char *wanted, void *stream, fp8_error *err)
{
    const bool rounds = l->plan.desc.weight_math == FP8_WEIGHT_ROUNDED;
    const fp8_gemm_args args = {
        .x = x_operand(&l->plan, x, scales),
        .w = w_operand(l, rounds ? x->dtype : FP8_DTYPE_NONE),
        .y = fp8_cuda_matrix_of(y),
        .bias = l->has_bias ? l->cuda->bias : NULL,
        .m = y->shape[0],
        .n = l->plan.n,
        .k = l->plan.k,
        .epilogue = (int32_t)l->plan.desc.epilogue,
    };
    const bool aligned = lies_well(&args.x) && lies_well(&args.w);
    const bool plain = !aligned || is_called(FP8_CUDA_gemm_plain, wanted);
    const fp8_cuda_kernel kernel = plain ? FP8_CUDA_gemm_plain : mma_kernel(&args);
    FP8_FAIL_IF(wanted && !is_called(kernel, wanted), err, FP8_E_NO_KERNEL,
                "linear: %s is no kernel for this product", wanted);
    return launch(l->ctx->cuda, kernel, 0, &args, stream, err);
}

fp8_status fp8_mma_run_dx(const fp8_linear *l, const fp8_tensor *dy, const fp8_tensor *dx,
                          void *stream, fp8_error *err)
{
    fp8_gemm_args args = {
        .x = plain_operand(dy),
        .w = turned_w(l),
        .y = fp8_cuda_matrix_of(dx),
        .m = dx->shape[0],
        .n = l->plan.k,
        .k = l->plan.n,
    };
    const fp8_cuda_kernel kernel = dx_kernel(l, &args);
    const uint32_t shared = kernel == FP8_CUDA_gemm_dx_terms ? FP8_DX_TERMS_SHARED : FP8_DX_SHARED;
    return launch(l->ctx->cuda, kernel, shared, &args, stream, err);
}

fp8_cuda_kernel fp8_mma_kernel(const fp8_linear_plan *p, fp8_dtype x)
{
    const bool rounds = p->desc.weight_math == FP8_WEIGHT_ROUNDED, along_k = p->scale_cols > 1;
    const fp8_gemm_args args = {
        .x = {.elements.dtype = (int32_t)x, .unit = {1, p->x_unit_cols}, .along_k = p->x_along_k},
        .w = {.elements.dtype = (int32_t)p->code,
              .unit = {1, p->unit_cols},
              .origin = {0, p->desc.w_origin.cols},
              .along_k = along_k,
              .rounded = rounds},
        .k = p->k,
    };
    return mma_kernel(&args);
}
