/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.h - what inference engines refuse or misread, as a table: the planner keeps such weights,
 * verify reports them. docs/formats.md names the source of each row. */
#ifndef FP8_CKPT_ENGINE_H
#define FP8_CKPT_ENGINE_H

#include "ckpt/dialect.h"

/* How one engine takes one weight. */
typedef enum fp8_verdict {
    FP8_LOADS,
    FP8_SLOW,    /* loads, with a drawback that the reason names */
    FP8_REFUSED, /* an error at load or at the first forward */
    FP8_MISREAD, /* loads without an error and computes wrong numbers */
} fp8_verdict;

/* The static name equal to `name`; "vllm" for NULL; NULL if there is no such engine. */
const char *fp8_engine_find(const char *name);
/* Whether the engine loads the dialect at all; *reason (static) says why not. */
fp8_verdict fp8_engine_dialect(const char *engine, const fp8_dialect *dialect, const char **reason);
/* Which part of a fused matrix a weight becomes in engines: q, k and v of one qkv, and so on. */
typedef struct fp8_fused {
    const char *name; /* of the fused matrix, static; NULL: it is not fused */
    int32_t index, count;
    bool expert; /* of one expert: its parts share a scale, but keep their own blocks */
} fp8_fused;
fp8_fused fp8_fused_part(const char *name, uint64_t name_bytes);
/* The name of the weight that is part `index` of the same fused matrix; name must be a part. dst
 * has room for name_bytes + 32 and gets a NUL. Returns the length. */
uint64_t fp8_fused_sibling(const char *name, uint64_t name_bytes, int32_t index, char *dst);

/* How it takes the weight `name` of that shape in this dialect on one rank; conv1d: the file has it
 * as [in, out]. *reason (static) is set unless LOADS. */
fp8_verdict fp8_engine_weight(const char *engine, const fp8_dialect *dialect, const char *name,
                              uint64_t name_bytes, fp8_matrices shape, bool conv1d,
                              const char **reason);

#endif
