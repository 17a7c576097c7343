/* SPDX-License-Identifier: Apache-2.0
 *
 * wide_launch.c - arguments of gemm_wide.cuh: descriptors for bulk copies, the walk over tiles, the
 * ring. */
#include "backend/cuda/tensor_map.h"
#include "backend/cuda/wide.h"

/* Tiles down that are walked before the next ones across: some 2048 rows of X stay in the L2. */
static int32_t group_of(const fp8_wide_version *v, const fp8_wide_problem *p)
{
    enum { ROWS = 2048 };
    const int32_t down = (p->m + v->tokens - 1) / v->tokens, some = ROWS / v->tokens;
    return down < some ? down : some;
}

fp8_status fp8_wide_launch(const fp8_cuda_device *device, const fp8_wide_version *v,
                           const fp8_wide_problem *p, const fp8_wide_matrices *m, void *stream,
                           fp8_error *err)
{
    const int32_t depth = fp8_wide_depth(v->tokens), stage = fp8_wide_stage(v->tokens);
    fp8_wide_plan plan;
    FP8_FAIL_IF(!fp8_wide_plan_make(device, v, p, &plan), err, FP8_E_NO_KERNEL,
                "%s: no room for k = %d", device->label, p->k);
    fp8_wide_args a = {
        .scales = m->scale,
        .bias = m->bias,
        .y = m->y,
        .y_stride = m->y_stride,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .stages = plan.stages,
        .split = v->split,
        .group = group_of(v, p),
        .y_dtype = (int32_t)m->y_dtype,
        .bias_last = m->bias && m->bias_last,
        .scale_step = !m->one_scale,
    };
    enum { FEW = 64 }; /* rows of X for which W is read about once */
    const uint32_t promotion = p->m > FEW ? FP8_CU_MAP_L2_256B : FP8_CU_MAP_L2_NONE;
    const fp8_cuda_map_of straight = {m->w,
                                      p->n,
                                      p->k,
                                      m->w_stride,
                                      FP8_WIDE_ROWS,
                                      depth,
                                      FP8_CU_MAP_U8,
                                      depth == 128 ? FP8_CU_MAP_SWIZZLE_128 : FP8_CU_MAP_SWIZZLE_64,
                                      1,
                                      promotion};
    const fp8_cuda_map_of turned = {m->w,  p->k,          p->n,          m->w_stride,
                                    depth, FP8_WIDE_ROWS, FP8_CU_MAP_U8, FP8_CU_MAP_SWIZZLE_128,
                                    1,     promotion};
    /* A copy of 16 bits, whatever they mean. */
    const fp8_cuda_map_of x = {
        m->x, p->m,     p->k, m->x_stride, v->tokens, 64, FP8_CU_MAP_BF16, FP8_CU_MAP_SWIZZLE_128,
        2,    promotion};
    const fp8_cuda_shape shape = {
        .grid = {(uint32_t)(plan.clusters * v->split)},
        .threads = (uint32_t)fp8_wide_threads(v->tokens, v->kind),
        .shared_bytes = (uint32_t)(plan.stages * stage),
        .cluster = (uint32_t)v->split,
        .dependent = true,
    };
    FP8_TRY(fp8_cuda_make_map(device, v->turned ? &turned : &straight, &a.w, err));
    FP8_TRY(fp8_cuda_make_map(device, &x, &a.x, err));
    return fp8_cuda_launch(device, v->kernel, &shape, &a, stream, err);
}
