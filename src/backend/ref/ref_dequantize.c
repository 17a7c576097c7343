/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_dequantize.c - real = code * scale: the product of two fp32 numbers, rounded to fp32, then
 * once to the output's dtype. Any strides. */
#include "number/dtype.h"
#include "number/number.h"
#include "op/backend.h"

#define FP8_KERNEL FP8_KERNEL_DECLARE
#include "backend/ref/kernels.inc"

void fp8_ref_dequantize(const fp8_dequantize_run *run)
{
    const fp8_load_fn load = fp8_dtype_facts_of(run->code_dtype)->load;
    const fp8_store_fn store = fp8_dtype_facts_of(run->y_dtype)->store;
    for (int64_t j = 0; j < run->n; j++) {
        float real = load(run->codes, j * run->code_stride) * run->scales[j * run->scale_stride];
        if (real != real) /* which NaN a product is depends on the processor */
            real = fp8_f32_of_bits(0x7FC00000);
        store(run->y, j * run->y_stride, real, false);
    }
}
