/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_input.h - X[M,K] on its way to the kernels. A block of rows is prepared by who needs it
 * first, in pieces if several do: what prepares a row is then likely to multiply it, and finds it
 * in its cache; and no loop over the threads is spent on it.
 *
 * Where all of X decides on a scale, or on whether the call fails, the workers first bring all
 * pieces so far: nobody passes that gate before. That too is no loop over the threads of its own.
 *
 * A worker that needs what another one is at waits for it. That cannot go wrong, whatever threads
 * the workers run on: a piece is taken only by a worker that then runs to its end. */
#ifndef FP8_OP_LINEAR_INPUT_H
#define FP8_OP_LINEAR_INPUT_H

#include "number/dtype.h"
#include "op/backend.h"
#include "op/cast.h"
#include "op/linear.h"
#include "op/quantize.h"

/* What is to be known of all pieces before rows of Y are written: nothing, the amax, or all. */
typedef enum fp8_input_asks { FP8_INPUT_NOTHING, FP8_INPUT_AMAX, FP8_INPUT_ROWS } fp8_input_asks;

typedef struct fp8_input {
    const fp8_linear *linear;
    const fp8_tensor *x, *x_scales;
    fp8_prepared_x out;
    fp8_quant q;
    fp8_caster caster;              /* from codes, or from X, to rows */
    fp8_kernel_round *round;        /* from X to rows, without codes; NULL if it cannot be */
    fp8_load_fn load_scale;         /* of q.scale, or of x_scales */
    int64_t block_rows, piece_rows; /* a block's last piece may be shorter */
    int64_t block_pieces;
    uint8_t *pieces;  /* [blocks, block_pieces]: what has become of each */
    uint8_t *workers; /* [workers, worker_bytes] */
    uint64_t worker_bytes;
    float tensor_amax, tensor_operand, tensor_scale; /* of a scale for all of X */
    int64_t refused;   /* element that the NaN policy refuses, else INT64_MAX */
    int64_t bad_scale; /* index of a scale of X that is none, else INT64_MAX */
    fp8_input_asks asks;
    uint8_t gate;      /* whether what is asked for is known, and in status */
    fp8_status status; /* of the whole call so far; err has the words */
    fp8_error *err;
    bool is_ready; /* out.rows are X's own */
} fp8_input;

/* Bytes of workspace for m rows of X in a dtype. false: too large. */
bool fp8_input_bytes(const fp8_linear *linear, fp8_dtype dtype, int64_t m, uint64_t *bytes);

/* Checks x[m,k] and starts its way to out, of which dtype and folds are given, in blocks of
 * block_rows. The tensors, the workspace and *err must outlive *input. Errors: those of x and
 * x_scales. */
fp8_status fp8_input_begin(fp8_input *input, const fp8_linear *linear, const fp8_tensor *x,
                           const fp8_tensor *x_scales, fp8_prepared_x out, int64_t block_rows,
                           void *workspace, fp8_error *err);

/* When it returns true, the rows of a block are there; false: the call fails with input->status,
 * SCALE or NAN, and nothing is to be written. `worker` in [0, threads) tells apart those who call
 * it at the same time. */
bool fp8_input_need(fp8_input *input, int64_t block, int64_t worker);

#endif
