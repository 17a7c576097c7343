/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs.h - the work of a run as a sequence of slabs, in the order in which it is read, worked on
 * and written. The sequence depends on the plan and the limits alone. */
#ifndef FP8_CONVERT_JOBS_H
#define FP8_CONVERT_JOBS_H

#include "convert/fused.h"
#include "convert/geometry.h"
#include "convert/stats.h"

#include <pthread.h>

typedef enum fp8_job_kind {
    FP8_JOB_COPY,   /* bytes [row, row + rows) of the tensor, and of those behind it, as they are */
    FP8_JOB_SCALES, /* scales [row, row + rows) of the tensor, cast */
    FP8_JOB_DECODE, /* codes and scales -> high precision */
    FP8_JOB_AMAX,   /* first pass over a region that is larger than a slab */
    FP8_JOB_ENCODE, /* codes and scales, of whole regions or in the second pass */
    FP8_JOB_SCAN,   /* look for NaN and infinity, write nothing */
} fp8_job_kind;

/* What the slabs of one region share: the largest magnitudes so far. */
typedef struct fp8_region {
    float *amax;     /* [region_units] */
    int64_t pending; /* AMAX jobs that are not finished */
} fp8_region;

/* One slab. `map` says where its parts stand in `memory`. */
typedef struct fp8_job {
    fp8_job_kind kind;
    bool last; /* of its items */
    int64_t item, expert, row, rows;
    int64_t end; /* a copy: one past the last of its items; those between that are dropped have no
                    bytes. Else item + 1 */
    int64_t scale_row, scale_rows; /* of the source's scales that were read with it */
    int64_t region_row;            /* two passes: first row of the region .. */
    fp8_region *region;            /* .. and what it shares; NULL = one pass */
    const fp8_geometry *g;         /* NULL for COPY and SCALES */
    fp8_geometry geometry;
    fp8_slot_map map;
    char *memory; /* the slot's */
    /* results of the work */
    bool done;
    fp8_status status;
    fp8_error err;
    int64_t chunks;         /* pairs of sums at map.sums */
    fp8_tensor_stats stats; /* but for the sums */
} fp8_job;

/* Walks the slabs of one item. */
typedef struct fp8_walk {
    int64_t item;
    fp8_geometry g;
    bool copies, amax, encodes, scan, scales; /* what is asked for, or left */
    bool second;                              /* in the second pass of a region */
    int64_t expert, region_row, row;
    fp8_region *region;
} fp8_walk;

/* Walks all items of a part that are not done. */
typedef struct fp8_cursor {
    fp8_convert *conv;
    const uint8_t *done; /* [count]: items that are written already */
    int32_t part;
    bool scan;
    int64_t shard, next; /* next item in the shard's order */
    fp8_walk walk;
    bool walking;
    int64_t members[FP8_FUSED_PARTS]; /* whose amax is to be taken before `item` */
    int member_count, member;
    int64_t item;        /* waiting for them; -1 = none */
    fp8_region *regions; /* [region_count], used in turn */
    int64_t region_count, region_next;
    fp8_region *groups; /* [group_count] */
    uint8_t *group_begun;
    float *amax; /* memory of all regions */
} fp8_cursor;

/* scan: only look for NaN. done: see above; may change for items not yet reached. */
fp8_status fp8_cursor_open(fp8_cursor *cursor, fp8_convert *conv, const uint8_t *done, int32_t part,
                           bool scan, fp8_error *err);
void fp8_cursor_close(fp8_cursor *cursor);
/* The next job in *job (all but its memory and results); false when there is none. Called by one
 * thread, with the lock that guards regions held. */
bool fp8_cursor_next(fp8_cursor *cursor, fp8_job *job);

/* Source bytes that the item's main pass reads: what progress counts. */
uint64_t fp8_job_source_bytes(const fp8_convert *conv, const fp8_job *job);

#endif
