/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_packets.cu - quantizers for rows that lie in memory as they should: a thread takes
 * packets of 8 elements, 16 or 32 bytes at once. Units of any rows and columns that a thread block
 * can hold (one reading of x), groups of 32 to 256 columns (the same), units whose scales are
 * given, and one scale for all (two readings). What is not a plain number goes through
 * quantize.cuh, element by element. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/packets.cuh"

/* ---- a thread block a unit, which it holds: HELD packets a thread ---- */

enum { HELD_THREADS = 512 };

/* The largest of all warps of a block, to each thread; most[] is shared. */
__device__ static inline uint32_t largest_of_warps(uint32_t value, uint32_t *most)
{
    value = __reduce_max_sync(~0u, value);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = value;
    __syncthreads();
    return __reduce_max_sync(~0u, threadIdx.x % 32 < blockDim.x / 32 ? most[threadIdx.x % 32] : 0);
}

/* A unit is one row, and the threads lie along it; or its packets in a row have a thread each,
 * which goes down. Either way thread t's packet h is number from + h * step of `end`, x_step and
 * code_step bytes after the one before. */
template <int IN, int HELD> __device__ static inline void quantize_held(const quantize_args &a)
{
    __shared__ uint32_t most[HELD_THREADS / 32];
    __shared__ encoder shared;
    const uint32_t across = (uint32_t)((min(a.unit_cols, a.cols) + WIDTH - 1) / WIDTH);
    const uint32_t unit_i = blockIdx.x / (uint32_t)a.grid_cols;
    const uint32_t unit_j = blockIdx.x - unit_i * (uint32_t)a.grid_cols;
    const int64_t i0 = unit_i * a.unit_rows, j0 = unit_j * a.unit_cols;
    const uint32_t here = (uint32_t)min((int64_t)across, (a.cols - j0) / WIDTH);
    const uint32_t x_bytes = IN == FP8_F32 ? 4 : 2;
    uint32_t from = threadIdx.x, step = blockDim.x, end = here;
    int64_t x_step = (int64_t)step * WIDTH * x_bytes, code_step = (int64_t)step * WIDTH;
    int64_t row = 0, col = threadIdx.x;
    if (a.unit_rows != 1) {
        step = blockDim.x / across;
        row = from = threadIdx.x / across;
        col = threadIdx.x - from * across;
        end = col < here && from < step ? (uint32_t)min(a.unit_rows, a.rows - i0) : 0;
        x_step = step * a.x.row * x_bytes;
        code_step = step * a.codes.row;
    }
    const uint8_t *x = row_of<IN>(a, i0 + row) + (j0 + col * WIDTH) * x_bytes;
    uint8_t *codes = (uint8_t *)a.codes.data + (i0 + row) * a.codes.row + j0 + col * WIDTH;
    packet<IN> held[HELD];
    uint32_t found = 0;
#pragma unroll
    for (int h = 0; h < HELD; h++)
        held[h] = from + h * step < end ? load_packet<IN>(x + h * x_step, 0) : zero_packet<IN>();
#pragma unroll
    for (int h = 0; h < HELD; h++)
        found = raise(found, held[h]);
    uint32_t amax = largest_of_warps(settle<IN>(found), most);
    const bool plain = amax < INFINITY_BITS;
    if (!plain && a.keep != FP8_KEEP_ALL) {
        uint32_t kept = 0;
#pragma unroll
        for (int h = 0; h < HELD; h++)
            kept = max(kept, kept_magnitude(a, held[h]));
        __syncthreads(); /* all have read `most` */
        amax = largest_of_warps(kept, most);
    }
    if (threadIdx.x < 32) { /* the others wait instead of reckoning the same */
        const fp8_unit_scale unit = scale_of(a, amax);
        const encoder e = encoder_of(a, unit.operand);
        if (threadIdx.x == 0) {
            store_element(a.scales, unit_i, unit_j, unit.scale, false);
            shared = e;
        }
    }
    __syncthreads();
    const encoder e = shared;
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (from + h * step < end)
            encode_packet(a, held[h], e, plain ? amax : INFINITY_BITS, codes + h * code_step);
}

/* ---- groups of 32, 64, 128 or 256 columns: the lanes of a group share it ---- */

enum { GROUP_PACKETS = 4, GROUP_THREADS = 256 };

