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

/* Name i ("vllm", "transformers", ..), NULL past the last. */
const char *fp8_engine_name(int64_t i);
/* The static name equal to `name`; "vllm" for NULL; NULL if there is no such engine. */
const char *fp8_engine_find(const char *name);
/* Whether the engine loads the dialect at all; *reason (static) says why not. */
fp8_verdict fp8_engine_dialect(const char *engine, const fp8_dialect *dialect, const char **reason);
/* How it takes a weight [rows, cols] = [out, in] of this dialect on one rank; conv1d: stored [in,
 * out] in the file. *reason (static) is set unless LOADS. */
fp8_verdict fp8_engine_weight(const char *engine, const fp8_dialect *dialect, int64_t rows,
                              int64_t cols, bool conv1d, const char **reason);

#endif
