/* SPDX-License-Identifier: Apache-2.0
 *
 * carry.c - one walk over the source directory, to measure or to copy. Symbolic links are followed,
 * because model caches are made of them; a link that leads back to a folder above it is an error.
 */
#define _GNU_SOURCE
#include "convert/carry.h"
#include "ckpt/file.h"
#include "convert/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH = 16, COPY_ROOM = 1 << 18 };

typedef struct carrier {
    fp8_convert *conv;
    bool copies;
    char *buffer;
    uint64_t bytes;
    int64_t left_behind;
    char left_name[256];
    struct stat above[DEPTH]; /* folders from the source down */
} carrier;

/* Weights in other formats, which would contradict the new ones, and their indices. */
static const char *const weight_suffixes[] = {
    ".safetensors", ".bin",  ".pt",   ".pth",       ".ckpt", ".h5",  ".msgpack",
    ".gguf",        ".ggml", ".onnx", ".onnx_data", ".ot",   ".npz", ".index.json",
};
/* Written by the conversion, or no longer true. */
static const char *const own_names[] = {"config.json", "hf_quant_config.json"};

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n >= s && !strcmp(name + n - s, suffix);
}

static bool is_weights(const char *name)
{
    for (size_t i = 0; i < sizeof weight_suffixes / sizeof *weight_suffixes; i++)
        if (has_suffix(name, weight_suffixes[i]))
            return true;
    return false;
}

static bool is_own(const char *name)
{
    for (size_t i = 0; i < sizeof own_names / sizeof *own_names; i++)
        if (!strcmp(name, own_names[i]))
            return true;
    return false;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The folder is the output or what it is built in. */
static bool is_output(const carrier *c, const struct stat *info)
{
    struct stat out;
    return (!stat(c->conv->partial, &out) && same_file(info, &out)) ||
           (!stat(c->conv->dst, &out) && same_file(info, &out));
}

static fp8_status copy_file(carrier *c, const char *from, const char *to, fp8_error *err)
{
    int in = -1, out = -1;
    struct stat info;
    fp8_status status = fp8_open_regular(from, &in, &info, err);
    if (status == FP8_OK)
        status = fp8_open_output(to, O_TRUNC, &out, err);
    if (status == FP8_OK) {
        fp8_copy copy = {in, out, 0, 0, (uint64_t)info.st_size, from, to};
        status = fp8_copy_bytes(&copy, c->buffer, COPY_ROOM, err);
    }
    if (status == FP8_OK)
        status = fp8_sync_file(out, to, err);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return status;
}

static fp8_status carry_directory(carrier *c, const char *from, const char *to, int depth,
                                  fp8_error *err);

static fp8_status carry_below(carrier *c, const char *from, const char *to, const struct stat *info,
                              int depth, fp8_error *err)
{
    if (is_output(c, info))
        return FP8_OK;
    for (int i = 0; i < depth; i++)
        if (same_file(info, &c->above[i]))
            return fp8_fail_os(err, ELOOP, "%s leads back to a folder above it", from);
    if (depth == DEPTH)
        return fp8_fail_os(err, ELOOP, "%s: more than %d folders deep", from, DEPTH);
    c->above[depth] = *info;
    if (c->copies)
        FP8_TRY(fp8_make_directory(to, err));
    FP8_TRY(carry_directory(c, from, to, depth + 1, err));
    return c->copies ? fp8_sync_directory(to, err) : FP8_OK;
}

static void leave_behind(carrier *c, const char *name)
{
    if (!c->left_behind++) {
        strncpy(c->left_name, name, sizeof c->left_name - 1);
        c->left_name[sizeof c->left_name - 1] = 0;
    }
}

static fp8_status carry_one(carrier *c, const char *name, const char *from, const char *to,
                            int depth, fp8_error *err)
{
    struct stat info;
    if (stat(from, &info)) {
        if (errno == ENOENT) /* a link that leads nowhere has nothing to carry */
            return c->copies ? FP8_OK
                             : fp8_convert_warn(c->conv, err, "%s: leads nowhere; left out", from);
        return fp8_fail_os(err, errno, "cannot read %s", from);
    }
    if (S_ISDIR(info.st_mode))
        return carry_below(c, from, to, &info, depth, err);
    if (!S_ISREG(info.st_mode))
        return c->copies ? FP8_OK
                         : fp8_convert_warn(c->conv, err, "%s: no regular file; left out", from);
    if (depth == 1 && is_own(name))
        return FP8_OK;
    if (is_weights(name)) {
        bool ours = depth == 1 && (has_suffix(name, ".safetensors") ||
                                   has_suffix(name, ".safetensors.index.json"));
        if (!ours)
            leave_behind(c, name);
        return FP8_OK;
    }
    c->bytes += (uint64_t)info.st_size;
    return c->copies ? copy_file(c, from, to, err) : FP8_OK;
}

static fp8_status carry_entry(carrier *c, const char *name, const char *from, const char *to,
                              int depth, fp8_error *err)
{
    if (name[0] == '.') /* hidden: .git, .cache; also . and .. */
        return FP8_OK;
    char *source = fp8_join_path(c->conv->ctx, from, name);
    char *target = fp8_join_path(c->conv->ctx, to, name);
    fp8_status status;
    if (source && target)
        status = carry_one(c, name, source, target, depth, err);
    else
        status = fp8_fail(err, FP8_E_NO_MEMORY, "no memory for a path");
    fp8_release(c->conv->ctx, source);
    fp8_release(c->conv->ctx, target);
    return status;
}

static fp8_status carry_directory(carrier *c, const char *from, const char *to, int depth,
                                  fp8_error *err)
{
    DIR *dir = opendir(from);
    if (!dir)
        return fp8_fail_os(err, errno, "cannot read %s", from);
    fp8_status status = FP8_OK;
    while (status == FP8_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno)
                status = fp8_fail_os(err, errno, "cannot read %s", from);
            break;
        }
        status = carry_entry(c, entry->d_name, from, to, depth, err);
    }
    closedir(dir);
    return status;
}

static fp8_status carry(carrier *c, fp8_error *err)
{
    if (c->conv->ckpt->single_file)
        return FP8_OK;
    const char *source = c->conv->ckpt->directory;
    if (stat(source, &c->above[0]))
        return fp8_fail_os(err, errno, "cannot read %s", source);
    return carry_directory(c, source, c->conv->files, 1, err);
}

fp8_status fp8_carry_measure(fp8_convert *conv, fp8_error *err)
{
    carrier c = {.conv = conv};
    FP8_TRY(carry(&c, err));
    conv->carried_bytes = c.bytes;
    if (c.left_behind)
        return fp8_convert_warn(conv, err,
                                "%s and %lld other files of weights or their indices are left out",
                                c.left_name, (long long)c.left_behind - 1);
    return FP8_OK;
}

fp8_status fp8_carry_copy(fp8_convert *conv, fp8_error *err)
{
    carrier c = {.conv = conv, .copies = true, .buffer = fp8_alloc(conv->ctx, COPY_ROOM)};
    FP8_FAIL_IF(!c.buffer, err, FP8_E_NO_MEMORY, "no memory for %d bytes", COPY_ROOM);
    fp8_status status = carry(&c, err);
    fp8_release(conv->ctx, c.buffer);
    return status;
}
