/* SPDX-License-Identifier: Apache-2.0
 *
 * make_checkpoint.c - writes a checkpoint with the names and shapes of a Llama model, to measure
 * on:
 *
 *     make_checkpoint OUT LAYERS HIDDEN INTERMEDIATE VOCAB [SHARD_BYTES] [sparse]
 *
 * Values are bf16, roughly normal with deviation 0.02. "sparse" leaves the data as holes, which
 * read as zeros: a model of hundreds of GB takes a few MB. */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 96, BLOCK = 1 << 20 };

typedef struct tensor {
    char name[NAME];
    int64_t shape[2];
    int32_t ndim;
    int64_t shard;
} tensor;

typedef struct model {
    tensor *tensors;
    int64_t count, shards;
} model;

static void die(const char *what)
{
    fprintf(stderr, "make_checkpoint: %s: %s\n", what, errno ? strerror(errno) : "failed");
    exit(1);
}

static int64_t bytes_of(const tensor *t)
{
    return t->shape[0] * (t->ndim == 2 ? t->shape[1] : 1) * 2;
}

static void add(model *m, int64_t layer, const char *part, int64_t rows, int64_t cols)
{
    tensor *t = &m->tensors[m->count++];
    if (layer >= 0)
        snprintf(t->name, NAME, "model.layers.%lld.%s.weight", (long long)layer, part);
    else
        snprintf(t->name, NAME, "%s.weight", part);
    t->shape[0] = rows;
    t->shape[1] = cols;
    t->ndim = cols ? 2 : 1;
}

static void list(model *m, int64_t layers, int64_t h, int64_t inter, int64_t vocab)
{
    m->tensors = calloc((size_t)(layers * 9 + 3), sizeof *m->tensors);
    if (!m->tensors)
        die("memory");
    add(m, -1, "model.embed_tokens", vocab, h);
    for (int64_t n = 0; n < layers; n++) {
        add(m, n, "self_attn.q_proj", h, h);
        add(m, n, "self_attn.k_proj", h / 4, h);
        add(m, n, "self_attn.v_proj", h / 4, h);
        add(m, n, "self_attn.o_proj", h, h);
        add(m, n, "mlp.gate_proj", inter, h);
        add(m, n, "mlp.up_proj", inter, h);
        add(m, n, "mlp.down_proj", h, inter);
        add(m, n, "input_layernorm", h, 0);
        add(m, n, "post_attention_layernorm", h, 0);
    }
    add(m, -1, "model.norm", h, 0);
    add(m, -1, "lm_head", vocab, h);
}

static void split(model *m, int64_t limit)
{
    int64_t filled = 0;
    m->shards = 1;
    for (int64_t i = 0; i < m->count; i++) {
        int64_t bytes = bytes_of(&m->tensors[i]);
        if (filled && filled + bytes > limit) {
            m->shards++;
            filled = 0;
        }
        filled += bytes;
        m->tensors[i].shard = m->shards - 1;
    }
}

static void file_name(const model *m, int64_t shard, char *out, size_t room)
{
    if (m->shards == 1)
        snprintf(out, room, "model.safetensors");
    else
        snprintf(out, room, "model-%05lld-of-%05lld.safetensors", (long long)shard + 1,
                 (long long)m->shards);
}

static void write_all(int fd, const char *data, uint64_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes);
        if (n <= 0)
            die("write");
        data += n;
        bytes -= (uint64_t)n;
    }
}

/* bf16 numbers: the sum of four uniform ones has nearly the shape of a normal one. */
static void fill(uint16_t *values, uint64_t *state)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        uint64_t s = *state;
        int sum = (int)(s & 0xffff) + (int)(s >> 16 & 0xffff) + (int)(s >> 32 & 0xffff) +
                  (int)(s >> 48) - 131070;
        float value = (float)sum * 5e-7f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        values[i] = (uint16_t)(bits >> 16);
    }
}

static void write_data(int fd, uint64_t bytes, uint64_t seed)
{
    static uint16_t block[BLOCK / 2];
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    while (bytes) {
        uint64_t n = bytes < BLOCK ? bytes : BLOCK;
        fill(block, &state);
        write_all(fd, (const char *)block, n);
        bytes -= n;
    }
}

