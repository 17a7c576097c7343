/* SPDX-License-Identifier: Apache-2.0
 *
 * locate.h - which files a path stands for: a directory, an index or one safetensors file. */
#ifndef FP8_CKPT_LOCATE_H
#define FP8_CKPT_LOCATE_H

#include "ckpt/checkpoint.h"

/* A sorted list of file names. Zeroed = empty. */
typedef struct fp8_file_list {
    char **names;
    int64_t count, room;
} fp8_file_list;

/* Adds a copy of name[0..bytes). Error NO_MEMORY. */
fp8_status fp8_file_list_add(const fp8_context *ctx, fp8_file_list *list, const char *name,
                             uint64_t bytes, fp8_error *err);
void fp8_file_list_sort(fp8_file_list *list);
void fp8_file_list_free(const fp8_context *ctx, fp8_file_list *list);

/* Sets directory, single_file and index_file of the checkpoint. *files gets the safetensors files
 * to read if there is no index; if there is one, those that lie in the directory, for a warning
 * about files that it does not name. A directory is read by its model.safetensors.index.json, else
 * its only *.safetensors.index.json, else its model.safetensors, else (with a warning if they are
 * several) all its *.safetensors. Errors: NOT_FOUND (no such path, nothing to read in it), FORMAT
 * (two indexes to choose from), IO, NO_MEMORY. */
fp8_status fp8_locate(fp8_checkpoint *ckpt, const char *path, fp8_file_list *files, fp8_error *err);

#endif
