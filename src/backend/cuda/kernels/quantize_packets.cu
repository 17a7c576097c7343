/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_packets.cu - quantizers for rows that lie in memory as they should: a thread takes
 * packets of 8 elements, 16 or 32 bytes at once. Units of any rows and columns that a thread block
 * can hold (one reading of x), groups of 32 to 256 columns (the same), units whose scales are
 * given, and one scale for all (two readings). What is not a plain number goes through
 * quantize.cuh, element by element. */
#include "backend/cuda/kernels/columns.cuh"
#include "backend/cuda/kernels/quantize.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { WIDTH = 8 }; /* elements of a packet */

template <int IN> struct packet {
    enum { WORDS = IN == FP8_F32 ? 8 : 4 };
    uint32_t word[WORDS];
};

template <int IN> __device__ static inline packet<IN> load_packet(const void *row, int64_t c)
{
    packet<IN> p;
    const uint4 *at = (const uint4 *)row + c * (packet<IN>::WORDS / 4);
#pragma unroll
    for (int w = 0; w < packet<IN>::WORDS; w += 4) {
        const uint4 v = __ldg(at + w / 4);
        p.word[w] = v.x;
        p.word[w + 1] = v.y;
        p.word[w + 2] = v.z;
        p.word[w + 3] = v.w;
    }
    return p;
}

template <int IN> __device__ static inline packet<IN> zero_packet()
{
    packet<IN> p;
#pragma unroll
    for (int w = 0; w < packet<IN>::WORDS; w++)
        p.word[w] = 0;
    return p;
}

template <int IN> __device__ static inline float element(const packet<IN> &p, int e)
{
    if (IN == FP8_F32)
        return __uint_as_float(p.word[e]);
    const uint32_t pair = p.word[e / 2];
    if (IN == FP8_BF16)
        return __uint_as_float(e % 2 ? pair & 0xFFFF0000u : pair << 16);
    const uint16_t half = (uint16_t)(e % 2 ? pair >> 16 : pair);
    return __half2float(__ushort_as_half(half));
}

/* The largest magnitude so far, as x's own bits; two side by side where they have 16. */
template <int IN> __device__ static inline uint32_t raise(uint32_t most, const packet<IN> &p)
{
#pragma unroll
    for (int w = 0; w < packet<IN>::WORDS; w++)
        most = IN == FP8_F32 ? max(most, p.word[w] & 0x7FFFFFFFu)
                             : __vmaxu2(most, p.word[w] & 0x7FFF7FFFu);
    return most;
}

/* fp32 bits of it; NaN without its payload. */
template <int IN> __device__ static inline uint32_t settle(uint32_t most)
{
    if (IN != FP8_F32) {
        most = max(most >> 16, most & 0xFFFF);
        most = IN == FP8_BF16 ? most << 16
                              : __float_as_uint(__half2float(__ushort_as_half((uint16_t)most)));
    }
    return most > INFINITY_BITS ? NAN_BITS : most;
}

/* The same of elements that take part only. */
template <int IN>
__device__ static inline uint32_t kept_magnitude(const quantize_args &a, const packet<IN> &p)
{
    uint32_t most = 0;
#pragma unroll
    for (int e = 0; e < WIDTH; e++)
        most = max(most, magnitude(a, element(p, e)));
    return most;
}

/* How the elements of a unit become quotients: `inverse` is -1 where only code_of knows how, 0
 * where they are multiplied by the operand, else the rounded reciprocal of the operand that
 * divides. */
struct encoder {
    float operand, inverse;
};

/* Division by way of the rounded reciprocal and a step of correction gives the quotient that
 * division gives for operands far from the ends of fp32 whose significand is not all ones
 * (Markstein; for dividends of 16 bits all significands were tried, those of 32 take two steps).
 * Other operands, and formats that no instruction encodes, are left to code_of. */
__device__ static inline encoder encoder_of(const quantize_args &a, float operand)
{
    encoder e = {operand, -1};
    if (a.codes.dtype != FP8_E4M3FN && a.codes.dtype != FP8_E5M2)
        return e;
    if (a.multiply && operand > 0 && fp8_is_finite(operand))
        e.inverse = 0;
    if (!a.multiply && operand >= 0x1p-64f && operand <= 0x1p64f &&
        (__float_as_uint(operand) & 0x7FFFFF) != 0x7FFFFF)
        e.inverse = 1.0f / operand;
    return e;
}

template <int IN> __device__ static inline float refined(const encoder &e, float x)
{
    float q = x * e.inverse;
    q = __fmaf_rn(__fmaf_rn(-q, e.operand, x), e.inverse, q);
    if (IN == FP8_F32)
        q = __fmaf_rn(__fmaf_rn(-q, e.operand, x), e.inverse, q);
    return q; /* but for the sign of a zero */
}

template <int IN> __device__ static inline float rounded(float y)
{
    if (IN == FP8_BF16)
        return __bfloat162float(__float2bfloat16_rn(y));
    return IN == FP8_F16 ? __half2float(__float2half_rn(y)) : y;
}

