/* SPDX-License-Identifier: Apache-2.0
 *
 * wide_run.c - see wide_run.h. X in bf16 and fp16 is multiplied as it is; codes with powers of two
 * become bf16 first, which changes no value but those below 2^-124 and above 2^128. */
#include "backend/cuda/wide_run.h"
#include "backend/cuda/cuda_linear.h"
#include "backend/cuda/cuda_quantize.h"
#include "backend/cuda/tensor_map.h"
#include "base/size.h"

#include <stdio.h>

/* X[m,k] in bf16, made in the room. */
static fp8_tensor widened(const fp8_linear_plan *p, int64_t m, void *room)
{
    fp8_tensor t = fp8_matrix(room, FP8_BF16, m, p->k);
    t.stride[0] = fp8_cuda_row_bytes(p->k);
    return t;
}

bool fp8_wide_room(const fp8_linear_plan *p, int64_t m, uint64_t *bytes)
{
    *bytes = 0;
    return !fp8_wide_rounds_x(p) ||
           (fp8_size_mul((uint64_t)m, 2 * (uint64_t)fp8_cuda_row_bytes(p->k), bytes) &&
            *bytes < INT64_MAX / 4);
}

/* Whether bulk copies can read it. */
static bool is_read(const fp8_tensor *x)
{
    return (x->dtype == FP8_BF16 || x->dtype == FP8_F16) && x->stride[1] == 1 &&
           fp8_cuda_has_map(x->data, x->shape[0], x->stride[0], 2) && x->shape[0] <= FP8_WIDE_MOST;
}

static bool is_written(const fp8_tensor *y)
{
    const int bytes = fp8_dtype_bits(y->dtype) / 8;
    return y->stride[1] == 1 && (uintptr_t)y->data % (uintptr_t)bytes == 0;
}

static bool invariant(const fp8_context *ctx)
{
    return ctx->flags & FP8_BATCH_INVARIANT;
}

/* The version for the problem, from the linear's memory of what it has chosen. */
static const fp8_wide_version *choose_once(const fp8_linear *l, const fp8_wide_problem *problem)
{
    const fp8_wide_version *v =
        fp8_wide_at(fp8_cuda_linear_recall(l->cuda, problem->m, problem->f16));
    if (v)
        return v;
    v = fp8_wide_choose(l->ctx->cuda, problem);
    if (v)
        fp8_cuda_linear_remember(l->cuda, problem->m, problem->f16, (size_t)(v - fp8_wide_at(0)));
    return v;
}

const fp8_wide_version *fp8_wide_pick(const fp8_linear *l, const fp8_wide_operands *o,
                                      const char *wanted, fp8_wide_problem *problem)
{
    const bool rounds = fp8_wide_rounds_x(&l->plan);
    const fp8_tensor x = rounds ? widened(&l->plan, o->x->shape[0], o->room) : *o->x;
    if (fp8_wide_lacks(l->ctx->cuda, &l->plan) || !is_read(&x) || !is_written(o->y) ||
        (rounds && o->scales->dtype != FP8_E8M0FNU))
        return NULL;
    *problem = fp8_wide_problem_of(&l->plan, x.shape[0], x.dtype == FP8_F16, invariant(l->ctx));
    if (!wanted)
        return choose_once(l, problem);
    const fp8_wide_version *v = fp8_wide_find(wanted);
    return v && fp8_wide_estimate(l->ctx->cuda, v, problem) >= 0 ? v : NULL;
}

/* X in bf16 of codes, which are given or made. */
static fp8_status widen(const fp8_linear *l, const fp8_wide_operands *o, const fp8_tensor *x,
                        void *stream, fp8_error *err)
{
    const fp8_cuda_device *device = l->ctx->cuda;
    bool done = false;
    if (o->quant)
        FP8_TRY(fp8_cuda_enqueue_rounded(device, o->quant, o->x, o->scales, x, stream, &done, err));
    if (o->quant && !done)
        FP8_TRY(
            fp8_cuda_enqueue_quantize(device, o->quant, o->x, o->codes, o->scales, stream, err));
    return done ? FP8_OK
                : fp8_cuda_enqueue_dequantize(device, l->plan.desc.x.grid, o->codes, o->scales, x,
                                              stream, err);
}

