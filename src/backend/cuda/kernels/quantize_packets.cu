/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_packets.cu - quantizers for rows that lie in memory as they should: a thread takes
 * packets of 8 elements, 16 or 32 bytes at once. Units of any rows and columns that a thread block
 * can hold (one reading of x), groups of 32 to 256 columns (the same), units whose scales are
 * given, and one scale for all (two readings). What is not a plain number goes through
 * quantize.cuh, element by element. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/packets.cuh"
#include "backend/cuda/kernels/real_packets.cuh"

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

/* Where a thread's part of a unit lies: packet h is number from + h * step of `end`, x_step and
 * code_step bytes after the one before. */
struct part {
    const uint8_t *x;
    uint8_t *codes;
    int64_t x_step, code_step;
    uint32_t from, step, end;
};

/* A unit that is not all plain numbers, or whose scale or codes take the rule's whole text: x is
 * read again, so that nothing is held meanwhile. All threads of a block. */
template <int IN>
__device__ static __noinline__ void quantize_slowly(const quantize_args &a, part p, uint32_t unit_i,
                                                    uint32_t unit_j, uint32_t *most)
{
    uint32_t kept = 0;
    const uint8_t *x = p.x;
#pragma unroll 1
    for (uint32_t h = p.from; h < p.end; h += p.step, x += p.x_step)
        kept = max(kept, kept_magnitude(a, load_packet<IN>(x, 0)));
    __syncthreads(); /* all have read `most` */
    const fp8_unit_scale unit = scale_of(a, largest_of_warps(kept, most));
    const encoder e = encoder_of(a, unit.operand);
    if (threadIdx.x == 0)
        store_element(a.scales, unit_i, unit_j, unit.scale, false);
#pragma unroll 1
    for (uint32_t h = p.from; h < p.end; h += p.step, p.x += p.x_step, p.codes += p.code_step) {
        const packet<IN> held = load_packet<IN>(p.x, 0);
        encode_packet(a, held, e, settle<IN>(raise(0, held)), p.codes);
    }
}

/* A unit is one row, and the threads lie along it; or its packets in a row have a thread each,
 * which goes down. */
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
    wait_for_input();
#pragma unroll
    for (int h = 0; h < HELD; h++)
        held[h] = from + h * step < end ? load_packet<IN>(x + h * x_step, 0) : zero_packet<IN>();
#pragma unroll
    for (int h = 0; h < HELD; h++)
        found = raise(found, held[h]);
    const uint32_t amax = largest_of_warps(settle<IN>(found), most);
    if (threadIdx.x < 32) { /* the others wait instead of reckoning the same */
        float scale;
        encoder e;
        if (!short_unit_of(a, amax, &scale, &e))
            e.inverse = -1;
        if (threadIdx.x == 0) {
            if (e.inverse >= 0)
                store_short_scale(a.scales, unit_i, unit_j, scale);
            shared = e;
        }
    }
    __syncthreads();
    const encoder e = shared;
    if (e.inverse < 0) {
        quantize_slowly<IN>(a, {x, codes, x_step, code_step, from, step, end}, unit_i, unit_j,
                            most);
        return;
    }
#pragma unroll
    for (int h = 0; h < HELD; h++)
        if (from + h * step < end)
            *(uint2 *)(codes + h * code_step) = usual_codes_of(a, held[h], e);
}

/* ---- groups of 32, 64, 128 or 256 columns: the lanes of a group share it ---- */

/* A thread takes two neighbouring packets of each of two groups, as many pairs apart as there are
 * threads. */
enum { PAIR = 2, GROUP_THREADS = 256 /* at most */ };

/* Of the lanes of a group, those that are even reckon for the first one of their two groups, the
 * others for the second one: the largest of all lanes' values for the one that is this lane's. */
__device__ static inline uint32_t share_out(const uint32_t (&value)[2], uint32_t lanes)
{
    const bool odd = threadIdx.x % 2;
    uint32_t mine = odd ? value[1] : value[0];
    mine = max(mine, __shfl_xor_sync(~0u, odd ? value[0] : value[1], 1));
    for (uint32_t o = 2; o < lanes; o *= 2)
        mine = max(mine, __shfl_xor_sync(~0u, mine, o));
    return mine;
}

/* To an address that is aligned to 8 bytes at least. */
__device__ static inline void store_pair(uint2 low, uint2 high, uint8_t *to)
{
    if ((uintptr_t)to % 16 == 0) {
        *(uint4 *)to = make_uint4(low.x, low.y, high.x, high.y);
    } else {
        ((uint2 *)to)[0] = low;
        ((uint2 *)to)[1] = high;
    }
}

