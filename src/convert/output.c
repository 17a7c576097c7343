/* SPDX-License-Identifier: Apache-2.0
 *
 * output.c - finished slabs to their final offsets in the output shards, one shard open at a time.
 * Writing to disk is kept flowing; every sync_bytes, and at the end of a shard, the data is synced
 * and then the items that it completes are recorded, in this order. */
#define _GNU_SOURCE
#include "ckpt/file.h"
#include "convert/durable.h"
#include "convert/measure.h"
#include "convert/run.h"
#include "convert/sheet.h"
#include "convert/work.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const uint64_t flush_bytes = (uint64_t)8 << 20;

/* ---- one shard ---- */

static uint64_t data_offset(const fp8_run *run)
{
    return run->conv->layout.shards[run->shard].head_bytes;
}

/* Bytes at `offset` of the shard's data. */
static fp8_status put(fp8_run *run, const void *src, uint64_t bytes, uint64_t offset,
                      fp8_error *err)
{
    uint64_t at = data_offset(run) + offset;
    FP8_TRY(fp8_pwrite_all(run->fd, src, bytes, at, run->path, err));
    run->unsynced += bytes;
    return FP8_OK;
}

/* [offset, offset + bytes) of the shard's data is written. Lets the disk begin with what has come
 * together, and whatever lies between, once it is worth a call. */
static void flush(fp8_run *run, uint64_t offset, uint64_t bytes)
{
    uint64_t begin = data_offset(run) + offset, end = begin + bytes;
    if (!run->unflushed || begin < run->flush_begin)
        run->flush_begin = begin;
    if (!run->unflushed || end > run->flush_end)
        run->flush_end = end;
    run->unflushed += bytes;
    if (run->unflushed < flush_bytes)
        return;
    (void)sync_file_range(run->fd, (off_t)run->flush_begin,
                          (off_t)(run->flush_end - run->flush_begin), SYNC_FILE_RANGE_WRITE);
    run->unflushed = 0;
}

static fp8_status put_input_scale(fp8_run *run, const fp8_entry *entry, fp8_error *err)
{
    fp8_convert *conv = run->conv;
    int64_t source = conv->roles.tensors[entry->item].input;
    float value;
    if (conv->activation) {
        fp8_tensor_info info = fp8_item_info(conv, entry->item);
        FP8_TRY(fp8_activation_find(conv->activation, info.name, info.name_bytes, &value, err));
    } else {
        fp8_tensor_info info = fp8_item_info(conv, source);
        char bytes[8];
        FP8_TRY(fp8_checkpoint_read(conv->ckpt, &info, 0, info.bytes, bytes, err));
        FP8_TRY(fp8_cast(conv->ctx, bytes, info.dtype, &value, FP8_F32, 1, 0, NULL, err));
    }
    return put(run, &value, sizeof value, entry->begin, err);
}

/* Pieces that no slab gives: markers and static activation scales. */
static fp8_status put_small_pieces(fp8_run *run, const fp8_out_shard *shard, fp8_error *err)
{
    for (int64_t i = 0; i < shard->entries; i++) {
        const fp8_entry *entry = &run->conv->layout.entries[shard->first_entry + i];
        if (entry->part == FP8_PART_INPUT_SCALE)
            FP8_TRY(put_input_scale(run, entry, err));
        if (entry->part == FP8_PART_MARKER) {
            const fp8_dialect *dialect = fp8_item_dialect(run->conv, entry->item);
            FP8_TRY(put(run, dialect->marker_text, entry->bytes, entry->begin, err));
        }
    }
    return FP8_OK;
}

static fp8_status put_head(const void *owner, fp8_text *out, fp8_error *err)
{
    const fp8_run *run = owner;
    return fp8_sheet_head(run->conv, &run->conv->layout.shards[run->shard], out, err);
}

