/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - fp8_convert_run, from the first check to DST. */
#define _GNU_SOURCE
#include "convert/run.h"
#include "convert/choose.h"
#include "convert/durable.h"
#include "convert/layout.h"
#include "convert/paths.h"

#include <string.h>
#include <time.h>

static const double tick_seconds = 0.1;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- progress and stopping ---- */

static void report_progress(fp8_run *run)
{
    if (!run->progress_fn)
        return;
    run->progress.seconds = now() - run->started;
    run->progress_fn(run->progress_user, &run->progress);
}

static fp8_status tick(void *user, fp8_error *err)
{
    fp8_run *run = user;
    if (atomic_load_explicit(&run->conv->stop, memory_order_relaxed))
        return fp8_fail(err, FP8_E_STOPPED, "stopped; %s can be resumed", run->conv->partial);
    double t = now();
    if (t - run->ticked >= tick_seconds) {
        run->ticked = t;
        report_progress(run);
    }
    return FP8_OK;
}

/* Source bytes of an item as progress counts them. */
static uint64_t counted_bytes(const fp8_convert *conv, int64_t item)
{
    return fp8_item_info(conv, item).bytes;
}

static void count_work(fp8_run *run)
{
    const fp8_convert *conv = run->conv;
    run->progress.tensor = "";
    for (int64_t i = 0; i < conv->layout.order_count; i++) {
        int64_t item = conv->layout.order[i];
        if (conv->layout.shards[conv->items[item].shard].part != run->part)
            continue;
        run->progress.tensors_total++;
        run->progress.bytes_total += counted_bytes(conv, item);
        if (run->done[item]) {
            run->progress.tensors_done++;
            run->progress.bytes_done += counted_bytes(conv, item);
        }
    }
}

/* ---- NaN ---- */

static fp8_status add_nan(fp8_run *run, int64_t item, int64_t pos)
{
    if (run->nan_count && run->nans[2 * run->nan_count - 2] == item)
        return FP8_OK; /* the first one counts */
    run->nans[2 * run->nan_count] = item;
    run->nans[2 * run->nan_count + 1] = pos;
    run->nan_count++;
    return FP8_OK;
}

/* Sink of the scan. */
static fp8_status scan_take(void *user, fp8_job *job, fp8_error *err)
{
    fp8_run *run = user;
    if (job->status == FP8_OK)
        return FP8_OK;
    if (job->status != FP8_E_NAN) {
        if (err)
            *err = job->err;
        return job->status;
    }
    int64_t known = run->nan_count;
    FP8_TRY(add_nan(run, job->item, job->err.pos));
    if (run->nan_count == known)
        return FP8_OK;
    fp8_record record = {
        .kind = FP8_RECORD_NAN, .a = (uint64_t)job->item, .b = (uint64_t)job->err.pos};
    return fp8_journal_append(&run->journal, &record, 1, err);
}

static fp8_status scan(fp8_run *run, fp8_error *err)
{
    fp8_cursor cursor;
    fp8_sink sink = {scan_take, tick, run};
    FP8_TRY(fp8_cursor_open(&cursor, run->conv, run->done, run->part, true, err));
    fp8_status status = fp8_pipe_run(run->conv, &cursor, false, &sink, err);
    fp8_cursor_close(&cursor);
    FP8_TRY(status);
    fp8_record record = {.kind = FP8_RECORD_SCANNED};
    return fp8_journal_append(&run->journal, &record, 1, err);
}

/* With keep_nan every weight is looked at before the layout is settled: a header cannot change once
 * data stands behind it. */
static fp8_status settle_nans(fp8_run *run, fp8_error *err)
{
    if (!run->conv->desc.keep_nan)
        return FP8_OK;
    if (!run->journal.scanned) {
        run->nan_count = 0;
        FP8_TRY(scan(run, err));
    }
    for (int64_t i = 0; i < run->nan_count; i++)
        FP8_TRY(fp8_choose_keep_nan(run->conv, run->nans[2 * i], run->nans[2 * i + 1], err));
    return run->nan_count ? fp8_layout_make(run->conv, err) : FP8_OK;
}

/* ---- the run ---- */

static fp8_status replay(void *user, const fp8_record *record, fp8_error *err)
{
    fp8_run *run = user;
    FP8_FAIL_IF(record->a >= (uint64_t)run->conv->count, err, FP8_E_MISMATCH,
                "%s: names tensor %llu of %lld", run->journal.path, (unsigned long long)record->a,
                (long long)run->conv->count);
    if (record->kind == FP8_RECORD_NAN)
        return add_nan(run, (int64_t)record->a, (int64_t)record->b);
    FP8_FAIL_IF(record->b >= (uint64_t)run->conv->count - record->a, err, FP8_E_MISMATCH,
                "%s: names %llu tensors from %llu of %lld on", run->journal.path,
                (unsigned long long)record->b + 1, (unsigned long long)record->a,
                (long long)run->conv->count);
    memset(run->done + record->a, 1, record->b + 1);
    return FP8_OK;
}

