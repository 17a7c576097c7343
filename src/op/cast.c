/* SPDX-License-Identifier: Apache-2.0
 *
 * cast.c - fp8_cast: elements of one dtype to another through fp32, in which every dtype is exact.
 *
 *     dst[i] = round_to_dst(fp32(src[i]))
 */
#include "op/cast.h"
#include "base/size.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"

#include <string.h>

enum {
    TASK_ELEMENTS = 1 << 16, /* what a thread takes at once */
    STEP_ELEMENTS = 1 << 11, /* what passes through fp32 at once: 8 KiB of stack */
};

typedef struct cast_job {
    fp8_caster caster;
    const char *src;
    char *dst;
    int64_t n;
    bool saturate;
} cast_job;

static void cast_step(const fp8_caster *c, char *dst, const char *src, int64_t n, bool saturate)
{
    float step[STEP_ELEMENTS];
    if (!c->first) {
        memcpy(dst, src, (size_t)(n * c->src_bytes));
    } else if (!c->second) {
        c->first(dst, src, n, saturate);
    } else {
        c->first(step, src, n, false);
        c->second(dst, step, n, saturate);
    }
}

void fp8_caster_run(const fp8_caster *caster, void *dst, const void *src, int64_t n, bool saturate)
{
    for (int64_t i = 0; i < n; i += STEP_ELEMENTS)
        cast_step(caster, (char *)dst + i * caster->dst_bytes,
                  (const char *)src + i * caster->src_bytes, fp8_min_i64(STEP_ELEMENTS, n - i),
                  saturate);
}

static void cast_task(void *arg, int64_t task)
{
    const cast_job *job = arg;
    const int64_t i = task * TASK_ELEMENTS;
    fp8_caster_run(&job->caster, job->dst + i * job->caster.dst_bytes,
                   job->src + i * job->caster.src_bytes, fp8_min_i64(TASK_ELEMENTS, job->n - i),
                   job->saturate);
}

/* One step if there is a kernel for the pair, else two by way of fp32. */
fp8_caster fp8_caster_of(fp8_isa isa, fp8_dtype from, fp8_dtype to, bool saturate)
{
    fp8_caster c = {NULL, NULL, fp8_dtype_bits(from) / 8, fp8_dtype_bits(to) / 8};
    if (from == to && !saturate)
        return c;
    const fp8_kernel *direct = fp8_kernel_pick(isa, FP8_OP_CAST, from, to);
    if (direct) {
        c.first = direct->fn.cast;
        return c;
    }
    c.first = fp8_kernel_pick(isa, FP8_OP_CAST, from, FP8_F32)->fn.cast;
    c.second = fp8_kernel_pick(isa, FP8_OP_CAST, FP8_F32, to)->fn.cast;
    return c;
}

static bool can_cast(fp8_dtype dtype)
{
    return fp8_dtype_is_real(dtype) || dtype == FP8_E8M0FNU;
}

fp8_status fp8_cast(const fp8_context *ctx, const void *src, fp8_dtype src_dtype, void *dst,
                    fp8_dtype dst_dtype, int64_t n, int saturate, void *stream, fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "cast: the context is NULL");
    if (!ctx->cuda)
        FP8_TRY(fp8_need_no_stream(stream, "cast", err));
    FP8_FAIL_IF(!can_cast(src_dtype) || !can_cast(dst_dtype), err, FP8_E_DTYPE,
                "cast: from dtype %d to %d, must be F32, F16, BF16 or 8-bit floats", (int)src_dtype,
                (int)dst_dtype);
    FP8_FAIL_IF(n < 0 || n > INT64_MAX / 8, err, FP8_E_ARGUMENT,
                "cast: n is %lld, must be in [0,2^60)", (long long)n);
    FP8_FAIL_IF(n > 0 && (!src || !dst), err, FP8_E_ARGUMENT, "cast: %s is NULL and n is %lld",
                src ? "dst" : "src", (long long)n);
    const uintptr_t a = (uintptr_t)src, b = (uintptr_t)dst;
    FP8_FAIL_IF(n > 0 && a < b + (uintptr_t)(n * (fp8_dtype_bits(dst_dtype) / 8)) &&
                    b < a + (uintptr_t)(n * (fp8_dtype_bits(src_dtype) / 8)),
                err, FP8_E_ARGUMENT,
                "cast: src and dst overlap: dst is %lld bytes behind src, and n is %lld",
                (long long)(b - a), (long long)n);
    if (ctx->cuda)
        return fp8_cuda_cast(ctx, src, src_dtype, dst, dst_dtype, n, saturate != 0, stream, err);
    const cast_job job = {fp8_caster_of(ctx->isa, src_dtype, dst_dtype, saturate != 0), src, dst, n,
                          saturate != 0};
    fp8_run_parallel(ctx, fp8_ceil_div(n, TASK_ELEMENTS), cast_task, (void *)&job);
    return FP8_OK;
}