/* The codes of a pair, or, with REAL, what they and their scale stand for, in bf16, in the place of
 * codes: rows as far apart, in elements. */
template <bool REAL>
__device__ static inline void put_pair(const quantize_args &a, uint32_t row, uint32_t col,
                                       uint2 low, uint2 high, float scale)
{
    const int64_t at = (int64_t)row * a.codes.row + (int64_t)col * (PAIR * WIDTH);
    uint8_t *to = (uint8_t *)a.codes.data + at * (REAL ? 2 : 1);
    if (REAL) {
        write_reals<FP8_BF16>(to, low, a.codes.dtype, scale);
        write_reals<FP8_BF16>(to + 2 * WIDTH, high, a.codes.dtype, scale);
    } else {
        store_pair(low, high, to);
    }
}

/* Where a thread's pairs lie: number `first` of `count`, and one of as many threads further on. */
struct pairs {
    uint32_t first, count, across; /* pairs of a row */
    uint32_t lanes;                /* of a group: a power of two */
};

/* Groups of which one is not all plain numbers, or whose scales or codes take the rule's whole
 * text: x is read again, so that nothing is held meanwhile. All threads of a warp. */
template <int IN, bool REAL>
__device__ static __noinline__ void quantize_groups_slowly(const quantize_args &a, pairs at)
{
#pragma unroll 1
    for (int g = 0; g < 2; g++) {
        const uint32_t k = at.first + g * blockDim.x, row = k / at.across;
        const uint32_t col = k - row * at.across;
        packet<IN> held[PAIR];
#pragma unroll
        for (int p = 0; p < PAIR; p++)
            held[p] = k < at.count ? load_packet<IN>(row_of<IN>(a, row), col * PAIR + p)
                                   : zero_packet<IN>();
        uint32_t amax = max(kept_magnitude(a, held[0]), kept_magnitude(a, held[1]));
        for (uint32_t o = 1; o < at.lanes; o *= 2)
            amax = max(amax, __shfl_xor_sync(~0u, amax, o));
        if (k >= at.count)
            continue;
        const fp8_unit_scale unit = scale_of(a, amax);
        const encoder e = encoder_of(a, unit.operand);
        if (!REAL && (threadIdx.x & (at.lanes - 1)) == 0)
            store_element(a.scales, row, col / at.lanes, unit.scale, false);
        uint2 codes[PAIR] = {};
#pragma unroll 1
        for (int p = 0; p < PAIR; p++) {
            codes[0] = codes[1];
            codes[1] = encoded(a, held[0], e, settle<IN>(raise(0, held[0])));
            held[0] = held[1];
        }
        const int dtype = a.scales.dtype; /* as it would be read */
        const float scale =
            REAL ? value_of_bits(bits_of_value(unit.scale, dtype, false), dtype) : 0.0f;
        put_pair<REAL>(a, row, col, codes[0], codes[1], scale);
    }
}

template <int IN, bool REAL> __device__ static inline void quantize_groups(const quantize_args &a)
{
    const uint32_t lanes = (uint32_t)a.unit_cols / (PAIR * WIDTH);
    const uint32_t across = (uint32_t)(a.cols / (PAIR * WIDTH)), count = across * (uint32_t)a.rows;
    const uint32_t first = blockIdx.x * (2 * blockDim.x) + threadIdx.x;
    const bool odd = threadIdx.x % 2;
    packet<IN> held[2][PAIR];
    uint32_t row[2], col[2], found[2];
    const uint8_t *x[2];
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const uint32_t k = first + g * blockDim.x;
        row[g] = a.rows == 1 ? 0 : k / across;
        col[g] = k - row[g] * across;
        x[g] = row_of<IN>(a, row[g]);
    }
    wait_for_input();
#pragma unroll
    for (int g = 0; g < 2; g++)
#pragma unroll
        for (int p = 0; p < PAIR; p++)
            held[g][p] = first + g * blockDim.x < count ? load_packet<IN>(x[g], col[g] * PAIR + p)
                                                        : zero_packet<IN>();