fp8_status fp8_wide_run(const fp8_linear *l, const fp8_wide_operands *o,
                        const fp8_wide_version *version, const fp8_wide_problem *problem,
                        void *stream, fp8_error *err)
{
    const bool rounds = fp8_wide_rounds_x(&l->plan);
    const fp8_tensor x = rounds ? widened(&l->plan, o->x->shape[0], o->room) : *o->x;
    const fp8_wide_matrices m = {
        .x = x.data,
        .w = l->cuda->codes,
        .scale = l->cuda->w_scale,
        .bias = l->has_bias ? l->cuda->bias : NULL,
        .y = o->y->data,
        .x_stride = x.stride[0],
        .w_stride = l->cuda->ld,
        .y_stride = o->y->stride[0],
        .y_dtype = o->y->dtype,
        .bias_last = l->plan.desc.epilogue == FP8_EPILOGUE_BIAS_LAST,
    };
    if (rounds)
        FP8_TRY(widen(l, o, &x, stream, err));
    return fp8_wide_launch(l->ctx->cuda, version, problem, &m, stream, err);
}

fp8_status fp8_wide_run_dx(const fp8_linear *l, const fp8_tensor *dy, const fp8_tensor *dx,
                           void *stream, bool *done, fp8_error *err)
{
    const fp8_cuda_device *device = l->ctx->cuda;
    fp8_wide_problem problem;
    const fp8_wide_version *v = NULL;
    if (dy->shape[0] > 0 && is_read(dy) && is_written(dx) &&
        fp8_wide_dx_problem(device, &l->plan, dy->shape[0], dy->dtype == FP8_F16, invariant(l->ctx),
                            &problem))
        v = fp8_wide_choose(device, &problem);
    *done = v != NULL;
    if (!v)
        return FP8_OK;
    const fp8_wide_matrices m = {.x = dy->data,
                                 .w = l->cuda->codes,
                                 .scale = l->cuda->w_scale,
                                 .one_scale = true,
                                 .y = dx->data,
                                 .x_stride = dy->stride[0],
                                 .w_stride = l->cuda->ld,
                                 .y_stride = dx->stride[0],
                                 .y_dtype = dx->dtype};
    return fp8_wide_launch(device, v, &problem, &m, stream, err);
}

/* ---- explain: asks what the choice asks; it must not know better ---- */

static fp8_wide_problem explained(const fp8_context *ctx, const fp8_linear_plan *p, int64_t m,
                                  fp8_dtype x)
{
    return fp8_wide_problem_of(p, m, x == FP8_F16 && !fp8_wide_rounds_x(p), invariant(ctx));
}

int64_t fp8_wide_count(const fp8_context *ctx, const fp8_linear_plan *p, int64_t m, fp8_dtype x)
{
    if (fp8_wide_lacks(ctx->cuda, p) || m <= 0 || m > FP8_WIDE_MOST ||
        (!p->x_is_scaled && x != FP8_BF16 && x != FP8_F16))
        return 0;
    const fp8_wide_problem problem = explained(ctx, p, m, x);
    const fp8_choice choice = fp8_wide_choice(ctx->cuda, &problem);
    return fp8_choice_count(&choice);
}

void fp8_wide_explain(const fp8_context *ctx, const fp8_linear_plan *p, int64_t m, fp8_dtype x,
                      int64_t i, fp8_candidate *out)
{
    const fp8_wide_problem problem = explained(ctx, p, m, x);
    const fp8_choice choice = fp8_wide_choice(ctx->cuda, &problem);
    const size_t at = fp8_choice_at(&choice, i);
    const fp8_wide_version *v = fp8_wide_at(at);
    const fp8_tuned_row *row = at == choice.measured ? choice.row : NULL;
    char parts[64] = "";
    if (v->split > 1)
        snprintf(parts, sizeof parts, ", k split among %d blocks", v->split);
    *out = (fp8_candidate){v->name, "sm_90a", i == 0, ""};
    snprintf(out->reason, sizeof out->reason,
             "%s %.1f us%s; w becomes 16 bits on its way; tiles of %dx%d%s",
             row ? "measured" : "estimated",
             row ? row->ns * 1e-3 : (double)fp8_wide_estimate(ctx->cuda, v, &problem),
             row ? row->line ? " (by the file)" : " (built in)" : "", v->tokens, FP8_WIDE_ROWS,
             parts);
}
