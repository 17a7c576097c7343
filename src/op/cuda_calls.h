/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_calls.h - what an operation asks of backend/cuda when its context is one of a CUDA device.
 * The operation has checked shapes, dtypes, strides and overlap, by the same code as for the CPU;
 * what is left is to see that the memory is the device's, and to enqueue. Errors of all: ARGUMENT
 * (memory or stream of somewhere else), UNSUPPORTED, NO_KERNEL, STATE, DEVICE. */
#ifndef FP8_OP_CUDA_CALLS_H
#define FP8_OP_CUDA_CALLS_H

#include "op/linear_build.h"
#include "op/quantize.h"

/* FP8_NAN_REFUSE: waits, and errors are also NAN and NO_MEMORY; but in a captured stream NaN is
 * made of what is not finite. */
fp8_status fp8_cuda_quantize(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x,
                             const fp8_tensor *codes, const fp8_tensor *scales, void *stream,
                             fp8_error *err);
/* `is_copy`: nothing changes. */
fp8_status fp8_cuda_requantize(const fp8_context *ctx, const fp8_quant *q, bool is_copy,
                               fp8_grid from, const fp8_tensor *codes, const fp8_tensor *scales,
                               const fp8_tensor *codes_out, const fp8_tensor *scales_out,
                               void *stream, fp8_error *err);
/* dst[n] = src[n]; both are apart. */
fp8_status fp8_cuda_cast(const fp8_context *ctx, const void *src, fp8_dtype src_dtype, void *dst,
                         fp8_dtype dst_dtype, int64_t n, bool saturate, void *stream,
                         fp8_error *err);
fp8_status fp8_cuda_dequantize(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                               const fp8_tensor *scales, const fp8_tensor *y, void *stream,
                               fp8_error *err);

/* A linear on a device: linear.h's struct with `cuda`, which holds the weight. The plan was made
 * for these tensors, which lie on the host or on the device; create, copy and export wait for the
 * default stream. Errors also: SCALE, NAN, NO_MEMORY. */
fp8_status fp8_cuda_linear_create(const fp8_context *ctx, const fp8_linear_plan *plan,
                                  const fp8_tensor *w, const fp8_tensor *w_scales,
                                  const fp8_tensor *bias, fp8_linear **out, fp8_error *err);
/* Whether two contexts are of one CUDA device. */
bool fp8_cuda_is_same(const fp8_context *a, const fp8_context *b);
/* Into a context of the same device. */
fp8_status fp8_cuda_linear_copy(const fp8_context *ctx, const fp8_linear *from, fp8_linear **out,
                                fp8_error *err);
/* *to = *from, which is like it, at to's addresses; waits for all that is at work on the device,
 * and until it is done. */
fp8_status fp8_cuda_linear_assign(fp8_linear *to, const fp8_linear *from, fp8_error *err);
/* Another bias, or none (NULL), in place; waits likewise. */
fp8_status fp8_cuda_linear_set_bias(fp8_linear *linear, const fp8_tensor *bias, fp8_error *err);
/* host[n] = the bias. */
fp8_status fp8_cuda_linear_get_bias(const fp8_linear *linear, float *host, fp8_error *err);
void fp8_cuda_linear_free(fp8_linear *linear);
/* The three numbers of bytes. */
void fp8_cuda_linear_sizes(const fp8_linear *linear, fp8_linear_info *out);
/* Either may be NULL. */
fp8_status fp8_cuda_linear_export(const fp8_linear *linear, const fp8_tensor *codes,
                                  const fp8_tensor *scales, fp8_error *err);
fp8_status fp8_cuda_linear_workspace(const fp8_linear *linear, int64_t m, uint64_t *bytes,
                                     fp8_error *err);
/* By the kernel of that name; NULL: by the one that is chosen. */
fp8_status fp8_cuda_linear_run(const fp8_linear *linear, const char *kernel, const fp8_tensor *x,
                               const fp8_tensor *x_scales, const fp8_tensor *y, void *workspace,
                               void *stream, fp8_error *err);
/* Waits to learn whether the policy for X, which has been checked, refuses it; a run would not.
 * Errors also: NAN, NO_MEMORY. */
fp8_status fp8_cuda_linear_refuse(const fp8_linear *linear, const fp8_tensor *x, void *stream,
                                  fp8_error *err);
fp8_status fp8_cuda_linear_run_dx(const fp8_linear *linear, const fp8_tensor *dy,
                                  const fp8_tensor *dx, void *stream, fp8_error *err);
/* ---- a linear in the making; linear_build.h says what they do ---- */

fp8_status fp8_cuda_build_begin(const fp8_context *ctx, const fp8_linear_plan *plan, fp8_build *out,
                                fp8_error *err);
fp8_status fp8_cuda_build_codes(const fp8_linear *linear, const fp8_tensor *codes, int64_t row,
                                int64_t col, fp8_error *err);
/* The CPU makes the codes, some rows at a time: half as many bytes go to the device. */
fp8_status fp8_cuda_build_encode(const fp8_linear *linear, const fp8_quant *q, const fp8_tensor *x,
                                 int64_t row0, const float *operand, int64_t row, int64_t col,
                                 fp8_error *err);
fp8_status fp8_cuda_build_map(const fp8_linear *linear, int64_t row, int64_t rows,
                              const uint8_t to[256], fp8_error *err);
fp8_status fp8_cuda_build_finish(fp8_build *build, fp8_error *err);

/* ---- memory ---- */

/* *on_device: whether data is memory that the device can read; else it is taken for the host's. */
fp8_status fp8_cuda_find(const fp8_context *ctx, const void *data, bool *on_device, fp8_error *err);
/* The contiguous host[rows, cols] = t in t's dtype; t lies on either side, with any strides. Waits
 * for the default stream. */
fp8_status fp8_cuda_fetch(const fp8_context *ctx, const fp8_tensor *t, void *host, fp8_error *err);

/* Candidate i for m rows of X in a dtype, of Y in bf16; as fp8_explain. */
fp8_status fp8_cuda_linear_explain(const fp8_context *ctx, const fp8_linear_plan *plan, int64_t m,
                                   fp8_dtype x, int64_t i, fp8_candidate *out, fp8_error *err);
/* Peak i of the device; as fp8_machine_peak. */
fp8_status fp8_cuda_peak(const fp8_context *ctx, int64_t i, double seconds, fp8_peak *out,
                         fp8_error *err);

#endif
