/* SPDX-License-Identifier: Apache-2.0
 *
 * cast.h - the serial inside of fp8_cast, for operations that convert as they go. */
#ifndef FP8_OP_CAST_H
#define FP8_OP_CAST_H

#include "op/backend.h"

/* How to convert one dtype to another. */
typedef struct fp8_caster {
    fp8_kernel_cast *first, *second; /* second NULL: first does it all; both NULL: a copy */
    int64_t src_bytes, dst_bytes;    /* an element */
} fp8_caster;

/* For dtypes that fp8_cast takes. */
fp8_caster fp8_caster_of(fp8_isa isa, fp8_dtype from, fp8_dtype to, bool saturate);

/* dst[n] = src[n]; neither needs alignment. */
void fp8_caster_run(const fp8_caster *caster, void *dst, const void *src, int64_t n, bool saturate);

#endif
