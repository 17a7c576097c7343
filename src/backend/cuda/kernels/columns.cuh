/* SPDX-License-Identifier: Apache-2.0
 *
 * columns.cuh - how threads share a matrix [rows, cols] whose scales are there: each takes a packet
 * of 8 columns in COLUMN_ROWS rows, one below the other, so that as many loads are under way, and
 * then goes down. Threads lie side by side along a row, as many as there are packets, and those
 * left over below. fp8_cuda_columns_shape says how many blocks; units have whole packets. */
#ifndef FP8_KERNELS_COLUMNS_CUH
#define FP8_KERNELS_COLUMNS_CUH

#include "backend/cuda/kernels/element.cuh"

enum { COLUMN_WIDTH = 8, COLUMN_ROWS = 4, COLUMN_THREADS = 256 };

/* Where a thread begins; packet >= end: it has nothing to do. */
struct columns {
    uint32_t packet, end; /* of a row */
    uint32_t row, step;   /* its first row, and to the first of the next ones */
};

__device__ static inline columns columns_of(int64_t cols)
{
    columns c;
    c.end = (uint32_t)(cols / COLUMN_WIDTH);
    const uint32_t side = min(c.end, (uint32_t)COLUMN_THREADS), down = COLUMN_THREADS / side;
    const uint32_t below = threadIdx.x / side;
    c.packet = below < down ? blockIdx.x * side + threadIdx.x - below * side : c.end;
    c.row = (blockIdx.y * down + below) * COLUMN_ROWS;
    c.step = gridDim.y * down * COLUMN_ROWS;
    return c;
}

/* scale[] = those of a packet in the rows from `row` on, all asked for before the first is there; 1
 * beyond the last row. */
__device__ static inline void load_scales(const fp8_cuda_matrix &m, uint32_t packet, uint32_t row,
                                          uint32_t rows, uint32_t unit_rows, uint32_t unit_packets,
                                          float (&scale)[COLUMN_ROWS])
{
    const uint32_t j = packet / unit_packets;
    uint32_t i = row / unit_rows, left = (i + 1) * unit_rows - row, at[COLUMN_ROWS];
#pragma unroll
    for (int p = 0; p < COLUMN_ROWS; p++, left--) {
        if (left == 0) {
            i++;
            left = unit_rows;
        }
        at[p] = i;
    }
    const int bytes = bytes_of(m.dtype);
    const uint8_t *data = (const uint8_t *)m.data + j * m.col * bytes;
    uint32_t bits[COLUMN_ROWS];
    if (m.dtype == FP8_F32 && (uintptr_t)m.data % 4 == 0) {
#pragma unroll
        for (int p = 0; p < COLUMN_ROWS; p++)
            bits[p] = row + p < rows ? __ldg((const uint32_t *)data + at[p] * m.row) : 0x3F800000;
    } else if (m.dtype == FP8_E8M0FNU) {
#pragma unroll
        for (int p = 0; p < COLUMN_ROWS; p++) {
            const uint32_t code = row + p < rows ? __ldg(data + at[p] * m.row) : 127;
            bits[p] = fp8_bits_of_f32(fp8_e8m0fnu_to_f32((uint8_t)code));
        }
    } else {
#pragma unroll 1
        for (int p = 0; p < COLUMN_ROWS; p++) {
            /* What was found moves up, so that no index is a variable. */
            const uint32_t found =
                row + p < rows ? fp8_bits_of_f32(load_element(m, at[0], j)) : 0x3F800000;
#pragma unroll
            for (int q = 0; q + 1 < COLUMN_ROWS; q++) {
                at[q] = at[q + 1];
                bits[q] = bits[q + 1];
            }
            bits[COLUMN_ROWS - 1] = found;
        }
    }
#pragma unroll
    for (int p = 0; p < COLUMN_ROWS; p++)
        scale[p] = fp8_f32_of_bits(bits[p]);
}

#endif