template <int IN> __device__ static inline void quantize_groups(const quantize_args &a)
{
    const uint32_t lanes = (uint32_t)a.unit_cols / WIDTH, lane = threadIdx.x % lanes;
    const uint32_t share = lanes / GROUP_PACKETS, mine = lane / share;
    const uint32_t across = (uint32_t)(a.cols / WIDTH), count = across * (uint32_t)a.rows;
    const uint32_t first = blockIdx.x * (GROUP_THREADS * GROUP_PACKETS) + threadIdx.x;
    packet<IN> held[GROUP_PACKETS];
    uint32_t row[GROUP_PACKETS], col[GROUP_PACKETS], amax[GROUP_PACKETS];
#pragma unroll
    for (int p = 0; p < GROUP_PACKETS; p++) {
        const uint32_t k = first + p * GROUP_THREADS;
        row[p] = a.rows == 1 ? 0 : k / across;
        col[p] = k - row[p] * across;
        held[p] = k < count ? load_packet<IN>(row_of<IN>(a, row[p]), col[p]) : zero_packet<IN>();
    }
    uint32_t worst = 0;
#pragma unroll
    for (int p = 0; p < GROUP_PACKETS; p++) {
        amax[p] = settle<IN>(raise(0, held[p]));
        worst = max(worst, amax[p]);
    }
    const bool plain = worst < INFINITY_BITS;
    if (!plain && a.keep != FP8_KEEP_ALL)
#pragma unroll
        for (int p = 0; p < GROUP_PACKETS; p++)
            amax[p] = kept_magnitude(a, held[p]);
    for (uint32_t o = 1; o < lanes; o *= 2)
#pragma unroll
        for (int p = 0; p < GROUP_PACKETS; p++)
            amax[p] = max(amax[p], __shfl_xor_sync(~0u, amax[p], o));
    /* A lane reckons for one of the packets only: all lanes of a group have the same amaxes. */
    uint32_t my_amax = amax[0], my_row = row[0], my_col = col[0];
#pragma unroll
    for (int p = 1; p < GROUP_PACKETS; p++)
        if (mine == p) {
            my_amax = amax[p];
            my_row = row[p];
            my_col = col[p];
        }
    const fp8_unit_scale unit = scale_of(a, my_amax);
    const encoder my = encoder_of(a, unit.operand);
    if (lane % share == 0 && first + mine * GROUP_THREADS < count)
        store_element(a.scales, my_row, my_col / lanes, unit.scale, false);
#pragma unroll
    for (int p = 0; p < GROUP_PACKETS; p++) {
        const uint32_t source = threadIdx.x % 32 / lanes * lanes + p * share;
        encoder e;
        e.operand = __shfl_sync(~0u, my.operand, source);
        e.inverse = __shfl_sync(~0u, my.inverse, source);
        if (first + p * GROUP_THREADS < count)
            encode_packet(a, held[p], e, plain ? amax[p] : INFINITY_BITS,
                          (uint8_t *)a.codes.data + (int64_t)row[p] * a.codes.row +
                              (int64_t)col[p] * WIDTH);
    }
}

/* ---- units of whole packets whose scales are given ---- */

template <int IN> __device__ static inline void encode_given(const quantize_args &a)
{
    const columns c = columns_of(a.cols);
    const uint32_t rows = (uint32_t)a.rows, unit_rows = (uint32_t)min(a.unit_rows, a.rows);
    const uint32_t unit = (uint32_t)min((a.unit_cols + WIDTH - 1) / WIDTH, (int64_t)c.end);
    if (c.packet >= c.end)
        return;
    for (uint32_t i = c.row; i < rows; i += c.step) {
        packet<IN> held[COLUMN_ROWS];
        float scale[COLUMN_ROWS];
#pragma unroll
        for (int p = 0; p < COLUMN_ROWS; p++)
            held[p] =
                i + p < rows ? load_packet<IN>(row_of<IN>(a, i + p), c.packet) : zero_packet<IN>();
        load_scales(a.scales, c.packet, i, rows, unit_rows, unit, scale);
#pragma unroll
        for (int p = 0; p < COLUMN_ROWS; p++) {
            const encoder e = encoder_of(a, a.multiply ? 1.0f / scale[p] : scale[p]);
            if (i + p < rows)
                encode_packet(a, held[p], e, settle<IN>(raise(0, held[p])),
                              (uint8_t *)a.codes.data + (i + p) * a.codes.row +
                                  (int64_t)c.packet * WIDTH);
        }
    }
}

/* ---- one scale for all: amax, then codes ---- */

enum { ALL_PACKETS = 4, ALL_THREADS = 256 };

/* f(row, column of the packet) for ALL_PACKETS packets at a time, so that as many loads are under
 * way. blockIdx.y goes over rows. Backwards, a second reading meets first what the first one read
 * last, as much of it as the L2 cache holds. */
template <bool BACKWARDS, class F>
__device__ static inline void each_batch(const quantize_args &a, F f)
{
    const int64_t across = a.cols / WIDTH, width = ALL_THREADS * ALL_PACKETS;
    const int64_t batches = (across + width - 1) / width;
    for (int64_t i = blockIdx.y; i < a.rows; i += gridDim.y)
        for (int64_t b = blockIdx.x; b < batches; b += gridDim.x) {
            const int64_t first = (BACKWARDS ? batches - 1 - b : b) * width;
            f(BACKWARDS ? a.rows - 1 - i : i, first + threadIdx.x, across);
        }
}

