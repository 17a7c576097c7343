/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_edit.h - a small checkpoint in memory, to be changed and written again: how tests make
 * damaged ones. Failures end the test. */
#ifndef CHECKPOINT_EDIT_H
#define CHECKPOINT_EDIT_H

#include "fp8.h"

#include <stdbool.h>

enum { EDIT_MAX_TENSORS = 128 };

typedef struct edit_tensor {
    char name[160];
    fp8_dtype dtype;
    int32_t ndim;
    int64_t shape[4];
    unsigned char *data;
    uint64_t bytes;
    int shard;     /* 0-based, of edit_model.shards */
    bool unlisted; /* not named by the index */
} edit_tensor;

typedef struct edit_model {
    edit_tensor tensors[EDIT_MAX_TENSORS];
    int count;
    char *config; /* text of config.json, NULL: write none */
    int shards;   /* 1: model.safetensors without an index */
    int64_t total_size_off_by;
} edit_model;

/* Reads a folder; its tensors are dealt to `shards` shards in turn. Free with edit_free. */
edit_model *edit_load(const fp8_context *ctx, const char *folder, int shards);
void edit_free(edit_model *model);
/* Writes it to a folder that exists. */
void edit_save(const fp8_context *ctx, const edit_model *model, const char *folder);

/* The tensor of that name; the test fails if there is none. */
edit_tensor *edit_find(edit_model *model, const char *name);
void edit_remove(edit_model *model, const char *name);
/* A copy of a tensor under another name. */
edit_tensor *edit_copy(edit_model *model, const char *name, const char *new_name);
/* Exchanges the data of two tensors. */
void edit_swap(edit_model *model, const char *a, const char *b);
/* Replaces the first `old` in config.json, which must be there. */
void edit_config(edit_model *model, const char *old, const char *new_text);

#endif