/* Codes of two numbers, saturated. */
template <int CODE> __device__ static inline uint32_t pair_of(float low, float high)
{
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    if (CODE == FP8_E4M3FN)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return bits_of_value(low, CODE, true) | bits_of_value(high, CODE, true) << 8;
#endif
}

template <int CODE> __device__ static inline uint2 four_pairs(const float (&y)[WIDTH])
{
    return make_uint2(pair_of<CODE>(y[0], y[1]) | pair_of<CODE>(y[2], y[3]) << 16,
                      pair_of<CODE>(y[4], y[5]) | pair_of<CODE>(y[6], y[7]) << 16);
}

template <int IN>
__device__ static inline uint2 codes_of(const quantize_args &a, const packet<IN> &p,
                                        const encoder &e)
{
    float y[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        y[k] = element(p, k);
    if (a.multiply) {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] *= e.operand;
    } else {
        /* Where the amax does not bound x: to what saturates anyway, so that nothing overflows. */
        const float most = e.operand * 0x1p20f;
        if (a.is_static || a.maker.f.upper < __int_as_float(INFINITY_BITS))
#pragma unroll
            for (int k = 0; k < WIDTH; k++)
                y[k] = fminf(fmaxf(y[k], -most), most);
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] = copysignf(refined<IN>(e, y[k]), y[k]);
    }
    if (a.round_quotient)
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] = rounded<IN>(y[k]);
    if (a.plus_zero)
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] += 0.0f; /* -0 becomes +0, and nothing else changes */
    return a.codes.dtype == FP8_E4M3FN ? four_pairs<FP8_E4M3FN>(y) : four_pairs<FP8_E5M2>(y);
}

/* Whether it is one of the usual requests: a division, and nothing but E4M3 of its quotient. */
__device__ static inline bool is_usual(const quantize_args &a)
{
    return !a.multiply && !a.round_quotient && !a.plus_zero && a.codes.dtype == FP8_E4M3FN;
}

/* codes_of for those, of magnitudes below operand * 2^20: nothing overflows. The sign of a zero,
 * all that the correction loses, comes from x. */
template <int IN>
__device__ static inline uint2 usual_codes_of(const packet<IN> &p, const encoder &e)
{
    float y[WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; k++)
        y[k] = refined<IN>(e, element(p, k));
    if (IN == FP8_F32) {
#pragma unroll
        for (int k = 0; k < WIDTH; k++)
            y[k] = copysignf(y[k], element(p, k));
        return four_pairs<FP8_E4M3FN>(y);
    }
    const uint2 codes = four_pairs<FP8_E4M3FN>(y);
    const uint32_t low = __byte_perm(p.word[0], p.word[1], 0x7531);
    const uint32_t high = __byte_perm(p.word[2], p.word[3], 0x7531);
    return make_uint2(codes.x | (low & 0x80808080u), codes.y | (high & 0x80808080u));
}

template <int IN>
__device__ static __noinline__ uint2 any_codes_of(const quantize_args &a, packet<IN> p,
                                                  float operand)
{
    uint32_t low = 0, high = 0;
#pragma unroll 1
    for (int e = 0; e < WIDTH; e++) {
        low = low >> 8 | high << 24;
        const int bits = IN == FP8_F32 ? 32 : 16;
        const float x = value_of_bits(bits == 32 ? p.word[0] : p.word[0] & 0xFFFF, IN);
        high = high >> 8 | code_of(a, x, operand) << 24;
#pragma unroll /* the next element comes first */
        for (int w = 0; w < packet<IN>::WORDS; w++) {
            const uint32_t next = w + 1 < packet<IN>::WORDS ? p.word[w + 1] : 0;
            p.word[w] = bits == 32 ? next : p.word[w] >> 16 | next << 16;
        }
    }
    return make_uint2(low, high);
}

/* The packet's codes to `to`, which is aligned to 8 bytes. most: bits of a magnitude that it does
 * not exceed, those of infinity or more if it is not all plain numbers. */
template <int IN>
__device__ static inline void encode_packet(const quantize_args &a, const packet<IN> &p,
                                            const encoder &e, uint32_t most, uint8_t *to)
{
    const bool divides = e.inverse > 0 && is_usual(a);
    const float limit = divides ? e.operand * 0x1p20f : 0; /* operands are 2^64 at most */
    uint2 codes;
    if (most < __float_as_uint(limit))
        codes = usual_codes_of(p, e);
    else if (most < INFINITY_BITS && e.inverse >= 0)
        codes = codes_of(a, p, e);
    else
        codes = any_codes_of(a, p, e.operand);
    *(uint2 *)to = codes;
}

template <int IN> __device__ static inline const uint8_t *row_of(const quantize_args &a, int64_t i)
{
    return (const uint8_t *)a.x.data + i * a.x.row * (IN == FP8_F32 ? 4 : 2);
}

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
