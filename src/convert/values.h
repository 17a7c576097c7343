/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h - tensors of a checkpoint as real numbers, slab by slab on several threads, so that two
 * checkpoints can be compared in memory that does not depend on their size:
 *
 *     plain tensor: value = element          quantized weight: value = code * scale
 *
 * A weight is a stack of matrices [rows, cols] (dialect.h); a slab is some whole rows of one. */
#ifndef FP8_CONVERT_VALUES_H
#define FP8_CONVERT_VALUES_H

#include "ckpt/roles.h"

enum { FP8_SLAB_ELEMENTS = 1 << 16 }; /* of a slab, unless one row is longer */

/* One tensor to be read. Plain data; borrows from the checkpoint and its roles. */
typedef struct fp8_values {
    const fp8_checkpoint *ckpt;
    fp8_tensor_info info;
    const fp8_role_info *role;
    fp8_tensor_info scale; /* of a weight */
} fp8_values;

/* Tensor i of a checkpoint, whose roles are given. */
void fp8_values_of(const fp8_checkpoint *ckpt, const fp8_roles *roles, int64_t i, fp8_values *out);

/* It is FP8 codes with a scale that can be applied. */
bool fp8_values_quantized(const fp8_values *v);
/* Its elements have a value in fp32: a quantized weight, F32, F16, BF16 or an 8-bit float. */
bool fp8_values_numeric(const fp8_values *v);
/* Elements of a tensor; its header was checked, so the product fits. */
int64_t fp8_values_count(const fp8_values *v);

/* 10 log10(signal / noise) in dB, of sums of squares; infinite without noise. */
double fp8_sqnr_db(double signal, double noise);
bool fp8_same_shape(const fp8_tensor_info *a, const fp8_tensor_info *b);

/* How tensors of one shape are cut into slabs. */
typedef struct fp8_slabs {
    int64_t rows, cols; /* of one matrix of the stack */
    int64_t slab_rows;  /* rows of a slab, the last of each matrix excepted */
    int64_t per_matrix, count;
} fp8_slabs;

typedef struct fp8_slab {
    int64_t matrix, row, rows; /* rows [row, row + rows) of that matrix */
    int64_t first, elements;   /* the same, as elements of the tensor in row-major order */
} fp8_slab;

/* Slabs of whole rows, as quantized weights need them (by_rows), or of any elements. */
fp8_slabs fp8_slabs_of(const fp8_values *v, bool by_rows);
fp8_slab fp8_slab_at(const fp8_slabs *slabs, int64_t i);
/* Elements of the largest slab. */
int64_t fp8_slabs_extent(const fp8_slabs *slabs);

/* A slab's bytes as they are on disk; dst has room for them. */
fp8_status fp8_values_raw(const fp8_values *v, const fp8_slab *slab, void *dst, fp8_error *err);

/* The scales that a slab of a quantized weight needs, as a view [n, gc] over `room`, and the slab's
 * first row counted from the first row of the view's first unit. fp8_values_scale_bytes is the room
 * for the largest slab. */
fp8_status fp8_values_scales(const fp8_values *v, const fp8_slab *slab, void *room,
                             fp8_tensor *scales, int64_t *row0, fp8_error *err);
uint64_t fp8_values_scale_bytes(const fp8_values *v, const fp8_slabs *slabs);

/* real[n] = values of a slab whose raw bytes and scales were read before (scales NULL for plain
 * tensors). */
fp8_status fp8_values_real(const fp8_context *ctx, const fp8_values *v, const fp8_slab *slab,
                           void *raw, const fp8_tensor *scales, int64_t row0, float *real,
                           fp8_error *err);

/* Bytes rounded up to a cache line, so that pieces of a worker's memory laid end to end are aligned
 * and not shared. */
uint64_t fp8_piece_bytes(uint64_t bytes);

/* Working memory of the threads, one piece each, grown when a tensor needs more. */
typedef struct fp8_slab_pool {
    const fp8_context *ctx;
    fp8_context serial; /* what the work inside one slab runs with */
    int32_t workers;
    uint64_t bytes; /* of one piece */
    char *memory;
} fp8_slab_pool;

void fp8_slab_pool_init(const fp8_context *ctx, fp8_slab_pool *pool);
void fp8_slab_pool_free(fp8_slab_pool *pool);

/* Work on slab i with `bytes` of the worker's own memory. */
typedef fp8_status (*fp8_slab_fn)(void *arg, int64_t i, char *memory, fp8_error *err);

/* fn for every slab in [0, n). After an error no further slab is begun; the error of the lowest
 * slab is returned. */
fp8_status fp8_slab_run(fp8_slab_pool *pool, int64_t n, uint64_t bytes, fp8_slab_fn fn, void *arg,
                        fp8_error *err);

#endif
