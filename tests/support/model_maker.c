/* SPDX-License-Identifier: Apache-2.0
 *
 * model_maker.c - names and shapes in, safetensors files out. */
#include "support/model_maker.h"
#include "support/sandbox.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

enum { ROOM = 1 << 16 };

/* ---- values ---- */

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Sum of four uniform numbers: near enough to normal, deviation 0.02 or so; a few are large. */
static float next_value(uint64_t *state)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(next_random(state) % 2001) - 1000.0f;
    return sum * (next_random(state) % 97 == 0 ? 3e-4f : 2e-5f);
}

static uint64_t seed_of(const char *name)
{
    uint64_t seed = 88172645463325252u;
    for (; *name; name++)
        seed = seed * 31 + (unsigned char)*name;
    return seed;
}

static int64_t count_of(const made_tensor *t)
{
    int64_t n = 1;
    for (int32_t d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

static size_t bytes_of(const made_tensor *t)
{
    return (size_t)count_of(t) * (size_t)fp8_dtype_bits(t->dtype) / 8;
}

static void fill(const made_tensor *t, unsigned char *dst)
{
    int64_t n = count_of(t);
    uint64_t state = seed_of(t->name);
    fp8_context *ctx;
    if (t->dtype != FP8_F32 && t->dtype != FP8_F16 && t->dtype != FP8_BF16) {
        for (size_t i = 0; i < bytes_of(t); i++)
            dst[i] = (unsigned char)i;
        return;
    }
    float *values = malloc((size_t)n * sizeof *values + 1);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = next_value(&state);
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    assert_int_equal(fp8_cast(ctx, values, FP8_F32, dst, t->dtype, n, 0, NULL, NULL), FP8_OK);
    fp8_context_free(ctx);
    free(values);
}

/* ---- files ---- */

static void file_name(char *out, size_t room, const char *folder, int shard, int shards)
{
    if (shards == 1)
        snprintf(out, room, "%s/model.safetensors", folder);
    else
        snprintf(out, room, "%s/model-%05d-of-%05d.safetensors", folder, shard + 1, shards);
}

static void write_shard(const char *folder, const made_tensor *tensors, int count, int shard,
                        int shards)
{
    char *json = malloc(ROOM), name[512];
    size_t at = 0, offset = 0;
    assert_non_null(json);
    at += (size_t)sprintf(json, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < count; i++) {
        const made_tensor *t = &tensors[i];
        if (t->shard != shard)
            continue;
        at += (size_t)snprintf(json + at, ROOM - at, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                               t->name, fp8_dtype_name(t->dtype));
        for (int32_t d = 0; d < t->ndim; d++)
            at += (size_t)snprintf(json + at, ROOM - at, "%s%lld", d ? "," : "",
                                   (long long)t->shape[d]);
        at += (size_t)snprintf(json + at, ROOM - at, "],\"data_offsets\":[%zu,%zu]}", offset,
                               offset + bytes_of(t));
        offset += bytes_of(t);
    }
    at += (size_t)snprintf(json + at, ROOM - at, "}");
    unsigned char *file = malloc(8 + at + offset);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)(at >> 8 * i);
    memcpy(file + 8, json, at);
    unsigned char *data = file + 8 + at;
    for (int i = 0; i < count; i++)
        if (tensors[i].shard == shard) {
            fill(&tensors[i], data);
            data += bytes_of(&tensors[i]);
        }
    file_name(name, sizeof name, folder, shard, shards);
    sandbox_write(name, file, 8 + at + offset);
    free(file);
    free(json);
}

static void write_index(const char *folder, const made_tensor *tensors, int count, int shards)
{
    char *json = malloc(ROOM), name[512], file[512];
    size_t total = 0, at = 0;
    assert_non_null(json);
    for (int i = 0; i < count; i++)
        total += bytes_of(&tensors[i]);
    at += (size_t)sprintf(json, "{\"metadata\":{\"total_size\":%zu},\"weight_map\":{", total);
    for (int i = 0; i < count; i++) {
        file_name(file, sizeof file, "", tensors[i].shard, shards);
        at += (size_t)snprintf(json + at, ROOM - at, "%s\"%s\":\"%s\"", i ? "," : "",
                               tensors[i].name, file + 1);
    }
    snprintf(json + at, ROOM - at, "}}");
    snprintf(name, sizeof name, "%s/model.safetensors.index.json", folder);
    sandbox_text(name, json);
    free(json);
}

static void write_other(const char *folder, const char *file, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", folder, file);
    sandbox_text(name, text);
}

static void make_folder(const char *folder)
{
    assert_true(mkdir(sandbox_path(folder), 0777) == 0 || errno == EEXIST);
}

void model_make(const char *folder, const made_tensor *tensors, int count, const char *config)
{
    char below[512];
    int shards = 1;
    for (int i = 0; i < count; i++)
        shards = tensors[i].shard >= shards ? tensors[i].shard + 1 : shards;
    make_folder(folder);
    for (int s = 0; s < shards; s++)
        write_shard(folder, tensors, count, s, shards);
    if (shards > 1)
        write_index(folder, tensors, count, shards);
    write_other(folder, "config.json", config);
    write_other(folder, "tokenizer.json", "{\"model\": {}}\n");
    write_other(folder, "README.md", "a model\n");
    write_other(folder, "pytorch_model.bin", "never to be carried over");
    snprintf(below, sizeof below, "%s/1_Pooling", folder);
    make_folder(below);
    write_other(folder, "1_Pooling/config.json", "{}\n");
}

void model_make_llama(const char *folder, int shards)
{
    static char names[40][96];
    static const struct {
        const char *name;
        int32_t ndim;
        int64_t shape[3];
    } parts[] = {
        {"self_attn.q_proj.weight", 2, {256, 192, 0}},
        {"self_attn.k_proj.weight", 2, {128, 192, 0}},
        {"self_attn.v_proj.weight", 2, {128, 192, 0}},
        {"self_attn.o_proj.weight", 2, {192, 256, 0}},
        {"mlp.gate_proj.weight", 2, {384, 192, 0}},
        {"mlp.up_proj.weight", 2, {384, 192, 0}},
        {"mlp.down_proj.weight", 2, {192, 384, 0}},
        {"mlp.experts.down_proj", 3, {3, 192, 160}},
        {"mlp.gate.weight", 2, {4, 192, 0}},
        {"input_layernorm.weight", 1, {192, 0, 0}},
    };
    enum { PARTS = sizeof parts / sizeof *parts };
    made_tensor tensors[2 * PARTS + 3];
    int n = 0;
    for (int layer = 0; layer < 2; layer++)
        for (int p = 0; p < PARTS; p++, n++) {
            snprintf(names[n], sizeof names[n], "model.layers.%d.%s", layer, parts[p].name);
            tensors[n] = (made_tensor){names[n], FP8_BF16, parts[p].ndim, {0}, 0};
            memcpy(tensors[n].shape, parts[p].shape, sizeof tensors[n].shape);
        }
    tensors[n++] = (made_tensor){"model.embed_tokens.weight", FP8_BF16, 2, {64, 192, 0}, 0};
    tensors[n++] = (made_tensor){"model.norm.weight", FP8_BF16, 1, {192, 0, 0}, 0};
    tensors[n++] = (made_tensor){"lm_head.weight", FP8_BF16, 2, {64, 192, 0}, 0};
    for (int i = 0; i < n; i++)
        tensors[i].shard = i * shards / n;
    model_make(folder, tensors, n,
               "{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n  \"model_type\": "
               "\"llama\",\n  \"hidden_size\": 192,\n  \"num_hidden_layers\": 2,\n  "
               "\"tie_word_embeddings\": false\n}\n");
}

/* ---- what tests do with them ---- */

void model_poke(const char *folder, const char *tensor, int64_t pos, const void *bytes, size_t n)
{
    fp8_context *ctx;
    fp8_checkpoint *ckpt;
    fp8_tensor_info info;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    assert_int_equal(fp8_checkpoint_open(ctx, sandbox_path(folder), &ckpt, NULL), FP8_OK);
    assert_int_equal(fp8_checkpoint_find(ckpt, tensor, strlen(tensor), &info), FP8_OK);
    FILE *file = fopen(info.file, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(info.offset + (uint64_t)pos * n), SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    fp8_checkpoint_close(ckpt);
    fp8_context_free(ctx);
}

unsigned char *model_read(const fp8_checkpoint *ckpt, const char *name, fp8_tensor_info *info)
{
    assert_int_equal(fp8_checkpoint_find(ckpt, name, strlen(name), info), FP8_OK);
    unsigned char *data = malloc(info->bytes + 1);
    assert_non_null(data);
    assert_int_equal(fp8_checkpoint_read(ckpt, info, 0, info->bytes, data, NULL), FP8_OK);
    return data;
}

bool folders_equal(const char *a, const char *b)
{
    char command[4096];
    snprintf(command, sizeof command, "diff -r '%s' '%s' >/dev/null", a, b);
    return system(command) == 0;
}

fp8_status model_convert(const fp8_context *ctx, const fp8_convert_desc *desc, fp8_error *err)
{
    fp8_convert *conv;
    fp8_status status = fp8_convert_plan(ctx, desc, &conv, err);
    if (status == FP8_OK)
        status = fp8_convert_run(conv, NULL, NULL, err);
    if (status == FP8_OK || conv)
        fp8_convert_free(conv);
    return status;
}
