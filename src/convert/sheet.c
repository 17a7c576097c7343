/* SPDX-License-Identifier: Apache-2.0
 *
 * sheet.c - a sheet lists pieces with their full names and shapes, for as long as a text is made
 * of them. */
#include "convert/sheet.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    fp8_st_tensor tensor;
    fp8_entry entry;
} line;

typedef struct sheet {
    line *lines;
    int64_t count;
    char *names; /* of companions */
    int64_t *dims;
} sheet;

static void sheet_free(const fp8_context *ctx, sheet *sh)
{
    fp8_release(ctx, sh->lines);
    fp8_release(ctx, sh->names);
    fp8_release(ctx, sh->dims);
}

/* Room that the names of companions need, and how many sizes. */
static void measure(const fp8_convert *conv, const fp8_entry *entries, int64_t n, uint64_t *names,
                    uint64_t *dims)
{
    fp8_piece piece;
    *names = *dims = 0;
    for (int64_t i = 0; i < n; i++) {
        fp8_item_piece(conv, entries[i].item, (fp8_part)entries[i].part, &piece);
        if (!piece.suffix)
            continue;
        fp8_tensor_info info = fp8_item_info(conv, entries[i].item);
        *names += fp8_companion_name(info.name, info.name_bytes, piece.suffix, NULL) + 1;
        *dims += FP8_PIECE_DIMS;
    }
}

static void fill_line(const fp8_convert *conv, const fp8_entry *entry, line *out, char **names,
                      int64_t **dims)
{
    fp8_piece piece;
    fp8_item_piece(conv, entry->item, (fp8_part)entry->part, &piece);
    fp8_tensor_info info = fp8_item_info(conv, entry->item);
    fp8_st_tensor *t = &out->tensor;
    out->entry = *entry;
    *t = (fp8_st_tensor){info.name, info.name_bytes, piece.dtype, piece.ndim, piece.shape, 0, 0};
    if (!piece.suffix)
        return;
    t->name = *names;
    t->name_bytes = fp8_companion_name(info.name, info.name_bytes, piece.suffix, *names);
    *names += t->name_bytes + 1;
    memcpy(*dims, piece.dims, sizeof piece.dims);
    t->shape = *dims;
    *dims += FP8_PIECE_DIMS;
}

/* The lines of entries[0..n). Free with sheet_free, also after an error. */
static fp8_status sheet_make(const fp8_convert *conv, const fp8_entry *entries, int64_t n,
                             sheet *sh, fp8_error *err)
{
    uint64_t name_bytes, dim_count;
    measure(conv, entries, n, &name_bytes, &dim_count);
    *sh = (sheet){.count = n};
    sh->lines = fp8_alloc_zeroed(conv->ctx, (uint64_t)n, sizeof *sh->lines);
    sh->names = fp8_alloc(conv->ctx, name_bytes);
    sh->dims = fp8_alloc_zeroed(conv->ctx, dim_count, sizeof *sh->dims);
    FP8_FAIL_IF(!sh->lines || !sh->names || !sh->dims, err, FP8_E_NO_MEMORY,
                "no memory for the names of %lld tensors", (long long)n);
    char *names = sh->names;
    int64_t *dims = sh->dims;
    for (int64_t i = 0; i < n; i++)
        fill_line(conv, &entries[i], &sh->lines[i], &names, &dims);
    return FP8_OK;
}

static int compare_names(const fp8_st_tensor *a, const fp8_st_tensor *b)
{
    uint64_t n = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
    int order = memcmp(a->name, b->name, (size_t)n);
    return order ? order : (a->name_bytes > b->name_bytes) - (a->name_bytes < b->name_bytes);
}

static int compare_for_file(const void *a, const void *b)
{
    const fp8_st_tensor *x = &((const line *)a)->tensor, *y = &((const line *)b)->tensor;
    int bits = fp8_dtype_bits(y->dtype) - fp8_dtype_bits(x->dtype);
    return bits ? bits : compare_names(x, y);
}

static int compare_for_index(const void *a, const void *b)
{
    return compare_names(&((const line *)a)->tensor, &((const line *)b)->tensor);
}

/* A companion must not take the name of a tensor that is there. */
static fp8_status check_name(const fp8_convert *conv, const line *ln, fp8_error *err)
{
    const fp8_st_tensor *t = &ln->tensor;
    int64_t other = ln->entry.part == FP8_PART_DATA
                        ? -1
                        : fp8_checkpoint_index(conv->ckpt, t->name, t->name_bytes);
    FP8_FAIL_IF(other >= 0 && conv->items[other].action != FP8_ACTION_DROP, err, FP8_E_MISMATCH,
                "%s: there is a tensor %s already", fp8_item_info(conv, ln->entry.item).name,
                t->name);
    return FP8_OK;
}

