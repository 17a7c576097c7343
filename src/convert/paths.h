/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h - where a conversion reads and writes, and whether it may. */
#ifndef FP8_CONVERT_PATHS_H
#define FP8_CONVERT_PATHS_H

#include "convert/convert.h"

/* Fills conv->dst, partial and files (absolute, links resolved), and checks that the target is not
 * in the source, nor the other way round, does not exist unless allowed, and can be written.
 * Errors: ARGUMENT, EXISTS, STATE, IO, NO_MEMORY. */
fp8_status fp8_paths_settle(fp8_convert *conv, fp8_error *err);

/* A resumed run finds DST finished by an earlier run of the same options and source. */
bool fp8_paths_complete(const fp8_convert *conv);
/* A resumed run has something to go on with, or DST is complete; asks for the fingerprint. Error
 * EXISTS. */
fp8_status fp8_paths_check_resumed(const fp8_convert *conv, fp8_error *err);

/* A DST.partial that is there may be started over. Errors: STATE (another process is at work on
 * it), EXISTS (without force). */
fp8_status fp8_paths_check_partial(const fp8_convert *conv, fp8_error *err);

/* Bytes free for us on the file system of dst. */
fp8_status fp8_paths_free_bytes(const fp8_convert *conv, uint64_t *out, fp8_error *err);
/* Enough is free for the shards of `part` and everything else; what DST.partial already occupies
 * counts as free. Error NO_SPACE. */
fp8_status fp8_paths_check_space(const fp8_convert *conv, int32_t part, fp8_error *err);

bool fp8_path_exists(const char *path);

#endif
