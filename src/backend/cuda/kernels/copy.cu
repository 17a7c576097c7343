/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.cu - what happens to a matrix of any dtype and strides before it is computed with: it goes
 * into another place, layout and dtype, with zeros in the columns that it has more (what changes
 * nothing keeps its bits); its first element that is not finite is found; and the codes of a part
 * of a weight become those for another scale. */
#include "backend/cuda/gemm_args.h"
#include "backend/cuda/kernels/element.cuh"

/* A thread an element and then the next of a whole grid of threads. */
extern "C" __global__ void __launch_bounds__(256)
    copy_elements(const __grid_constant__ fp8_copy_args a)
{
    const int64_t count = a.rows * a.to_cols, step = (int64_t)gridDim.x * blockDim.x;
    const int bytes = bytes_of(a.to.dtype), from_bytes = bytes_of(a.from.dtype);
    const bool same = a.from.dtype == a.to.dtype && !a.saturate;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += step) {
        const int64_t i = a.rows == 1 ? 0 : e / a.to_cols, j = e - i * a.to_cols;
        uint32_t bits = 0;
        if (j < a.cols) {
            bits = load_bits(a.from.data, i * a.from.row + j * a.from.col, from_bytes);
            if (!same)
                bits = bits_of_value(value_of_bits(bits, a.from.dtype), a.to.dtype, a.saturate);
        }
        store_bits(a.to.data, i * a.to.row + j * a.to.col, bytes, bits);
    }
}

/* The element, times its scale if it has one. */
__device__ static inline float real_at(const fp8_find_args &a, int64_t i, int64_t j)
{
    const float x = load_element(a.x, i, j);
    return a.from.data ? real_of(x, load_element(a.from, i / a.from_rows, j / a.from_cols)) : x;
}

/* Bits of the exponent, in each element of 32 bits; 0: of a dtype that is not read so. */
__device__ static inline uint32_t exponents_of(int dtype)
{
    return dtype == FP8_BF16  ? 0x7F807F80
           : dtype == FP8_F16 ? 0x7C007C00
           : dtype == FP8_F32 ? 0x7F800000
                              : 0;
}

/* Whether one of the elements in 32 bits has all bits of its exponent; those of the low half must
 * be looked at apart from a mask that has two. */
__device__ static inline bool may_be_not_finite(uint32_t word, uint32_t mask)
{
    const uint32_t low = mask & 0xFFFF, high = mask & 0xFFFF0000;
    return (word & high) == high || (low && (word & low) == low);
}

/* Whether x is one row of 16-byte packets. */
__device__ static inline bool is_packets(const fp8_find_args &a)
{
    return !a.from.data && exponents_of(a.x.dtype) && a.x.col == 1 &&
           (a.rows == 1 || a.x.row == a.cols) && (uintptr_t)a.x.data % 16 == 0;
}

__device__ static inline void look_at(const fp8_find_args &a, int64_t e)
{
    const int64_t i = a.rows == 1 ? 0 : e / a.cols;
    if (!isfinite(real_at(a, i, e - i * a.cols)))
        atomicMin(a.first, (unsigned long long)e);
}

extern "C" __global__ void __launch_bounds__(256)
    find_not_finite(const __grid_constant__ fp8_find_args a)
{
    const int64_t count = a.rows * a.cols, step = (int64_t)gridDim.x * blockDim.x;
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t each = 16 / bytes_of(a.x.dtype), packets = is_packets(a) ? count / each : 0;
    const uint32_t mask = exponents_of(a.x.dtype);
    for (int64_t p = thread; p < packets; p += step) {
        const uint4 w = __ldg((const uint4 *)a.x.data + p);
        if (may_be_not_finite(w.x, mask) || may_be_not_finite(w.y, mask) ||
            may_be_not_finite(w.z, mask) || may_be_not_finite(w.w, mask))
            for (int64_t e = p * each; e < (p + 1) * each; e++)
                look_at(a, e);
    }
    for (int64_t e = packets * each + thread; e < count; e += step)
        look_at(a, e);
}

extern "C" __global__ void __launch_bounds__(256) map_codes(const __grid_constant__ fp8_map_args a)
{
    const int64_t count = a.rows * a.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += step) {
        uint8_t *code = a.codes + e / a.cols * a.ld + e % a.cols;
        *code = a.to[*code];
    }
}