#pragma unroll
    for (int g = 0; g < 2; g++)
        found[g] = settle<IN>(raise(raise(0, held[g][0]), held[g][1]));
    const uint32_t amax = share_out(found, lanes);
    float scale;
    encoder my;
    const bool is_short = short_unit_of(a, amax, &scale, &my);
    const bool inside = first + (odd ? blockDim.x : 0) < count;
    if (__any_sync(~0u, inside && !is_short)) {
        quantize_groups_slowly<IN, REAL>(a, {first, count, across, lanes});
        return;
    }
    if (!REAL && (threadIdx.x & (lanes - 1)) < 2 && inside)
        store_short_scale(a.scales, odd ? row[1] : row[0],
                          (odd ? col[1] : col[0]) >> (__ffs((int)lanes) - 1), scale);
    const encoder other = {__shfl_xor_sync(~0u, my.operand, 1),
                           __shfl_xor_sync(~0u, my.inverse, 1)};
    const float other_scale = REAL ? __shfl_xor_sync(~0u, scale, 1) : 0.0f;
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const encoder e = odd == (g == 1) ? my : other;
        if (first + g * blockDim.x < count)
            put_pair<REAL>(a, row[g], col[g], usual_codes_of(a, held[g][0], e),
                           usual_codes_of(a, held[g][1], e), odd == (g == 1) ? scale : other_scale);
    }
}

/* ---- units of whole packets whose scales are given ---- */

template <int IN> __device__ static inline void encode_given(const quantize_args &a)
{
    const columns c = columns_of(a.cols);
    const uint32_t rows = (uint32_t)a.rows, unit_rows = (uint32_t)min(a.unit_rows, a.rows);
    const uint32_t unit = (uint32_t)min((a.unit_cols + WIDTH - 1) / WIDTH, (int64_t)c.end);
    wait_for_input();
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
    wait_for_input();
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
    wait_for_input();
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

/* Blocks of an SM at least, as many as go without spilled registers. */
#if __CUDA_ARCH__ >= 900
enum { HELD_BLOCKS = 3, GROUP_BLOCKS = 5 };
#else
enum { HELD_BLOCKS = 2, GROUP_BLOCKS = 1 };
#endif

/* KERNEL(kind, name, function, bounds ..) */
#define KERNEL(kind, name, function, ...)                                 \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__)             \
        quantize_##kind##_##name(const __grid_constant__ quantize_args a) \
    {                                                                     \
        let_next_start();                                                 \
        function(a);                                                      \
    }
KERNEL(held4, bf16, (quantize_held<FP8_BF16, 4>), HELD_THREADS, HELD_BLOCKS)
KERNEL(held4, f16, (quantize_held<FP8_F16, 4>), HELD_THREADS, HELD_BLOCKS)
KERNEL(held4, f32, (quantize_held<FP8_F32, 4>), HELD_THREADS)
KERNEL(held8, bf16, (quantize_held<FP8_BF16, 8>), HELD_THREADS)
KERNEL(held8, f16, (quantize_held<FP8_F16, 8>), HELD_THREADS)
KERNEL(held8, f32, (quantize_held<FP8_F32, 8>), HELD_THREADS)
KERNEL(groups, bf16, (quantize_groups<FP8_BF16, false>), GROUP_THREADS, GROUP_BLOCKS)
KERNEL(groups, f16, (quantize_groups<FP8_F16, false>), GROUP_THREADS, GROUP_BLOCKS)
KERNEL(groups, f32, (quantize_groups<FP8_F32, false>), GROUP_THREADS)
KERNEL(real_groups, bf16, (quantize_groups<FP8_BF16, true>), GROUP_THREADS, GROUP_BLOCKS)
KERNEL(real_groups, f16, (quantize_groups<FP8_F16, true>), GROUP_THREADS, GROUP_BLOCKS)
KERNEL(real_groups, f32, (quantize_groups<FP8_F32, true>), GROUP_THREADS)
KERNEL(given, bf16, encode_given<FP8_BF16>, COLUMN_THREADS, 4)
KERNEL(given, f16, encode_given<FP8_F16>, COLUMN_THREADS, 4)
KERNEL(given, f32, encode_given<FP8_F32>, COLUMN_THREADS, 3)
KERNEL(amax, bf16, amax_of_all<FP8_BF16>, ALL_THREADS)
KERNEL(amax, f16, amax_of_all<FP8_F16>, ALL_THREADS)
KERNEL(amax, f32, amax_of_all<FP8_F32>, ALL_THREADS)
KERNEL(encode, bf16, encode_all<FP8_BF16>, ALL_THREADS)
KERNEL(encode, f16, encode_all<FP8_F16>, ALL_THREADS)
KERNEL(encode, f32, encode_all<FP8_F32>, ALL_THREADS, 3)
