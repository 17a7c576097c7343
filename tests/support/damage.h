/* SPDX-License-Identifier: Apache-2.0
 *
 * damage.h - ways to spoil a good checkpoint, each with the finding that fp8_verify must make of
 * it. The good ones were made by other tools (tests/golden/checkpoints): blocks by transformers,
 * channels by compressed-tensors. */
#ifndef FP8_TESTS_DAMAGE_H
#define FP8_TESTS_DAMAGE_H

#include "support/checkpoint_edit.h"

#include <stdbool.h>

/* A good checkpoint and its source. */
typedef struct good {
    const char *folder, *source;
    int shards;
} good;

typedef struct damage {
    const char *name;
    const good *good;
    void (*model)(edit_model *m);
    void (*files)(const char *folder);
    bool with_source;  /* only the source can tell */
    const char *rule;  /* NULL: no finding at all */
    const char *place; /* the tensor named, "" none */
    bool is_warning;
    const char *words; /* in the message, NULL: any */
} damage;

/* All of them, and how many. */
extern const damage damages[];
extern const size_t damage_count;

#endif
