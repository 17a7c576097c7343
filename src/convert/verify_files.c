/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_files.c - rules about the folder: the index, and files that a loader might take for part
 * of the model. */
#define _GNU_SOURCE
#include "ckpt/index.h"
#include "ckpt/json_pick.h"
#include "convert/verify.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* Rule index: what was odd about the container when it was opened. */
fp8_status fp8_verify_index(fp8_verification *v, fp8_error *err)
{
    (void)err;
    const char *line;
    for (int64_t i = 0; (line = fp8_checkpoint_warning(v->subject.ckpt, i)); i++)
        FP8_FOUND_WARNING(v, NULL, "%s", line);
    return FP8_OK;
}

/* The tensors of a checkpoint that its index names. */
typedef struct listing {
    const fp8_checkpoint *ckpt;
    bool *listed; /* [tensors] */
    char *name;   /* room for any */
} listing;

static fp8_status mark_listed(void *arg, fp8_span key, fp8_span value, fp8_error *err)
{
    const listing *l = arg;
    (void)value, (void)err;
    const int64_t i = fp8_checkpoint_index(l->ckpt, l->name, fp8_json_unescape(key, l->name));
    if (i >= 0)
        l->listed[i] = true;
    return FP8_OK;
}

static fp8_status scan_index(listing *l, const char *text, uint64_t bytes, fp8_error *err)
{
    fp8_span index;
    fp8_pick map = {"weight_map", {0}};
    FP8_TRY(fp8_json_whole_object(text, bytes, &index, err));
    FP8_TRY(fp8_json_pick(index, &map, 1, err));
    return fp8_json_each(map.value, mark_listed, l, err);
}

/* Rule index-unlisted: every tensor of the shards is in the index; a loader that goes by the index
 * does not see the others. */
fp8_status fp8_verify_index_unlisted(fp8_verification *v, fp8_error *err)
{
    const fp8_checkpoint *ckpt = v->subject.ckpt;
    int64_t n = fp8_checkpoint_count(ckpt);
    char *text = NULL;
    uint64_t bytes = 0;
    if (!ckpt->index_file)
        return FP8_OK;
    FP8_TRY(fp8_read_text(v->ctx, ckpt->directory, ckpt->index_file, FP8_MAX_INDEX_BYTES, &text,
                          &bytes, err));
    listing l = {ckpt, fp8_alloc_zeroed(v->ctx, (uint64_t)n, sizeof *l.listed),
                 fp8_alloc(v->ctx, bytes)};
    fp8_status status = FP8_OK;
    if (!l.listed || !l.name)
        status = fp8_fail(err, FP8_E_NO_MEMORY, "index: no memory for its names");
    if (status == FP8_OK)
        status = scan_index(&l, text, bytes, err);
    for (int64_t i = 0; i < n && status == FP8_OK; i++) {
        fp8_tensor_info info = fp8_subject_tensor(&v->subject, i);
        if (!l.listed[i])
            FP8_FOUND_ERROR(v, info.name, "%s holds the tensor, %s does not list it", info.file,
                            ckpt->index_file);
    }
    fp8_release(v->ctx, l.listed);
    fp8_release(v->ctx, l.name);
    fp8_release(v->ctx, text);
    return status;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && !strcmp(name + n - m, suffix);
}

static bool is_shard(const fp8_checkpoint *ckpt, const char *name)
{
    for (int64_t i = 0; i < ckpt->shard_count; i++)
        if (!strcmp(ckpt->shards[i].file, name))
            return true;
    return false;
}

static void check_file(fp8_verification *v, const char *name)
{
    static const char *const pickles[] = {".bin", ".pt", ".pth", ".bin.index.json"};
    const fp8_checkpoint *ckpt = v->subject.ckpt;
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++)
        if (ends_with(name, pickles[i]))
            FP8_FOUND_WARNING(v, NULL, "%s: weights of another kind beside the safetensors files",
                              name);
    if (ends_with(name, ".safetensors") && !is_shard(ckpt, name))
        FP8_FOUND_WARNING(v, NULL,
                          "%s is not part of the checkpoint; some loaders read it all "
                          "the same",
                          name);
    if (ends_with(name, ".safetensors.index.json") &&
        (!ckpt->index_file || strcmp(name, ckpt->index_file)))
        FP8_FOUND_WARNING(v, NULL, "%s is an index that was not used: stale?", name);
}

/* Rule leftover-file: nothing in the folder that a loader could mistake for the model. */
fp8_status fp8_verify_leftover(fp8_verification *v, fp8_error *err)
{
    const fp8_checkpoint *ckpt = v->subject.ckpt;
    if (ckpt->single_file)
        return FP8_OK;
    DIR *dir = opendir(ckpt->directory);
    if (!dir)
        return fp8_fail_os(err, errno, "%s", ckpt->directory);
    struct dirent *entry;
    while ((errno = 0, entry = readdir(dir)))
        check_file(v, entry->d_name);
    int failed = errno;
    closedir(dir);
    return failed ? fp8_fail_os(err, failed, "%s", ckpt->directory) : FP8_OK;
}