static fp8_status write_shards(fp8_run *run, fp8_error *err)
{
    fp8_cursor cursor;
    fp8_sink sink = {fp8_output_take, tick, run};
    FP8_TRY(fp8_cursor_open(&cursor, run->conv, run->done, run->part, false, err));
    fp8_status status = fp8_pipe_run(run->conv, &cursor, run->journal.stats_fd >= 0, &sink, err);
    fp8_cursor_close(&cursor);
    if (status == FP8_OK)
        status = fp8_output_close(run, err);
    else if (status == FP8_E_STOPPED) /* keep what is written: the next run need not redo it */
        (void)fp8_output_sync(run, NULL);
    fp8_output_abandon(run);
    return status;
}

/* Every item of the part is written: the journal said so before, or this run did it. */
static fp8_status check_complete(const fp8_run *run, fp8_error *err)
{
    FP8_FAIL_IF(run->progress.tensors_done != run->progress.tensors_total, err, FP8_E_STATE,
                "%lld of %lld tensors were written", (long long)run->progress.tensors_done,
                (long long)run->progress.tensors_total);
    return FP8_OK;
}

static fp8_status do_part(fp8_run *run, fp8_error *err)
{
    FP8_TRY(settle_nans(run, err));
    FP8_TRY(fp8_paths_check_space(run->conv, run->part, err));
    count_work(run);
    FP8_TRY(write_shards(run, err));
    FP8_TRY(check_complete(run, err));
    if (!run->journal.part_done) {
        fp8_record record = {.kind = FP8_RECORD_PART};
        FP8_TRY(fp8_journal_append(&run->journal, &record, 1, err));
    }
    bool all;
    FP8_TRY(fp8_parts_done(run->conv, &all, err));
    if (!all)
        return fp8_convert_warn(run->conv, err, "part %d of %d is done; others are not yet",
                                run->part + 1, run->parts);
    FP8_TRY(tick(run, err));
    return fp8_publish(run, err);
}

/* DST.partial can be resumed after these; after others the input has to change. */
static bool is_resumable(fp8_status status)
{
    return status == FP8_E_STOPPED || status == FP8_E_IO || status == FP8_E_NO_SPACE ||
           status == FP8_E_NO_MEMORY || status == FP8_E_STATE || status == FP8_E_EXISTS ||
           status == FP8_E_NOT_FOUND;
}

static fp8_status allocate(fp8_run *run, fp8_error *err)
{
    const fp8_context *ctx = run->conv->ctx;
    uint64_t count = (uint64_t)run->conv->count;
    run->done = fp8_alloc_zeroed(ctx, count, 1);
    run->nans = fp8_alloc_zeroed(ctx, run->conv->desc.keep_nan ? 2 * count : 0, sizeof *run->nans);
    FP8_FAIL_IF(!run->done || !run->nans, err, FP8_E_NO_MEMORY, "no memory for %llu tensors",
                (unsigned long long)count);
    return FP8_OK;
}

static fp8_status run_all(fp8_run *run, fp8_error *err)
{
    fp8_convert *conv = run->conv;
    bool published = false;
    if (fp8_paths_complete(conv))
        return fp8_convert_warn(conv, err, "%s is complete already: nothing was left to do%s",
                                conv->dst, conv->report ? ", and no report was written" : "");
    FP8_TRY(allocate(run, err));
    FP8_TRY(fp8_paths_check_space(conv, run->part, err));
    FP8_TRY(fp8_partial_open(conv, &published, err));
    if (published)
        return FP8_OK;
    FP8_TRY(fp8_journal_open(conv, run->part, true, &run->journal, replay, run, err));
    fp8_status status = do_part(run, err);
    if (status != FP8_OK && !is_resumable(status))
        fp8_partial_discard(run);
    return status;
}

fp8_status fp8_convert_run(fp8_convert *conv, fp8_progress_fn progress, void *user, fp8_error *err)
{
    FP8_FAIL_IF(!conv, err, FP8_E_ARGUMENT, "convert: conv is NULL");
    FP8_FAIL_IF(conv->done, err, FP8_E_STATE, "%s is made already", conv->dst);
    fp8_run *run = fp8_alloc_zeroed(conv->ctx, 1, sizeof *run);
    FP8_FAIL_IF(!run, err, FP8_E_NO_MEMORY, "no memory for a run");
    run->conv = conv;
    run->parts = conv->desc.part_count > 0 ? conv->desc.part_count : 1;
    run->part = conv->desc.part_count > 0 ? conv->desc.part_index - 1 : 0;
    run->shard = -1;
    run->fd = -1;
    run->journal.fd = run->journal.stats_fd = -1;
    run->progress_fn = progress;
    run->progress_user = user;
    run->started = now();
    fp8_source_init(&run->source, conv);
    fp8_status status = run_all(run, err);
    if (status == FP8_OK)
        report_progress(run);
    conv->done = status == FP8_OK;
    fp8_source_close(&run->source);
    fp8_journal_close(conv->ctx, &run->journal);
    fp8_release(conv->ctx, run->done);
    fp8_release(conv->ctx, run->nans);
    fp8_release(conv->ctx, run);
    return status;
}
