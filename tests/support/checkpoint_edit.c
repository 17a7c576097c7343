/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_edit.c - see checkpoint_edit.h. */
#include "support/checkpoint_edit.h"

#include "ckpt/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static char *read_file(const char *folder, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    assert_true(n > 0);
    fclose(f);
    return text;
}

static void write_file(const char *folder, const char *file, const void *a, uint64_t a_bytes,
                       const edit_model *model, int shard)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(a, 1, a_bytes, f), a_bytes);
    for (int i = 0; model && i < model->count; i++) {
        const edit_tensor *t = &model->tensors[i];
        if (t->shard == shard && t->bytes)
            assert_int_equal(fwrite(t->data, 1, t->bytes, f), t->bytes);
    }
    assert_int_equal(fclose(f), 0);
}

edit_model *edit_load(const fp8_context *ctx, const char *folder, int shards)
{
    fp8_checkpoint *ckpt;
    fp8_error err;
    edit_model *model = calloc(1, sizeof *model);
    assert_non_null(model);
    assert_int_equal(fp8_checkpoint_open(ctx, folder, &ckpt, &err), FP8_OK);
    model->shards = shards;
    model->config = read_file(folder, "config.json");
    assert_true(fp8_checkpoint_count(ckpt) < EDIT_MAX_TENSORS - 4);
    for (int64_t i = 0; i < fp8_checkpoint_count(ckpt); i++) {
        fp8_tensor_info info;
        edit_tensor *t = &model->tensors[model->count++];
        assert_int_equal(fp8_checkpoint_tensor(ckpt, i, &info), FP8_OK);
        assert_true(info.name_bytes < sizeof t->name && info.ndim <= 4);
        memcpy(t->name, info.name, info.name_bytes);
        t->dtype = info.dtype;
        t->ndim = info.ndim;
        for (int32_t d = 0; d < info.ndim; d++)
            t->shape[d] = info.shape[d];
        t->bytes = info.bytes;
        t->data = malloc(info.bytes + 1);
        assert_non_null(t->data);
        assert_int_equal(fp8_checkpoint_read(ckpt, &info, 0, info.bytes, t->data, &err), FP8_OK);
        t->shard = (int)(i % shards);
    }
    fp8_checkpoint_close(ckpt);
    return model;
}

void edit_free(edit_model *model)
{
    for (int i = 0; i < model->count; i++)
        free(model->tensors[i].data);
    free(model->config);
    free(model);
}

static void shard_name(const edit_model *model, int shard, char name[64])
{
    if (model->shards == 1)
        strcpy(name, "model.safetensors");
    else
        snprintf(name, 64, "model-%05d-of-%05d.safetensors", shard + 1, model->shards);
}

/* The tensors of one file. */
typedef struct edit_file {
    const edit_tensor *tensors[EDIT_MAX_TENSORS];
} edit_file;

static fp8_st_tensor file_tensor(void *owner, int64_t i)
{
    const edit_tensor *t = ((const edit_file *)owner)->tensors[i];
    return (fp8_st_tensor){t->name, strlen(t->name), t->dtype, t->ndim, t->shape};
}

static void keep_no_place(void *owner, int64_t i, uint64_t begin, uint64_t bytes)
{
    (void)owner;
    (void)i;
    (void)begin;
    (void)bytes;
}

static void save_shard(const fp8_context *ctx, const edit_model *model, const char *folder,
                       int shard)
{
    edit_file file;
    fp8_st_list list = {0, file_tensor, keep_no_place, &file, NULL};
    fp8_text text = {.ctx = ctx};
    char *head, name[64];
    uint64_t head_bytes, data_bytes;
    for (int i = 0; i < model->count; i++)
        if (model->tensors[i].shard == shard)
            file.tensors[list.count++] = &model->tensors[i];
    assert_int_equal(fp8_st_layout(ctx, &list, &head_bytes, &data_bytes, NULL), FP8_OK);
    fp8_st_put_head(&list, head_bytes, &text);
    assert_int_equal(fp8_text_finish(&text, &head, &head_bytes, NULL), FP8_OK);
    shard_name(model, shard, name);
    write_file(folder, name, head, head_bytes, model, shard);
    fp8_release(ctx, head);
}

static void save_index(const edit_model *model, const char *folder)
{
    char *text = calloc(1, 1 << 16), *end = text;
    const char *comma = "";
    int64_t total = model->total_size_off_by;
    assert_non_null(text);
    for (int i = 0; i < model->count; i++)
        total += (int64_t)model->tensors[i].bytes;
    end +=
        sprintf(end, "{\"metadata\": {\"total_size\": %lld}, \"weight_map\": {", (long long)total);
    for (int i = 0; i < model->count; i++) {
        char name[64];
        shard_name(model, model->tensors[i].shard, name);
        if (!model->tensors[i].unlisted)
            end += sprintf(end, "%s\"%s\": \"%s\"", comma, model->tensors[i].name, name);
        comma = ",\n";
    }
    end += sprintf(end, "}}\n");
    write_file(folder, "model.safetensors.index.json", text, (uint64_t)(end - text), NULL, 0);
    free(text);
}

void edit_save(const fp8_context *ctx, const edit_model *model, const char *folder)
{
    for (int shard = 0; shard < model->shards; shard++)
        save_shard(ctx, model, folder, shard);
    if (model->shards > 1)
        save_index(model, folder);
    if (model->config)
        write_file(folder, "config.json", model->config, strlen(model->config), NULL, 0);
}

edit_tensor *edit_find(edit_model *model, const char *name)
{
    for (int i = 0; i < model->count; i++)
        if (!strcmp(model->tensors[i].name, name))
            return &model->tensors[i];
    fail_msg("the checkpoint has no tensor %s", name);
    return NULL;
}

void edit_remove(edit_model *model, const char *name)
{
    edit_tensor *t = edit_find(model, name);
    free(t->data);
    model->count--;
    memmove(t, t + 1, (size_t)(&model->tensors[model->count] - t) * sizeof *t);
}

edit_tensor *edit_copy(edit_model *model, const char *name, const char *new_name)
{
    edit_tensor *to = &model->tensors[model->count];
    *to = *edit_find(model, name);
    strcpy(to->name, new_name);
    to->data = malloc(to->bytes + 1);
    assert_non_null(to->data);
    memcpy(to->data, edit_find(model, name)->data, to->bytes);
    model->count++;
    return to;
}

void edit_swap(edit_model *model, const char *a, const char *b)
{
    edit_tensor *x = edit_find(model, a), *y = edit_find(model, b);
    unsigned char *data = x->data;
    assert_int_equal(x->bytes, y->bytes);
    x->data = y->data;
    y->data = data;
}

void edit_config(edit_model *model, const char *old, const char *new_text)
{
    char *at = strstr(model->config, old);
    if (!at)
        fail_msg("config.json has no %s", old);
    size_t room = strlen(model->config) + strlen(new_text) + 1;
    char *text = calloc(1, room);
    assert_non_null(text);
    snprintf(text, room, "%.*s%s%s", (int)(at - model->config), model->config, new_text,
             at + strlen(old));
    free(model->config);
    model->config = text;
}
