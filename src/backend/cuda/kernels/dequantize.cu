/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize.cu - y[i,j] = round_to_y(codes[i,j] * scales[i / unit_rows, j / unit_cols]), the
 * product in fp32. */
#include "backend/cuda/kernels/element.cuh"

/* A thread an element and then the next of a whole grid of threads; all strides and dtypes. */
extern "C" __global__ void __launch_bounds__(256)
    dequantize_elements(const __grid_constant__ fp8_cuda_dequantize_args a)
{
    const int64_t count = a.rows * a.cols, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t k = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; k < count; k += step) {
        const int64_t i = k / a.cols, j = k % a.cols;
        const float scale = load_element(a.scales, i / a.unit_rows, j / a.unit_cols);
        store_element(a.y, i, j, real_of(load_element(a.codes, i, j), scale), false);
    }
}
