/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_scales.c - rules about scales: those that their headers break (found by ckpt/roles.h), and
 * those that their values break. */
#include "convert/verify.h"

#include <math.h>
#include <string.h>

/* Weights beyond this magnitude are no weights: their scale is likely garbage. */
#define LARGEST_PLAUSIBLE 1e6

/* Rules scale-missing, scale-unused and the others that ckpt/roles.h names. */
fp8_status fp8_verify_roles(fp8_verification *v, fp8_error *err)
{
    (void)err;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        const fp8_problem *problem = v->subject.roles.tensors[i].problem;
        fp8_tensor_info info = fp8_subject_tensor(&v->subject, i);
        char shape[64];
        if (!problem)
            continue;
        fp8_shape_text(&info, shape);
        v->rule = problem->rule;
        FP8_FOUND_ERROR(v, info.name, "%s %s: %s", fp8_dtype_name(info.dtype), shape,
                        problem->text);
    }
    return FP8_OK;
}

/* What the values of one scale tensor, or a slab of it, are. */
struct scale_facts {
    int64_t bad, first; /* not finite and positive; element of the first */
    float value;        /* there */
    float largest;
};

struct scale_job {
    const fp8_values *v;
    const fp8_context *ctx;
    fp8_dtype dtype; /* how the bytes are to be read */
    fp8_slabs slabs;
    struct scale_facts *parts; /* [slabs.count] */
};

static fp8_status scan_slab(void *arg, int64_t i, char *memory, fp8_error *err)
{
    struct scale_job *job = arg;
    struct scale_facts *out = &job->parts[i];
    fp8_slab slab = fp8_slab_at(&job->slabs, i);
    float *real = (float *)(void *)memory;
    char *raw = memory + (uint64_t)fp8_slabs_extent(&job->slabs) * sizeof(float);
    FP8_TRY(fp8_values_raw(job->v, &slab, raw, err));
    FP8_TRY(fp8_cast(job->ctx, raw, job->dtype, real, FP8_F32, slab.elements, 0, NULL, err));
    for (int64_t k = 0; k < slab.elements; k++) {
        if (isfinite(real[k]) && real[k] > 0) {
            out->largest = fmaxf(out->largest, real[k]);
            continue;
        }
        if (!out->bad++) {
            out->first = slab.first + k;
            out->value = real[k];
        }
    }
    return FP8_OK;
}

static fp8_status scan_scale(fp8_verification *v, const fp8_values *scale, fp8_dtype dtype,
                             struct scale_facts *sum, fp8_error *err)
{
    struct scale_job job = {scale, &v->pool.serial, dtype, fp8_slabs_of(scale, false), NULL};
    uint64_t bytes = (uint64_t)fp8_slabs_extent(&job.slabs) *
                     (sizeof(float) + (uint64_t)fp8_dtype_bits(dtype) / 8);
    job.parts = fp8_alloc_zeroed(v->ctx, (uint64_t)job.slabs.count, sizeof *job.parts);
    FP8_FAIL_IF(!job.parts, err, FP8_E_NO_MEMORY, "%s: no memory", scale->info.name);
    fp8_status status = fp8_slab_run(&v->pool, job.slabs.count, bytes, scan_slab, &job, err);
    memset(sum, 0, sizeof *sum);
    for (int64_t i = 0; i < job.slabs.count && status == FP8_OK; i++) {
        const struct scale_facts *part = &job.parts[i];
        if (part->bad && !sum->bad) {
            sum->first = part->first;
            sum->value = part->value;
        }
        sum->bad += part->bad;
        sum->largest = fmaxf(sum->largest, part->largest);
    }
    fp8_release(v->ctx, job.parts);
    return status;
}

/* Largest finite value of a code's format. */
static double largest_code(fp8_dtype dtype)
{
    return dtype == FP8_E4M3FN ? 448 : dtype == FP8_E4M3FNUZ ? 240 : 57344;
}

/* Rules scale-value: every scale is finite and positive; scale-implausible (a warning): no code can
 * come to a value that no weight has. A scale that is only small says nothing: zero blocks have
 * them. */
fp8_status fp8_verify_scale_value(fp8_verification *v, fp8_error *err)
{
    const char *rule = v->rule;
    for (int64_t i = 0; i < v->summary->tensors; i++) {
        const fp8_role_info *role = &v->subject.roles.tensors[i];
        fp8_values scale;
        struct scale_facts facts;
        bool of_weight = role->role == FP8_ROLE_SCALE && role->partner >= 0;
        if (!of_weight && role->role != FP8_ROLE_INPUT_SCALE && role->role != FP8_ROLE_KV_SCALE)
            continue;
        fp8_values_of(v->subject.ckpt, &v->subject.roles, i, &scale);
        fp8_dtype dtype =
            of_weight ? v->subject.roles.tensors[role->partner].scale : scale.info.dtype;
        if (fp8_dtype_bits(dtype) != fp8_dtype_bits(scale.info.dtype) || dtype > FP8_E8M0FNU)
            continue; /* another rule's finding: it cannot be read as numbers */
        FP8_TRY(scan_scale(v, &scale, dtype, &facts, err));
        v->rule = rule;
        if (facts.bad)
            FP8_FOUND_ERROR(v, scale.info.name,
                            "%lld of %lld scales are not finite and positive, the first is "
                            "element %lld: %g",
                            (long long)facts.bad, (long long)fp8_values_count(&scale),
                            (long long)facts.first, (double)facts.value);
        if (!of_weight)
            continue;
        fp8_dtype code = fp8_subject_tensor(&v->subject, role->partner).dtype;
        v->rule = "scale-implausible";
        if ((double)facts.largest * largest_code(code) > LARGEST_PLAUSIBLE)
            FP8_FOUND_WARNING(v, scale.info.name,
                              "the largest scale is %g, so weights may be as "
                              "large as %g",
                              (double)facts.largest, (double)facts.largest * largest_code(code));
    }
    return FP8_OK;
}
