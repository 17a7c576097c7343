/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_wide.cu - the instances of gemm_wide.cuh: X in bf16 with every kind of scales, X in fp16
 * with all but powers of two, of which fp16 has too few. */
#include "backend/cuda/kernels/gemm_wide.cuh"

#define KERNEL_OF(x, is_bf16, kind, KIND, tokens, turned)                          \
    extern "C" __global__ void __launch_bounds__(fp8_wide_threads(tokens, KIND),   \
                                                 fp8_wide_per_sm(tokens, KIND))    \
        gemm_wide_##x##_##kind##_##tokens(const __grid_constant__ fp8_wide_args a) \
    {                                                                              \
        wide_body<tokens, KIND, is_bf16, turned>(a);                               \
    }
#define KERNEL(x, is_bf16, kind, KIND, tokens) KERNEL_OF(x, is_bf16, kind, KIND, tokens, false)
#define DX(tokens)                                            \
    KERNEL_OF(bf16, true, dx, FP8_WIDE_CHANNEL, tokens, true) \
    KERNEL_OF(f16, false, dx, FP8_WIDE_CHANNEL, tokens, true)
#define DX_TERMS(tokens) KERNEL_OF(bf16, true, dx_terms, FP8_WIDE_TERMS, tokens, true)
#define DX_BLOCK(tokens)                                          \
    KERNEL_OF(bf16, true, dx_block, FP8_WIDE_BLOCK, tokens, true) \
    KERNEL_OF(f16, false, dx_block, FP8_WIDE_BLOCK, tokens, true)
#define BF16_CHANNEL(tokens) KERNEL(bf16, true, channel, FP8_WIDE_CHANNEL, tokens)
#define BF16_MX(tokens)      KERNEL(bf16, true, mx, FP8_WIDE_MX, tokens)
#define BF16_BLOCK(tokens)   KERNEL(bf16, true, block, FP8_WIDE_BLOCK, tokens)
#define F16_CHANNEL(tokens)  KERNEL(f16, false, channel, FP8_WIDE_CHANNEL, tokens)
#define F16_BLOCK(tokens)    KERNEL(f16, false, block, FP8_WIDE_BLOCK, tokens)
FP8_WIDE_TOKENS(BF16_CHANNEL)
FP8_WIDE_TOKENS(BF16_MX)
FP8_WIDE_BLOCK_TOKENS(BF16_BLOCK)
FP8_WIDE_TOKENS(F16_CHANNEL)
FP8_WIDE_BLOCK_TOKENS(F16_BLOCK)
FP8_WIDE_DX_TOKENS(DX)
FP8_WIDE_DX_TOKENS(DX_TERMS)
FP8_WIDE_DX_BLOCK_TOKENS(DX_BLOCK)
