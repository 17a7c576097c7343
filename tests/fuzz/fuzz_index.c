/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_index.c - any bytes as model.safetensors.index.json, beside two good shards (w0, w1 and w2,
 * w1 again). What is accepted lists each tensor once. */
#include "fp8.h"
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fp8_context *ctx;
static char directory[] = "/tmp/fp8_fuzz_index_XXXXXX";
static char paths[3][96]; /* the index and the two shards */

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file);
    FUZZ_CHECK(fwrite(data, 1, bytes, file) == bytes);
    FUZZ_CHECK(fclose(file) == 0);
}

/* Two one-byte tensors with the names. */
static void write_shard(const char *path, const char *first, const char *second)
{
    char file[256] = {0};
    int n = snprintf(file + 8, sizeof file - 8,
                     "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                     first, second);
    file[0] = (char)n;
    write_file(path, file, (size_t)n + 10);
}

static void remove_directory(void)
{
    for (int i = 0; i < 3; i++)
        unlink(paths[i]);
    rmdir(directory);
}

static void make_directory(void)
{
    static const char *const names[] = {"model.safetensors.index.json",
                                        "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"};
    FUZZ_CHECK(fp8_context_create(NULL, &ctx, NULL) == FP8_OK);
    FUZZ_CHECK(mkdtemp(directory));
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", directory, names[i]);
    write_shard(paths[1], "w0", "w1");
    write_shard(paths[2], "w2", "w1");
    atexit(remove_directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fp8_checkpoint *ckpt;
    fp8_error err;
    if (!ctx)
        make_directory();
    write_file(paths[0], data, bytes);
    if (fp8_checkpoint_open(ctx, directory, &ckpt, &err) != FP8_OK) {
        FUZZ_CHECK(err.msg[0] && err.pos <= (int64_t)bytes);
        return 0;
    }
    for (int64_t i = 0; i < fp8_checkpoint_count(ckpt); i++) {
        fp8_tensor_info info, found;
        unsigned char byte;
        FUZZ_CHECK(fp8_checkpoint_tensor(ckpt, i, &info) == FP8_OK);
        FUZZ_CHECK(fp8_checkpoint_find(ckpt, info.name, info.name_bytes, &found) == FP8_OK);
        FUZZ_CHECK(found.offset == info.offset && !strcmp(found.file, info.file));
        FUZZ_CHECK(fp8_checkpoint_read(ckpt, &info, 0, 1, &byte, NULL) == FP8_OK);
    }
    fp8_checkpoint_close(ckpt);
    return 0;
}
