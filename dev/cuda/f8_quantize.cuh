/* SPDX-License-Identifier: Apache-2.0 */
/* f8_quantize.cuh - X[M,K] (bf16, K % 16 == 0) to e4m3 with a scale a row, or a scale a row and 128 columns: amax / 448, codes are
 * value * (1 / scale) to nearest even. One CTA a row; in a chain the next kernel may start at once and waits for the end of this. */
#pragma once
#include "harness/sm90.cuh"

DEV float amax8(uint4 v)
{
    const uint32_t u[4] = {v.x, v.y, v.z, v.w};
    __nv_bfloat162 m = __habs2(*(const __nv_bfloat162 *)&u[0]);
#pragma unroll
    for (int i = 1; i < 4; i++) m = __hmax2(m, __habs2(*(const __nv_bfloat162 *)&u[i]));
    return fmaxf(__low2float(m), __high2float(m));
}
DEV uint2 codes8(uint4 v, float inverse)
{
    const uint32_t u[4] = {v.x, v.y, v.z, v.w};
    uint32_t o[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        o[i] = e4m3x4(__uint_as_float(u[2 * i] << 16) * inverse, __uint_as_float(u[2 * i] & 0xFFFF0000u) * inverse, __uint_as_float(u[2 * i + 1] << 16) * inverse, __uint_as_float(u[2 * i + 1] & 0xFFFF0000u) * inverse);
    return make_uint2(o[0], o[1]);
}
enum { QUANT_THREADS = 256 };
/* codes [M,K]; scales [M], or in BLOCKS [K/128][ld] */
template <bool BLOCKS> __global__ void __launch_bounds__(QUANT_THREADS) quantize_k(const __nv_bfloat16 *x, uint8_t *codes, float *scales, int K, int ld)
{
    enum { HELD = 8 }; /* units of 8 values of a thread in registers; what is longer is read twice */
    __shared__ uint32_t amax;
    const int m = blockIdx.x, tid = threadIdx.x, units = K / 8;
    const uint4 *row = (const uint4 *)(x + (size_t)m * K);
    uint2 *out = (uint2 *)(codes + (size_t)m * K);
    if (tid == 0) amax = 0;
    pdl_launch();
    pdl_wait();
    auto at = [&](int j) { return j < units ? __ldcg(row + j) : make_uint4(0, 0, 0, 0); };
    uint4 v[HELD];
#pragma unroll
    for (int h = 0; h < HELD; h++) v[h] = at(tid + h * QUANT_THREADS);
    float inverse = 0;
    if (!BLOCKS) {
        float most = 0;
#pragma unroll
        for (int h = 0; h < HELD; h++) most = fmaxf(most, amax8(v[h]));
        for (int j = tid + HELD * QUANT_THREADS; j < units; j += QUANT_THREADS) most = fmaxf(most, amax8(at(j)));
        const uint32_t of_warp = __reduce_max_sync(~0u, __float_as_uint(most));
        __syncthreads();
        if (tid % 32 == 0) atomicMax(&amax, of_warp);
        __syncthreads();
        const float scale = __uint_as_float(amax) / 448.0f;
        inverse = scale > 0 ? 1.0f / scale : 0;
        if (tid == 0) scales[m] = scale;
    }
    auto put = [&](uint4 u, int j) {
        if (BLOCKS) { /* 16 lanes hold 128 columns */
            float most = amax8(u);
#pragma unroll
            for (int o = 1; o < 16; o *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
            inverse = most > 0 ? 1.0f / (most / 448.0f) : 0;
            if (j < units && tid % 16 == 0) scales[(size_t)(j / 16) * ld + m] = most / 448.0f;
        }
        if (j < units) out[j] = codes8(u, inverse);
    };
#pragma unroll
    for (int h = 0; h < HELD; h++) put(v[h], tid + h * QUANT_THREADS);
    for (int j = HELD * QUANT_THREADS; j < units; j += QUANT_THREADS) put(at(j + tid), j + tid);
}
