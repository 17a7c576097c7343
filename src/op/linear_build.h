/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_build.h - a linear in the making, whose weight may come in pieces and in any order:
 *
 *     begin  (codes, scales, bias: each element once)*  finish  end
 *
 * The pieces trust their arguments: places, shapes and dtypes were checked by who made them; they
 * lie on the host. On a CUDA device codes go there as they come, by pinned memory, and scales and
 * bias at the end; every function may fail there with NO_MEMORY, STATE or DEVICE. */
#ifndef FP8_OP_LINEAR_BUILD_H
#define FP8_OP_LINEAR_BUILD_H

#include "op/linear.h"
#include "op/quantize.h"

/* Owns the linear until the end. */
typedef struct fp8_build {
    fp8_linear *linear;
    uint8_t *nan_rows; /* CPU: [n], rows of W that hold a NaN code */
    uint8_t *scales;   /* CUDA: on the host, [scale_rows, scale_cols] of the plan's dtype .. */
    float *bias;       /* .. and [n] */
} fp8_build;

/* Memory for the whole linear; its bias is zero. Error: NO_MEMORY. */
fp8_status fp8_build_begin(const fp8_context *ctx, const fp8_linear_plan *plan, fp8_build *out,
                           fp8_error *err);
/* W[row.., col..] = codes[r,c], any strides. */
fp8_status fp8_build_codes(fp8_build *build, const fp8_tensor *codes, int64_t row, int64_t col,
                           fp8_error *err);
/* W[row.., col..] = encode(x[r,c]), which is rows from row0 on of the matrix that is requested: the
 * third step of quantize.h, into place. Error: NO_MEMORY. */
fp8_status fp8_build_encode(fp8_build *build, const fp8_quant *q, const fp8_tensor *x, int64_t row0,
                            const float *operand, int64_t row, int64_t col, fp8_error *err);
/* Every code of rows [row, row + rows) becomes to[code]; none becomes a NaN that was not one. */
fp8_status fp8_build_map(fp8_build *build, int64_t row, int64_t rows, const uint8_t to[256],
                         fp8_error *err);
/* Scales [row.., col..] = scales[r,c] of the plan's dtype or, for F32, of any. Errors: SCALE, one
 * that is not finite and positive, with err->pos = its place, and DTYPE; then none is taken. */
fp8_status fp8_build_scales(fp8_build *build, const fp8_tensor *scales, int64_t row, int64_t col,
                            fp8_error *err);
/* The same for scales that fp8_quant_scales made for a request whose units lie there: none is
 * looked at (a rule may make one that is zero), contiguous, of the plan's dtype. */
void fp8_build_take_made(fp8_build *build, const fp8_quant *q, const void *scales, int64_t row,
                         int64_t col);
/* bias[row..] = bias[r], a vector. */
void fp8_build_bias(fp8_build *build, const fp8_tensor *bias, int64_t row);
/* All of W from w[n,k] in high precision, by the plan. Errors: NAN, SCALE, NO_MEMORY. */
fp8_status fp8_build_quantize(fp8_build *build, const fp8_tensor *w, fp8_error *err);

/* All is in its place in build->linear when this returns. May be repeated. */
fp8_status fp8_build_finish(fp8_build *build, fp8_error *err);
/* The finished linear, now immutable. Frees the rest. */
fp8_linear *fp8_build_end(fp8_build *build);
/* Frees all; an empty, zeroed build is fine. */
void fp8_build_drop(fp8_build *build);

#endif
