/* SPDX-License-Identifier: Apache-2.0
 *
 * carry.h - the other files of the source directory: tokenizer, generation config, README, licence,
 * code, subfolders. Never carried: weights in any format, their indices, what the conversion writes
 * itself, hidden files, the output. */
#ifndef FP8_CONVERT_CARRY_H
#define FP8_CONVERT_CARRY_H

#include "convert/convert.h"

/* conv->carried_bytes, and a warning about weights that are left behind. Nothing is carried of a
 * source that is a single file. Errors: IO (also for loops of symbolic links), NO_MEMORY. */
fp8_status fp8_carry_measure(fp8_convert *conv, fp8_error *err);
/* Copies them into conv->files and syncs them. */
fp8_status fp8_carry_copy(fp8_convert *conv, fp8_error *err);

#endif
