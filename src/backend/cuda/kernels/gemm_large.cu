/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_large.cu - the instances of gemm_large.cuh. */
#include "backend/cuda/kernels/gemm_large.cuh"

#define NAME(kind, rows, cols, down, across) gemm_large_##kind##_##rows##x##cols##_##down##x##across
#define INSTANCE(kind, block, rows, cols, stages, down, across, split, ahead)          \
    extern "C" __global__ void __launch_bounds__(FP8_LARGE_THREADS, 1)                 \
        NAME(kind, rows, cols, down, across)(const __grid_constant__ fp8_large_args a) \
    {                                                                                  \
        large_body<rows, cols, stages, down, across, split, block, ahead>(a);          \
    }
#define CHANNEL(rows, cols, stages, down, across, split, ahead, late) \
    INSTANCE(channel, false, rows, cols, stages, down, across, split, ahead)
#define BLOCKS(rows, cols, stages, down, across, split, ahead, late) \
    INSTANCE(block, true, rows, cols, stages, down, across, split, ahead)
FP8_LARGE_CHANNEL(CHANNEL)
FP8_LARGE_BLOCK(BLOCKS)
