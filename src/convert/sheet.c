/* SPDX-License-Identifier: Apache-2.0
 *
 * sheet.c - a sheet tells full names and shapes of entries, one at a time, while they are sorted or
 * a text is made of them. A header may list a million: none of this is held for all of them. */
#include "convert/sheet.h"
#include "base/sort.h"

#include <string.h>

typedef struct sheet {
    const fp8_convert *conv;
    fp8_entry *entries;
    int64_t count;
    fp8_item *items; /* which get their places; NULL: these are settled */
    char *names;     /* room for two names of companions, used in turn */
    uint64_t name_room;
    unsigned turn;
    int64_t dims[FP8_PIECE_DIMS]; /* of the companion that was asked for last */
} sheet;

static void sheet_close(sheet *sh)
{
    fp8_release(sh->conv->ctx, sh->names);
}

/* Free with sheet_close. */
static fp8_status sheet_open(const fp8_convert *conv, fp8_entry *entries, int64_t count, sheet *sh,
                             fp8_error *err)
{
    fp8_piece piece;
    *sh = (sheet){.conv = conv, .entries = entries, .count = count};
    for (int64_t i = 0; i < count; i++) {
        fp8_item_piece(conv, entries[i].item, (fp8_part)entries[i].part, &piece);
        if (!piece.suffix)
            continue;
        fp8_tensor_info info = fp8_item_info(conv, entries[i].item);
        uint64_t room = fp8_companion_name(info.name, info.name_bytes, piece.suffix, NULL) + 1;
        sh->name_room = room > sh->name_room ? room : sh->name_room;
    }
    sh->names = fp8_alloc(conv->ctx, 2 * sh->name_room);
    FP8_FAIL_IF(!sh->names, err, FP8_E_NO_MEMORY, "no memory for the name of a scale");
    return FP8_OK;
}

/* Valid until the next call but one. */
static fp8_span entry_name(sheet *sh, const fp8_entry *e)
{
    fp8_piece piece = {0};
    fp8_tensor_info info = fp8_item_info(sh->conv, e->item);
    if (e->part == FP8_PART_DATA)
        return (fp8_span){info.name, info.name_bytes};
    fp8_item_piece(sh->conv, e->item, (fp8_part)e->part, &piece);
    char *name = sh->names + (sh->turn++ & 1) * sh->name_room;
    return (fp8_span){name, fp8_companion_name(info.name, info.name_bytes, piece.suffix, name)};
}

/* ---- order ---- */

static int compare_names(sheet *sh, const fp8_entry *a, const fp8_entry *b)
{
    fp8_span x = entry_name(sh, a), y = entry_name(sh, b);
    int order = memcmp(x.text, y.text, (size_t)(x.bytes < y.bytes ? x.bytes : y.bytes));
    return order ? order : (x.bytes > y.bytes) - (x.bytes < y.bytes);
}

static int compare_for_file(const void *a, const void *b, void *owner)
{
    const fp8_entry *x = a, *y = b;
    int bits = fp8_dtype_bits((fp8_dtype)y->dtype) - fp8_dtype_bits((fp8_dtype)x->dtype);
    return bits ? bits : compare_names(owner, x, y);
}

static int compare_for_index(const void *a, const void *b, void *owner)
{
    sheet *sh = owner;
    return compare_names(sh, &sh->entries[*(const uint32_t *)a],
                         &sh->entries[*(const uint32_t *)b]);
}

/* ---- the header ---- */

static fp8_st_tensor sheet_tensor(void *owner, int64_t i)
{
    sheet *sh = owner;
    const fp8_entry *e = &sh->entries[i];
    fp8_span name = entry_name(sh, e);
    fp8_piece piece;
    fp8_item_piece(sh->conv, e->item, (fp8_part)e->part, &piece);
    memcpy(sh->dims, piece.dims, sizeof sh->dims);
    return (fp8_st_tensor){name.text, name.bytes, piece.dtype, piece.ndim,
                           piece.shape ? piece.shape : sh->dims};
}

static void keep_place(void *owner, int64_t i, uint64_t begin, uint64_t bytes)
{
    sheet *sh = owner;
    fp8_entry *e = &sh->entries[i];
    e->begin = begin;
    e->bytes = bytes;
    if (e->part == FP8_PART_DATA)
        sh->items[e->item].data_begin = begin;
    if (e->part == FP8_PART_SCALE)
        sh->items[e->item].scale_begin = begin;
}

/* The header has the metadata of the source file that gave its first entry. */
static fp8_st_list list_of(sheet *sh)
{
    const fp8_checkpoint *ckpt = sh->conv->ckpt;
    int64_t source = sh->count ? fp8_checkpoint_shard(ckpt, sh->entries[0].item) : 0;
    return (fp8_st_list){sh->count, sheet_tensor, keep_place, sh,
                         ckpt->shards[source].header.metadata};
}

