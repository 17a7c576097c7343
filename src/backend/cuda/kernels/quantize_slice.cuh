/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize_slice.cuh - X of up to 8 tokens in bf16 or fp16 into codes in shared memory: a block's
 * slice of K, while the tokens' amaxes are joined over the cluster. Scales a token, one for all
 * (given, too), or 1x128. The bits are those of quantize_packets.cu. */
#ifndef FP8_KERNELS_QUANTIZE_SLICE_CUH
#define FP8_KERNELS_QUANTIZE_SLICE_CUH

#include "backend/cuda/kernels/packets.cuh"
#include "backend/cuda/kernels/sm90.cuh"

/* k blocks kb0 .. kb0 + nk - 1 of X[m, k], and where they go: codes [k block][BT][128], swizzled as
 * the tensor cores want them, zeros past k; scales [k block][BT] of 1x128. */
typedef struct x_slice {
    int m, k, kb0, nk, rank; /* rank: of the block in the cluster */
    uint8_t *codes;
    float *scales;
} x_slice;

/* In shared memory. Before: amax is 0, and `joined` counts the bytes of `all`, one arrival. */
typedef struct slice_quantizer {
    alignas(16) uint32_t amax[16];    /* bits, of the tokens of this block */
    alignas(16) uint32_t all[8 * 16]; /* of each block of the cluster */
    float scale[16];
    alignas(8) uint64_t joined;
} slice_quantizer;

/* The amaxes of this block to all of the cluster, itself among them. */
template <int BT, int C> DEV void send_amaxes(slice_quantizer &s, int rank)
{
    const uint32_t tid = threadIdx.x, to = tid / (BT / 4), g = tid % (BT / 4) * 4;
    if (tid == 0)
        mbar_expect_tx(smem_u32(&s.joined), C * BT * 4);
    if (to < C) {
        const float4 f = *(const float4 *)&s.amax[g];
        st_async4(mapa(smem_u32(&s.all[rank * BT + g]), to), f.x, f.y, f.z, f.w,
                  mapa(smem_u32(&s.joined), to));
    }
}

/* The amax of a token, or of all, in all of K. */
template <int BT, int C>
DEV uint32_t joined_amax(const slice_quantizer &s, int token, int m, bool one_for_all)
{
    const int first = one_for_all ? 0 : token, end = one_for_all ? m : first + 1;
    uint32_t most = 0;
    for (int t = first; t < end; t++)
#pragma unroll
        for (int i = 0; i < C; i++)
            most = max(most, C > 1 ? s.all[i * BT + t] : s.amax[t]);
    return most;
}

/* Scale and encoder of a unit. The usual ones take few instructions: they are waited for. */
DEV float unit_of(const quantize_args &q, uint32_t amax, encoder *e)
{
    float scale;
    if (short_unit_of(q, amax, &scale, e))
        return scale;
    const fp8_unit_scale unit = scale_of(q, amax);
    *e = encoder_of(q, unit.operand);
    return unit.scale;
}

/* Whether it has waited for the cluster. All of 256 threads. The code is short: each instruction
 * is executed a few times only, and comes from the L2 cache. */
