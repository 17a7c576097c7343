/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.c - the first bytes of other formats. */
#define _GNU_SOURCE
#include "ckpt/foreign.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *magic;
    uint64_t bytes;
    const char *words;
} formats[] = {
    {"version https://git-lfs", 23,
     "a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'"},
    {"PK\3\4", 4, "a zip archive, perhaps a PyTorch .bin or .pt file"},
    {"\x80\2", 2, "a Python pickle, perhaps a PyTorch .bin or .pt file"},
    {"\x80\3", 2, "a Python pickle"},
    {"\x80\4", 2, "a Python pickle"},
    {"\x80\5", 2, "a Python pickle"},
    {"GGUF", 4, "a GGUF file"},
    {"<!DOCTYPE", 9, "an HTML page, perhaps the error page of a download"},
    {"<html", 5, "an HTML page, perhaps the error page of a download"},
    {"\x89HDF", 4, "an HDF5 file"},
    {"\x93NUMPY", 6, "a NumPy array"},
    {"\x1f\x8b", 2, "a gzip file"},
    {"\x28\xb5\x2f\xfd", 4, "a zstd file"},
    {"{\"", 2, "JSON text, perhaps an index"},
    {"{\n", 2, "JSON text, perhaps an index"},
    {"{ ", 2, "JSON text, perhaps an index"},
};

const char *fp8_foreign_format(const char *head, uint64_t bytes)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (bytes >= formats[i].bytes && !strncasecmp(head, formats[i].magic, formats[i].bytes))
            return formats[i].words;
    return NULL;
}