/* Calls fp8_st_layout over the sheet's lines, in their order. */
static fp8_status make_head(const fp8_convert *conv, sheet *sh, char **head, uint64_t *head_bytes,
                            uint64_t *data_bytes, fp8_error *err)
{
    fp8_st_tensor *tensors = fp8_alloc_zeroed(conv->ctx, (uint64_t)sh->count, sizeof *tensors);
    FP8_FAIL_IF(!tensors, err, FP8_E_NO_MEMORY, "no memory for a header of %lld tensors",
                (long long)sh->count);
    for (int64_t i = 0; i < sh->count; i++)
        tensors[i] = sh->lines[i].tensor;
    int64_t source = sh->count ? fp8_checkpoint_shard(conv->ckpt, sh->lines[0].entry.item) : 0;
    const char *metadata = conv->ckpt->shards[source].header.metadata;
    fp8_status status =
        fp8_st_layout(conv->ctx, tensors, sh->count, metadata, head, head_bytes, data_bytes, err);
    for (int64_t i = 0; i < sh->count && status == FP8_OK; i++)
        sh->lines[i].tensor = tensors[i];
    fp8_release(conv->ctx, tensors);
    return status;
}

static void keep_offsets(fp8_convert *conv, fp8_entry *entries, const sheet *sh)
{
    for (int64_t i = 0; i < sh->count; i++) {
        entries[i] = sh->lines[i].entry;
        entries[i].begin = sh->lines[i].tensor.begin;
        entries[i].bytes = sh->lines[i].tensor.bytes;
        fp8_item *it = &conv->items[entries[i].item];
        if (entries[i].part == FP8_PART_DATA)
            it->data_begin = entries[i].begin;
        if (entries[i].part == FP8_PART_SCALE)
            it->scale_begin = entries[i].begin;
    }
}

fp8_status fp8_sheet_place(fp8_convert *conv, fp8_out_shard *shard, fp8_error *err)
{
    fp8_entry *entries = conv->layout.entries + shard->first_entry;
    sheet sh;
    char *head = NULL;
    fp8_status status = sheet_make(conv, entries, shard->entries, &sh, err);
    if (status == FP8_OK)
        qsort(sh.lines, (size_t)sh.count, sizeof *sh.lines, compare_for_file);
    for (int64_t i = 0; i < sh.count && status == FP8_OK; i++)
        status = check_name(conv, &sh.lines[i], err);
    if (status == FP8_OK)
        status = make_head(conv, &sh, &head, &shard->head_bytes, &shard->data_bytes, err);
    if (status == FP8_OK)
        keep_offsets(conv, entries, &sh);
    fp8_release(conv->ctx, head);
    sheet_free(conv->ctx, &sh);
    return status;
}

fp8_status fp8_layout_head(const fp8_convert *conv, const fp8_out_shard *shard, char **head,
                           uint64_t *head_bytes, fp8_error *err)
{
    sheet sh;
    uint64_t data_bytes;
    *head = NULL;
    fp8_status status =
        sheet_make(conv, conv->layout.entries + shard->first_entry, shard->entries, &sh, err);
    if (status == FP8_OK)
        status = make_head(conv, &sh, head, head_bytes, &data_bytes, err);
    sheet_free(conv->ctx, &sh);
    return status;
}

/* ---- the index
 * ------------------------------------------------------------------------------------ */

/* Text that is measured first (dst NULL) and then written. */
typedef struct writer {
    char *dst;
    uint64_t bytes;
} writer;

static void put_text(writer *w, const char *text)
{
    size_t n = strlen(text);
    if (w->dst)
        memcpy(w->dst + w->bytes, text, n);
    w->bytes += n;
}

static void put_quoted(writer *w, const char *text, uint64_t bytes)
{
    w->bytes += fp8_json_quote(text, bytes, w->dst ? w->dst + w->bytes : NULL);
}

static void put_index(const fp8_convert *conv, const sheet *sh, writer *w)
{
    uint64_t total = 0, parameters = 0;
    for (int64_t i = 0; i < sh->count; i++) {
        const fp8_entry *e = &sh->lines[i].entry;
        total += e->bytes;
        if (e->part == FP8_PART_DATA)
            parameters += e->bytes * 8 / (uint64_t)fp8_dtype_bits(sh->lines[i].tensor.dtype);
    }
    char text[160];
    snprintf(text, sizeof text,
             "{\n  \"metadata\": {\n    \"total_parameters\": %" PRIu64
             ",\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
             parameters, total);
    put_text(w, text);
    for (int64_t i = 0; i < sh->count; i++) {
        const fp8_st_tensor *t = &sh->lines[i].tensor;
        const char *file = conv->layout.shards[conv->items[sh->lines[i].entry.item].shard].file;
        put_text(w, i ? ",\n    " : "\n    ");
        put_quoted(w, t->name, t->name_bytes);
        put_text(w, ": ");
        put_quoted(w, file, strlen(file));
    }
    put_text(w, "\n  }\n}\n");
}

fp8_status fp8_layout_index(const fp8_convert *conv, char **text, uint64_t *bytes, fp8_error *err)
{
    sheet sh;
    *text = NULL;
    fp8_status status = sheet_make(conv, conv->layout.entries, conv->layout.entry_count, &sh, err);
    if (status == FP8_OK) {
        qsort(sh.lines, (size_t)sh.count, sizeof *sh.lines, compare_for_index);
        writer w = {NULL, 0};
        put_index(conv, &sh, &w);
        *bytes = w.bytes;
        w = (writer){fp8_alloc(conv->ctx, w.bytes), 0};
        *text = w.dst;
        if (w.dst)
            put_index(conv, &sh, &w);
        else
            status = fp8_fail(err, FP8_E_NO_MEMORY, "no memory for an index of %llu bytes",
                              (unsigned long long)*bytes);
    }
    sheet_free(conv->ctx, &sh);
    return status;
}