template <int IN, int BT, bool BLOCK, int C>
DEV bool quantize_slice(const quantize_args &q, const x_slice &x, slice_quantizer &s)
{
    /* Tokens, and packets of each, that a thread holds. */
    constexpr int T = BT / 8, HELD = 8;
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int side = (x.m > 1) + (x.m > 2) + (x.m > 4); /* 2^side tokens at once */
    const int token0 = warp & ((1 << side) - 1), step = 256 >> side, first = (warp >> side) * 32;
    const int units = x.nk * 16, inside = min(units, x.k / 8 - x.kb0 * 16); /* packets */
    const bool joins = !BLOCK && !q.is_static, usual = is_usual(q) && !q.multiply;
    auto at = [&](int i, int j) {
        packet<IN> p = zero_packet<IN>();
        if (token0 + 8 * i < x.m && j < inside) {
            const uint4 v = __ldcg((const uint4 *)row_of<IN>(q, token0 + 8 * i) + x.kb0 * 16 + j);
            p.word[0] = v.x;
            p.word[1] = v.y;
            p.word[2] = v.z;
            p.word[3] = v.w;
        }
        return p;
    };
    encoder e[T]; /* of the tokens here */
    float scale;  /* what the formula reads is at hand once it is needed */
    const bool is_short = short_unit_of(q, __float_as_uint(1.0f), &scale, &e[0]);
    pdl_wait_with((uint32_t)(uintptr_t)row_of<IN>(q, token0) | (uint32_t)usual |
                  (uint32_t)is_short | __float_as_uint(e[0].inverse) | __float_as_uint(scale) |
                  0x80000000U);
    packet<IN> held[T][HELD];
    uint32_t most[T]; /* of a token here; the same in all lanes */
    auto hold = [&](int j0) {
#pragma unroll
        for (int i = 0; i < T; i++)
#pragma unroll
            for (int h = 0; h < HELD; h++)
                held[i][h] = at(i, j0 + h * step + lane);
    };
    hold(first);
    if (!BLOCK) { /* the largest of a token: of the lanes, the warps, the cluster */
#pragma unroll
        for (int i = 0; i < T; i++) {
            uint32_t pairs = 0;
#pragma unroll
            for (int h = 0; h < HELD; h++)
                pairs = raise(pairs, held[i][h]);
            for (int j = first + HELD * step; j < inside; j += step)
                pairs = raise(pairs, at(i, j + lane));
            most[i] = __reduce_max_sync(~0u, settle<IN>(pairs));
            uint32_t kept = most[i];
            if (kept >= INFINITY_BITS && q.keep != FP8_KEEP_ALL) {
                kept = 0;
#pragma unroll 1
                for (int j = first; j < inside; j += step)
                    kept = max(kept, kept_magnitude(q, at(i, j + lane)));
                kept = __reduce_max_sync(~0u, kept);
            }
            if (joins && lane == 0 && token0 + 8 * i < x.m)
                atomicMax(&s.amax[token0 + 8 * i], kept);
        }
        bar_named(1, 256);
        if (C > 1 && joins) {
            cluster_wait();
            send_amaxes<BT, C>(s, x.rank);
            mbar_wait_cluster(smem_u32(&s.joined), 0);
        }
#pragma unroll
        for (int i = 0; i < T; i++) {
            const int token = token0 + 8 * i;
            if (q.is_static) {
                scale = load_element(q.scales, 0, 0);
                e[i] = encoder_of(q, static_operand(q, 0, 0));
            } else
                scale = unit_of(q, joined_amax<BT, C>(s, token, x.m, q.grid_rows == 1), &e[i]);
            if (tid < 32 << side && lane == 0)
                s.scale[token] = scale;
        }
    }
#pragma unroll 1
    for (int j0 = first;;) {
        encoder my; /* BLOCK: lane l reckons for packet l % 16 of those held */
        bool rare = false;
        /* Whether divided_codes_of may take what is not above the magnitude. */
        auto is_rare = [&](const encoder &of, uint32_t magnitude) {
            return !usual || of.inverse <= 0 || magnitude >= __float_as_uint(of.operand * 0x1p20f);
        };
        if (BLOCK) {
            uint32_t my_amax = 0, my_most = 0;
#pragma unroll
            for (int n = 0; n < T * HELD; n++) {
                uint32_t amax = settle<IN>(raise(0, held[n / HELD][n % HELD]));
#pragma unroll
                for (int o = 1; o < 16; o *= 2)
                    amax = max(amax, __shfl_xor_sync(~0u, amax, o));
                if (lane % 16 == n)
                    my_most = amax;
            }
            my_amax = my_most;
            const bool lacks = my_most >= INFINITY_BITS && q.keep != FP8_KEEP_ALL;
            if (__any_sync(~0u, lacks))
#pragma unroll 1
                for (int n = 0; n < T * HELD; n++) {
                    uint32_t kept = kept_magnitude(q, at(n / HELD, j0 + n % HELD * step + lane));
#pragma unroll 1
                    for (int o = 1; o < 16; o *= 2)
                        kept = max(kept, __shfl_xor_sync(~0u, kept, o));
                    if (lane % 16 == n)
                        my_amax = kept;
                }
            const int token = token0 + lane % 16 / HELD * 8,
                      j = j0 + lane % 16 % HELD * step + lane;
            scale = unit_of(q, my_amax, &my);
            if (lane % 16 < T * HELD && token < x.m && j < units) {
                x.scales[j / 16 * BT + token] = scale;
                rare = is_rare(my, my_most);
            }
        } else
#pragma unroll
            for (int i = 0; i < T; i++)
                rare |= token0 + 8 * i < x.m && is_rare(e[i], most[i]);
        auto put = [&](int i, int j, uint2 codes) {
            const int token = token0 + 8 * i;
            if (token < x.m && j < units)
                *(uint2 *)(x.codes + j / 16 * (BT * 128) + token * 128 +
                           ((j / 2 % 8) ^ (token % 8)) * 16 + j % 2 * 8) =
                    j < inside ? codes : make_uint2(0, 0);
        };
        auto from = [&](float of_lane, int n) {
            return __shfl_sync(~0u, of_lane, lane / 16 * 16 + n);
        };
        if (__any_sync(~0u, rare)) { /* read again, so that nothing is held meanwhile */
#pragma unroll 1
            for (int n = 0; n < T * HELD; n++) {
                const int i = n / HELD, j = j0 + n % HELD * step + lane;
                const float operand = BLOCK ? from(my.operand, n) : e[i].operand;
                const float inverse = BLOCK ? from(my.inverse, n) : e[i].inverse;
                const packet<IN> p = at(i, j);
                uint2 codes;
                encode_packet(q, p, {operand, inverse}, settle<IN>(raise(0, p)), (uint8_t *)&codes);
                put(i, j, codes);
            }
        } else {
#pragma unroll
            for (int h = 0; h < HELD; h++)
                if (j0 + h * step < units) /* the same in all lanes */
#pragma unroll
                    for (int i = 0; i < T; i++) {
                        if (BLOCK)
                            e[i] = {from(my.operand, i * HELD + h), from(my.inverse, i * HELD + h)};
                        put(i, j0 + h * step + lane, divided_codes_of(held[i][h], e[i]));
                    }
        }
        j0 += HELD * step;
        if (j0 >= units)
            break;
        hold(j0);
    }
    fence_async_smem();
    bar_named(1, 256);
    return C > 1 && joins;
}

#endif
