/* SPDX-License-Identifier: Apache-2.0
 *
 * nameset.h - a list of module names and patterns as configs write them (ignore lists, targets),
 * and whether a module is in it. Exact names are hashed, so a list of 60,000 is no slower than one
 * of three. */
#ifndef FP8_CKPT_NAMESET_H
#define FP8_CKPT_NAMESET_H

#include "ckpt/name_table.h"
#include "ckpt/pattern.h"

/* What an entry of the list means. */
typedef enum fp8_name_syntax {
    FP8_NAMES_EXACT, /* the module's whole name */
    FP8_NAMES_CT,    /* whole name; "re:" expression; a class name, which all linears have */
    FP8_NAMES_HF,    /* whole parts at the start or at the end of the name, or an expression at the
                        start: what transformers accepts */
    FP8_NAMES_GLOB,  /* shell glob over the whole name, or a name and all below it (ModelOpt) */
} fp8_name_syntax;

typedef struct fp8_nameset {
    const fp8_context *ctx;
    fp8_name_syntax syntax;
    char **names; /* [count], in the list's order and spelling */
    int64_t count, room;
    fp8_name_table table;   /* of names, plain ones only */
    fp8_matcher **patterns; /* [pattern_count] entries that are no plain names */
    int64_t pattern_count;
    bool all; /* CT: holds "Linear" */
} fp8_nameset;

void fp8_nameset_init(fp8_nameset *set, const fp8_context *ctx, fp8_name_syntax syntax);
/* Errors: ARGUMENT (a broken expression), NO_MEMORY. */
fp8_status fp8_nameset_add(fp8_nameset *set, const char *text, uint64_t bytes, fp8_error *err);
/* How a module is in a set; of several sets the one with the largest answer holds it. */
typedef enum fp8_name_match {
    FP8_NAME_NONE = 0,
    FP8_NAME_BY_CLASS,
    FP8_NAME_BY_PATTERN,
    FP8_NAME_EXACT,
} fp8_name_match;

/* *match of a module (a tensor's name without its last part "weight"). One thread at a time.
 * Errors: ARGUMENT (an expression that exceeds its limits), NO_MEMORY. */
fp8_status fp8_nameset_match(fp8_nameset *set, const char *module, uint64_t bytes,
                             fp8_name_match *match, fp8_error *err);
void fp8_nameset_free(fp8_nameset *set);

/* Length of the module's name in a tensor's name: without a last part ".weight". */
uint64_t fp8_module_bytes(const char *tensor, uint64_t bytes);

#endif