/* The tensors of one file. */
typedef struct shard_list {
    const tensor **tensors;
} shard_list;

static fp8_st_tensor shard_tensor(void *owner, int64_t i)
{
    const tensor *t = ((const shard_list *)owner)->tensors[i];
    return (fp8_st_tensor){t->name, strlen(t->name), FP8_BF16, t->ndim, t->shape};
}

static void keep_no_place(void *owner, int64_t i, uint64_t begin, uint64_t bytes)
{
    (void)owner;
    (void)i;
    (void)begin;
    (void)bytes;
}

static fp8_status to_file(void *fd, const char *text, uint64_t bytes, fp8_error *err)
{
    (void)err;
    write_all(*(const int *)fd, text, bytes);
    return FP8_OK;
}

static void write_shard(const fp8_context *ctx, const char *out, const model *m, int64_t shard,
                        bool sparse)
{
    char path[4096], file[64];
    uint64_t head_bytes, data_bytes;
    shard_list of = {calloc((size_t)m->count, sizeof *of.tensors)};
    fp8_st_list list = {0, shard_tensor, keep_no_place, &of, NULL};
    if (!of.tensors)
        die("memory");
    for (int64_t i = 0; i < m->count; i++)
        if (m->tensors[i].shard == shard)
            of.tensors[list.count++] = &m->tensors[i];
    if (fp8_st_layout(ctx, &list, &head_bytes, &data_bytes, NULL) != FP8_OK)
        die("layout");
    file_name(m, shard, file, sizeof file);
    snprintf(path, sizeof path, "%s/%s", out, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        die(path);
    fp8_text text = {.ctx = ctx, .drain = to_file, .user = &fd};
    fp8_st_put_head(&list, head_bytes, &text);
    if (fp8_text_close(&text, NULL) != FP8_OK)
        die("memory");
    if (sparse) {
        if (ftruncate(fd, (off_t)(head_bytes + data_bytes)))
            die(path);
    } else
        write_data(fd, data_bytes, (uint64_t)shard + 1);
    if (close(fd))
        die(path);
    free(of.tensors);
}

static FILE *create(const char *out, const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", out, file);
    FILE *f = fopen(path, "w");
    if (!f)
        die(path);
    return f;
}

static void write_json(const char *out, const model *m, long long h, long long layers)
{
    FILE *f = create(out, "config.json");
    fprintf(f,
            "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
            "  \"hidden_size\": %lld,\n  \"num_hidden_layers\": %lld\n}\n",
            h, layers);
    fclose(f);
    if (m->shards == 1)
        return;
    f = create(out, "model.safetensors.index.json");
    long long total = 0;
    for (int64_t i = 0; i < m->count; i++)
        total += bytes_of(&m->tensors[i]);
    fprintf(f, "{\"metadata\": {\"total_size\": %lld}, \"weight_map\": {", total);
    for (int64_t i = 0; i < m->count; i++) {
        char file[64];
        file_name(m, m->tensors[i].shard, file, sizeof file);
        fprintf(f, "%s\n\"%s\": \"%s\"", i ? "," : "", m->tensors[i].name, file);
    }
    fprintf(f, "}}\n");
    fclose(f);
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: make_checkpoint OUT LAYERS HIDDEN INTERMEDIATE VOCAB "
                        "[SHARD_BYTES] [sparse]\n");
        return 2;
    }
    bool sparse = !strcmp(argv[argc - 1], "sparse");
    int64_t layers = atoll(argv[2]), h = atoll(argv[3]);
    int64_t limit = argc > 6 ? atoll(argv[6]) : 0;
    fp8_context *ctx;
    model m = {0};
    if (fp8_context_create(NULL, &ctx, NULL) != FP8_OK)
        die("context");
    if (mkdir(argv[1], 0777))
        die(argv[1]);
    list(&m, layers, h, atoll(argv[4]), atoll(argv[5]));
    split(&m, limit > 0 ? limit : 5000000000);
    for (int64_t s = 0; s < m.shards; s++)
        write_shard(ctx, argv[1], &m, s, sparse);
    write_json(argv[1], &m, (long long)h, (long long)layers);
    free(m.tensors);
    fp8_context_free(ctx);
    return 0;
}
