/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_linear.h - a linear on a CUDA device: all that kernels read is one piece of its memory.
 *
 *     | codes [N, ld], zeros beyond K | scales as exported | scales as read | bias | X's scale |
 *
 * Scales that do not vary along K are read as [N,1] in fp32, one for each row of W. Others are read
 * as they are, [scale_rows, scale_cols] in fp32 or E8M0; those of another dtype are a copy. */
#ifndef FP8_BACKEND_CUDA_CUDA_LINEAR_H
#define FP8_BACKEND_CUDA_CUDA_LINEAR_H

#include "backend/cuda/gemm_args.h"
#include "backend/cuda/launch.h"
#include "op/linear.h"

#include <stdatomic.h>

enum { FP8_CUDA_ALIGN = 256 }; /* bytes, of the parts of device memory */
enum { FP8_CUDA_CHOICES = 16 };

static inline uint64_t fp8_cuda_align(uint64_t bytes)
{
    return (bytes + FP8_CUDA_ALIGN - 1) / FP8_CUDA_ALIGN * FP8_CUDA_ALIGN;
}

struct fp8_cuda_linear {
    void *memory;
    uint64_t memory_bytes;
    uint8_t *codes; /* [N, ld] */
    int64_t ld;     /* bytes from row to row: K up to a multiple of 16, as bulk copies want it */
    uint8_t *scales;
    void *w_scale; /* as read */
    fp8_dtype w_scale_dtype;
    float *bias;     /* [N], where the linear has one */
    float *x_static; /* the scale of FP8_ACTIVATION_STATIC */
    /* Choices made before: fp8_cuda_linear_key << 32 | number of the version + 1, or 0; of sm90.h
     * or, where the plan is for those, of wide.h. Any thread may read and write them. */
    _Atomic uint64_t choices[FP8_CUDA_CHOICES];
};

/* The place for choices with m rows; multiples of 16 go to places of their own, too. */
static inline uint32_t fp8_cuda_linear_place(int32_t m)
{
    return ((uint32_t)m + (uint32_t)m / 16) % FP8_CUDA_CHOICES;
}

/* What a choice was made for: m > 0 rows of X, as versions may quantize them or not (sm90.h), in
 * fp16 or bf16 (wide.h). */
static inline uint64_t fp8_cuda_linear_key(int32_t m, bool other)
{
    return 2 * (uint64_t)m + other;
}

/* The version that was chosen for that before; past the last of any if none was. */
static inline size_t fp8_cuda_linear_recall(const fp8_cuda_linear *l, int32_t m, bool other)
{
    const uint64_t found =
        atomic_load_explicit(&l->choices[fp8_cuda_linear_place(m)], memory_order_relaxed);
    return found >> 32 == fp8_cuda_linear_key(m, other) ? (uint32_t)found - 1 : SIZE_MAX;
}

static inline void fp8_cuda_linear_remember(fp8_cuda_linear *l, int32_t m, bool other,
                                            size_t version)
{
    atomic_store_explicit(&l->choices[fp8_cuda_linear_place(m)],
                          fp8_cuda_linear_key(m, other) << 32 | (version + 1),
                          memory_order_relaxed);
}

/* Bytes from row to row of codes with k columns. */
static inline int64_t fp8_cuda_row_bytes(int64_t k)
{
    return (k + 15) / 16 * 16;
}

/* Memory for a whole linear, undefined. Errors: NO_MEMORY, DEVICE. */
fp8_status fp8_cuda_linear_allocate(const fp8_context *ctx, const fp8_linear_plan *plan,
                                    fp8_linear **out, fp8_error *err);
/* Its parts; each waits. Scales in both forms, from given ones, which may be checked to be finite
 * and positive, or, with NULL, from those that were made in their place. */
fp8_status fp8_cuda_linear_place_scales(const fp8_linear *linear, const fp8_tensor *given,
                                        bool check, fp8_error *err);
fp8_status fp8_cuda_linear_place_bias(const fp8_linear *linear, const fp8_tensor *bias,
                                      fp8_error *err);
fp8_status fp8_cuda_linear_place_x_static(const fp8_linear *linear, fp8_error *err);
/* The columns of codes beyond K become zeros. */
fp8_status fp8_cuda_linear_clear_padding(const fp8_linear *linear, fp8_error *err);

/* Matrices between the host and the device, by the default stream; each waits. Errors: NO_MEMORY,
 * DEVICE and those of fp8_cuda_begin. cuda_transfer.c; op/cuda_calls.h has those that operations
 * use, too. */

/* The host's to[rows, ld] = rows [first, first + rows) of t, which the host has, and zeros. */
void fp8_cuda_gather(const fp8_context *ctx, const fp8_tensor *t, int64_t first, int64_t rows,
                     int64_t ld, void *to);
/* to[rows, ld] on the device = t and zeros beyond its columns; t lies on either side. */
fp8_status fp8_cuda_place(const fp8_context *ctx, const fp8_tensor *t, void *to, int64_t ld,
                          fp8_error *err);
/* to[rows, to_cols] = from[rows, cols] and zeros, both on the device with any strides. */
fp8_status fp8_cuda_rearrange(const fp8_context *ctx, const fp8_tensor *from, const fp8_tensor *to,
                              fp8_error *err);
/* Waits for all work on the device, of every stream. Errors: DEVICE, STATE. device_memory.c */
fp8_status fp8_cuda_wait_for_all(const fp8_context *ctx, fp8_error *err);

#endif
