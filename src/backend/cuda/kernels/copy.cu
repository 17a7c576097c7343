/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.cu - what happens to a matrix of any dtype and strides before it is computed with: it goes
 * into another place, layout and dtype, with zeros in the columns that it has more (codes that do
 * not change keep their bits); and its first element that is not finite is found. */
#include "backend/cuda/gemm_args.h"
#include "backend/cuda/kernels/element.cuh"

/* A thread an element and then the next of a whole grid of threads. */
extern "C" __global__ void __launch_bounds__(256)
    copy_elements(const __grid_constant__ fp8_copy_args a)
{
    const int64_t count = a.rows * a.to_cols, step = (int64_t)gridDim.x * blockDim.x;
    const int bytes = bytes_of(a.to.dtype);
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += step) {
        const int64_t i = e / a.to_cols, j = e % a.to_cols;
        uint32_t bits = 0;
        if (j < a.cols) {
            bits = load_bits(a.from.data, i * a.from.row + j * a.from.col, bytes_of(a.from.dtype));
            if (a.from.dtype != a.to.dtype)
                bits = bits_of_value(value_of_bits(bits, a.from.dtype), a.to.dtype, false);
        }
        store_bits(a.to.data, i * a.to.row + j * a.to.col, bytes, bits);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    find_not_finite(const __grid_constant__ fp8_find_args a)
{
    const int64_t count = a.rows * a.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += step)
        if (!isfinite(load_element(a.x, e / a.cols, e % a.cols))) {
            atomicMin(a.first, (unsigned long long)e);
            return; /* those that follow are later */
        }
}
