/* SPDX-License-Identifier: Apache-2.0
 *
 * sandbox.c - files in a temporary directory. */
#include "support/sandbox.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static char root[256];

const char *sandbox_make(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/fp8_test_XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(root));
    return root;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

void sandbox_remove(void)
{
    assert_int_equal(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    root[0] = 0;
}

const char *sandbox_path(const char *name)
{
    static char paths[8][1024];
    static int turn;
    char *path = paths[turn = (turn + 1) % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

void sandbox_write(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(sandbox_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

void sandbox_text(const char *name, const char *text)
{
    sandbox_write(name, text, strlen(text));
}

void sandbox_safetensors(const char *name, const char *json, size_t data_bytes)
{
    size_t n = strlen(json);
    unsigned char *file = malloc(8 + n + data_bytes);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(n >> 8 * i);
    memcpy(file + 8, json, n);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + n + i] = (unsigned char)i;
    sandbox_write(name, file, 8 + n + data_bytes);
    free(file);
}

void sandbox_shard(const char *name, const char *tensors)
{
    char json[4096] = "{", *end = json + 1;
    size_t offset = 0;
    for (const char *at = tensors; *at; at += *at == ',') {
        int n = (int)strcspn(at, ",");
        end += snprintf(end, (size_t)(json + sizeof json - end),
                        "%s\"%.*s\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[%zu,%zu]}",
                        offset ? "," : "", n, at, offset, offset + 16);
        offset += 16;
        at += n;
    }
    snprintf(end, (size_t)(json + sizeof json - end), "}");
    sandbox_safetensors(name, json, offset);
}