static fp8_status open_shard(fp8_run *run, int64_t index, fp8_error *err)
{
    const fp8_out_shard *shard = &run->conv->layout.shards[index];
    run->path = fp8_join_path(run->conv->ctx, run->conv->files, shard->file);
    FP8_FAIL_IF(!run->path, err, FP8_E_NO_MEMORY, "no memory for a path");
    run->shard = index;
    run->unflushed = 0;
    FP8_TRY(fp8_open_output(run->path, 0, &run->fd, err));
    if (ftruncate(run->fd, (off_t)(shard->head_bytes + shard->data_bytes)))
        return fp8_fail_os(err, errno, "cannot extend %s", run->path);
    FP8_TRY(fp8_sync_directory(run->conv->files, err));
    FP8_TRY(fp8_put_text(run->conv->ctx, run->fd, run->path, put_head, run, err));
    return put_small_pieces(run, shard, err);
}

void fp8_output_abandon(fp8_run *run)
{
    if (run->fd >= 0)
        close(run->fd);
    fp8_release(run->conv->ctx, run->path);
    run->fd = -1;
    run->path = NULL;
    run->shard = -1;
}

fp8_status fp8_output_sync(fp8_run *run, fp8_error *err)
{
    if (run->fd >= 0) {
        FP8_TRY(fp8_sync_file(run->fd, run->path, err));
        (void)posix_fadvise(run->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    if (run->record_count)
        FP8_TRY(fp8_journal_sync_stats(&run->journal, err));
    FP8_TRY(fp8_journal_append(&run->journal, run->records, run->record_count, err));
    run->record_count = 0;
    run->unsynced = 0;
    return FP8_OK;
}

fp8_status fp8_output_close(fp8_run *run, fp8_error *err)
{
    FP8_TRY(fp8_output_sync(run, err));
    int code = run->fd >= 0 && close(run->fd) ? errno : 0;
    run->fd = -1;
    if (code)
        return fp8_fail_os(err, code, "cannot close %s", run->path);
    fp8_output_abandon(run);
    return FP8_OK;
}

/* ---- one slab ---- */

static fp8_status explain(const fp8_run *run, const fp8_job *job, fp8_error *err)
{
    fp8_tensor_info info = fp8_item_info(run->conv, job->item);
    if (err)
        *err = job->err;
    if (job->status != FP8_E_NAN || job->err.pos < 0) {
        fp8_error_prefix(err, "%s", info.name);
        return job->status;
    }
    int64_t pos = job->err.pos, cols = job->g->m.cols;
    return fp8_fail_at(err, FP8_E_NAN, pos,
                       "%s: %s: NaN or infinity at element %lld (row %lld, column %lld)", info.file,
                       info.name, (long long)pos, (long long)(pos / cols), (long long)(pos % cols));
}

/* A stretch of the source that is one in the output too. */
static fp8_status copy_stretch(fp8_run *run, const fp8_job *job, uint64_t from, uint64_t at,
                               uint64_t bytes, fp8_error *err)
{
    fp8_copy copy = {.to = run->fd,
                     .from_offset = from,
                     .to_offset = data_offset(run) + at,
                     .bytes = bytes,
                     .from_path = fp8_item_info(run->conv, job->item).file,
                     .to_path = run->path};
    FP8_TRY(fp8_source_fd(&run->source, job->item, &copy.from, err));
    FP8_TRY(fp8_copy_bytes(&copy, job->memory, run->conv->limits.slab_bytes, err));
    run->unsynced += bytes;
    flush(run, at, bytes);
    return FP8_OK;
}

static fp8_status copy_piece(fp8_run *run, const fp8_job *job, fp8_error *err)
{
    const fp8_convert *conv = run->conv;
    fp8_tensor_info info = fp8_item_info(conv, job->item);
    uint64_t row = (uint64_t)job->row, rows = (uint64_t)job->rows;
    uint64_t from = info.offset + row, at = conv->items[job->item].data_begin + row;
    uint64_t bytes = info.bytes - row < rows ? info.bytes - row : rows;
    for (int64_t i = job->item + 1; i < job->end; i++) {
        const fp8_item *it = &conv->items[i];
        if (it->shard < 0)
            continue;
        if (it->data_begin != at + bytes) {
            FP8_TRY(copy_stretch(run, job, from, at, bytes, err));
            from += bytes;
            at = it->data_begin;
            bytes = 0;
        }
        bytes += fp8_item_info(conv, i).bytes;
    }
    FP8_TRY(copy_stretch(run, job, from, at, bytes, err));
    fp8_source_advise(&run->source, job->item, row, rows, POSIX_FADV_DONTNEED);
    return FP8_OK;
}

static fp8_status put_scales(fp8_run *run, const fp8_job *job, fp8_error *err)
{
    const fp8_item *it = &run->conv->items[job->item];
    uint64_t width = (uint64_t)fp8_dtype_bits((fp8_dtype)it->scale) / 8;
    return put(run, job->memory + job->map.out, (uint64_t)job->rows * width,
               it->scale_begin + (uint64_t)job->row * width, err);
}

/* The slab's data, and its scales if it has some. */
static fp8_status put_slab(fp8_run *run, const fp8_job *job, fp8_error *err)
{
    const fp8_item *it = &run->conv->items[job->item];
    const fp8_geometry *g = job->g;
    uint64_t width = (uint64_t)g->m.cols * (uint64_t)fp8_dtype_bits(g->out) / 8;
    uint64_t at = it->data_begin + (uint64_t)(job->expert * g->m.rows + job->row) * width;
    uint64_t bytes = (uint64_t)job->rows * width, offset, scales;
    FP8_TRY(put(run, job->memory + job->map.out, bytes, at, err));
    flush(run, at, bytes);
    if (job->kind != FP8_JOB_ENCODE)
        return FP8_OK;
    scales = fp8_job_scales_out(job, &offset);
    fp8_measure_add(&run->stats, &job->stats,
                    (const double *)(const void *)(job->memory + job->map.sums), job->chunks);
    return put(run, job->memory + job->map.scales_out, scales, it->scale_begin + offset, err);
}

static fp8_status finish_items(fp8_run *run, const fp8_job *job, fp8_error *err)
{
    const fp8_item *items = run->conv->items;
    if (run->journal.stats_fd >= 0 && fp8_item_encodes(&items[job->item])) {
        fp8_measure_finish(run->conv->ctx, job->g->out, &run->stats);
        FP8_TRY(fp8_journal_put_stats(&run->journal, job->item, &run->stats, err));
    }
    run->stats = (fp8_tensor_stats){0};
    run->records[run->record_count++] = (fp8_record){.kind = FP8_RECORD_ITEMS,
                                                     .a = (uint64_t)job->item,
                                                     .b = (uint64_t)(job->end - job->item - 1)};
    for (int64_t i = job->item; i < job->end; i++)
        run->progress.tensors_done += items[i].shard >= 0;
    if (run->record_count == FP8_RECORDS || run->unsynced >= run->conv->limits.sync_bytes)
        return fp8_output_sync(run, err);
    return FP8_OK;
}

static fp8_status put_job(fp8_run *run, fp8_job *job, fp8_error *err)
{
    int64_t shard = run->conv->items[job->item].shard;
    if (shard != run->shard) {
        FP8_TRY(fp8_output_close(run, err));
        FP8_TRY(open_shard(run, shard, err));
    }
    if (job->kind == FP8_JOB_COPY)
        return copy_piece(run, job, err);
    return job->kind == FP8_JOB_SCALES ? put_scales(run, job, err) : put_slab(run, job, err);
}

fp8_status fp8_output_take(void *user, fp8_job *job, fp8_error *err)
{
    fp8_run *run = user;
    if (job->status != FP8_OK)
        return explain(run, job, err);
    if (job->kind == FP8_JOB_AMAX)
        return FP8_OK;
    FP8_TRY(put_job(run, job, err));
    fp8_tensor_info info = fp8_item_info(run->conv, job->item);
    run->progress.tensor = info.name;
    run->progress.tensor_bytes = info.name_bytes;
    run->progress.bytes_done += fp8_job_source_bytes(run->conv, job);
    return job->last ? finish_items(run, job, err) : FP8_OK;
}
