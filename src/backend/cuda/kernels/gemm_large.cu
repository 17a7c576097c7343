/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_large.cu - the instances of gemm_large.cuh. */
#include "backend/cuda/kernels/gemm_large.cuh"

#define TILE(kind, rows, cols, down, across) gemm_large_##kind##_##rows##x##cols##_##down##x##across
#define JOINED(kind, rows, cols, slices)     gemm_large_##kind##_##rows##x##cols##_k##slices
#define INSTANCE(name, ...)                                            \
    extern "C" __global__ void __launch_bounds__(FP8_LARGE_THREADS, 1) \
        name(const __grid_constant__ fp8_large_args a)                 \
    {                                                                  \
        large_body<__VA_ARGS__>(a);                                    \
    }
#define CHANNEL(rows, cols, stages, down, across, split, ahead, late)                             \
    INSTANCE(TILE(channel, rows, cols, down, across), rows, cols, stages, down, across, 1, split, \
             FP8_SUMS_CHANNEL, ahead)
#define BLOCKS(rows, cols, stages, down, across, split, ahead, late)                            \
    INSTANCE(TILE(block, rows, cols, down, across), rows, cols, stages, down, across, 1, split, \
             FP8_SUMS_BLOCK, ahead)
#define FAST(rows, cols, stages, down, across, split, ahead, late)                             \
    INSTANCE(TILE(fast, rows, cols, down, across), rows, cols, stages, down, across, 1, split, \
             FP8_SUMS_FAST, ahead)
#define JOINED_CHANNEL(rows, cols, stages, slices, split)                                  \
    INSTANCE(JOINED(channel, rows, cols, slices), rows, cols, stages, 1, 1, slices, split, \
             FP8_SUMS_CHANNEL, true)
#define JOINED_BLOCK(rows, cols, stages, slices, split)                                  \
    INSTANCE(JOINED(block, rows, cols, slices), rows, cols, stages, 1, 1, slices, split, \
             FP8_SUMS_BLOCK, true)
FP8_LARGE_CHANNEL(CHANNEL)
FP8_LARGE_BLOCK(BLOCKS)
FP8_LARGE_FAST(FAST)
FP8_JOINED_CHANNEL(JOINED_CHANNEL)
FP8_JOINED_BLOCK(JOINED_BLOCK)
