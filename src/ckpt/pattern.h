/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern.h - names chosen by the user: a shell glob over the whole tensor name, with or without
 * ".weight", or "re:" and a Perl-compatible expression that must match at the start (Python's
 * re.match). */
#ifndef FP8_CKPT_PATTERN_H
#define FP8_CKPT_PATTERN_H

#include "base/context.h"

#include <stdbool.h>

typedef struct fp8_matcher fp8_matcher;

/* Errors: ARGUMENT (a bad expression; err->pos = offset in it), NO_MEMORY. */
fp8_status fp8_matcher_create(const fp8_context *ctx, const char *pattern, fp8_matcher **out,
                              fp8_error *err);
void fp8_matcher_free(fp8_matcher *matcher);
/* *matched for a tensor name. An expression that exceeds the match limit is an ARGUMENT error. One
 * thread at a time. */
fp8_status fp8_matcher_test(fp8_matcher *matcher, const char *name, uint64_t bytes, bool *matched,
                            fp8_error *err);

#endif
