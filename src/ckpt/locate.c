/* SPDX-License-Identifier: Apache-2.0
 *
 * locate.c - choosing the files of a checkpoint. */
#define _GNU_SOURCE
#include "ckpt/locate.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char index_suffix[] = ".safetensors.index.json";
static const char shard_suffix[] = ".safetensors";

/* ---- lists of names ---- */

static bool grow(const fp8_context *ctx, fp8_file_list *list)
{
    int64_t room = list->room ? 2 * list->room : 16;
    char **names = fp8_alloc_zeroed(ctx, (uint64_t)room, sizeof *names);
    if (!names)
        return false;
    if (list->count > 0)
        memcpy(names, list->names, (size_t)list->count * sizeof *names);
    fp8_release(ctx, list->names);
    list->names = names;
    list->room = room;
    return true;
}

fp8_status fp8_file_list_add(const fp8_context *ctx, fp8_file_list *list, const char *name,
                             uint64_t bytes, fp8_error *err)
{
    char *copy = NULL;
    if (list->count < list->room || grow(ctx, list))
        copy = fp8_copy_text(ctx, name, bytes);
    FP8_FAIL_IF(!copy, err, FP8_E_NO_MEMORY, "no memory for a list of files");
    list->names[list->count++] = copy;
    return FP8_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void fp8_file_list_sort(fp8_file_list *list)
{
    if (list->count > 1)
        qsort(list->names, (size_t)list->count, sizeof *list->names, compare_names);
}

void fp8_file_list_free(const fp8_context *ctx, fp8_file_list *list)
{
    for (int64_t i = 0; i < list->count; i++)
        fp8_release(ctx, list->names[i]);
    fp8_release(ctx, list->names);
    *list = (fp8_file_list){0};
}

/* ---- a directory ---- */

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && !strcmp(name + n - m, suffix);
}

/* What the directory holds that matters here. */
typedef struct listing {
    fp8_file_list shards;  /* *.safetensors */
    fp8_file_list indexes; /* *.safetensors.index.json */
    fp8_file_list others;  /* weights in formats that we do not read */
} listing;

static fp8_status list_name(const fp8_context *ctx, const char *name, listing *l, fp8_error *err)
{
    static const char *const foreign[] = {".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack"};
    if (name[0] == '.')
        return FP8_OK;
    if (ends_with(name, shard_suffix))
        return fp8_file_list_add(ctx, &l->shards, name, strlen(name), err);
    if (ends_with(name, index_suffix))
        return fp8_file_list_add(ctx, &l->indexes, name, strlen(name), err);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (ends_with(name, foreign[i]))
            return fp8_file_list_add(ctx, &l->others, name, strlen(name), err);
    return FP8_OK;
}

static fp8_status list_directory(const fp8_context *ctx, const char *path, listing *l,
                                 fp8_error *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return fp8_fail_os(err, errno, "open directory %s", path);
    fp8_status status = FP8_OK;
    while (status == FP8_OK) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry && errno)
            status = fp8_fail_os(err, errno, "read directory %s", path);
        if (!entry)
            break;
        status = list_name(ctx, entry->d_name, l, err);
    }
    closedir(dir);
    fp8_file_list_sort(&l->shards);
    fp8_file_list_sort(&l->indexes);
    fp8_file_list_sort(&l->others);
    return status;
}

/* Position of the name in the list, -1 if it is not there. */
static int64_t position(const fp8_file_list *list, const char *name)
{
    for (int64_t i = 0; i < list->count; i++)
        if (!strcmp(list->names[i], name))
            return i;
    return -1;
}

/* Takes the list's name i alone; the others are warned of. */
static fp8_status keep_one(fp8_checkpoint *ckpt, fp8_file_list *list, int64_t i, fp8_error *err)
{
    char *kept = list->names[i];
    list->names[i] = list->names[0];
    list->names[0] = kept;
    fp8_error warning;
    if (list->count > 1) {
        fp8_error_set(&warning, FP8_OK, -1,
                      "%s: %s is read; %" PRId64
                      " other safetensors files beside it are not, such as "
                      "%s",
                      ckpt->directory, kept, list->count - 1, list->names[1]);
        FP8_TRY(fp8_checkpoint_warn(ckpt, &warning, err));
    }
    for (; list->count > 1; list->count--)
        fp8_release(ckpt->ctx, list->names[list->count - 1]);
    return FP8_OK;
}

