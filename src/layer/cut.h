/* SPDX-License-Identifier: Apache-2.0
 *
 * cut.h - which elements of the whole weight W[n_whole, k_whole] a rank holds, and where: parts of
 * a fused weight, each cut along its rows or all along their columns.
 *
 *     local (row_p + i, j)  =  part p (source_p + i, col + j)  =  fused (base_p + source_p + i, col
 * + j)
 */
#ifndef FP8_LAYER_CUT_H
#define FP8_LAYER_CUT_H

#include "layer/cover.h"
#include "op/linear.h"

/* A part on this rank. */
typedef struct fp8_share {
    const char *name;
    int64_t whole;     /* rows of the part, all ranks */
    int64_t base;      /* of the part in a tensor that holds all parts */
    int64_t row, rows; /* of the rank's share, in the local weight */
    int64_t source;    /* its first row in the part */
} fp8_share;

/* Plain data; the array is the layer's. */
typedef struct fp8_cut_plan {
    int64_t n, k;             /* of the local weight */
    int64_t n_whole, k_whole; /* of all ranks */
    int64_t col;              /* of the local weight in the whole */
    int64_t parts;
    fp8_share *share; /* [parts] */
} fp8_cut_plan;

/* Fills *plan; plan->share has room for each part. Errors: ARGUMENT, SHAPE. */
fp8_status fp8_cut_make(const fp8_layer_desc *desc, fp8_cut_plan *plan, fp8_error *err);

/* The grid that a share's scales have, and where W[0,0] lies in its first block, for scales that
 * belong to blocks `whole` of the whole weight: the finest rows that all borders have in common. */
void fp8_cut_grid(const fp8_cut_plan *plan, fp8_grid whole, fp8_grid *local, fp8_grid *origin);

/* The rows of local scales that belong to part p; a fused weight with one scale a part (widths) has
 * one row each. */
void fp8_cut_scale_rows(const fp8_cut_plan *plan, const fp8_linear_plan *linear, int64_t p,
                        int64_t *first, int64_t *count);
/* Where the local scale (i, j) of part p stands in the scales of a tensor's part (-1: of all), for
 * a grid of the whole weight. */
int64_t fp8_cut_scale_row(const fp8_cut_plan *plan, const fp8_linear_plan *linear, fp8_grid whole,
                          int64_t p, int32_t tensor, int64_t i);
int64_t fp8_cut_scale_col(const fp8_cut_plan *plan, const fp8_linear_plan *linear, int64_t j);

/* One part's share of a piece of a tensor of the whole model. */
typedef struct fp8_hit {
    fp8_rect local;   /* where it goes */
    int64_t row, col; /* where that begins in the piece */
} fp8_hit;

/* What of rows and columns `piece` of the tensor of part `tensor` (-1: of all) is part p's share of
 * the weight. */
fp8_hit fp8_cut_weight(const fp8_cut_plan *plan, int64_t p, int32_t tensor, fp8_rect piece);

#endif