/* A companion must not take the name of a tensor that is there. */
static fp8_status check_name(sheet *sh, const fp8_entry *e, fp8_error *err)
{
    const fp8_convert *conv = sh->conv;
    if (e->part == FP8_PART_DATA)
        return FP8_OK;
    fp8_span name = entry_name(sh, e);
    int64_t other = fp8_checkpoint_index(conv->ckpt, name.text, name.bytes);
    FP8_FAIL_IF(other >= 0 && conv->items[other].action != FP8_ACTION_DROP, err, FP8_E_MISMATCH,
                "%s: there is a tensor %s already", fp8_item_info(conv, e->item).name, name.text);
    return FP8_OK;
}

static fp8_status place(sheet *sh, fp8_out_shard *shard, fp8_error *err)
{
    FP8_TRY(fp8_sort(sh->conv->ctx, sh->entries, sh->count, sizeof *sh->entries, compare_for_file,
                     sh, err));
    for (int64_t i = 0; i < sh->count; i++)
        FP8_TRY(check_name(sh, &sh->entries[i], err));
    fp8_st_list list = list_of(sh);
    return fp8_st_layout(sh->conv->ctx, &list, &shard->head_bytes, &shard->data_bytes, err);
}

fp8_status fp8_sheet_place(fp8_convert *conv, fp8_out_shard *shard, fp8_error *err)
{
    sheet sh;
    fp8_status status =
        sheet_open(conv, conv->layout.entries + shard->first_entry, shard->entries, &sh, err);
    sh.items = conv->items;
    if (status == FP8_OK)
        status = place(&sh, shard, err);
    sheet_close(&sh);
    return status;
}

fp8_status fp8_sheet_head(const fp8_convert *conv, const fp8_out_shard *shard, fp8_text *out,
                          fp8_error *err)
{
    sheet sh;
    FP8_TRY(sheet_open(conv, conv->layout.entries + shard->first_entry, shard->entries, &sh, err));
    fp8_st_list list = list_of(&sh);
    fp8_st_put_head(&list, shard->head_bytes, out);
    sheet_close(&sh);
    return FP8_OK;
}

/* ---- the index ---- */

/* In the order given; NULL: as they stand, which is as long. */
static void put_index(sheet *sh, const uint32_t *order, fp8_text *out)
{
    uint64_t total = 0, parameters = 0;
    for (int64_t i = 0; i < sh->count; i++) {
        const fp8_entry *e = &sh->entries[i];
        total += e->bytes;
        if (e->part == FP8_PART_DATA)
            parameters += e->bytes * 8 / (uint64_t)fp8_dtype_bits((fp8_dtype)e->dtype);
    }
    fp8_text_put(out, "{\n  \"metadata\": {\n    \"total_parameters\": ");
    fp8_text_put_number(out, parameters);
    fp8_text_put(out, ",\n    \"total_size\": ");
    fp8_text_put_number(out, total);
    fp8_text_put(out, "\n  },\n  \"weight_map\": {");
    for (int64_t i = 0; i < sh->count; i++) {
        const fp8_entry *e = &sh->entries[order ? order[i] : i];
        const char *file = sh->conv->layout.shards[sh->conv->items[e->item].shard].file;
        fp8_span name = entry_name(sh, e);
        fp8_text_put(out, i ? ",\n    " : "\n    ");
        fp8_text_put_quoted(out, name.text, name.bytes);
        fp8_text_put(out, ": ");
        fp8_text_put_quoted(out, file, strlen(file));
    }
    fp8_text_put(out, "\n  }\n}\n");
}

fp8_status fp8_sheet_index(const fp8_convert *conv, fp8_text *out, fp8_error *err)
{
    const fp8_layout *lay = &conv->layout;
    sheet sh;
    fp8_status status = sheet_open(conv, lay->entries, lay->entry_count, &sh, err);
    uint32_t *order = fp8_alloc(conv->ctx, (uint64_t)sh.count * sizeof *order);
    if (status == FP8_OK && !order)
        status = fp8_fail(err, FP8_E_NO_MEMORY, "no memory for an index of %lld tensors",
                          (long long)sh.count);
    for (int64_t i = 0; status == FP8_OK && i < sh.count; i++)
        order[i] = (uint32_t)i;
    if (status == FP8_OK)
        status = fp8_sort(conv->ctx, order, sh.count, sizeof *order, compare_for_index, &sh, err);
    if (status == FP8_OK)
        put_index(&sh, order, out);
    fp8_release(conv->ctx, order);
    sheet_close(&sh);
    return status;
}

fp8_status fp8_sheet_index_bytes(const fp8_convert *conv, uint64_t *bytes, fp8_error *err)
{
    const fp8_layout *lay = &conv->layout;
    sheet sh;
    fp8_text text = {.ctx = conv->ctx, .drain = fp8_text_count};
    FP8_TRY(sheet_open(conv, lay->entries, lay->entry_count, &sh, err));
    put_index(&sh, NULL, &text);
    sheet_close(&sh);
    FP8_TRY(fp8_text_close(&text, err));
    *bytes = text.drained;
    return FP8_OK;
}
