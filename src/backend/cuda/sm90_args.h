/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_args.h - what gemm_small.cu and gemm_large.cu are told, and the lists of their instances
 * with the sizes that host and kernels must agree about; see kernel_args.h. All matrices are
 * row-major: X[M,K] and W[N,K] e4m3fn, Y[M,N] in y_dtype: bf16,
 * fp16 or fp32. */
#ifndef FP8_BACKEND_CUDA_SM90_ARGS_H
#define FP8_BACKEND_CUDA_SM90_ARGS_H

#include "backend/cuda/kernel_args.h"
#include "number/number.h"

#ifdef __cplusplus
#define FP8_SIZE constexpr int /* of shared memory, in bytes, or of tiles */
#else
#define FP8_SIZE static inline int
#endif

/* A descriptor of a tensor for bulk copies, made by cuTensorMapEncodeTiled. NVIDIA's type has an
 * alignment that depends on the toolkit; this is the strictest. */
typedef struct fp8_tensor_map {
#ifdef __cplusplus
    alignas(128)
#else
    _Alignas(128)
#endif
        uint64_t opaque[16];
} fp8_tensor_map;
FP8_ARGS_SIZE(fp8_tensor_map, 128);

/* Scales: a row of X and a row of W each (sums are added in fp32 every 128 of K), or, in block
 * kernels, 1x128 of X and 128x128 of W, multiplied into the sums of each 128 of K. */
typedef struct fp8_sm90_scales {
    const float *x;    /* [M] with a step of x_step (0: one for all), or [K/128][x_stride] */
    const float *w;    /* [N], or [N/128][K/128] */
    const float *bias; /* [N] or NULL */
    int32_t x_step, x_stride;
} fp8_sm90_scales;
FP8_ARGS_SIZE(fp8_sm90_scales, 32);

/* Divides by d >= 1 by a multiplication. */
typedef struct fp8_divider {
    int32_t d;
    uint32_t inverse; /* floor((2^32 - 1) / d) + 1; of 1 unused */
} fp8_divider;
FP8_NUMBER_FN fp8_divider fp8_divider_of(int32_t d)
{
    fp8_divider by;
    by.d = d;
    by.inverse = UINT32_MAX / (uint32_t)d + 1;
    return by;
}
/* t / d for 0 <= t < 2^31. What is multiplied by is at most 1 too much, of 2^32, so the product is
 * less than t / 2^32 too much: the quotient or, from t * d = 2^32 on, perhaps one more. */
FP8_NUMBER_FN int32_t fp8_divide(int32_t t, fp8_divider by)
{
    const uint32_t dividend = (uint32_t)t, d = (uint32_t)by.d;
    const uint32_t q = (uint32_t)((uint64_t)dividend * by.inverse >> 32);
    return d == 1 ? t : (int32_t)(q - (q * d > dividend));
}

/* ---- gemm_large.cuh ---- */

typedef struct fp8_large_args {
    fp8_tensor_map x, w, y;  /* boxes: rows / across x 128, cols / down x 128, 64 x slab */
    fp8_tensor_map x_scales; /* block: a box is `rows` scales of one k block */
    fp8_sm90_scales scales;
    void *y_plain; /* set where a bulk copy cannot store Y; it never stores fp32 */
    int64_t y_stride;
    int32_t m, n, k;
    int32_t group;               /* tiles down that are walked before the next ones across */
    int32_t late;                /* k blocks by which the second group of warps starts later */
    int32_t last_m, last_n;      /* where the last tiles begin: they go over rows of others again
                                    rather than past the end, which copies are slow to fill with zeros */
    int32_t x_bytes;             /* that copies bring of X for a stage, scales included */
    int32_t down, across;        /* tiles of a cluster in all */
    fp8_divider per, full, last; /* by group * across, by group, by the rows of the last group */
    int32_t y_dtype;             /* fp8_dtype */
} fp8_large_args;
FP8_ARGS_SIZE(fp8_large_args, 640);

/* How the two groups of warps share the work: half of a tile's rows each, or every second k block,
 * or every second tile. */