static fp8_status choose_shards(fp8_checkpoint *ckpt, listing *l, fp8_error *err)
{
    FP8_FAIL_IF(l->shards.count == 0 && l->others.count > 0, err, FP8_E_NOT_FOUND,
                "%s: no .safetensors file in this directory; %s is of a format that is not read",
                ckpt->directory, l->others.names[0]);
    FP8_FAIL_IF(l->shards.count == 0, err, FP8_E_NOT_FOUND,
                "%s: no .safetensors file in this directory", ckpt->directory);
    int64_t model = position(&l->shards, "model.safetensors");
    if (model >= 0)
        return keep_one(ckpt, &l->shards, model, err);
    if (l->shards.count == 1)
        return FP8_OK;
    fp8_error warning;
    fp8_error_set(&warning, FP8_OK, -1, "%s: no index; all %" PRId64 " .safetensors files are read",
                  ckpt->directory, l->shards.count);
    return fp8_checkpoint_warn(ckpt, &warning, err);
}

static fp8_status choose_files(fp8_checkpoint *ckpt, listing *l, fp8_error *err)
{
    int64_t index = position(&l->indexes, "model.safetensors.index.json");
    if (index < 0 && l->indexes.count > 1)
        return fp8_fail(err, FP8_E_FORMAT, "%s: %s and %s: give the index to be read itself",
                        ckpt->directory, l->indexes.names[0], l->indexes.names[1]);
    if (l->indexes.count == 0)
        return choose_shards(ckpt, l, err);
    const char *name = l->indexes.names[index < 0 ? 0 : index];
    ckpt->index_file = fp8_copy_text(ckpt->ctx, name, strlen(name));
    FP8_FAIL_IF(!ckpt->index_file, err, FP8_E_NO_MEMORY, "no memory for a file name");
    return FP8_OK;
}

static fp8_status locate_in_directory(fp8_checkpoint *ckpt, fp8_file_list *files, fp8_error *err)
{
    listing l = {0};
    fp8_status status = list_directory(ckpt->ctx, ckpt->directory, &l, err);
    if (status == FP8_OK)
        status = choose_files(ckpt, &l, err);
    *files = l.shards;
    fp8_file_list_free(ckpt->ctx, &l.indexes);
    fp8_file_list_free(ckpt->ctx, &l.others);
    return status;
}

/* ---- a path ---- */

/* The directory part of path, "." if it has none; *file = the rest. */
static char *split_path(const fp8_context *ctx, const char *path, const char **file)
{
    const char *slash = strrchr(path, '/');
    *file = slash ? slash + 1 : path;
    if (!slash)
        return fp8_copy_text(ctx, ".", 1);
    return fp8_copy_text(ctx, path, slash > path ? (uint64_t)(slash - path) : 1);
}

/* The path of a directory without trailing slashes. */
static char *trim_path(const fp8_context *ctx, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return fp8_copy_text(ctx, path, n);
}

static fp8_status locate_file(fp8_checkpoint *ckpt, const char *path, fp8_file_list *files,
                              fp8_error *err)
{
    const char *file;
    ckpt->directory = split_path(ckpt->ctx, path, &file);
    FP8_FAIL_IF(!ckpt->directory, err, FP8_E_NO_MEMORY, "no memory for a path");
    if (!ends_with(file, ".json")) {
        ckpt->single_file = true;
        return fp8_file_list_add(ckpt->ctx, files, file, strlen(file), err);
    }
    ckpt->index_file = fp8_copy_text(ckpt->ctx, file, strlen(file));
    FP8_FAIL_IF(!ckpt->index_file, err, FP8_E_NO_MEMORY, "no memory for a path");
    return FP8_OK;
}

fp8_status fp8_locate(fp8_checkpoint *ckpt, const char *path, fp8_file_list *files, fp8_error *err)
{
    struct stat info;
    if (stat(path, &info))
        return fp8_fail_os(err, errno, "%s", path);
    if (!S_ISDIR(info.st_mode))
        return locate_file(ckpt, path, files, err);
    ckpt->directory = trim_path(ckpt->ctx, path);
    FP8_FAIL_IF(!ckpt->directory, err, FP8_E_NO_MEMORY, "no memory for a path");
    return locate_in_directory(ckpt, files, err);
}
