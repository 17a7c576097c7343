/* SPDX-License-Identifier: Apache-2.0
 *
 * cast.c - fp8_cast: elements of one dtype to another through fp32, in which every dtype is exact.
 *
 *     dst[i] = round_to_dst(fp32(src[i]))
 */
#include "base/size.h"
#include "number/dtype.h"
#include "op/backend.h"

#include <string.h>

enum {
    TASK_ELEMENTS = 1 << 16, /* what a thread takes at once */
    STEP_ELEMENTS = 1 << 11, /* what passes through fp32 at once: 8 KiB of stack */
};

typedef struct cast_job {
    const char *src;
    char *dst;
    int64_t n, src_bytes, dst_bytes; /* elements; bytes an element */
    fp8_kernel_cast *first, *second; /* second NULL: first does it all; both NULL: a copy */
    bool saturate;
} cast_job;

static void cast_piece(const cast_job *job, char *dst, const char *src, int64_t n)
{
    float step[STEP_ELEMENTS];
    if (!job->first) {
        memcpy(dst, src, (size_t)(n * job->src_bytes));
    } else if (!job->second) {
        job->first(dst, src, n, job->saturate);
    } else {
        job->first(step, src, n, false);
        job->second(dst, step, n, job->saturate);
    }
}

static void cast_task(void *arg, int64_t task)
{
    const cast_job *job = arg;
    const int64_t end = fp8_min_i64((task + 1) * TASK_ELEMENTS, job->n);
    for (int64_t i = task * TASK_ELEMENTS; i < end; i += STEP_ELEMENTS)
        cast_piece(job, job->dst + i * job->dst_bytes, job->src + i * job->src_bytes,
                   fp8_min_i64(STEP_ELEMENTS, end - i));
}

/* One step if there is a kernel for the pair, else two by way of fp32. */
static void pick_kernels(cast_job *job, fp8_isa isa, fp8_dtype from, fp8_dtype to)
{
    if (from == to && !job->saturate)
        return;
    const fp8_kernel *direct = fp8_kernel_pick(isa, FP8_OP_CAST, from, to);
    if (direct) {
        job->first = direct->fn.cast;
        return;
    }
    job->first = fp8_kernel_pick(isa, FP8_OP_CAST, from, FP8_F32)->fn.cast;
    job->second = fp8_kernel_pick(isa, FP8_OP_CAST, FP8_F32, to)->fn.cast;
}

static bool can_cast(fp8_dtype dtype)
{
    return fp8_dtype_is_real(dtype) || dtype == FP8_E8M0FNU;
}

fp8_status fp8_cast(const fp8_context *ctx, const void *src, fp8_dtype src_dtype, void *dst,
                    fp8_dtype dst_dtype, int64_t n, int saturate, fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "cast: the context is NULL");
    FP8_FAIL_IF(!can_cast(src_dtype) || !can_cast(dst_dtype), err, FP8_E_DTYPE,
                "cast: from dtype %d to %d, must be F32, F16, BF16 or 8-bit floats", (int)src_dtype,
                (int)dst_dtype);
    FP8_FAIL_IF(n < 0 || n > INT64_MAX / 8, err, FP8_E_ARGUMENT,
                "cast: n is %lld, must be in [0,2^60)", (long long)n);
    FP8_FAIL_IF(n > 0 && (!src || !dst), err, FP8_E_ARGUMENT, "cast: %s is NULL and n is %lld",
                src ? "dst" : "src", (long long)n);
    cast_job job = {
        src,  dst,          n, fp8_dtype_bits(src_dtype) / 8, fp8_dtype_bits(dst_dtype) / 8, NULL,
        NULL, saturate != 0};
    const uintptr_t a = (uintptr_t)src, b = (uintptr_t)dst;
    FP8_FAIL_IF(n > 0 && a < b + (uintptr_t)(n * job.dst_bytes) &&
                    b < a + (uintptr_t)(n * job.src_bytes),
                err, FP8_E_ARGUMENT, "cast: src and dst overlap");
    pick_kernels(&job, ctx->isa, src_dtype, dst_dtype);
    fp8_run_parallel(ctx, fp8_ceil_div(n, TASK_ELEMENTS), cast_task, &job);
    return FP8_OK;
}
