/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_explain.c - the versions of the fast kernels as fp8_explain tells of them. It asks what the
 * choice asks; it must not know better. */
#include "backend/cuda/sm90.h"

#include <stdio.h>

/* The estimate of version i, 0 for the one that was measured to be the fastest; negative: it cannot
 * do the problem, or is not there. */
static float estimate_of(const fp8_cuda_device *device, const fp8_sm90_problem *problem, size_t i)
{
    const fp8_sm90_version *v = fp8_sm90_at(i);
    const fp8_tuned_row *row = fp8_sm90_measured(device, problem);
    if (row && (size_t)row->version == i)
        return 0;
    return device->module.functions[v->kernel] ? fp8_sm90_estimate(device, v, problem) : -1;
}

/* How many versions can do the problem, and are faster by their estimates than `than`; of equals
 * those before it. than past the last: all that can. */
static int64_t count_faster(const fp8_cuda_device *device, const fp8_sm90_problem *problem,
                            size_t than)
{
    const float limit = fp8_sm90_at(than) ? estimate_of(device, problem, than) : 0;
    int64_t count = 0;
    for (size_t i = 0; fp8_sm90_at(i); i++) {
        const float time = estimate_of(device, problem, i);
        count += time >= 0 && (!fp8_sm90_at(than) || time < limit || (time == limit && i < than));
    }
    return count;
}

/* Version number i of those that can do the problem. */
static const fp8_sm90_version *able_version(const fp8_cuda_device *device,
                                            const fp8_sm90_problem *problem, int64_t i)
{
    size_t at = 0;
    while (estimate_of(device, problem, at) < 0 || count_faster(device, problem, at) != i)
        at++;
    return fp8_sm90_at(at);
}

/* The version's tile, and its estimate, or what it took: row, where that is of this version. */
static void describe_version(const fp8_sm90_version *v, float estimate, const fp8_tuned_row *row,
                             fp8_candidate *out)
{
    char parts[64] = "";
    if (v->small && v->split > 1)
        snprintf(parts, sizeof parts, ", k split among %d blocks", v->split);
    else if (!v->small && v->down * v->across > 1)
        snprintf(parts, sizeof parts, ", clusters of %dx%d", v->down, v->across);
    const bool last = estimate >= FP8_SM90_LAST_RESORT;
    const bool measured = row && v == fp8_sm90_at((size_t)row->version);
    *out = (fp8_candidate){v->name, "sm_90a", 0, ""};
    snprintf(out->reason, sizeof out->reason,
             "%s %.1f us%s, for y in bf16 or fp16; tiles of %dx%d%s, %d block%s an SM",
             measured ? "measured" : "estimated",
             measured ? row->ns * 1e-3
                      : (double)(last ? estimate - FP8_SM90_LAST_RESORT : estimate),
             measured ? row->line ? " (by the file)" : " (built in)"
             : last   ? " but only if no other has room"
                      : "",
             v->small ? v->cols : v->rows, v->small ? v->rows : v->cols, parts, v->per_sm,
             v->per_sm > 1 ? "s" : "");
}

int64_t fp8_sm90_count(const fp8_cuda_device *device, const fp8_sm90_problem *problem)
{
    return count_faster(device, problem, SIZE_MAX);
}

void fp8_sm90_describe(const fp8_cuda_device *device, const fp8_sm90_problem *problem, int64_t i,
                       fp8_candidate *out)
{
    const fp8_sm90_version *v = able_version(device, problem, i);
    describe_version(v, fp8_sm90_estimate(device, v, problem), fp8_sm90_measured(device, problem),
                     out);
    out->chosen = v == fp8_sm90_choose(device, problem);
}
