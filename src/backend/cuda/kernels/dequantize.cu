/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize.cu - y[i,j] = round_to_y(codes[i,j] * scales[i / unit_rows, j / unit_cols]), the
 * product in fp32: an element at a time for everything, and packets of 8 where rows lie without
 * gaps between elements and aligned and units have whole ones. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/dependent.cuh"
#include "backend/cuda/kernels/real_packets.cuh"

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

template <int OUT> __device__ static inline void dequantize(const fp8_cuda_dequantize_args &a)
{
    const columns c = columns_of(a.cols);
    const uint32_t rows = (uint32_t)a.rows, unit_rows = (uint32_t)min(a.unit_rows, a.rows);
    const uint32_t unit = (uint32_t)min((a.unit_cols + COLUMN_WIDTH - 1) / COLUMN_WIDTH, (int64_t)c.end);
    const uint8_t *codes = (const uint8_t *)a.codes.data + (int64_t)c.packet * COLUMN_WIDTH;
    const int bytes = OUT == FP8_F32 ? 4 : 2;
    uint8_t *y = (uint8_t *)a.y.data + (int64_t)c.packet * COLUMN_WIDTH * bytes;
    if (c.packet >= c.end)
        return;
    for (uint32_t i = c.row; i < rows; i += c.step) {
        uint2 held[COLUMN_ROWS];
        float scale[COLUMN_ROWS];
#pragma unroll
        for (int p = 0; p < COLUMN_ROWS; p++)
            held[p] = i + p < rows ? __ldg((const uint2 *)(codes + (i + p) * a.codes.row))
                                   : make_uint2(0, 0);
        load_scales(a.scales, c.packet, i, rows, unit_rows, unit, scale);
#pragma unroll
        for (int p = 0; p < COLUMN_ROWS; p++)
            if (i + p < rows)
                write_reals<OUT>(y + (i + p) * a.y.row * bytes, held[p], a.codes.dtype, scale[p]);
    }
}

#define KERNEL(name, OUT)                                                     \
    extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 4)           \
        dequantize_##name(const __grid_constant__ fp8_cuda_dequantize_args a) \
    {                                                                         \
        let_next_start();                                                     \
        wait_for_input();                                                     \
        dequantize<OUT>(a);                                                   \
    }
KERNEL(bf16, FP8_BF16)
KERNEL(f16, FP8_F16)
KERNEL(f32, FP8_F32)
