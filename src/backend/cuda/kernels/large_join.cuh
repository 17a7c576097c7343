/* SPDX-License-Identifier: Apache-2.0
 *
 * large_join.cuh - of gemm_large.cuh: sums of a tile that several thread blocks make, of a slice of
 * K each. */
#ifndef FP8_KERNELS_LARGE_JOIN_CUH
#define FP8_KERNELS_LARGE_JOIN_CUH

#include "backend/cuda/kernels/large_cfg.cuh"

/* Slices of K: the sums of part `part` of PARTS of a tile, 16 rows of it in the R registers of a
 * warp's lanes each, meet in one block of the cluster: 0 in the others. There they are added by
 * rank. `place`: of this warp's part among those that a block adds; what is sent is in `own`
 * meanwhile, R * 128 bytes; bars, received: of all parts, the same in all blocks. */
template <int SLICES, int PARTS, int R>
DEV bool join_slices(float (&sums)[R], int slice, int part, int place, uint8_t *own,
                     uint8_t *received, uint32_t bars)
{
    constexpr int BYTES = R * 128;
    const int owner = part * SLICES / PARTS, lane = threadIdx.x % 32;
    uint8_t *const in = received + place * (SLICES - 1) * BYTES;
    const uint32_t bar = bars + (uint32_t)place * 8;
    if (owner != slice) {
#pragma unroll
        for (int i = 0; i < R; i += 4)
            ((float4 *)own)[i * 8 + lane] =
                make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
        fence_async_smem();
        __syncwarp();
        if (lane == 0)
            bulk_to_cta(
                mapa(smem_u32(in) + (uint32_t)((slice - (slice > owner)) * BYTES), (uint32_t)owner),
                smem_u32(own), BYTES, mapa(bar, (uint32_t)owner));
        __syncwarp();
        return false;
    }
    if (lane == 0)
        mbar_expect_tx(bar, (SLICES - 1) * BYTES);
    mbar_wait_cluster(bar, 0);
#pragma unroll
    for (int i = 0; i < R; i += 4) {
        const float4 mine = make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
        float4 s[SLICES];
#pragma unroll
        for (int q = 0; q < SLICES; q++)
            s[q] = q == slice ? mine
                              : ((const float4 *)(in + (q - (q > slice)) * BYTES))[i * 8 + lane];
#pragma unroll
        for (int q = 1; q < SLICES; q++)
            s[0] = make_float4(s[0].x + s[q].x, s[0].y + s[q].y, s[0].z + s[q].z, s[0].w + s[q].w);
        sums[i] = s[0].x;
        sums[i + 1] = s[0].y;
        sums[i + 2] = s[0].z;
        sums[i + 3] = s[0].w;
    }
    return true;
}

/* acc[16, GN] of a warp, of the slice, meets those of the others: whether in this block. */
template <class c>
DEV bool join_tile(float (&acc)[c::R], int slice, int warp, uint8_t *received, uint32_t arrived)
{
    const int wg = warp / 4, part = c::DEPTH ? warp % 4 : warp;
    const int owner = part * c::SLICES / c::SIXTEENS;
    const int first = (owner * c::SIXTEENS + c::SLICES - 1) / c::SLICES; /* of the owner's */
    const int place = (part - first) * c::PER_PART + (c::DEPTH ? wg : 0);
    float(&sums)[c::GN / 2] = *(float(*)[c::GN / 2]) acc;
    return join_slices<c::SLICES, c::SIXTEENS>(sums, slice, part, place, sm + warp * c::SENT,
                                               received, arrived);
}

#endif
