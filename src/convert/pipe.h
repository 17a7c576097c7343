/* SPDX-License-Identifier: Apache-2.0
 *
 * pipe.h - reader, workers and writer, overlapped over a ring of slots:
 *
 *     tail                take                head
 *      | done, to be written | to be worked on   | free: the reader fills the next |
 *
 * Slots are read, taken and written in the cursor's order, so the first error in that order is the
 * one that is reported, whatever the threads did. All memory is the ring's. The writer is the
 * caller's thread. */
#ifndef FP8_CONVERT_PIPE_H
#define FP8_CONVERT_PIPE_H

#include "convert/jobs.h"

/* What becomes of finished jobs. Called from the thread that called fp8_pipe_run, in order. */
typedef struct fp8_sink {
    /* Writes a finished job. A job whose work failed comes too: job->status says so; FP8_OK from
     * here means that the run goes on all the same. */
    fp8_status (*take)(void *user, fp8_job *job, fp8_error *err);
    /* Called at least some ten times a second; anything but FP8_OK ends the run. */
    fp8_status (*tick)(void *user, fp8_error *err);
    void *user;
} fp8_sink;

/* Runs all jobs of the cursor. stats: measure what is encoded. */
fp8_status fp8_pipe_run(fp8_convert *conv, fp8_cursor *cursor, bool stats, const fp8_sink *sink,
                        fp8_error *err);

#endif
