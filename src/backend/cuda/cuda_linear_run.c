/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_linear_run.c - Y[M,N] = X[M,K] W[N,K]^T + bias and dX[M,K] = dY[M,N] W[N,K] on a CUDA
 * device: one launch, after those that quantize X where that is asked for, unless it does so
 * itself. All is enqueued into the caller's stream. The workspace:  | codes of X [M, ld] | their
 * scales | scales as read | X of wide_run.h |.
 *
 * The kernels of sm90.h and wide_run.h do what they can, those of mma_run.h the rest. */
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/cuda_quantize.h"
#include "backend/cuda/matrix.h"
#include "backend/cuda/mma_run.h"
#include "backend/cuda/not_finite.h"
#include "backend/cuda/sm90.h"
#include "backend/cuda/tensor_map.h"
#include "backend/cuda/wide_run.h"
#include "base/size.h"
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

#include <stdio.h>

/* What a call works with. */
typedef struct call {
    const fp8_linear *linear;
    const char *wanted; /* the kernel that the caller asks for, or NULL */
    const fp8_cuda_device *device;
    const fp8_tensor *x, *x_scales;
    fp8_tensor codes, scales;        /* of X as it is multiplied: given, or made in the workspace */
    float *read;                     /* there too: scales as the kernels of sm90.h read them */
    const fp8_sm90_version *version; /* NULL: none of sm90.h */
    fp8_sm90_problem problem;
    const fp8_wide_version *wide; /* NULL: none of those either */
    fp8_wide_problem wide_problem;
    void *room;      /* of the workspace, for X in bf16 */
    fp8_quant quant; /* of X, if it is quantized */
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

/* Scales of a k block are padded to whole 16 bytes. */
static int64_t read_stride(int64_t m)
{
    return (m + 3) / 4 * 4;
}

/* Bytes of the workspace's parts for m rows; scales are there twice, as they are and as read. */
static bool size_parts(const fp8_linear_plan *p, int64_t m, uint64_t *codes, uint64_t *scales)
{
    const uint64_t row = (uint64_t)fp8_cuda_row_bytes(p->k);
    *codes = *scales = 0;
    if (!p->x_is_scaled)
        return true;
    return m <= INT64_MAX / 4 && fp8_size_mul((uint64_t)m, row, codes) &&
           fp8_size_mul((uint64_t)read_stride(m), (uint64_t)x_scale_cols(p) * sizeof(float),
                        scales) &&
           *codes < INT64_MAX / 4 && *scales < INT64_MAX / 4;
}

fp8_status fp8_cuda_linear_workspace(const fp8_linear *linear, int64_t m, uint64_t *bytes,
                                     fp8_error *err)
{
    uint64_t codes, scales, room;
    FP8_FAIL_IF(
        !size_parts(&linear->plan, m, &codes, &scales) || !fp8_wide_room(&linear->plan, m, &room),
        err, FP8_E_SHAPE, "linear: a workspace for %lld rows does not fit in memory", (long long)m);
    *bytes = fp8_cuda_align(codes) + 2 * fp8_cuda_align(scales) + room + FP8_CUDA_ALIGN;
    return FP8_OK;
}

/* ---- X ---- */

/* Whether the scales of X vary along K and the version reads them by k blocks. */
static bool reads_by_blocks(const call *c)
{
    return c->version && c->problem.block;
}

/* X as codes with scales: as given, or the parts of the workspace where they will be made. */
static void place_x(call *c, void *workspace)
{
    const fp8_linear_plan *p = &c->linear->plan;
    const int64_t m = c->x->shape[0], ld = fp8_cuda_row_bytes(p->k), cols = x_scale_cols(p);
    uint64_t codes, scales;
    (void)size_parts(p, m, &codes, &scales);
    uint8_t *base = (uint8_t *)(uintptr_t)fp8_cuda_align((uintptr_t)workspace);
    uint8_t *after = base + fp8_cuda_align(codes);
    c->read = (float *)(void *)(after + fp8_cuda_align(scales));
    c->room = after + 2 * fp8_cuda_align(scales);
    if (p->desc.activation == FP8_ACTIVATION_CODES) {
        c->codes = *c->x;
        c->scales = *c->x_scales;
        return;
    }
    c->codes = fp8_matrix(base, p->desc.x_code, m, p->k);
    c->codes.stride[0] = ld;
    c->scales = fp8_matrix(after, p->desc.x_scale, p->desc.x.grid.rows ? m : 1, cols);
    if (p->desc.activation == FP8_ACTIVATION_STATIC)
        c->scales = fp8_matrix(c->linear->cuda->x_static, FP8_F32, 1, cols);
}

/* The scales as a version of sm90.h reads them: fp32, [m] or one, or [k blocks, read_stride]; where
 * the quantizer can make them so, it does. */
static void place_read_scales(call *c)
{
    if (reads_by_blocks(c) && quantizes(&c->linear->plan) && c->scales.dtype == FP8_F32) {
        c->scales.data = c->read;
        c->scales.stride[0] = 1;
        c->scales.stride[1] = read_stride(c->x->shape[0]);
    }
}

/* Kernels read scales one by one, those of 1x128 from [k blocks, stride]; but the latter by bulk
 * copies where X does not stay in shared memory. */
static bool is_read_as_it_is(const call *c)
{
    const fp8_tensor *t = &c->scales;
    const int64_t stride = t->stride[1];
    const bool resident = c->version->small && fp8_small_resident(c->version->cols);
    if (t->dtype != FP8_F32 || (uintptr_t)t->data % sizeof(float) ||
        !(t->shape[0] == 1 || t->stride[0] == 1))
        return false;
    if (!reads_by_blocks(c))
        return true;
    if (stride < 0 || stride > INT32_MAX)
        return false;
    return resident || ((uintptr_t)t->data % 16 == 0 && stride % 4 == 0);
}

static fp8_status read_scales(const call *c, fp8_sm90_scales *out, fp8_error *err)
{
    const int64_t stride = read_stride(c->x->shape[0]);
    const bool as_it_is = is_read_as_it_is(c);
    out->x = as_it_is ? c->scales.data : c->read;
    out->x_step = c->scales.shape[0] > 1;
    out->x_stride = (int32_t)(as_it_is ? c->scales.stride[1] : stride);
    if (as_it_is)
        return FP8_OK;
    const fp8_copy_args args = {
        .from = fp8_cuda_matrix_of(&c->scales),
        .to = {c->read, 1, stride, FP8_F32, 0},
        .rows = c->scales.shape[0],
        .cols = c->scales.shape[1],
        .to_cols = c->scales.shape[1],
    };
    const fp8_cuda_shape shape = fp8_cuda_shape_for(c->device, args.rows * args.cols, 1);
    return fp8_cuda_launch(c->device, FP8_CUDA_copy_elements, &shape, &args, c->stream, err);
}

/* How X[m, K] of that dtype is quantized. */
static fp8_status prepare_quant(const fp8_linear_plan *p, fp8_dtype x, int64_t m, fp8_quant *out,
                                fp8_error *err)
{
    const fp8_dtype scale = p->desc.x.static_scales ? FP8_F32 : p->desc.x_scale;
    return fp8_quant_prepare(out, &p->desc.x, x, p->desc.x_code, scale, m, p->k, err);
}

/* Whether there are versions that quantize so by themselves: few rows, in 16 bits, a scale a row or
 * one for all, or 1x128. */
static bool is_for_versions(const fp8_linear_plan *p, const fp8_quant *q)
{
    enum { MOST_ROWS = 8 };
    const bool one = q->grid_rows == 1 && q->grid_cols == 1;
    const bool rows = !q->desc.static_scales && q->unit_rows == 1;
    return q->rows <= MOST_ROWS && q->code == FP8_E4M3FN && q->scale == FP8_F32 &&
           (q->in == FP8_BF16 || q->in == FP8_F16) &&
           (p->x_along_k ? rows && q->unit_cols == 128 : one || (rows && q->grid_cols == 1));
}

/* The same of X as it lies. */
static bool may_be_inside(const call *c)
{
    const fp8_tensor *x = c->x;
    return quantizes(&c->linear->plan) && is_for_versions(&c->linear->plan, &c->quant) &&
           x->stride[1] == 1 && (uintptr_t)x->data % 16 == 0 &&
           (x->shape[0] == 1 || x->stride[0] % 8 == 0);
}

/* As codes and scales, unless the version or fp8_wide_run quantizes X. */
static fp8_status quantize_x(const call *c, fp8_error *err)
{
    if (!quantizes(&c->linear->plan) || c->wide || (c->version && c->version->quantizes))
        return FP8_OK;
    return fp8_cuda_enqueue_quantize(c->device, &c->quant, c->x, &c->codes, &c->scales, c->stream,
                                     err);
}

/* ---- the kernels of sm90.h ---- */

/* What keeps a linear of this plan from them whatever X and Y are; NULL if nothing does. */
static const char *plan_lacks(const fp8_cuda_device *device, const fp8_linear_plan *p)
{
    const bool along_k = p->scale_cols > 1, blocks = along_k || p->x_along_k;
    if (device->facts.capability != 90)
        return "for compute capability 9.0";
    if (p->code != FP8_E4M3FN || !p->x_is_scaled || (quantizes(p) && p->desc.x_code != FP8_E4M3FN))
        return "for x and w in e4m3fn";
    if (p->k % 16 || p->k == 0 || p->n == 0 || p->n > FP8_SM90_MOST || p->k > FP8_SM90_MOST)
        return "for k in 16s";
    if (blocks &&
        !(p->x_along_k && p->x_unit_cols == 128 && p->unit_rows == 128 && p->unit_cols == 128 &&
          p->scale == FP8_F32 && !p->desc.w_origin.rows && !p->desc.w_origin.cols))
        return "for scales a row and a channel, or 1x128 and 128x128";
    return NULL;
}

/* The same for X and Y. */
static const char *matrices_lack(const call *c, const fp8_tensor *y)
{
    const fp8_linear *l = c->linear;
    const fp8_tensor *x = &c->codes;
    if (x->dtype != FP8_E4M3FN)
        return "for x and w in e4m3fn";
    if (x->stride[1] != 1 || !fp8_cuda_has_map(x->data, x->shape[0], x->stride[0], 1) ||
        x->shape[0] > FP8_SM90_MOST)
        return "for rows of x that are aligned to 16 bytes";
    if (y->stride[1] != 1 || (uintptr_t)y->data % (size_t)(fp8_dtype_bits(y->dtype) / 8))
        return "for y with contiguous rows";
    if (y->dtype == FP8_F32 && l->plan.desc.accumulation != FP8_ACCUMULATION_FAST)
        return "for y in bf16 and fp16, or sums in 13 bits: fp32 promises more";
    if (l->has_bias && l->plan.desc.epilogue == FP8_EPILOGUE_BIAS_LAST)
        return "for one rounding, not for a bias that comes last";
    return NULL;
}

static fp8_sm90_problem problem_of(const fp8_context *ctx, const fp8_linear_plan *p, int64_t m,
                                   bool inside)
{
    return (fp8_sm90_problem){.m = (int32_t)m,
                              .n = (int32_t)p->n,
                              .k = (int32_t)p->k,
                              .block = p->x_along_k,
                              .invariant = ctx->flags & FP8_BATCH_INVARIANT,
                              .fast = p->desc.accumulation == FP8_ACCUMULATION_FAST,
                              .whole = quantizes(p),
                              .inside = inside};
}

/* The version for the problem, which costs as much as a launch to find, from the linear's memory of
 * what it has chosen. */
static const fp8_sm90_version *choose_once(const call *c)
{
    fp8_cuda_linear *l = c->linear->cuda;
    const fp8_sm90_problem *p = &c->problem;
    const fp8_sm90_version *v = fp8_sm90_at(fp8_cuda_linear_recall(l, p->m, p->inside));
    if (v)
        return v;
    v = fp8_sm90_choose(c->device, p);
    if (v)
        fp8_cuda_linear_remember(l, p->m, p->inside, (size_t)(v - fp8_sm90_at(0)));
    return v;
}

static fp8_wide_operands wide_operands(const call *c, const fp8_tensor *y)
{
    const fp8_quant *quant = quantizes(&c->linear->plan) ? &c->quant : NULL;
    return (fp8_wide_operands){c->x, &c->codes, &c->scales, quant, y, c->room};
}

/* The version that the caller asks for; what is none is left to fp8_mma_run. */
static fp8_status take_wanted(call *c, const char *lacks, fp8_error *err)
{
    c->version = fp8_sm90_find(c->wanted);
    FP8_FAIL_IF(c->version && lacks, err, FP8_E_NO_KERNEL, "linear: %s is %s", c->wanted, lacks);
    FP8_FAIL_IF(c->version && fp8_sm90_estimate(c->device, c->version, &c->problem) < 0, err,
                FP8_E_NO_KERNEL, "linear: %s is not for m = %d, n = %d, k = %d with these scales",
                c->wanted, c->problem.m, c->problem.n, c->problem.k);
    return FP8_OK;
}

static fp8_status choose(call *c, const fp8_tensor *y, fp8_error *err)
{
    const fp8_linear *l = c->linear;
    const fp8_wide_operands o = wide_operands(c, y);
    const char *lacks = plan_lacks(c->device, &l->plan);
    if (!lacks)
        lacks = matrices_lack(c, y);
    c->version = NULL;
    if (!lacks)
        c->problem = problem_of(l->ctx, &l->plan, y->shape[0], may_be_inside(c));
    if (c->wanted)
        FP8_TRY(take_wanted(c, lacks, err));
    else if (!lacks)
        c->version = choose_once(c);
    if (lacks)
        c->wide = fp8_wide_pick(l, &o, c->wanted, &c->wide_problem);
    return FP8_OK;
}

static fp8_status multiply_fast(const call *c, const fp8_tensor *y, fp8_error *err)
{
    const fp8_linear *l = c->linear;
    const bool inside = c->version->quantizes;
    fp8_cuda_quantize_args quantize;
    fp8_sm90_matrices m = {
        .quantize = inside ? &quantize : NULL,
        .x = c->codes.data,
        .w = l->cuda->codes,
        .y = y->data,
        .y_dtype = y->dtype,
        .x_stride = c->codes.stride[0],
        .w_stride = l->cuda->ld,
        .y_stride = y->stride[0],
        .scales = {.w = l->cuda->w_scale, .bias = l->has_bias ? l->cuda->bias : NULL},
    };
    if (inside)
        quantize = fp8_cuda_describe_quantize(&c->quant, c->x, &c->codes, &c->scales);
    else
        FP8_TRY(read_scales(c, &m.scales, err));
    return fp8_sm90_launch(c->device, c->version, &c->problem, &m, c->stream, err);
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

static fp8_status enqueue(call *c, const fp8_tensor *y, void *workspace, fp8_error *err)
{
    if (c->linear->plan.x_is_scaled)
        place_x(c, workspace);
    if (quantizes(&c->linear->plan))
        FP8_TRY(prepare_quant(&c->linear->plan, c->x->dtype, c->x->shape[0], &c->quant, err));
    FP8_TRY(choose(c, y, err));
    place_read_scales(c);
    FP8_TRY(quantize_x(c, err));
    if (c->wide) {
        const fp8_wide_operands o = wide_operands(c, y);
        return fp8_wide_run(c->linear, &o, c->wide, &c->wide_problem, c->stream, err);
    }
    if (c->version)
        return multiply_fast(c, y, err);
    const bool scaled = c->linear->plan.x_is_scaled;
    return fp8_mma_run(c->linear, scaled ? &c->codes : c->x, scaled ? &c->scales : NULL, y,
                       c->wanted, c->stream, err);
}

fp8_status fp8_cuda_linear_run(const fp8_linear *linear, const char *kernel, const fp8_tensor *x,
                               const fp8_tensor *x_scales, const fp8_tensor *y, void *workspace,
                               void *stream, fp8_error *err)
{
    const fp8_tensor from = fp8_cuda_settled(x), to = fp8_cuda_settled(y);
    call c = {linear, kernel, linear->ctx->cuda, &from, x_scales, .stream = stream};
    FP8_TRY(fp8_cuda_begin(c.device, stream, err));
    fp8_status status = check_places(c.device, &from, "x", x_scales, &to, "y", err);
    if (status == FP8_OK)
        status = fp8_cuda_check_memory(c.device, workspace, "the workspace", err);
    if (status == FP8_OK && x->shape[0] > 0)
        status = enqueue(&c, &to, workspace, err);
    fp8_cuda_leave(c.device);
    return status;
}

fp8_status fp8_cuda_linear_refuse(const fp8_linear *linear, const fp8_tensor *x, void *stream,
                                  fp8_error *err)
{
    const fp8_find_args args = {.x = fp8_cuda_matrix_of(x),
                                .from_rows = 1,
                                .from_cols = 1,
                                .rows = x->shape[0],
                                .cols = x->shape[1]};
    if (!quantizes(&linear->plan) || linear->plan.desc.x.nan != FP8_NAN_REFUSE)
        return FP8_OK;
    return fp8_cuda_refuse_not_finite(linear->ctx, &args, stream, err);
}

fp8_status fp8_cuda_linear_run_dx(const fp8_linear *linear, const fp8_tensor *dy,
                                  const fp8_tensor *dx, void *stream, fp8_error *err)
{
    const fp8_cuda_device *device = linear->ctx->cuda;
    const fp8_tensor from = fp8_cuda_settled(dy), to = fp8_cuda_settled(dx);
    FP8_TRY(fp8_cuda_begin(device, stream, err));
    fp8_status status = check_places(device, dy, "dy", NULL, dx, "dx", err);
    bool done = false;
    if (status == FP8_OK)
        status = fp8_wide_run_dx(linear, &from, &to, stream, &done, err);
    if (status == FP8_OK && !done)
        status = fp8_mma_run_dx(linear, &from, &to, stream, err);
    fp8_cuda_leave(device);
    return status;
}

/* ---- explain ---- */

/* Whether a version may quantize X. */
static bool explains_inside(const fp8_linear_plan *p, int64_t m, fp8_dtype x)
{
    fp8_quant q;
    return quantizes(p) && prepare_quant(p, x, m, &q, NULL) == FP8_OK && is_for_versions(p, &q);
}

fp8_status fp8_cuda_linear_explain(const fp8_context *ctx, const fp8_linear_plan *plan, int64_t m,
                                   fp8_dtype x, int64_t i, fp8_candidate *out, fp8_error *err)
{
    const fp8_cuda_device *device = ctx->cuda;
    const fp8_sm90_problem problem =
        problem_of(ctx, plan, m < INT32_MAX ? m : INT32_MAX, explains_inside(plan, m, x));
    const fp8_cuda_kernel slower = fp8_mma_kernel(plan, quantizes(plan) ? plan->desc.x_code : x);
    const char *lacks = plan_lacks(device, plan);
    if (!lacks && plan->desc.activation == FP8_ACTIVATION_CODES && x != FP8_E4M3FN)
        lacks = "for x and w in e4m3fn";
    const bool fast = !lacks && m > 0 && m <= FP8_SM90_MOST;
    const int64_t wide = lacks ? fp8_wide_count(ctx, plan, m, x) : 0;
    const fp8_choice choice = fast ? fp8_sm90_choice(device, &problem) : (fp8_choice){0};
    const int64_t able = fast ? fp8_choice_count(&choice) : wide;
    const int64_t last = able + (slower != FP8_CUDA_gemm_plain);
    FP8_FAIL_IF(i < 0 || i > last, err, FP8_E_NOT_FOUND, "explain: there is no candidate %lld",
                (long long)i);
    if (i < wide) {
        fp8_wide_explain(ctx, plan, m, x, i, out);
        return FP8_OK;
    }
    if (i < able) {
        fp8_sm90_describe(&choice, i, out);
        return FP8_OK;
    }
    const fp8_cuda_kernel kernel = i == able ? slower : FP8_CUDA_gemm_plain;
    *out = (fp8_candidate){fp8_cuda_kernel_at(kernel)->function, "sm_80", i == 0, ""};
    snprintf(out->reason, sizeof out->reason, "%s; those of sm_90a are %s",
             kernel == FP8_CUDA_gemm_plain ? "does everything" : "rows aligned to 16 bytes",
             lacks && !wide ? lacks : "faster");
    return FP8_OK;
}
