/* SPDX-License-Identifier: Apache-2.0
 *
 * seal.h - the proof that outlives a run: which run made a folder, and that no name in it has come
 * or gone since. It is the extended attribute "user.fp8.run" of the folder, so the bytes of the
 * output do not depend on it:
 *
 *     fingerprint of options and source, time of the folder's last change     32 bytes
 *
 * A file system without extended attributes keeps none; a finished output is then not known again.
 */
#ifndef FP8_CONVERT_SEAL_H
#define FP8_CONVERT_SEAL_H

#include "convert/convert.h"

/* Seals conv->files, in which everything stands that will be in DST. */
void fp8_seal_put(const fp8_convert *conv);
/* DST is the whole output of the same run as this one. */
bool fp8_seal_fits(const fp8_convert *conv);

#endif
