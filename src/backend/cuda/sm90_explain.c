/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_explain.c - the versions of the fast kernels as fp8_explain tells of them. It asks what the
 * choice asks; it must not know better. */
#include "backend/cuda/sm90.h"

#include <stdio.h>

/* Where the row comes from; what was measured from codes lacks the quantizer of a whole linear. */
static const char *source_of(const fp8_tuned_row *row, const fp8_sm90_problem *p)
{
    const bool whole = row->kind == FP8_TUNED_WHOLE_CHANNEL || row->kind == FP8_TUNED_WHOLE_BLOCK;
    if (p->whole && !whole)
        return row->line ? " (from codes, by the file)" : " (from codes, built in)";
    return row->line ? " (by the file)" : " (built in)";
}

/* The version's tile, and its estimate, or what it took: row, if it was measured. */
static void describe_version(const fp8_sm90_version *v, const fp8_sm90_problem *p, float estimate,
                             const fp8_tuned_row *row, fp8_candidate *out)
{
    char parts[64] = "";
    if (v->small && v->split > 1)
        snprintf(parts, sizeof parts, ", k split among %d blocks", v->split);
    else if (v->slices > 1)
        snprintf(parts, sizeof parts, ", k split among %d blocks", v->slices);
    else if (!v->small && v->down * v->across > 1)
        snprintf(parts, sizeof parts, ", clusters of %dx%d", v->down, v->across);
    const bool last = estimate >= FP8_SM90_LAST_RESORT;
    *out = (fp8_candidate){v->name, "sm_90a", 0, ""};
    snprintf(out->reason, sizeof out->reason,
             "%s %.1f us%s, for y in bf16 or fp16; tiles of %dx%d%s, %d block%s an SM%s",
             row ? "measured" : "estimated",
             row ? row->ns * 1e-3 : (double)(last ? estimate - FP8_SM90_LAST_RESORT : estimate),
             row    ? source_of(row, p)
             : last ? " but only if no other has room"
                    : "",
             v->small ? v->cols : v->rows, v->small ? v->rows : v->cols, parts, v->per_sm,
             v->per_sm > 1 ? "s" : "", v->quantizes ? ", quantizes x" : "");
}

void fp8_sm90_describe(const fp8_choice *choice, int64_t i, fp8_candidate *out)
{
    const size_t at = fp8_choice_at(choice, i);
    const fp8_sm90_version *v = fp8_sm90_at(at);
    describe_version(v, choice->problem, fp8_sm90_estimate(choice->device, v, choice->problem),
                     at == choice->measured ? choice->row : NULL, out);
    out->chosen = i == 0;
}
