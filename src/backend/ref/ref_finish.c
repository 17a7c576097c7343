/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_finish.c - from the sums of a row to its elements of Y: scales, bias and rounding in fp32, in
 * the order that the epilogue names. Any stride. */
#include "number/dtype.h"
#include "op/backend.h"

#include <math.h>

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/ref/kernels.inc"

static float rounded(const fp8_dtype_facts *facts, float value)
{
    float to; /* room for any element */
    facts->store(&to, 0, value, false);
    return facts->load(&to, 0);
}

void fp8_ref_finish(const fp8_finish_run *run)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(run->y_dtype);
    for (int64_t j = 0; j < run->n; j++) {
        const float w_scale = run->w_scale ? run->w_scale[j] : 1;
        float y;
        if (run->epilogue == FP8_EPILOGUE_FUSED) {
            y = w_scale * run->c[j];
            y = run->bias ? fmaf(run->x_scale, y, run->bias[j]) : run->x_scale * y;
        } else {
            y = run->c[j] * run->x_scale * w_scale;
            if (run->epilogue == FP8_EPILOGUE_BIAS_LAST)
                y = rounded(facts, y);
            if (run->bias)
                y += run->bias[j];
        }
        if (y != y) /* which NaN an operation gives depends on the processor */
            y = NAN;
        facts->store(run->y, j * run->y_stride, y, false);
    }
}
