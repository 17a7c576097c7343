/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_steps.h - the serial inside of the quantizer's steps over some rows, for fp8_quantize to
 * chain while a row is still in the cache. */
#ifndef FP8_OP_QUANT_STEPS_H
#define FP8_OP_QUANT_STEPS_H

#include "op/backend.h"
#include "op/quantize.h"

#include <stdbool.h>

/* Rows [begin, end) of the slab x, which starts at row row0 of the matrix, and what does them. */
typedef struct fp8_slab {
    const fp8_tensor *x;
    int64_t row0, begin, end;
    const fp8_kernel *amax;
    const fp8_kernel *encode; /* NULL: only the reference does all that is asked for */
    float max;                /* of the codes */
    uint32_t zero;            /* bits of the largest quotient that is zero, where -0 becomes +0 */
} fp8_slab;

/* All rows of x, with the kernels for the context's instruction set. */
fp8_slab fp8_slab_of(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x, int64_t row0);

/* amax as fp8_quant_amax. `shared`: other threads may work on the same units. Returns the index in
 * the matrix of the first element that the policy refuses, -1 if there is none. */
int64_t fp8_slab_amax(const fp8_quant *q, const fp8_slab *slab, bool shared, float *amax);

/* codes as fp8_quant_encode. */
void fp8_slab_encode(const fp8_quant *q, const fp8_slab *slab, const float *operand,
                     const fp8_tensor *codes);

/* The kernel of the level that rounds to the numbers of the codes as q does; NULL if there is none.
 */
const fp8_kernel *fp8_round_kernel(fp8_isa isa, const fp8_quant *q);

/* Zero codes in the rows from `rows` on. */
void fp8_clear_padding(const fp8_tensor *codes, int64_t rows);

/* The words for an element that the policy refuses; index is in the matrix, x the slab from row0.
 */
fp8_status fp8_refuse_element(const fp8_quant *q, const fp8_tensor *x, int64_t row0, int64_t index,
                              fp8_error *err);

/* *to = min(*to, value), atomically. */
void fp8_lower_index(int64_t *to, int64_t value);

/* How many rows of `cols` elements make a piece of work that is worth a thread's while. */
int64_t fp8_rows_per_piece(const fp8_quant *q);

#endif
