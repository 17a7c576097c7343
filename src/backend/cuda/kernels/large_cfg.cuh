/* SPDX-License-Identifier: Apache-2.0
 *
 * large_cfg.cuh - of gemm_large.cuh: what a version is, in numbers. */
#ifndef FP8_KERNELS_LARGE_CFG_CUH
#define FP8_KERNELS_LARGE_CFG_CUH

#include "backend/cuda/kernels/sm90.cuh"
#include "backend/cuda/sm90_args.h"

extern __shared__ __align__(1024) uint8_t sm[]; /* all of a block */

template <int BM_, int BN_, int ST, int CM, int CN, int SLICES_, int SPLIT, int SUMS, bool AHEAD>
struct large_cfg {
    static constexpr int BM = BM_, BN = BN_, SLICES = SLICES_;
    static constexpr bool DEPTH = SPLIT == FP8_LARGE_DEPTH;
    static constexpr bool BLOCK = SUMS == FP8_SUMS_BLOCK, FAST = SUMS == FP8_SUMS_FAST;
    /* of a group: rows, m64 tiles, columns that it stores; sums of a thread in an m64 tile */
    static constexpr int GM = SPLIT == FP8_LARGE_ROWS ? BM / 2 : BM, MT = GM / 64;
    static constexpr int GN = fp8_large_group_cols(BN, SPLIT), R = BN / 2;
    static constexpr int SLAB = fp8_large_slab(BN, SPLIT, BLOCK), SLABS = GN / SLAB;
    static constexpr int A = BM * 128, B = BN * 128, SF = BLOCK ? BM * 4 : 0;
    static constexpr int PEERS = CM + CN - 1; /* blocks that wait for a stage of this one */
    static constexpr int RELEASES = SPLIT == FP8_LARGE_ROWS ? 2 : 1; /* of a group each */
    /* A tile may lie in two blocks of W; where the second begins is a multiple of EDGE columns. */
    static constexpr bool TWO = BLOCK && 128 % BN != 0;
    static constexpr int EDGE = BN % 32 ? 16 : 32;
    /* Y goes from registers to memory, not by bulk copies. */
    static constexpr bool DIRECT = fp8_large_direct(BM, BN, SLICES);
    static constexpr int BUFFER = fp8_large_buffer(BN, SPLIT, BLOCK);
    static constexpr int PARTS = MT * SLABS; /* of a group's tile, stored one after the other */
    static constexpr int BUFFERS = fp8_large_buffers(BM, BN, ST, SPLIT, BLOCK);
    /* Registers for products ahead are there for half of the columns. */
    static constexpr bool HALVES = AHEAD && BN > 144;
    static constexpr int SWAP = fp8_large_exchange(BN, SPLIT);
    static_assert(fp8_large_shared(BM, BN, ST, SLICES, SPLIT, BLOCK) <= FP8_SHARED_MOST,
                  "shared memory");
    /* Of a tile where slices of K meet: parts of 16 rows, warps that have part of the columns of
     * each, bytes that a warp sends. */
    static constexpr int SIXTEENS = BM / 16, PER_PART = SPLIT == FP8_LARGE_DEPTH ? 2 : 1;
    static constexpr int SENT = fp8_large_sent(BN, SPLIT),
                         OWNED = fp8_large_owned(BM, SLICES, SPLIT),
                         RECEIVED = fp8_large_received(BM, BN, SLICES, SPLIT);
    static constexpr int COLS = fp8_large_of_cols(BM, BN, SLICES);
    static_assert(SLICES == 1 || (CM * CN == 1 && DIRECT && MT == 1 && 8 * SENT <= ST * (A + B)),
                  "the ring holds what is sent");
    static_assert(DIRECT || BUFFERS == PARTS || BUFFERS >= 2, "a buffer to write");
    static_assert(BM / CN % 8 == 0 && BN / CM % 8 == 0 && GN % SLAB == 0 && GM % 64 == 0 &&
                      ST <= 16,
                  "parts of a tile");
    static_assert(SPLIT != FP8_LARGE_DEPTH || (MT == 1 && ST % 2 == 0),
                  "a stage belongs to one group");
    static_assert(FAST || SPLIT != FP8_LARGE_TILES,
                  "additions need the other group's products beside them");
    static_assert(!HALVES || SPLIT == FP8_LARGE_ROWS, "every k block");
    static_assert(!AHEAD || (MT == 1 && !FAST), "registers for products of two k blocks");
};

#endif
