/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.cu - reading memory as fast as a device can, for fp8_machine_peak. */
#include "backend/cuda/kernel_args.h"

/* Reads data[count] of 16 bytes each, several loads of a thread under way at a time; what lies
 * beyond whole steps is left out. What a thread has read goes to *sink if it comes to a number that
 * it hardly ever does: so that no load is left out. */
extern "C" __global__ void __launch_bounds__(FP8_READ_THREADS, 2)
    read_memory(const __grid_constant__ fp8_read_args a)
{
    const uint4 *data = (const uint4 *)a.data;
    const int64_t threads = (int64_t)gridDim.x * blockDim.x;
    uint32_t sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
         i + (FP8_READ_AHEAD - 1) * threads < a.count; i += FP8_READ_AHEAD * threads) {
        uint4 words[FP8_READ_AHEAD];
#pragma unroll
        for (int j = 0; j < FP8_READ_AHEAD; j++)
            words[j] = __ldcs(data + i + j * threads);
#pragma unroll
        for (int j = 0; j < FP8_READ_AHEAD; j++)
            sum ^= words[j].x ^ words[j].y ^ words[j].z ^ words[j].w;
    }
    if (sum == FP8_READ_UNLIKELY)
        *a.sink = sum;
}
