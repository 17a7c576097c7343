/* SPDX-License-Identifier: Apache-2.0
 *
 * epilogue.cuh - scales and epilogues of a product of matrices, one element at a time: what
 * gemm_plain.cu and gemm_mma.cu share. docs/numerics.md, section 11. */
#ifndef FP8_KERNELS_EPILOGUE_CUH
#define FP8_KERNELS_EPILOGUE_CUH

#include "backend/cuda/gemm_args.h"
#include "backend/cuda/kernels/element.cuh"

__device__ static inline float round_to(int dtype, float value)
{
    return dtype ? value_of_bits(bits_of_value(value, dtype, false), dtype) : value;
}

/* a / b for numbers that are not negative; a 32-bit division is several times faster. */
__device__ static inline int64_t quotient(int64_t a, int64_t b)
{
    return ((a | b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* The scale of element (i,k). */
__device__ static inline float scale_of(const fp8_gemm_operand &o, int64_t i, int64_t k)
{
    const int64_t row = quotient(i + o.origin[0], o.unit[0]);
    return round_to(o.rounded, load_element(o.scales, row, quotient(k + o.origin[1], o.unit[1])));
}

/* The scale of row i that does not vary along K; no columns, no scales. */
__device__ static inline float row_scale(const fp8_gemm_operand &o, int64_t i, int64_t k)
{
    return o.scales.data && !o.along_k && k > 0 ? scale_of(o, i, 0) : 1.0f;
}

/* Which NaN an operation makes depends on the processor, so: this one. */
__device__ static inline float one_nan(float y)
{
    return y == y ? y : fp8_f32_of_bits(0x7FC00000);
}

/* The epilogue of a sum c of column j. */
__device__ static inline float finish(const fp8_gemm_args &a, float c, float sx, float sw,
                                      int64_t j)
{
    const float fused = __fmul_rn(sw, c), scaled = __fmul_rn(__fmul_rn(c, sx), sw);
    if (!a.bias)
        return a.epilogue == FP8_EPILOGUE_FUSED ? __fmul_rn(sx, fused) : scaled;
    const float bias = a.bias[j];
    if (a.epilogue == FP8_EPILOGUE_FUSED)
        return __fmaf_rn(sx, fused, bias);
    return __fadd_rn(a.epilogue == FP8_EPILOGUE_BIAS_LAST ? round_to(a.y.dtype, scaled) : scaled,
                     bias);
}

#endif
