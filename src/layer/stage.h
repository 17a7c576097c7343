/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.h - a new weight of a layer while it is put together from pieces: what has been written of
 * each parameter, the linear in the making, and what waits in high precision. The layer sees none
 * of it before the end.
 *
 *     open  (write)*  finish | close
 *
 * Whatever error a write ends with, its piece counts as not written. */
#ifndef FP8_LAYER_STAGE_H
#define FP8_LAYER_STAGE_H

#include "layer/layer.h"
#include "layer/waiting.h"
#include "op/linear_build.h"

enum { FP8_PARAMS = FP8_PARAM_INPUT_SCALE + 1 };

/* What the weight comes as; settled by the first piece. */
typedef enum fp8_stage_kind {
    FP8_STAGE_UNKNOWN = 0,
    FP8_STAGE_HIGH,  /* high precision, quantized here */
    FP8_STAGE_CODES, /* codes with scales */
} fp8_stage_kind;

/* What the layers of a load share. */
typedef struct fp8_stage_rules {
    fp8_duplicate duplicates;
    fp8_comm comm;
    fp8_wait_room *room;
} fp8_stage_rules;

/* A scale's block, or the whole weight, of which some elements are there. */
typedef struct fp8_wait_unit {
    fp8_rect at;
    int64_t have;    /* elements written */
    int64_t pending; /* by the piece that is being written */
    fp8_wait_block block;
    struct fp8_wait_unit *next;    /* of the same row of units */
    struct fp8_wait_unit *touched; /* by the same piece */
} fp8_wait_unit;

typedef struct fp8_stage {
    fp8_layer *layer;
    const fp8_context *ctx; /* the layer's */
    fp8_stage_rules rules;
    fp8_stage_kind kind;
    fp8_linear_desc linear;        /* of the share: grid, origin and widths settled with the kind */
    fp8_grid grid;                 /* of codes, in the whole weight */
    int64_t *widths;               /* [parts], for linear */
    fp8_linear_plan plan;          /* of the build, from when the kind is settled */
    fp8_build build;               /* until it is finished */
    fp8_rects written[FP8_PARAMS]; /* in the local matrix of each parameter */
    float *bias;                   /* [n] */
    float *part_scale;             /* [parts]: of codes to be merged, or given; NAN = not yet */
    float *input_scale;            /* [parts] */
    uint64_t source_bytes;         /* of what was written */

    /* HIGH */
    fp8_dtype high;
    fp8_quant q;          /* of the whole share */
    bool whole;           /* nothing can be quantized before all is there */
    float *amax;          /* [units of q] while it is measured, then .. */
    float *operand;       /* .. [units of q]: known before the elements come */
    fp8_wait_unit **rows; /* [rows of units]: lists; NULL: nothing has waited yet */
} fp8_stage;

/* An empty one for the layer, which belongs to it until the end. Error: NO_MEMORY. */
fp8_status fp8_stage_open(fp8_layer *layer, const fp8_stage_rules *rules, fp8_stage **out,
                          fp8_error *err);
/* An empty one again: nothing has been written, nor settled. */
void fp8_stage_restart(fp8_stage *stage);
/* Frees it; NULL is a no-op. */
void fp8_stage_close(fp8_stage *stage);

/* Settles that codes come, with scales of another grid and dtypes than the layer declared. Before
 * any piece. Errors: as fp8_linear_check, STATE. */
fp8_status fp8_stage_expect_codes(fp8_stage *stage, fp8_grid grid, fp8_dtype code, fp8_dtype scale,
                                  fp8_error *err);
/* Takes a piece; fp8_load_write says what may go wrong. */
fp8_status fp8_stage_write(fp8_stage *stage, const fp8_load_piece *piece, fp8_error *err);
/* Writes the local scales `at` of a parameter, none of which has been, as `value` rounded to their
 * dtype. Errors: SCALE, NO_MEMORY, and those of settling. */
fp8_status fp8_stage_fill_scales(fp8_stage *stage, fp8_load_param param, fp8_rect at, float value,
                                 fp8_error *err);
/* Every element of each parameter has been written. */
bool fp8_stage_is_whole(const fp8_stage *stage);
/* Gives a whole weight to the layer; waits for those who hold it. Errors: NO_MEMORY, UNSUPPORTED;
 * on CUDA DEVICE and STATE, after which it can be tried again. */
fp8_status fp8_stage_finish(fp8_stage *stage, fp8_error *err);

/* Elements of a parameter that are expected, as a matrix at (0,0); no rows if none is. */
fp8_rect fp8_stage_expected(const fp8_stage *stage, fp8_load_param param);
const char *fp8_param_name(fp8_load_param param);

/* Settles the kind if it is not yet: `dtype` is that of the first weight, or NONE for codes of the
 * layer's own w_code. Errors: as fp8_linear_check, DTYPE. */
fp8_status fp8_stage_settle(fp8_stage *stage, fp8_dtype dtype, fp8_error *err);

/* Undoes it, if nothing has been written of what it settles. */
void fp8_stage_unsettle(fp8_stage *stage);

/* A rank's share of a piece: where it goes, and its elements. */
typedef struct fp8_fragment {
    fp8_rect at;
    fp8_tensor data; /* [at.rows, at.cols] */
    int64_t part;
} fp8_fragment;

/* ---- weights in high precision (stage_high.c) ---- */

/* Whether all of the weight is read before any of it is quantized, so that a source that can be
 * read twice is better measured first. */
bool fp8_stage_wants_measure(const fp8_stage *stage);
/* Takes part of a weight into account for its scales, each element once, and says when that was
 * all of it. Errors: NAN, SHAPE, NO_MEMORY, SCALE and those of comm. */
fp8_status fp8_stage_measure(fp8_stage *stage, const fp8_load_piece *piece, fp8_error *err);
fp8_status fp8_stage_measured(fp8_stage *stage, fp8_error *err);
/* Quantizes fragments of a weight, or lets them wait; all or none. */
fp8_status fp8_stage_take_high(fp8_stage *stage, const fp8_fragment *fragments, int64_t count,
                               fp8_error *err);
void fp8_stage_drop_waiting(fp8_stage *stage);

#endif
