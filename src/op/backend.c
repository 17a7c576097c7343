/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.c - looking up a kernel in the tables of the backends. */
#include "op/backend.h"

/* The reference comes last. */
static const fp8_backend *const backends[] = {&fp8_backend_cpu, &fp8_backend_ref};

const fp8_kernel *fp8_kernel_at(size_t i)
{
    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
        if (i < backends[b]->count)
            return &backends[b]->kernels[i];
        i -= backends[b]->count;
    }
    return NULL;
}

const fp8_panel_kernel *fp8_panel_kernel_at(size_t i)
{
    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
        if (i < backends[b]->panel_count)
            return &backends[b]->panels[i];
        i -= backends[b]->panel_count;
    }
    return NULL;
}

static bool fits(fp8_dtype has, fp8_dtype wanted)
{
    return has == FP8_DTYPE_NONE || has == wanted;
}

const fp8_kernel *fp8_kernel_pick(fp8_isa isa, fp8_op op, fp8_dtype from, fp8_dtype to)
{
    const fp8_kernel *best = NULL;
    for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++) {
        const fp8_kernel *const end = backends[b]->kernels + backends[b]->count;
        for (const fp8_kernel *kernel = backends[b]->kernels; kernel < end; kernel++)
            if (kernel->op == op && kernel->isa <= isa && fits(kernel->from, from) &&
                fits(kernel->to, to) && (!best || kernel->isa > best->isa))
                best = kernel;
    }
    return best;
}
