/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_large.cu - the instances of gemm_large.cuh. */
#include "backend/cuda/kernels/gemm_large.cuh"

#define NAME(kind, rows, cols, down, across) gemm_large_##kind##_##rows##x##cols##_##down##x##across
#define INSTANCE(kind, sums, rows, cols, stages, down, across, split, ahead)           \
    extern "C" __global__ void __launch_bounds__(FP8_LARGE_THREADS, 1)                 \
        NAME(kind, rows, cols, down, across)(const __grid_constant__ fp8_large_args a) \
    {                                                                                  \
        large_body<rows, cols, stages, down, across, split, sums, ahead>(a);           \
    }
#define CHANNEL(rows, cols, stages, down, across, split, ahead, late) \
    INSTANCE(channel, FP8_SUMS_CHANNEL, rows, cols, stages, down, across, split, ahead)
#define BLOCKS(rows, cols, stages, down, across, split, ahead, late) \
    INSTANCE(block, FP8_SUMS_BLOCK, rows, cols, stages, down, across, split, ahead)
#define FAST(rows, cols, stages, down, across, split, ahead, late) \
    INSTANCE(fast, FP8_SUMS_FAST, rows, cols, stages, down, across, split, ahead)
FP8_LARGE_CHANNEL(CHANNEL)
FP8_LARGE_BLOCK(BLOCKS)
FP8_LARGE_FAST(FAST)
