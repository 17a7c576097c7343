/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_small_quantize.cu - the instances of gemm_small.cuh that quantize X. */
#include "backend/cuda/kernels/gemm_small.cuh"

#define KERNEL(kind, block, rows, tokens, split, name, dtype)                     \
    extern "C" __global__ void __launch_bounds__(fp8_small_threads(rows, tokens), \
                                                 fp8_small_per_sm(rows, tokens))  \
        gemm_small_quantize_##kind##_##rows##x##tokens##_##split##_##name(        \
            const __grid_constant__ fp8_small_quantize_args a)                    \
    {                                                                             \
        small_body<rows, tokens, block, split, dtype>(a.small, a.x);              \
    }
#define INSTANCE(rows, tokens, split)                           \
    KERNEL(channel, false, rows, tokens, split, bf16, FP8_BF16) \
    KERNEL(channel, false, rows, tokens, split, f16, FP8_F16)   \
    KERNEL(block, true, rows, tokens, split, bf16, FP8_BF16)    \
    KERNEL(block, true, rows, tokens, split, f16, FP8_F16)
FP8_SMALL_RESIDENT(INSTANCE)
