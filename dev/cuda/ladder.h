/* SPDX-License-Identifier: Apache-2.0 */
/* ladder.h - a version of the ladder: a kernel with its parameters, an estimate of its time, and
 * how to launch it. */
#pragma once
#include "harness/bench.cuh"

struct version {
    char name[32];
    int acc, xin;                                        /* FAST, PROMOTED, BLOCK; CODES, BF16 */
    float (*estimate)(const version *, const problem *); /* us; negative: not for this problem */
    cudaError_t (*run)(const version *, const problem *, int copy, int pdl);
    const void *kernel;
    int rows, cols, kps, cluster, per_sm, threads,
        chosen; /* the two sides of the tile; k blocks a stage; CTAs an SM */
    int stage, fixed_k, fixed, exchange, region, store_rows,
        static_smem; /* shared memory: bytes a stage, bytes a k block of the slice, partial sums */
};
int small_versions(version *out); /* how many were written */
