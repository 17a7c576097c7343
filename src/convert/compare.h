/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h - one pass over a quantized weight's codes and, if there is one, its source: the facts
 * that the rules of verify_weight.c judge.
 *
 * A code fits if it is what rounding the quotient source / scale to nearest gives, where the
 * quotient may be off by 2^-21 of itself (a reciprocal instead of a division), or rounded once more
 * to the source's 16 bits before (compressed-tensors, ModelOpt): of the two the one that explains
 * more of a slab holds for all of it. So one changed bit is seen in any tensor, and the error of
 * every fitting element is at most half a step of the format there. */
#ifndef FP8_CONVERT_COMPARE_H
#define FP8_CONVERT_COMPARE_H

#include "convert/values.h"

typedef struct fp8_weight_facts {
    int64_t elements, nonzero; /* codes that are not zero */
    int64_t saturated;         /* codes of the largest finite magnitude */
    int64_t not_finite;        /* NaN and infinity codes */
    int64_t first_not_finite;  /* element in row-major order, -1 if none */

    /* Against the source, if `compared`. */
    bool compared;
    int64_t misfits; /* codes that do not fit */
    int64_t first;   /* element of the first, -1 if none */
    uint8_t code, fitting;
    double source, value; /* there: of the source, and code * scale */
    double unit_misfits;  /* share of the nonzero codes of its scale's unit that do not fit */
    double ratio;         /* in that unit: least-squares factor from code * scale to the source */
    double correlation;   /* in that unit, uncentred: 1 = equal but for the factor */
    double signal, noise; /* sum of squares of the source, and of the errors */
    double worst;         /* largest error */
} fp8_weight_facts;

/* The facts of a quantized weight. source NULL, or of a dtype without quotients: codes only. A
 * scale that is not finite and positive leaves it uncompared. Errors: IO, TRUNCATED, NO_MEMORY. */
fp8_status fp8_compare_weight(fp8_slab_pool *pool, const fp8_values *weight,
                              const fp8_values *source, fp8_weight_facts *out, fp8_error *err);

/* *fits: the codes of `weight`, with the scales that it is given, all fit the source in the slab
 * that holds element `at`, and are not all zero there. */
fp8_status fp8_compare_fits(fp8_slab_pool *pool, const fp8_values *weight, const fp8_values *source,
                            int64_t at, bool *fits, fp8_error *err);

#endif
