/* SPDX-License-Identifier: Apache-2.0
 *
 * tuned.c - the rows of a device, from the file and from measured.inc, in order, and the search
 * among them. */
#include "backend/cuda/tuned.h"
#include "backend/cuda/sm90.h"
#include "backend/cuda/wide.h"
#include "base/sort.h"

#include <string.h>

const char *const fp8_tuned_kind_names[FP8_TUNED_KINDS] = {
    "channel",     "block",        "fast",    "whole_channel",
    "whole_block", "wide_channel", "wide_mx", "wide_block"};

/* Written by dev/cuda/measured_table.py: MEASURED(device, kind, n, k, m, version, ns). */
static const struct {
    const char *device;
    fp8_tuned_kind kind;
    int32_t n, k, m;
    const char *version;
    int32_t ns;
} measured[] = {
#define MEASURED(device, kind, n, k, m, version, ns) \
    {device, FP8_TUNED_##kind, n, k, m, "gemm_" #version, ns},
#include "backend/cuda/measured.inc"
#undef MEASURED
};
enum { MEASURED_ROWS = sizeof measured / sizeof *measured };

int32_t fp8_tuned_class(int32_t m)
{
    if (m == 1)
        return 1;
    int32_t top = 8;
    while (top < m)
        top *= 2;
    return top > 16 && m <= top / 4 * 3 ? top / 4 * 3 : top;
}

static int32_t wide_version(const char *name, fp8_tuned_kind kind)
{
    _Static_assert(FP8_TUNED_WIDE_CHANNEL + FP8_WIDE_MX == FP8_TUNED_WIDE_MX &&
                       FP8_TUNED_WIDE_CHANNEL + FP8_WIDE_BLOCK == FP8_TUNED_WIDE_BLOCK,
                   "one order");
    const fp8_wide_version *v = fp8_wide_find(name);
    if (!v)
        return fp8_sm90_find(name) ? -2 : -1;
    if (v->f16 || v->turned || v->kind != (int32_t)(kind - FP8_TUNED_WIDE_CHANNEL))
        return -2;
    return (int32_t)(v - fp8_wide_at(0));
}

int32_t fp8_tuned_version(const char *name, fp8_tuned_kind kind)
{
    if (kind >= FP8_TUNED_WIDE_CHANNEL)
        return wide_version(name, kind);
    const fp8_sm90_version *v = fp8_sm90_find(name);
    if (!v)
        return fp8_wide_find(name) ? -2 : -1;
    const bool whole = kind == FP8_TUNED_WHOLE_CHANNEL || kind == FP8_TUNED_WHOLE_BLOCK;
    const bool block = kind == FP8_TUNED_BLOCK || kind == FP8_TUNED_WHOLE_BLOCK;
    if (v->block != block || (v->fast && kind != FP8_TUNED_FAST) || (v->quantizes && !whole))
        return -2;
    return (int32_t)(v - fp8_sm90_at(0));
}

fp8_tuned_row *fp8_tuned_add(const fp8_context *ctx, fp8_tuned *tuned)
{
    enum { FIRST = 64 };
    if (tuned->count == tuned->room) {
        const size_t room = tuned->room ? 2 * tuned->room : FIRST;
        fp8_tuned_row *rows = fp8_alloc(ctx, room * sizeof *rows);
        if (!rows)
            return NULL;
        if (tuned->count)
            memcpy(rows, tuned->rows, tuned->count * sizeof *rows);
        fp8_release(ctx, tuned->rows);
        tuned->rows = rows;
        tuned->room = room;
    }
    return &tuned->rows[tuned->count++];
}

static fp8_status add_measured(const fp8_context *ctx, const char *device, fp8_tuned *tuned,
                               fp8_error *err)
{
    for (size_t i = 0; i < MEASURED_ROWS; i++) {
        const int32_t version = fp8_tuned_version(measured[i].version, measured[i].kind);
        if (version < 0 || strcmp(measured[i].device, device))
            continue;
        fp8_tuned_row *row = fp8_tuned_add(ctx, tuned);
        FP8_FAIL_IF(!row, err, FP8_E_NO_MEMORY, "context: no memory for measured kernels");
        *row = (fp8_tuned_row){(int32_t)measured[i].kind,
                               measured[i].n,
                               measured[i].k,
                               measured[i].m,
                               version,
                               measured[i].ns,
                               0};
    }
    return FP8_OK;
}

/* By kind, n, k and class of m. */
static int compare_keys(const fp8_tuned_row *a, const fp8_tuned_row *b)
{
    const int32_t x[] = {a->kind, a->n, a->k, fp8_tuned_class(a->m)};
    const int32_t y[] = {b->kind, b->n, b->k, fp8_tuned_class(b->m)};
    for (int i = 0; i < 4; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Of one key the file's go first, of these the one with the most rows. */
static int compare(const void *a, const void *b, void *owner)
{
    (void)owner;
    const fp8_tuned_row *x = a, *y = b;
    const int keys = compare_keys(x, y);
    if (keys)
        return keys;
    if (!x->line != !y->line)
        return x->line ? -1 : 1;
    return (x->m < y->m) - (x->m > y->m);
}

/* Keeps the first row of each key. Error: FORMAT, the file has one problem twice. */
static fp8_status keep_first(const char *path, fp8_tuned *tuned, fp8_error *err)
{
    fp8_tuned_row *rows = tuned->rows;
    size_t kept = 0;
    for (size_t i = 0; i < tuned->count; i++) {
        FP8_FAIL_IF(i > 0 && rows[i].line && !compare(&rows[i - 1], &rows[i], NULL), err,
                    FP8_E_FORMAT, "%s, line %d: the same kind, N, K and M as in line %d", path,
                    rows[i].line, rows[i - 1].line);
    }
    for (size_t i = 0; i < tuned->count; i++) {
        if (kept > 0 && !compare_keys(&rows[kept - 1], &rows[i]))
            continue;
        tuned->of_file += rows[i].line > 0;
        rows[kept++] = rows[i];
    }
    tuned->count = kept;
    return FP8_OK;
}

static fp8_status collect(const fp8_context *ctx, const char *device, const char *path,
                          fp8_tuned *out, fp8_error *err)
{
    if (path)
        FP8_TRY(fp8_tuned_read(ctx, device, path, out, err));
    FP8_TRY(add_measured(ctx, device, out, err));
    FP8_TRY(fp8_sort(ctx, out->rows, (int64_t)out->count, sizeof *out->rows, compare, NULL, err));
    return keep_first(path, out, err);
}

fp8_status fp8_tuned_load(const fp8_context *ctx, const char *device, const char *path,
                          fp8_tuned *out, fp8_error *err)
{
    *out = (fp8_tuned){0};
    const fp8_status status = collect(ctx, device, path, out, err);
    if (status != FP8_OK)
        fp8_tuned_free(ctx, out);
    return status;
}

void fp8_tuned_free(const fp8_context *ctx, fp8_tuned *tuned)
{
    fp8_release(ctx, tuned->rows);
    *tuned = (fp8_tuned){0};
}

static const fp8_tuned_row *search(const fp8_tuned *tuned, const fp8_tuned_row *wanted)
{
    size_t first = 0, last = tuned->count;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        const int order = compare_keys(&tuned->rows[middle], wanted);
        if (order == 0)
            return &tuned->rows[middle];
        if (order < 0)
            first = middle + 1;
        else
            last = middle;
    }
    return NULL;
}

const fp8_tuned_row *fp8_tuned_find(const fp8_tuned *tuned, fp8_tuned_kind kind, int32_t m,
                                    int32_t n, int32_t k)
{
    fp8_tuned_row wanted = {.kind = (int32_t)kind, .n = n, .k = k, .m = m};
    const fp8_tuned_row *row = search(tuned, &wanted);
    if (m > 8 || (row && (row->line || !tuned->of_file)))
        return row;
    wanted.m = m == 1 ? 8 : 1; /* the file's goes first; else nearer than what the model knows */
    const fp8_tuned_row *other = search(tuned, &wanted);
    return row && !(other && other->line) ? row : other;
}
