/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.cu - quantizers for everything: any grid, rule, dtype, stride and alignment, and codes
 * that are quantized again. One thread block (or warp) a unit does all three steps; or, where there
 * are few units and they are large, each step is a kernel, and the amax waits in the place of the
 * scale, which is fp32 then. Plain and right; quantize_packets.cu is for the usual cases. */
#include "backend/cuda/kernels/quantize.cuh"

/* Where unit u lies. */
struct place {
    int64_t i, j, rows, cols;
};

__device__ static inline place place_of(const quantize_args &a, int64_t u)
{
    place p;
    p.i = u / a.grid_cols * a.unit_rows;
    p.j = u % a.grid_cols * a.unit_cols;
    p.rows = min(a.unit_rows, a.rows - p.i);
    p.cols = min(a.unit_cols, a.cols - p.j);
    return p;
}

/* f(i, j) for every `step`-th element of the unit from `first` on. */
template <class F>
__device__ static inline void each_element(const place &p, int64_t first, int64_t step, F f)
{
    const int64_t count = p.rows * p.cols;
    for (int64_t k = first; k < count; k += step) {
        const bool small = count < (int64_t)1 << 32;
        const int64_t r = small ? (int64_t)((uint32_t)k / (uint32_t)p.cols) : k / p.cols;
        f(p.i + r, p.j + k - r * p.cols);
    }
}

__device__ static inline uint32_t amax_of_place(const quantize_args &a, const place &p, int first,
                                                int step)
{
    uint32_t most = 0;
    each_element(p, first, step,
                 [&](int64_t i, int64_t j) { most = max(most, magnitude(a, x_at(a, i, j))); });
    return most;
}

__device__ static inline void encode_place(const quantize_args &a, const place &p, float operand,
                                           int first, int step)
{
    each_element(p, first, step, [&](int64_t i, int64_t j) {
        *code_at(a, i, j) = (uint8_t)code_of(a, x_at(a, i, j), operand);
    });
}

/* A block of 256 threads a unit. */
extern "C" __global__ void __launch_bounds__(256, 4)
    quantize_units(const __grid_constant__ quantize_args a)
{
    __shared__ uint32_t most;
    if (threadIdx.x == 0)
        most = 0;
    __syncthreads();
    for (int64_t u = blockIdx.x; u < a.grid_rows * a.grid_cols; u += gridDim.x) {
        const place p = place_of(a, u);
        const uint32_t amax = largest_of_block(amax_of_place(a, p, threadIdx.x, 256), &most);
        const fp8_unit_scale unit = scale_of(a, amax);
        if (threadIdx.x == 0)
            store_element(a.scales, u / a.grid_cols, u % a.grid_cols, unit.scale, false);
        encode_place(a, p, unit.operand, threadIdx.x, 256);
        __syncthreads(); /* `most` is 0 for all */
    }
}

/* A warp a unit. */
extern "C" __global__ void __launch_bounds__(256)
    quantize_small_units(const __grid_constant__ quantize_args a)
{
    const int lane = threadIdx.x % 32;
    const int64_t warps = (int64_t)gridDim.x * 8;
    for (int64_t u = (int64_t)blockIdx.x * 8 + threadIdx.x / 32; u < a.grid_rows * a.grid_cols;
         u += warps) {
        const place p = place_of(a, u);
        const uint32_t amax = __reduce_max_sync(~0u, amax_of_place(a, p, lane, 32));
        const fp8_unit_scale unit = scale_of(a, amax);
        if (lane == 0)
            store_element(a.scales, u / a.grid_cols, u % a.grid_cols, unit.scale, false);
        encode_place(a, p, unit.operand, lane, 32);
    }
}

/* All of x, as one place. */
__device__ static inline place whole(const quantize_args &a)
{
    place p;
    p.i = p.j = 0;
    p.rows = a.rows;
    p.cols = a.cols;
    return p;
}

/* The amax of unit (i,j) in the place of its scale. */
__device__ static inline uint32_t *slot(const quantize_args &a, int64_t i, int64_t j)
{
    return (uint32_t *)a.scales.data + i * a.scales.row + j * a.scales.col;
}

/* Before quantize_amax. */
extern "C" __global__ void __launch_bounds__(256)
    quantize_clear_amax(const __grid_constant__ quantize_args a)
{
    for (int64_t u = (int64_t)blockIdx.x * 256 + threadIdx.x; u < a.grid_rows * a.grid_cols;
         u += (int64_t)gridDim.x * 256)
        *slot(a, u / a.grid_cols, u % a.grid_cols) = 0;
}

/* Zero codes in the rows that x has not. */
extern "C" __global__ void __launch_bounds__(256)
    quantize_clear_rows(const __grid_constant__ quantize_args a)
{
    const int64_t count = (a.code_rows - a.rows) * a.cols;
    for (int64_t k = (int64_t)blockIdx.x * 256 + threadIdx.x; k < count;
         k += (int64_t)gridDim.x * 256)
        *code_at(a, a.rows + k / a.cols, k % a.cols) = 0;
}

extern "C" __global__ void __launch_bounds__(256)
    quantize_amax(const __grid_constant__ quantize_args a)
{
    uint32_t most = 0, *to = slot(a, 0, 0);
    each_element(whole(a), (int64_t)blockIdx.x * 256 + threadIdx.x, (int64_t)gridDim.x * 256,
                 [&](int64_t i, int64_t j) {
        uint32_t *of = slot(a, i / a.unit_rows, j / a.unit_cols);
        if (of != to) {
            atomicMax(to, most);
            to = of;
            most = 0;
        }
        most = max(most, magnitude(a, x_at(a, i, j)));
    });
    atomicMax(to, most);
}

/* With scales that are an input, or amaxes in their places. */
extern "C" __global__ void __launch_bounds__(256)
    quantize_encode(const __grid_constant__ quantize_args a)
{
    int64_t unit_i = -1, unit_j = -1;
    float operand = 0;
    each_element(whole(a), (int64_t)blockIdx.x * 256 + threadIdx.x, (int64_t)gridDim.x * 256,
                 [&](int64_t i, int64_t j) {
        if (i / a.unit_rows != unit_i || j / a.unit_cols != unit_j) {
            unit_i = i / a.unit_rows;
            unit_j = j / a.unit_cols;
            operand = a.is_static ? static_operand(a, unit_i, unit_j)
                                  : scale_of(a, *slot(a, unit_i, unit_j)).operand;
        }
        *code_at(a, i, j) = (uint8_t)code_of(a, x_at(a, i, j), operand);
    });
}

/* Amaxes become scales, in place. */
extern "C" __global__ void __launch_bounds__(256)
    quantize_scales(const __grid_constant__ quantize_args a)
{
    for (int64_t u = (int64_t)blockIdx.x * 256 + threadIdx.x; u < a.grid_rows * a.grid_cols;
         u += (int64_t)gridDim.x * 256) {
        uint32_t *at = slot(a, u / a.grid_cols, u % a.grid_cols);
        *at = fp8_bits_of_f32(scale_of(a, *at).scale);
    }
}
