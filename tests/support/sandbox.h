/* SPDX-License-Identifier: Apache-2.0
 *
 * sandbox.h - a temporary directory with small checkpoints in it, for tests of the readers. What
 * fails here ends the test. */
#ifndef SANDBOX_H
#define SANDBOX_H

#include "fp8.h"

/* A fresh directory; its path, in static storage, until sandbox_remove. One at a time. */
const char *sandbox_make(void);
/* Removes it and all that is in it. */
void sandbox_remove(void);
/* "<sandbox>/<name>" in static storage that the next seven calls leave alone. */
const char *sandbox_path(const char *name);

/* Writes a file of the sandbox. */
void sandbox_write(const char *name, const void *data, size_t bytes);
void sandbox_text(const char *name, const char *text);
/* A safetensors file from its JSON and so many bytes of data, which are 0, 1, 2, .. */
void sandbox_safetensors(const char *name, const char *json, size_t data_bytes);
/* A safetensors file of F32 vectors of four elements with the comma-separated names. */
void sandbox_shard(const char *name, const char *tensors);

#endif
