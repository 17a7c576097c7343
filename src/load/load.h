/* SPDX-License-Identifier: Apache-2.0
 *
 * load.h - a load: layers that are being filled, and the room in which their pieces wait. */
#ifndef FP8_LOAD_LOAD_H
#define FP8_LOAD_LOAD_H

#include "ckpt/name_table.h"
#include "layer/stage.h"

enum { FP8_LOAD_LINE_BYTES = 1024 };

/* A layer of a load. */
typedef struct fp8_load_slot {
    fp8_load *load;
    fp8_layer *layer;
    fp8_stage *stage;
    bool whole; /* the layer has it */
} fp8_load_slot;

struct fp8_load {
    const fp8_context *ctx;
    fp8_stage_rules rules;
    fp8_wait_room room;
    char *spill; /* copy of the directory's name */
    fp8_load_slot **slots;
    int64_t count, slot_room;
    fp8_name_table places; /* of slots by their layers' addresses; zero while there are none */
    char line[FP8_LOAD_LINE_BYTES]; /* of fp8_load_missing */
};

/* Writes into a slot, and finishes it if that was all. */
fp8_status fp8_load_write_slot(fp8_load_slot *slot, const fp8_load_piece *piece, fp8_error *err);
/* The second half of that. */
fp8_status fp8_load_end_if_whole(fp8_load_slot *slot, fp8_error *err);

#endif
