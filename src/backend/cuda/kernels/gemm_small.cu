/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_small.cu - the instances of gemm_small.cuh, each with a scale a row and a channel and with
 * scales of blocks. */
#include "backend/cuda/kernels/gemm_small.cuh"

#define KERNEL(kind, block, rows, tokens, split)                                                  \
    extern "C" __global__ void __launch_bounds__(fp8_small_threads(rows, tokens),                 \
                                                 fp8_small_per_sm(rows, tokens))                  \
        gemm_small_##kind##_##rows##x##tokens##_##split(const __grid_constant__ fp8_small_args a) \
    {                                                                                             \
        small_body<rows, tokens, block, split, FP8_E4M3FN>(a, {});                                \
    }
#define INSTANCE(rows, tokens, split)           \
    KERNEL(channel, false, rows, tokens, split) \
    KERNEL(block, true, rows, tokens, split)
FP8_SMALL_INSTANCES(INSTANCE)
