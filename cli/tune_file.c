/* SPDX-License-Identifier: Apache-2.0
 *
 * tune_file.c - the rows, and their file, which is there whole or not at all. */
#define _POSIX_C_SOURCE 200809L
#include "cli/tune_file.h"

#include "cli/exit_code.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool cli_tune_has(const cli_tune_rows *rows, const char *kind, const cli_shape *shape)
{
    for (size_t i = 0; i < rows->count; i++) {
        const cli_tune_row *r = &rows->items[i];
        if (r->kind == kind && r->shape.m == shape->m && r->shape.n == shape->n &&
            r->shape.k == shape->k)
            return true;
    }
    return false;
}

int cli_tune_add(cli_tune_rows *rows, const cli_tune_row *row)
{
    if (rows->count == rows->room) {
        const size_t room = 2 * rows->room + 16;
        cli_tune_row *items = realloc(rows->items, room * sizeof *items);
        if (items == NULL) {
            cli_error("out of memory");
            return CLI_MEMORY;
        }
        rows->items = items;
        rows->room = room;
    }
    rows->items[rows->count++] = *row;
    return CLI_DONE;
}

void cli_tune_rows_free(cli_tune_rows *rows)
{
    free(rows->items);
    *rows = (cli_tune_rows){0};
}

/* `path`.partial, to be freed; NULL after a message. */
static char *partial_of(const char *path)
{
    const size_t bytes = strlen(path) + sizeof ".partial";
    char *partial = malloc(bytes);
    if (partial == NULL)
        cli_error("out of memory");
    else
        snprintf(partial, bytes, "%s.partial", path);
    return partial;
}

static int cannot_write(const char *path, int error)
{
    cli_error("cannot write %s: %s", path, strerror(error));
    return CLI_IO;
}

/* By making a file there, and taking it away; one that is there already may be another's. */
static int check_folder(const char *path)
{
    char *partial = partial_of(path);
    if (partial == NULL)
        return CLI_MEMORY;
    FILE *file = fopen(partial, "wx");
    const int error = file != NULL ? EEXIST : errno;
    if (file != NULL) {
        fclose(file);
        unlink(partial);
    }
    free(partial);
    return error == EEXIST ? CLI_DONE : cannot_write(path, error);
}

int cli_tune_check(const char *path, bool force)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return check_folder(path);
    if (!S_ISREG(info.st_mode))
        return cli_usage_error("%s is no regular file, and is not replaced by one", path);
    return force ? check_folder(path) : cli_usage_error("%s exists; --force replaces it", path);
}

static void print(FILE *file, const fp8_gpu_info *gpu, const cli_tune_rows *rows)
{
    fprintf(file, "fp8-tuned 1\ndevice %s\ndriver %d\n# by fp8 %s: kind N K M kernel ns\n",
            gpu->name, gpu->driver_version, fp8_version());
    for (size_t i = 0; i < rows->count; i++) {
        const cli_tune_row *r = &rows->items[i];
        fprintf(file, "%s %" PRId64 " %" PRId64 " %" PRId64 " %s %" PRId64 "\n", r->kind,
                r->shape.n, r->shape.k, r->shape.m, r->kernel, r->ns);
    }
}

/* Whether all of it is on the disk; errno says why not. */
static bool finish(FILE *file)
{
    const bool written = fflush(file) == 0 && !ferror(file) &&
                         (fsync(fileno(file)) == 0 || errno == EINVAL || errno == ENOTSUP);
    const int error = errno;
    const bool closed = fclose(file) == 0;
    if (!written)
        errno = error;
    return written && closed;
}

int cli_tune_write(const char *path, const fp8_gpu_info *gpu, const cli_tune_rows *rows)
{
    char *partial = partial_of(path);
    if (partial == NULL)
        return CLI_MEMORY;
    FILE *file = fopen(partial, "w");
    bool done = file != NULL;
    if (done) {
        print(file, gpu, rows);
        done = finish(file) && rename(partial, path) == 0;
    }
    const int error = errno;
    if (!done && file != NULL)
        unlink(partial);
    free(partial);
    return done ? CLI_DONE : cannot_write(path, error);
}
