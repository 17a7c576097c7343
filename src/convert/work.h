/* SPDX-License-Identifier: Apache-2.0
 *
 * work.h - the arithmetic of one slab. Touches no file; any number of threads at once. */
#ifndef FP8_CONVERT_WORK_H
#define FP8_CONVERT_WORK_H

#include "convert/jobs.h"

/* What one worker has of its own. */
typedef struct fp8_worker {
    fp8_convert *conv;
    fp8_context serial;    /* one thread */
    char *scratch;         /* limits.scratch_bytes */
    bool stats;            /* measure what is encoded */
    pthread_mutex_t *lock; /* guards regions */
} fp8_worker;

/* Fills the worker's context from conv's. */
void fp8_worker_init(fp8_worker *worker, fp8_convert *conv);

/* Does the job: reads map.in and map.scales_in, fills map.out, map.scales_out, sums and stats, or
 * its region. The caller has seen to it that an ENCODE job's region is complete. The status goes
 * to job->status; NaN: job->err.pos is the element of the tensor. */
void fp8_work(fp8_worker *worker, fp8_job *job);

/* Bytes of an ENCODE job's scales, and where they go in the output tensor; 0 = none from here. */
uint64_t fp8_job_scales_out(const fp8_job *job, uint64_t *offset);

#endif
