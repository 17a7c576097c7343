/* SPDX-License-Identifier: Apache-2.0
 *
 * actscale.c - static activation scales from a file: JSON {"model.layers.0.mlp.up_proj": 0.01, ..}
 * or safetensors with tensors of one element; names with or without ".input_scale". A scale
 * multiplies: real activation = code * scale. */
#include "convert/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct activation {
    const char *module; /* from fp8_alloc */
    uint64_t bytes;
    float scale;
} activation;

struct fp8_activation_scales {
    activation *list; /* sorted by module */
    int64_t count, room;
    char *path;
};

static const uint64_t most_bytes = (uint64_t)64 << 20;

static int compare(const void *a, const void *b)
{
    const activation *x = a, *y = b;
    uint64_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->module, y->module, (size_t)n);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static uint64_t without_suffix(const char *name, uint64_t bytes)
{
    static const char suffix[] = ".input_scale";
    uint64_t n = sizeof suffix - 1;
    return bytes > n && !memcmp(name + bytes - n, suffix, n) ? bytes - n : bytes;
}

static fp8_status add(const fp8_context *ctx, fp8_activation_scales *s, const char *name,
                      uint64_t bytes, double value, fp8_error *err)
{
    if (s->count == s->room) {
        int64_t room = s->room ? 2 * s->room : 64;
        activation *list = fp8_alloc_zeroed(ctx, (uint64_t)room, sizeof *list);
        FP8_FAIL_IF(!list, err, FP8_E_NO_MEMORY, "%s: no memory for %lld scales", s->path,
                    (long long)room);
        if (s->count)
            memcpy(list, s->list, (size_t)s->count * sizeof *list);
        fp8_release(ctx, s->list);
        s->list = list;
        s->room = room;
    }
    bytes = without_suffix(name, bytes);
    activation *a = &s->list[s->count];
    *a = (activation){fp8_copy_text(ctx, name, bytes), bytes, (float)value};
    FP8_FAIL_IF(!a->module, err, FP8_E_NO_MEMORY, "%s: no memory for a name", s->path);
    s->count++;
    FP8_FAIL_IF(!isfinite(a->scale) || !(a->scale > 0), err, FP8_E_SCALE,
                "%s: the scale of %s is %g, must be finite and positive", s->path, a->module,
                value);
    return FP8_OK;
}

static fp8_status read_json(const fp8_context *ctx, fp8_activation_scales *s, char *text,
                            uint64_t bytes, fp8_error *err)
{
    fp8_json j;
    fp8_json_open(&j, text, bytes);
    FP8_TRY(fp8_json_enter_object(&j, err));
    for (;;) {
        fp8_span key;
        bool more;
        double value;
        FP8_TRY(fp8_json_next_key(&j, &key, &more, err));
        if (!more)
            break;
        FP8_TRY(fp8_json_double(&j, &value, err));
        char *name = fp8_alloc(ctx, key.bytes);
        FP8_FAIL_IF(!name, err, FP8_E_NO_MEMORY, "no memory for a name");
        uint64_t name_bytes = fp8_json_unescape(key, name);
        fp8_status status = add(ctx, s, name, name_bytes, value, err);
        fp8_release(ctx, name);
        FP8_TRY(status);
    }
    return fp8_json_end(&j, err);
}

static fp8_status read_json_file(const fp8_context *ctx, fp8_activation_scales *s, fp8_error *err)
{
    const char *slash = strrchr(s->path, '/');
    char *directory = slash ? fp8_copy_text(ctx, s->path, (uint64_t)(slash - s->path) + 1)
                            : fp8_copy_text(ctx, ".", 1);
    FP8_FAIL_IF(!directory, err, FP8_E_NO_MEMORY, "no memory for a path");
    char *text = NULL;
    uint64_t bytes;
    fp8_status status =
        fp8_read_text(ctx, directory, slash ? slash + 1 : s->path, most_bytes, &text, &bytes, err);
    if (status == FP8_OK) {
        status = read_json(ctx, s, text, bytes, err);
        if (status != FP8_OK)
            fp8_error_prefix(err, "%s", s->path);
    }
    fp8_release(ctx, text);
    fp8_release(ctx, directory);
    return status;
}

