/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.h - the inside of a layer: what was declared, the rank's share of it, the linear that
 * stands there now, and what it can be made of again. The lock is for the linear's contents: held
 * to read from acquire to release, to write while a new weight takes its place. */
#ifndef FP8_LAYER_LAYER_H
#define FP8_LAYER_LAYER_H

#include "layer/cut.h"
#include "layer/lock.h"
#include "op/linear_build.h"

/* A weight that the layer can be made of: views of the caller's memory, or of `memory`. */
typedef struct fp8_layer_source {
    bool given;
    fp8_tensor weight, bias; /* bias.data NULL: none */
    void *memory;            /* holds both; NULL: the caller does */
    uint64_t bytes;          /* of memory */
    uint64_t version;
} fp8_layer_source;

struct fp8_layer {
    const fp8_context *ctx;
    fp8_layer_desc desc; /* name, parts and their names are the layer's own */
    fp8_cut_plan cut;
    fp8_lock *lock;
    fp8_linear *linear; /* NULL: no codes */
    fp8_layer_source source;
    uint64_t version; /* of the source that the linear was made of */
    bool had_codes;
    int64_t reloads;
    struct fp8_load_slot *slot; /* of the load that is at work on it; NULL: none */
};

/* A weight that was loaded takes the place of the one that stands there, at its address if they are
 * alike, or becomes the first; a source is forgotten. Waits for those who hold the layer, of whom
 * this thread is none. Owns the build's linear from now on, unless it fails. Errors, on CUDA:
 * DEVICE, STATE. */
fp8_status fp8_layer_take_loaded(fp8_layer *layer, fp8_build *build, fp8_error *err);

/* Error: STATE, this thread holds the layer, and would wait for itself, or another, and might wait
 * for a thread that waits for it. */
fp8_status fp8_layer_check_changeable(const fp8_layer *layer, fp8_error *err);

/* "layer NAME: " in front of the message; returns status. */
fp8_status fp8_layer_words(const fp8_layer *layer, fp8_status status, fp8_error *err);

#endif
