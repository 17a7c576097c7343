/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - the state of a run, shared by the files that carry it out:
 *
 *     run.c      what is done in which order      output.c   writes finished slabs into shards
 *     publish.c  the last steps, and resuming     journal.c  what is durably done */
#ifndef FP8_CONVERT_RUN_H
#define FP8_CONVERT_RUN_H

#include "convert/journal.h"
#include "convert/pipe.h"
#include "convert/source.h"

enum { FP8_RECORDS = 8192 }; /* of items that are written but not yet synced */

typedef struct fp8_run {
    fp8_convert *conv;
    int32_t part, parts; /* 0-based part of so many */
    fp8_journal journal;
    uint8_t *done; /* [count] */
    int64_t *nans; /* pairs of item and element, found by the scan */
    int64_t nan_count;
    fp8_progress progress;
    fp8_progress_fn progress_fn;
    void *progress_user;
    double started, ticked; /* seconds */
    fp8_source source;      /* of copies */
    /* the shard that is open */
    int64_t shard; /* -1 = none */
    int fd;
    char *path;
    uint64_t unsynced;               /* bytes written since the last sync */
    uint64_t unflushed;              /* bytes written since the disk was told to begin .. */
    uint64_t flush_begin, flush_end; /* .. and the range that holds them */
    fp8_record records[FP8_RECORDS];
    int64_t record_count;
    fp8_tensor_stats stats; /* of the item that is being written */
} fp8_run;

/* output.c: the sink of the main pass. */
fp8_status fp8_output_take(void *user, fp8_job *job, fp8_error *err);
/* Syncs what is written and records it; also what `run` has when it was stopped. */
fp8_status fp8_output_sync(fp8_run *run, fp8_error *err);
/* Syncs and closes the open shard. */
fp8_status fp8_output_close(fp8_run *run, fp8_error *err);
/* Closes it without more ado, after an error. */
void fp8_output_abandon(fp8_run *run);

/* publish.c: makes DST.partial and the folder in it, or finds them as the options allow.
 * *published: an earlier run had made DST; what it left behind is removed. */
fp8_status fp8_partial_open(fp8_convert *conv, bool *published, fp8_error *err);
/* *all: every part's journal says that it is done. */
fp8_status fp8_parts_done(fp8_convert *conv, bool *all, fp8_error *err);
/* Writes index, config, report and the carried files; renames. */
fp8_status fp8_publish(fp8_run *run, fp8_error *err);
/* Removes what the run made, after an error of the input. */
void fp8_partial_discard(const fp8_run *run);

/* describe.c: config.json and hf_quant_config.json of the output into conv->files; and whether the
 * dialect can express the plan at all (UNSUPPORTED), and how long both are. */
fp8_status fp8_describe_output(fp8_convert *conv, fp8_error *err);
fp8_status fp8_describe_check(fp8_convert *conv, fp8_error *err);

#endif