static fp8_status read_tensor(const fp8_context *ctx, fp8_activation_scales *s,
                              const fp8_checkpoint *ckpt, int64_t i, fp8_error *err)
{
    fp8_tensor_info info;
    char bytes[8];
    float value;
    FP8_TRY(fp8_checkpoint_tensor(ckpt, i, &info));
    uint64_t width = (uint64_t)fp8_dtype_bits(info.dtype) / 8;
    FP8_FAIL_IF(info.bytes != width || width > sizeof bytes, err, FP8_E_SHAPE,
                "%s: %s has %llu bytes, an activation scale is one number", s->path, info.name,
                (unsigned long long)info.bytes);
    FP8_TRY(fp8_checkpoint_read(ckpt, &info, 0, info.bytes, bytes, err));
    FP8_TRY(fp8_cast(ctx, bytes, info.dtype, &value, FP8_F32, 1, 0, NULL, err));
    return add(ctx, s, info.name, info.name_bytes, value, err);
}

static fp8_status read_safetensors(const fp8_context *ctx, fp8_activation_scales *s, fp8_error *err)
{
    fp8_checkpoint *ckpt;
    FP8_TRY(fp8_checkpoint_open(ctx, s->path, &ckpt, err));
    fp8_status status = FP8_OK;
    for (int64_t i = 0; i < fp8_checkpoint_count(ckpt) && status == FP8_OK; i++)
        status = read_tensor(ctx, s, ckpt, i, err);
    fp8_checkpoint_close(ckpt);
    return status;
}

fp8_status fp8_activation_open(const fp8_context *ctx, const char *path,
                               fp8_activation_scales **out, fp8_error *err)
{
    fp8_activation_scales *s = fp8_alloc_zeroed(ctx, 1, sizeof *s);
    *out = NULL;
    FP8_FAIL_IF(!s, err, FP8_E_NO_MEMORY, "%s: no memory", path);
    s->path = fp8_copy_text(ctx, path, strlen(path));
    size_t n = strlen(path);
    fp8_status status;
    if (!s->path)
        status = fp8_fail(err, FP8_E_NO_MEMORY, "%s: no memory", path);
    else if (n > 5 && !strcmp(path + n - 5, ".json"))
        status = read_json_file(ctx, s, err);
    else
        status = read_safetensors(ctx, s, err);
    if (status != FP8_OK) {
        fp8_activation_free(ctx, s);
        return status;
    }
    if (s->count)
        qsort(s->list, (size_t)s->count, sizeof *s->list, compare);
    *out = s;
    return FP8_OK;
}

void fp8_activation_free(const fp8_context *ctx, fp8_activation_scales *scales)
{
    if (!scales)
        return;
    for (int64_t i = 0; i < scales->count; i++)
        fp8_release(ctx, (void *)(uintptr_t)scales->list[i].module);
    fp8_release(ctx, scales->list);
    fp8_release(ctx, scales->path);
    fp8_release(ctx, scales);
}

uint64_t fp8_activation_hash(const fp8_activation_scales *scales)
{
    uint64_t hash = 0;
    for (int64_t i = 0; scales && i < scales->count; i++) {
        hash = XXH3_64bits_withSeed(scales->list[i].module, scales->list[i].bytes, hash);
        hash = XXH3_64bits_withSeed(&scales->list[i].scale, sizeof(float), hash);
    }
    return hash;
}

fp8_status fp8_activation_find(const fp8_activation_scales *scales, const char *name,
                               uint64_t name_bytes, float *out, fp8_error *err)
{
    activation key = {name, fp8_module_bytes(name, name_bytes), 0};
    const activation *found =
        scales->count ? bsearch(&key, scales->list, (size_t)scales->count, sizeof key, compare)
                      : NULL;
    FP8_FAIL_IF(!found, err, FP8_E_NOT_FOUND, "%s: no activation scale for %s", scales->path, name);
    *out = found->scale;
    return FP8_OK;
}