enum { FP8_LARGE_ROWS, FP8_LARGE_DEPTH, FP8_LARGE_TILES };
/* How sums are made: added in fp32 every 128 of K, with a scale a row and channel at the end; the
 * same, times the scales of blocks; or all by the tensor cores, in 13 bits. */
enum { FP8_SUMS_CHANNEL, FP8_SUMS_BLOCK, FP8_SUMS_FAST };

/* X(rows, cols, stages, down, across, split, ahead, late): a tile of rows of X by rows of W; a ring
 * of so many k blocks; tiles of a cluster; the products of a k block are under way while those of
 * the one before are added. */
/* clang-format off */
#define FP8_LARGE_CHANNEL(X)                   \
    X(64, 64, 12, 1, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(64, 64, 12, 2, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(64, 128, 6, 1, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(64, 80, 10, 1, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(128, 64, 8, 1, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 64, 8, 2, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 80, 8, 1, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 96, 7, 1, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 96, 7, 2, 2, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 112, 6, 2, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 128, 6, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 128, 6, 2, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 128, 6, 1, 2, FP8_LARGE_ROWS, 1, 2) \
    X(128, 136, 5, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 144, 5, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 160, 5, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 192, 4, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(256, 128, 4, 1, 1, FP8_LARGE_ROWS, 0, 2)
#define FP8_LARGE_BLOCK(X)                     \
    X(64, 64, 10, 1, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(64, 64, 10, 2, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(64, 80, 10, 1, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(64, 128, 6, 1, 1, FP8_LARGE_DEPTH, 1, 0) \
    X(128, 64, 8, 1, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 64, 8, 2, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 80, 8, 1, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 96, 7, 1, 1, FP8_LARGE_ROWS, 1, 2)  \
    X(128, 128, 6, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 160, 5, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(128, 192, 4, 1, 1, FP8_LARGE_ROWS, 1, 2) \
    X(256, 128, 4, 1, 1, FP8_LARGE_ROWS, 0, 2)
#define FP8_LARGE_FAST(X)                       \
    X(128, 64, 8, 1, 1, FP8_LARGE_ROWS, 0, 2)   \
    X(128, 128, 6, 1, 2, FP8_LARGE_TILES, 0, 0) \
    X(128, 128, 6, 2, 1, FP8_LARGE_TILES, 0, 0) \
    X(128, 160, 5, 1, 1, FP8_LARGE_TILES, 0, 0) \
    X(128, 160, 5, 2, 1, FP8_LARGE_TILES, 0, 0) \
    X(128, 224, 4, 1, 1, FP8_LARGE_ROWS, 0, 2)
/* X(rows, cols, stages, slices, split): a tile of a cluster of so many blocks, which share K; its
 * groups start together, and its products are ahead. */
#define FP8_JOINED_CHANNEL(X)          \
    X(64, 64, 12, 2, FP8_LARGE_DEPTH)  \
    X(64, 64, 12, 3, FP8_LARGE_DEPTH)  \
    X(64, 64, 12, 4, FP8_LARGE_DEPTH)  \
    X(64, 80, 10, 2, FP8_LARGE_DEPTH)  \
    X(128, 64, 8, 2, FP8_LARGE_ROWS)   \
    X(128, 128, 6, 2, FP8_LARGE_ROWS)
#define FP8_JOINED_BLOCK(X)            \
    X(64, 64, 10, 2, FP8_LARGE_DEPTH)  \
    X(64, 64, 10, 3, FP8_LARGE_DEPTH)  \
    X(64, 64, 10, 4, FP8_LARGE_DEPTH)  \
    X(64, 80, 10, 2, FP8_LARGE_DEPTH)  \
    X(128, 64, 8, 2, FP8_LARGE_ROWS)   \
    X(128, 128, 5, 2, FP8_LARGE_ROWS)
/* clang-format on */

enum { FP8_LARGE_THREADS = 384, FP8_SHARED_MOST = 232448 /* bytes of a block on sm_90 */ };

/* Columns of Y that a group stores, and those of one of its bulk copies. */
FP8_SIZE fp8_large_group_cols(int cols, int split)
{
    return split == FP8_LARGE_DEPTH ? cols / 2 : cols;
}
FP8_SIZE fp8_large_slab(int cols, int split, int block)
{
    return fp8_large_group_cols(cols, split) % 16            ? fp8_large_group_cols(cols, split)
           : fp8_large_group_cols(cols, split) % 32          ? 16
           : fp8_large_group_cols(cols, split) % 64 || block ? 32
                                                             : 64;
}
/* Whether Y goes from registers to memory: the smallest tiles, and where slices of K meet. */
FP8_SIZE fp8_large_direct(int rows, int cols, int slices)
{
    return slices > 1 || (rows == 64 && cols <= 80);
}
/* Scales of the columns of a tile, for each group; biases, too, where Y is not stored by copies. */
FP8_SIZE fp8_large_of_cols(int rows, int cols, int slices)
{
    return (fp8_large_direct(rows, cols, slices) ? 4 : 2) * cols * 4;
}
/* Of an output buffer. */
FP8_SIZE fp8_large_buffer(int cols, int split, int block)
{
    return 64 * fp8_large_slab(cols, split, block) * 2;
}
/* Of the sums that groups exchange which take every second k block. */
FP8_SIZE fp8_large_exchange(int cols, int split)
{
    return split == FP8_LARGE_DEPTH ? 64 * cols * 4 : 0;
}
/* Of one stage of the ring; scales have two places in turn, so that who frees a stage need not know
 * that all warps have read theirs. */
FP8_SIZE fp8_large_stage(int rows, int cols, int block)
{
    return rows * 128 + cols * 128 + (block ? 2 * rows * 4 : 0);
}
/* Where slices of K meet: bytes of a warp's sums, 16 rows of the tile; how many of these a block
 * adds at most, and what it gets for them. */
FP8_SIZE fp8_large_sent(int cols, int split)
{
    return 16 * fp8_large_group_cols(cols, split) * 4;
}
FP8_SIZE fp8_large_owned(int rows, int slices, int split)
{
    return (rows / 16 + slices - 1) / slices * (split == FP8_LARGE_DEPTH ? 2 : 1);
}
FP8_SIZE fp8_large_received(int rows, int cols, int slices, int split)
{
    return (slices - 1) * fp8_large_owned(rows, slices, split) * fp8_large_sent(cols, split);
}
/* All but the output buffers. */
FP8_SIZE fp8_large_fixed(int rows, int cols, int stages, int slices, int split, int block)
{
    return stages * fp8_large_stage(rows, cols, block) + fp8_large_exchange(cols, split) +
           fp8_large_of_cols(rows, cols, slices) + 256 +
           (slices > 1 ? 64 + fp8_large_received(rows, cols, slices, split) : 0);
}
/* Output buffers of a group: one for each part of a tile that it stores, or as many as there is
 * room for. */
FP8_SIZE fp8_large_buffers(int rows, int cols, int stages, int split, int block)
{
    const int parts = (split == FP8_LARGE_ROWS ? rows / 128 : rows / 64) *
                      (fp8_large_group_cols(cols, split) / fp8_large_slab(cols, split, block));
    const int room = (FP8_SHARED_MOST - fp8_large_fixed(rows, cols, stages, 1, split, block)) /
                     (2 * fp8_large_buffer(cols, split, block));
    return parts < room ? parts : room;
}
FP8_SIZE fp8_large_shared(int rows, int cols, int stages, int slices, int split, int block)
{
    return fp8_large_fixed(rows, cols, stages, slices, split, block) +
           (fp8_large_direct(rows, cols, slices)
                ? 0
                : 2 * fp8_large_buffers(rows, cols, stages, split, block) *
                      fp8_large_buffer(cols, split, block));
}

/* ---- gemm_small.cuh ---- */

typedef struct fp8_small_args {
    fp8_tensor_map w, x;     /* boxes: rows x 128, x_rows x 128 */
    fp8_tensor_map x_scales; /* block: a box is `tokens` scales of one k block */
    fp8_tensor_map y;        /* box: store_rows x 64 */
    fp8_sm90_scales scales;
    const uint8_t *x_codes; /* [M, x_codes_stride], where X stays in shared memory */
    void *y_plain;          /* [M, y_stride], where bulk copies do not store it */
    int64_t x_codes_stride, y_stride;
    int32_t m, n, k;
    int32_t stages, prefetch; /* of the ring; and past it, asked into L2 at the start */
    int32_t x_rows;           /* of the box of X: min(m, tokens), so that no box lies outside */
    int32_t by_bulk;          /* Y is stored through its map, where tiles are wide; not fp32 */
    int32_t y_dtype;          /* fp8_dtype */
    int32_t rounds, rest;     /* tiles of each cluster; and one more of the first `rest` */
    int32_t pace;             /* clocks from a stage of W to the next, in the first ring */
} fp8_small_args;
FP8_ARGS_SIZE(fp8_small_args, 640);

/* Where a kernel quantizes X itself; x.codes and, but for static ones, x.scales are not used. */
typedef struct fp8_small_quantize_args {
    fp8_small_args small;
    fp8_cuda_quantize_args x;
    uint8_t unused[88];
} fp8_small_quantize_args;
FP8_ARGS_SIZE(fp8_small_quantize_args, 1024);

/* X(rows, tokens, split): a tile of rows of W by tokens, and how many blocks of a cluster share K.
 */
/* clang-format off */
#define FP8_SMALL_RESIDENT(X) /* whose X stays in shared memory */                              \
    X(64, 8, 1) X(64, 8, 2) X(64, 8, 3) X(64, 8, 4) X(64, 8, 8)
#define FP8_SMALL_STREAMED(X)                                                                   \
    X(64, 16, 1) X(64, 16, 2) X(64, 16, 3) X(64, 16, 4) X(64, 16, 8)                            \
    X(64, 32, 1) X(64, 32, 2) X(64, 32, 3) X(64, 32, 4) X(64, 32, 8)                            \
    X(64, 64, 1) X(64, 64, 2) X(64, 64, 3) X(64, 64, 4)                                         \
    X(64, 128, 1) X(64, 128, 2) X(64, 128, 3) X(64, 128, 4)                                     \
    X(128, 64, 1)                                                                               \
    X(128, 128, 1) X(128, 128, 2) X(128, 128, 3) X(128, 128, 4)
#define FP8_SMALL_INSTANCES(X) FP8_SMALL_RESIDENT(X) FP8_SMALL_STREAMED(X)
/* clang-format on */

enum { FP8_SMALL_STAGES = 16, FP8_SMALL_STATIC = 4096 /* bytes that are not dynamic, at most */ };

/* The groups of warps take alternate k blocks of a stage (else they share rows or tokens). */
FP8_SIZE fp8_small_halves_k(int rows, int tokens)
{
    return rows == 64 && tokens <= 32;
}
/* The slice of X stays in shared memory; else it comes with W, and the first products need not wait
 * for all of it. */
FP8_SIZE fp8_small_resident(int tokens)
{
    return tokens <= 8;
}
FP8_SIZE fp8_small_blocks(int rows, int tokens) /* k blocks of a stage */
{
    return fp8_small_halves_k(rows, tokens) ? 2 : 1;
}
FP8_SIZE fp8_small_per_sm(int rows, int tokens) /* blocks that an SM may hold */
{
    return rows == 64 && tokens <= 64 ? 2 : 1;
}
FP8_SIZE fp8_small_threads(int rows, int tokens) /* whole groups where registers move */
{
    return fp8_small_per_sm(rows, tokens) == 1 ? 384 : fp8_small_resident(tokens) ? 288 : 320;
}
FP8_SIZE fp8_small_group_tokens(int rows, int tokens) /* of a group of warps */
{
    return rows == 64 && !fp8_small_halves_k(rows, tokens) ? tokens / 2 : tokens;
}
FP8_SIZE fp8_small_warps(int rows, int tokens) /* that hold sums, once the halves of K are joined */
{
    return fp8_small_halves_k(rows, tokens) ? 4 : 8;
}
FP8_SIZE fp8_small_wide(int tokens) /* Y is stored by bulk copies */
{
    return tokens >= 64;
}
FP8_SIZE fp8_small_scale_row(int tokens) /* bytes of the scales of a k block */
{
    return tokens * 4 < 128 ? 128 : tokens * 4;
}
/* Of a stage: W, X, scales. */
FP8_SIZE fp8_small_w_bytes(int rows, int tokens)
{
    return fp8_small_blocks(rows, tokens) * rows * 128;
}
FP8_SIZE fp8_small_x_bytes(int rows, int tokens)
{
    return fp8_small_resident(tokens) ? 0 : fp8_small_blocks(rows, tokens) * tokens * 128;
}
FP8_SIZE fp8_small_scale_bytes(int rows, int tokens, int block)
{
    return block && !fp8_small_resident(tokens)
               ? fp8_small_blocks(rows, tokens) * fp8_small_scale_row(tokens)
               : 0;
}
FP8_SIZE fp8_small_stage(int rows, int tokens, int block)
{
    return fp8_small_w_bytes(rows, tokens) + fp8_small_x_bytes(rows, tokens) +
           fp8_small_scale_bytes(rows, tokens, block);
}
/* Bytes a k block of the slice of X that stays. */
FP8_SIZE fp8_small_resident_bytes(int tokens, int block)
{
    return fp8_small_resident(tokens) ? tokens * (block ? 132 : 128) : 0;
}
/* Partial sums are owned by 8 tokens: groups of them that a block of the cluster owns, at most, and
 * what one block sends to one owner. */
FP8_SIZE fp8_small_owned(int rows, int tokens, int split)
{
    return (fp8_small_group_tokens(rows, tokens) / 8 + split - 1) / split;
}
FP8_SIZE fp8_small_region(int rows, int tokens, int split)
{
    return fp8_small_owned(rows, tokens, split) * fp8_small_warps(rows, tokens) * 512;
}
FP8_SIZE fp8_small_received(int rows, int tokens, int split)
{
    return (split - 1) * fp8_small_region(rows, tokens, split);
}
/* Partial sums by st.async (a low latency, 4 to 8 bytes a clock); else by bulk copies, which take
 * them from shared memory. */
FP8_SIZE fp8_small_direct(int tokens)
{
    return tokens <= 16;
}
FP8_SIZE fp8_small_staging(int rows, int tokens, int split)
{
    return fp8_small_direct(tokens) || split == 1 ? 0 : fp8_small_received(rows, tokens, split);
}
/* The second group's half of K, for two tiles; a tile of Y. */
FP8_SIZE fp8_small_pair(int rows, int tokens)
{
    return fp8_small_halves_k(rows, tokens) ? fp8_small_group_tokens(rows, tokens) * 512 : 0;
}
FP8_SIZE fp8_small_out(int rows, int tokens)
{
    return fp8_small_wide(tokens) ? fp8_small_group_tokens(rows, tokens) * 256 : 0;
}
/* Rows of the box by which Y is stored. */
FP8_SIZE fp8_small_store_rows(int rows, int tokens, int split)
{
    return fp8_small_group_tokens(rows, tokens) / 8 % split == 0
               ? 8 * fp8_small_owned(rows, tokens, split)
               : 8;
}
/* Where one tile a cluster is computed, the ring then holds the exchange: what it must have. */
FP8_SIZE fp8_small_in_ring(int tokens, int split)
{
    return fp8_small_wide(tokens) && split > 1;
}
FP8_SIZE fp8_small_exchange(int rows, int tokens, int split)
{
    return fp8_small_in_ring(tokens, split)
               ? fp8_small_received(rows, tokens, split) + fp8_small_staging(rows, tokens, split)
               : 0;
}
/* All but the ring and the slice of X. */
FP8_SIZE fp8_small_fixed(int rows, int tokens, int split, int block)
{
    return (fp8_small_wide(tokens)
                ? (split == 1 ? fp8_small_out(rows, tokens) : 0)
                : fp8_small_pair(rows, tokens) + fp8_small_received(rows, tokens, split) +
                      fp8_small_staging(rows, tokens, split)) +
           (fp8_small_scale_bytes(rows, tokens, block) ? 1024 : 0);
}

#endif
