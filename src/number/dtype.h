/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.h - the table of element types: what each is called, how wide it is, what it can hold, and
 * how one element is read and written as fp32. The reference code goes through these pointers;
 * fast code includes number.h. Immutable, any thread. */
#ifndef FP8_NUMBER_DTYPE_H
#define FP8_NUMBER_DTYPE_H

#include "fp8.h"

#include <stdbool.h>

/* Element `i` of an array that needs no alignment. */
typedef float (*fp8_load_fn)(const void *data, int64_t i);
/* Rounds once, to nearest even; `saturate` as in fp8_cast. */
typedef void (*fp8_store_fn)(void *data, int64_t i, float value, bool saturate);

typedef struct fp8_dtype_facts {
    fp8_dtype dtype;
    const char *name; /* in safetensors */
    int bits;         /* an element */
    float max;        /* largest finite value; 0 if it is no float that we compute with */
    bool has_inf;
    uint32_t nan_mask;            /* a code is NaN if, under this mask (0: never), */
    uint32_t nan_first, nan_last; /* it lies between these two, both included */
    fp8_load_fn load;             /* NULL if it is no float that we compute with */
    fp8_store_fn store;
} fp8_dtype_facts;

/* The row of `dtype`, NULL if it is none of the list. */
const fp8_dtype_facts *fp8_dtype_facts_of(fp8_dtype dtype);
/* fp8_dtype_name for a message: "no dtype" if it is none. */
const char *fp8_dtype_word(fp8_dtype dtype);

/* Whether `code`, the bits of an element of at most 32, is a NaN of `dtype`. */
bool fp8_dtype_is_nan(fp8_dtype dtype, uint32_t code);

/* F32, F16, BF16 and the 8-bit floats with a sign: what can be quantized or multiplied. */
bool fp8_dtype_is_real(fp8_dtype dtype);

/* F32, F16, BF16: high precision, what is quantized. */
bool fp8_dtype_is_high(fp8_dtype dtype);

/* The same and E8M0FNU: what scales are kept in. */
bool fp8_dtype_is_scale(fp8_dtype dtype);

/* E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ. */
bool fp8_dtype_is_fp8(fp8_dtype dtype);

#endif
