/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c - items to shards, pieces to offsets. */
#define _GNU_SOURCE
#include "convert/layout.h"
#include "convert/choose.h"
#include "convert/sheet.h"

#include <stdio.h>
#include <string.h>

/* ---- pieces ---- */

static fp8_dtype data_dtype(const fp8_convert *conv, int64_t item)
{
    const fp8_item *it = &conv->items[item];
    if (fp8_item_encodes(it))
        return fp8_item_dialect(conv, item)->code;
    if (it->action == FP8_ACTION_DEQUANTIZE)
        return conv->desc.dtype;
    return fp8_item_info(conv, item).dtype;
}

static void scale_piece(const fp8_convert *conv, int64_t item, fp8_piece *out)
{
    const fp8_dialect *dialect = fp8_item_dialect(conv, item);
    const fp8_item *it = &conv->items[item];
    out->suffix = dialect->scale_suffix;
    out->dtype = it->scale == dialect->scale ? dialect->scale_on_disk : (fp8_dtype)it->scale;
    out->ndim =
        fp8_scale_tensor_shape(dialect, fp8_item_grid(conv, item), fp8_item_info(conv, item).ndim,
                               fp8_item_matrices(conv, item), out->dims);
}

bool fp8_item_piece(const fp8_convert *conv, int64_t item, fp8_part part, fp8_piece *out)
{
    const fp8_item *it = &conv->items[item];
    *out = (fp8_piece){0};
    if (it->action == FP8_ACTION_DROP)
        return false;
    if (part == FP8_PART_DATA) {
        fp8_tensor_info info = fp8_item_info(conv, item);
        *out = (fp8_piece){NULL, data_dtype(conv, item), info.ndim, info.shape, {0}};
        return true;
    }
    const fp8_dialect *dialect = it->dialect ? fp8_item_dialect(conv, item) : NULL;
    if (!dialect)
        return false;
    switch (part) {
    case FP8_PART_SCALE:
        scale_piece(conv, item, out);
        return true;
    case FP8_PART_INPUT_SCALE:
        *out = (fp8_piece){dialect->input_suffix, FP8_F32, 0, NULL, {1}};
        out->ndim = dialect->scale_shape == FP8_SCALES_ONE;
        return dialect->input_suffix != NULL;
    case FP8_PART_MARKER:
        *out = (fp8_piece){dialect->marker_suffix, FP8_U8, 1, NULL, {0}};
        out->dims[0] = dialect->marker_text ? (int64_t)strlen(dialect->marker_text) : 0;
        return dialect->marker_suffix != NULL;
    default:
        return false;
    }
}

/* ---- items to shards ---- */

/* Bytes of a piece; the sizes were checked when the source was opened, and codes are never larger
 * than fp32. */
static uint64_t piece_bytes(const fp8_convert *conv, int64_t item, const fp8_piece *piece)
{
    fp8_tensor_info info = fp8_item_info(conv, item);
    if (piece->shape && piece->dtype == info.dtype)
        return info.bytes;
    uint64_t n = 1;
    for (int32_t d = 0; d < piece->ndim; d++)
        n *= (uint64_t)(piece->shape ? piece->shape[d] : piece->dims[d]);
    return n * (uint64_t)fp8_dtype_bits(piece->dtype) / 8;
}

static uint64_t item_bytes(const fp8_convert *conv, int64_t item)
{
    uint64_t bytes = 0;
    fp8_piece piece;
    for (int part = 0; part < FP8_PART_KINDS; part++)
        if (fp8_item_piece(conv, item, (fp8_part)part, &piece))
            bytes += piece_bytes(conv, item, &piece);
    return bytes;
}

uint64_t fp8_item_bytes_out(const fp8_convert *conv, int64_t item)
{
    return item_bytes(conv, item);
}

/* Sets the shard of every item, returns how many there are. Shards hold runs of items, so their
 * order is the source's. */
static int64_t assign_shards(fp8_convert *conv)
{
    int64_t shards = 0, source = -1;
    uint64_t filled = 0, limit = conv->desc.max_shard_bytes;
    for (int64_t i = 0; i < conv->count; i++) {
        fp8_item *it = &conv->items[i];
        it->shard = -1;
        if (it->action == FP8_ACTION_DROP)
            continue;
        uint64_t bytes = limit ? item_bytes(conv, i) : 0;
        int64_t from = fp8_checkpoint_shard(conv->ckpt, i);
        if (!shards || (limit ? filled && filled + bytes > limit : from != source)) {
            shards++;
            filled = 0;
        }
        filled += bytes;
        source = from;
        it->shard = (int32_t)(shards - 1);
    }
    return shards;
}

/* Counts, and the ranges of each shard in entries and order. */
static fp8_status count_entries(fp8_convert *conv, fp8_error *err)
{
    fp8_layout *lay = &conv->layout;
    const fp8_context *ctx = conv->ctx;
    fp8_piece piece;
    for (int64_t i = 0; i < conv->count; i++)
        for (int part = 0; part < FP8_PART_KINDS; part++)
            if (fp8_item_piece(conv, i, (fp8_part)part, &piece)) {
                lay->entry_count++;
                lay->order_count += part == FP8_PART_DATA;
            }
    FP8_FAIL_IF(lay->entry_count > INT32_MAX, err, FP8_E_UNSUPPORTED, "%s: %lld tensors to write",
                conv->src, (long long)lay->entry_count);
    lay->entries = fp8_alloc_zeroed(ctx, (uint64_t)lay->entry_count, sizeof *lay->entries);
    lay->order = fp8_alloc_zeroed(ctx, (uint64_t)lay->order_count, sizeof *lay->order);
    FP8_FAIL_IF(!lay->entries || !lay->order, err, FP8_E_NO_MEMORY,
                "no memory for the layout of %lld tensors", (long long)lay->entry_count);
    return FP8_OK;
}

