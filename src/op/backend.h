/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h - the table of kernels. A kernel does the inner part of an operation on contiguous
 * memory (the reference: on any strides); the operation validates, cuts the work into pieces and
 * picks the kernel. Each backend lists its kernels once, in its kernels.inc; declarations,
 * dispatch, tests and benchmarks expand from that list.
 *
 * To add a kernel: write it, add its line to kernels.inc. Tests find it there. */
#ifndef FP8_OP_BACKEND_H
#define FP8_OP_BACKEND_H

#include "base/context.h"
#include "number/number.h"
#include "op/panel.h"
#include "op/unit_math.h"

#include <stdbool.h>

/* What a kernel does. Each has a function type fp8_kernel_<name> below. */
typedef enum fp8_op {
    FP8_OP_CAST,            /* elements of one dtype to another; all exist to and from fp32 */
    FP8_OP_DEQUANTIZE,      /* codes * scales of a part of one row */
    FP8_OP_AMAX,            /* max |x| of the units of one row */
    FP8_OP_ENCODE_DIVIDE,   /* codes of x / operand of one row */
    FP8_OP_ENCODE_MULTIPLY, /* codes of x * operand of one row */
    FP8_OP_ENCODE_TWICE,    /* codes of x / operand, rounded to x's dtype before */
    FP8_OP_ROUND_DIVIDE,    /* what the codes of x / operand stand for, of one row; .. */
    FP8_OP_ROUND_MULTIPLY,  /* .. of x * operand; no reference: encoding and decoding do it */
    FP8_OP_FINISH,          /* scales, bias and rounding of a row of sums; panel.h */
    FP8_OP_SCALES,          /* scales of amaxes; the reference is in op/scale.c */
    FP8_OP_PEAK,            /* the level's multiply-adds, for peak.c; no reference */
} fp8_op;

/* dst[n] = src[n] as fp8_cast. Neither needs alignment. */
typedef void fp8_kernel_cast(void *dst, const void *src, int64_t n, bool saturate);

/* A part of one row: y[j] = codes[j] * scales[j] for 0 <= j < n, in fp32, rounded once; NaN comes
 * out as the quiet NaN without sign. Strides are in elements; scale_stride is 0 (one scale for all)
 * or 1, the others are 1 for all but the reference. */
typedef struct fp8_dequantize_run {
    void *y;
    const void *codes;
    const float *scales;
    int64_t n, y_stride, code_stride, scale_stride;
    fp8_dtype y_dtype, code_dtype;
} fp8_dequantize_run;
typedef void fp8_kernel_dequantize(const fp8_dequantize_run *run);

/* A part of one row that begins with a unit, in units of `unit` columns (the last may be shorter):
 * amax[k] = the larger of amax[k] and max |x| over unit k, compared as bits: infinity above all
 * numbers, NaN (without payload) above infinity. The stride is 1 for all but the reference. */
typedef struct fp8_amax_run {
    const void *x;
    float *amax;
    int64_t n, unit;
    int64_t stride; /* in elements */
    fp8_dtype dtype;
} fp8_amax_run;
typedef void fp8_kernel_amax(const fp8_amax_run *run);

/* Rows in such units, with the same operands: codes[i,j] = the code of x[i,j] / operand[j / unit]
 * (or times), in fp32, limited to +-max and rounded once; NaN stays NaN. Operands are not NaN, and
 * finite where they multiply. A row is contiguous. The reference is fp8_ref_encode_row, which can
 * do more. */
typedef struct fp8_encode_run {
    const void *x;
    uint8_t *codes;
    const float *operand;
    int64_t rows, x_step, code_step; /* steps from row to row in elements */
    int64_t n, unit;
    float max;      /* at most that of the code's dtype */
    bool plus_zero; /* only for e4m3fn: a negative quotient becomes +0 .. */
    uint32_t zero;  /* .. if its magnitude has bits of at most this */
} fp8_encode_run;
typedef void fp8_kernel_encode(const fp8_encode_run *run); /* of all three */

/* The same of a row of bf16 with codes of e4m3fn, and each code's number instead: y[j] is what the
 * code of x[j] decodes to. Operands are those that fp8_round_takes. */
typedef struct fp8_round_run {
    const uint16_t *x;
    uint16_t *y;
    const float *operand;
    int64_t n, unit;
} fp8_round_run;
typedef void fp8_kernel_round(const fp8_round_run *run); /* of both */

/* Whether a kernel of these takes an operand: one far from the ends of fp32, whose significand is
 * not all ones. */
static inline bool fp8_round_takes(float operand)
{
    return operand >= 0x1p-64f && operand <= 0x1p64f &&
           (fp8_bits_of_f32(operand) & 0x7FFFFF) != 0x7FFFFF;
}

/* scales[k] and operand[k] of amax[k] for 0 <= k < count, and returns that count: as many of the n
 * units as come before one whose scale is not between low and high, in whole vectors. operand may
 * be amax; scales need no alignment. */
typedef struct fp8_scales_run {
    const fp8_scale_formula *formula;
    const float *amax;
    void *scales;
    float *operand;
    int64_t n;
} fp8_scales_run;
typedef int64_t fp8_kernel_scales(const fp8_scales_run *run);

/* `rounds` rounds of independent multiply-adds on registers, as many as keep the units busy: the
 * most that a kernel of this level could reach. */
typedef struct fp8_peak_run {
    int64_t rounds;
    double operations; /* set: multiplications and additions done */
    float sum;         /* set: of no meaning, but that all of it was needed */
} fp8_peak_run;
typedef void fp8_kernel_peak(fp8_peak_run *run);

typedef struct fp8_kernel {
    const char *name; /* of the function */
    fp8_op op;
    fp8_isa isa;        /* what it needs */
    fp8_dtype from, to; /* of the elements read and written; NONE = any that the operation allows */
    union {
        fp8_kernel_cast *cast;
        fp8_kernel_dequantize *dequantize;
        fp8_kernel_amax *amax;
        fp8_kernel_encode *encode;
        fp8_kernel_round *round;
        fp8_kernel_finish *finish;
        fp8_kernel_scales *scales;
        fp8_kernel_peak *peak;
    } fn;
} fp8_kernel;

typedef struct fp8_backend {
    const char *name;
    const fp8_kernel *kernels;
    size_t count;
    const fp8_panel_kernel *panels; /* what multiplies, best first; panel.h */
    size_t panel_count;
} fp8_backend;

/* The reference: every operation for every dtype at level SCALAR. */
extern const fp8_backend fp8_backend_ref;
extern const fp8_backend fp8_backend_cpu;

/* Kernel i of all backends, those of the reference last; NULL past the last. Any thread. */
const fp8_kernel *fp8_kernel_at(size_t i);

/* The kernel of the highest level that is at most `isa`; NULL if there is none, which cannot be for
 * what the reference has. */
const fp8_kernel *fp8_kernel_pick(fp8_isa isa, fp8_op op, fp8_dtype from, fp8_dtype to);

/* For kernels.inc: OP and op name the operation twice (FP8_OP_OP, fp8_kernel_op). */
#define FP8_KERNEL_DECLARE(OP, op, isa, from, to, function) fp8_kernel_##op function;
#define FP8_KERNEL_ROW(OP, op, isa, from, to, function) \
    {#function, FP8_OP_##OP, isa, from, to, {.op = (function)}},

#endif
