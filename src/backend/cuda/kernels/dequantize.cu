/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize.cu - y[i,j] = round_to_y(codes[i,j] * scales[i / unit_rows, j / unit_cols]), the
 * product in fp32: an element at a time for everything, and packets of 8 where rows lie without
 * gaps between elements and aligned and units have whole ones. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/dependent.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

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

enum { WIDTH = COLUMN_WIDTH };

/* Numbers of two codes. */
__device__ static inline float2 numbers_of(uint32_t pair, int dtype)
{
#if __CUDA_ARCH__ >= 890
    uint32_t halves;
    if (dtype == FP8_E4M3FN || dtype == FP8_E5M2) {
        if (dtype == FP8_E4M3FN)
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)pair));
        else
            asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)pair));
        return make_float2(__half2float(__ushort_as_half((uint16_t)halves)),
                           __half2float(__ushort_as_half((uint16_t)(halves >> 16))));
    }
#endif
    return make_float2(value_of_bits(pair & 0xFF, dtype), value_of_bits(pair >> 8 & 0xFF, dtype));
}

/* Bits of two numbers side by side. NaN is always the same. */
template <int OUT> __device__ static inline uint32_t pair_of(float low, float high)
{
    if (OUT == FP8_BF16) {
        const uint32_t l = low == low ? __bfloat16_as_ushort(__float2bfloat16_rn(low)) : 0x7FC0;
        const uint32_t h = high == high ? __bfloat16_as_ushort(__float2bfloat16_rn(high)) : 0x7FC0;
        return l | h << 16;
    }
    const uint32_t l = low == low ? __half_as_ushort(__float2half_rn(low)) : 0x7E00;
    const uint32_t h = high == high ? __half_as_ushort(__float2half_rn(high)) : 0x7E00;
    return l | h << 16;
}

template <int OUT>
__device__ static inline void write_packet(uint8_t *to, uint2 codes, int dtype, float scale)
{
    float y[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k += 2) {
        const uint32_t pair = (k < 4 ? codes.x : codes.y) >> k % 4 * 8 & 0xFFFF;
        const float2 two = numbers_of(pair, dtype);
        y[k] = two.x * scale;
        y[k + 1] = two.y * scale;
    }
    if (OUT == FP8_F32) {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] = y[k] == y[k] ? y[k] : fp8_f32_of_bits(0x7FC00000);
        ((float4 *)to)[0] = make_float4(y[0], y[1], y[2], y[3]);
        ((float4 *)to)[1] = make_float4(y[4], y[5], y[6], y[7]);
    } else {
        *(uint4 *)to = make_uint4(pair_of<OUT>(y[0], y[1]), pair_of<OUT>(y[2], y[3]),
                                  pair_of<OUT>(y[4], y[5]), pair_of<OUT>(y[6], y[7]));
    }
}

template <int OUT> __device__ static inline void dequantize(const fp8_cuda_dequantize_args &a)
{
    const columns c = columns_of(a.cols);
    const uint32_t rows = (uint32_t)a.rows, unit_rows = (uint32_t)min(a.unit_rows, a.rows);
    const uint32_t unit = (uint32_t)min((a.unit_cols + WIDTH - 1) / WIDTH, (int64_t)c.end);
    const uint8_t *codes = (const uint8_t *)a.codes.data + (int64_t)c.packet * WIDTH;
    const int bytes = OUT == FP8_F32 ? 4 : 2;
    uint8_t *y = (uint8_t *)a.y.data + (int64_t)c.packet * WIDTH * bytes;
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
                write_packet<OUT>(y + (i + p) * a.y.row * bytes, held[p], a.codes.dtype, scale[p]);
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
