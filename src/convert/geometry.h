/* SPDX-License-Identifier: Apache-2.0
 *
 * geometry.h - how one item is cut into slabs that fit a slot of the ring.
 *
 *     region   rows whose scales depend on one another: a block of rows, or the whole matrix
 *     slab     rows of one matrix that are read, worked on and written together
 *     chunk    rows over which the statistics are summed at once; slabs begin on a chunk, so that
 *              sums do not depend on the size of a slab
 *
 * One pass: a slab is some whole regions. Two passes: a region is larger than a slab; its slabs are
 * read once for the amax and once more for the codes. */
#ifndef FP8_CONVERT_GEOMETRY_H
#define FP8_CONVERT_GEOMETRY_H

#include "convert/convert.h"

typedef struct fp8_geometry {
    fp8_matrices m;
    bool reads_codes;             /* source is FP8 .. */
    bool bare;                    /* .. without scales */
    bool encodes;                 /* output is FP8 that is made here */
    fp8_dtype in, out;            /* of the data */
    fp8_dtype scale_in;           /* how the source's scales are read */
    fp8_dtype scale_out;          /* how the output's scales are made */
    fp8_grid from, to;            /* grids of both */
    int64_t from_rows, from_cols; /* scales of one matrix of the source [from_rows, from_cols] */
    int64_t to_rows, to_cols;     /* of the output */
    bool two_pass;
    int64_t region_rows;  /* at most the matrix's rows */
    int64_t region_units; /* scales of one region */
    int64_t chunk_rows;
    int64_t slab_rows; /* 0: not even the least slab fits */
    int64_t tile_rows; /* rows that a worker takes at once, to stay in its cache */
} fp8_geometry;

/* Where the parts of a slab stand in its slot, in bytes from its start. */
typedef struct fp8_slot_map {
    uint64_t in, scales_in, real, out, scales_out, sums, bytes;
} fp8_slot_map;

/* For items that are quantized, dequantized or requantized. slab_bytes: of a slot. */
fp8_geometry fp8_geometry_of(const fp8_convert *conv, int64_t item, uint64_t slab_bytes);
fp8_slot_map fp8_slot_map_of(const fp8_geometry *g, int64_t rows);

/* Sets conv->limits so that the peak is at most max_memory_bytes. Error NO_MEMORY names the least
 * that would do. */
fp8_status fp8_limits_set(fp8_convert *conv, fp8_error *err);
/* The parts of conv->limits that follow from slab_bytes. */
void fp8_limits_scratch(fp8_convert *conv);
/* The peak of a run under these limits, in bytes. */
uint64_t fp8_limits_peak(const fp8_convert *conv);

#endif