static void fill_entries(fp8_convert *conv)
{
    fp8_layout *lay = &conv->layout;
    int64_t entry = 0, order = 0;
    fp8_piece piece;
    for (int64_t i = 0; i < conv->count; i++) {
        if (conv->items[i].shard < 0)
            continue;
        fp8_out_shard *shard = &lay->shards[conv->items[i].shard];
        if (!shard->items) {
            shard->first_entry = entry;
            shard->first_item = order;
        }
        lay->order[order++] = (uint32_t)i;
        shard->items++;
        for (int part = 0; part < FP8_PART_KINDS; part++)
            if (fp8_item_piece(conv, i, (fp8_part)part, &piece)) {
                lay->entries[entry++] = (fp8_entry){
                    .item = (uint32_t)i, .part = (uint8_t)part, .dtype = (uint8_t)piece.dtype};
                shard->entries++;
            }
    }
}

/* ---- names of files ---- */

/* The source's own names are kept as long as each of its files gives one of ours. */
static bool keeps_file_names(const fp8_convert *conv)
{
    return !conv->desc.max_shard_bytes && conv->layout.shard_count == conv->ckpt->shard_count;
}

static fp8_status name_files(fp8_convert *conv, fp8_error *err)
{
    fp8_layout *lay = &conv->layout;
    bool keep = keeps_file_names(conv);
    for (int64_t s = 0; s < lay->shard_count; s++) {
        char text[64];
        const char *name = "model.safetensors";
        if (keep)
            name = conv->ckpt->shards[s].file;
        else if (lay->shard_count > 1) {
            snprintf(text, sizeof text, "model-%05lld-of-%05lld.safetensors", (long long)s + 1,
                     (long long)lay->shard_count);
            name = text;
        }
        lay->shards[s].file = fp8_copy_text(conv->ctx, name, strlen(name));
        FP8_FAIL_IF(!lay->shards[s].file, err, FP8_E_NO_MEMORY, "no memory for a file name");
    }
    if (lay->shard_count > 1 || (keep && conv->ckpt->index_file)) {
        const char *index = conv->ckpt->index_file;
        if (!keep || !index)
            index = "model.safetensors.index.json";
        lay->index_file = fp8_copy_text(conv->ctx, index, strlen(index));
        FP8_FAIL_IF(!lay->index_file, err, FP8_E_NO_MEMORY, "no memory for a file name");
    }
    return FP8_OK;
}

/* ---- shards to runs ---- */

/* Each shard goes to the part that has the fewest bytes so far. Parts beyond the number of shards
 * stay empty. */
static fp8_status assign_parts(fp8_convert *conv, fp8_error *err)
{
    int32_t parts = conv->desc.part_count > 0 ? conv->desc.part_count : 1;
    uint64_t *bytes = fp8_alloc_zeroed(conv->ctx, (uint64_t)parts, sizeof *bytes);
    FP8_FAIL_IF(!bytes, err, FP8_E_NO_MEMORY, "no memory for %d parts", parts);
    for (int64_t s = 0; s < conv->layout.shard_count; s++) {
        int32_t least = 0;
        for (int32_t p = 1; p < parts; p++)
            least = bytes[p] < bytes[least] ? p : least;
        conv->layout.shards[s].part = least;
        bytes[least] += conv->layout.shards[s].data_bytes;
    }
    fp8_release(conv->ctx, bytes);
    return FP8_OK;
}

/* ---- all of it ---- */

static fp8_status lay_out(fp8_convert *conv, fp8_error *err)
{
    fp8_layout *lay = &conv->layout;
    lay->shard_count = assign_shards(conv);
    lay->shards = fp8_alloc_zeroed(conv->ctx, (uint64_t)lay->shard_count, sizeof *lay->shards);
    FP8_FAIL_IF(!lay->shards, err, FP8_E_NO_MEMORY, "no memory for %lld shards",
                (long long)lay->shard_count);
    FP8_TRY(count_entries(conv, err));
    fill_entries(conv);
    for (int64_t s = 0; s < lay->shard_count; s++) {
        FP8_TRY(fp8_sheet_place(conv, &lay->shards[s], err));
        lay->bytes += lay->shards[s].head_bytes + lay->shards[s].data_bytes;
    }
    FP8_TRY(name_files(conv, err));
    if (lay->index_file)
        FP8_TRY(fp8_sheet_index_bytes(conv, &lay->index_bytes, err));
    lay->bytes += lay->index_bytes;
    return assign_parts(conv, err);
}

fp8_status fp8_layout_make(fp8_convert *conv, fp8_error *err)
{
    fp8_layout_free(conv->ctx, &conv->layout);
    fp8_status status = lay_out(conv, err);
    if (status != FP8_OK)
        fp8_layout_free(conv->ctx, &conv->layout);
    return status;
}

void fp8_layout_free(const fp8_context *ctx, fp8_layout *layout)
{
    for (int64_t s = 0; layout->shards && s < layout->shard_count; s++)
        fp8_release(ctx, layout->shards[s].file);
    fp8_release(ctx, layout->shards);
    fp8_release(ctx, layout->entries);
    fp8_release(ctx, layout->order);
    fp8_release(ctx, layout->index_file);
    *layout = (fp8_layout){0};
}
