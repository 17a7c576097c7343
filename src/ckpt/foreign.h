/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.h - what a file is that was taken for safetensors or JSON and is not. Only for error
 * messages: nothing of such a file is read. */
#ifndef FP8_CKPT_FOREIGN_H
#define FP8_CKPT_FOREIGN_H

#include <stdint.h>

enum { FP8_FOREIGN_BYTES = 64 }; /* of the file's start that the judgement may use */

/* Words such as "a Git LFS pointer, not the file itself ..", NULL if the bytes are nothing known.
 * Static text. */
const char *fp8_foreign_format(const char *head, uint64_t bytes);

#endif
