/* SPDX-License-Identifier: Apache-2.0
 *
 * model_maker.h - small checkpoints with made-up values in the sandbox, and what tests of the
 * conversion do with folders. Failures end the test. */
#ifndef MODEL_MAKER_H
#define MODEL_MAKER_H

#include "fp8.h"

#include <stdbool.h>

typedef struct made_tensor {
    const char *name;
    fp8_dtype dtype; /* F32, F16 or BF16: roughly normal values; others: counting bytes */
    int32_t ndim;
    int64_t shape[3];
    int shard; /* 0-based */
} made_tensor;

/* Writes sandbox/folder: shards, an index if there are several, config.json (a JSON object's text)
 * and some other files, over what is there. Values depend on the name alone. */
void model_make(const char *folder, const made_tensor *tensors, int count, const char *config);
/* A Llama-like model of two layers with tensors for most rules, in `shards` shards. */
void model_make_llama(const char *folder, int shards);

/* Overwrites element `pos` of a tensor of the sandbox's folder with `bytes` bytes. */
void model_poke(const char *folder, const char *tensor, int64_t pos, const void *bytes, size_t n);

/* All bytes of a tensor, from malloc; *info must not be used after `ckpt` is closed. */
unsigned char *model_read(const fp8_checkpoint *ckpt, const char *name, fp8_tensor_info *info);

/* Both folders hold the same files with the same bytes. Paths. */
bool folders_equal(const char *a, const char *b);

/* Plans and runs; *err as they left it. */
fp8_status model_convert(const fp8_context *ctx, const fp8_convert_desc *desc, fp8_error *err);

#endif