/* The packets of a batch; zeros beyond the row. */
template <int IN>
__device__ static inline void load_batch(const quantize_args &a, int64_t i, int64_t c,
                                         int64_t across, packet<IN> (&held)[ALL_PACKETS])
{
#pragma unroll
    for (int p = 0; p < ALL_PACKETS; p++)
        held[p] = c + p * ALL_THREADS < across
                      ? load_packet<IN>(row_of<IN>(a, i), c + p * ALL_THREADS)
                      : zero_packet<IN>();
}

template <int IN> __device__ static inline void amax_of_all(const quantize_args &a)
{
    __shared__ uint32_t most;
    uint32_t found = 0;
    if (threadIdx.x == 0)
        most = 0;
    __syncthreads();
    each_batch<false>(a, [&](int64_t i, int64_t c, int64_t across) {
        packet<IN> held[ALL_PACKETS];
        uint32_t here = 0;
        load_batch(a, i, c, across, held);
#pragma unroll
        for (int p = 0; p < ALL_PACKETS; p++)
            here = raise(here, held[p]);
        here = settle<IN>(here);
        if (here >= INFINITY_BITS && a.keep != FP8_KEEP_ALL) {
            here = 0;
#pragma unroll
            for (int p = 0; p < ALL_PACKETS; p++)
                here = max(here, kept_magnitude(a, held[p]));
        }
        found = max(found, here);
    });
    found = largest_of_block(found, &most);
    if (threadIdx.x == 0)
        atomicMax((uint32_t *)a.scales.data, found);
}

template <int IN> __device__ static inline void encode_all(const quantize_args &a)
{
    const encoder e =
        encoder_of(a, a.is_static ? static_operand(a, 0, 0)
                                  : scale_of(a, *(const uint32_t *)a.scales.data).operand);
    each_batch<true>(a, [&](int64_t i, int64_t c, int64_t across) {
        packet<IN> held[ALL_PACKETS];
        load_batch(a, i, c, across, held);
#pragma unroll
        for (int p = 0; p < ALL_PACKETS; p++) {
            if (c + p * ALL_THREADS < across)
                encode_packet(a, held[p], e, settle<IN>(raise(0, held[p])),
                              (uint8_t *)a.codes.data + i * a.codes.row +
                                  (c + p * ALL_THREADS) * WIDTH);
        }
    });
}

/* A product that depends on this may start, ask for its weights, and wait for the end of this; and
 * this has started before the end of what it depends on. */
__device__ static inline void take_turns(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* KERNEL(kind, name, function, bounds ..) */
#define KERNEL(kind, name, function, ...)                                 \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)             \
        quantize_##kind##_##name(const __grid_constant__ quantize_args a) \
    {                                                                     \
        take_turns();                                                     \
        function(a);                                                      \
    }
KERNEL(held4, bf16, (quantize_held<FP8_BF16, 4>), HELD_THREADS, 2)
KERNEL(held4, f16, (quantize_held<FP8_F16, 4>), HELD_THREADS, 2)
KERNEL(held4, f32, (quantize_held<FP8_F32, 4>), HELD_THREADS)
KERNEL(held8, bf16, (quantize_held<FP8_BF16, 8>), HELD_THREADS)
KERNEL(held8, f16, (quantize_held<FP8_F16, 8>), HELD_THREADS)
KERNEL(held8, f32, (quantize_held<FP8_F32, 8>), HELD_THREADS)
KERNEL(groups, bf16, quantize_groups<FP8_BF16>, GROUP_THREADS)
KERNEL(groups, f16, quantize_groups<FP8_F16>, GROUP_THREADS)
KERNEL(groups, f32, quantize_groups<FP8_F32>, GROUP_THREADS)
KERNEL(given, bf16, encode_given<FP8_BF16>, COLUMN_THREADS, 4)
KERNEL(given, f16, encode_given<FP8_F16>, COLUMN_THREADS, 4)
KERNEL(given, f32, encode_given<FP8_F32>, COLUMN_THREADS, 3)
KERNEL(amax, bf16, amax_of_all<FP8_BF16>, ALL_THREADS)
KERNEL(amax, f16, amax_of_all<FP8_F16>, ALL_THREADS)
KERNEL(amax, f32, amax_of_all<FP8_F32>, ALL_THREADS)
KERNEL(encode, bf16, encode_all<FP8_BF16>, ALL_THREADS)
KERNEL(encode, f16, encode_all<FP8_F16>, ALL_THREADS)
KERNEL(encode, f32, encode_all<FP8_F32>, ALL_THREADS, 3)
