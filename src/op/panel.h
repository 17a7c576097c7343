/* SPDX-License-Identifier: Apache-2.0
 *
 * panel.h - a weight as the matmul kernels read it, and what such a kernel does.
 *
 * The codes W[N,K] are cut into panels of 16 rows, a panel into blocks of 4 columns, 64 bytes each:
 *
 *     byte 16*l + 8*h + 2*r + c of block q of panel p  =  W[16p + 4l + r, 4q + 2h + c]
 *
 * so that interleaving the bytes of a block with zeros (or with a second byte, looked up) gives two
 * vectors of 16 rows x 2 neighbouring columns in 16 bits each, what a bf16 dot product takes, and
 * their upper and lower halves are 16 rows of one column in fp32. Panels follow each other; rows
 * beyond N and columns beyond K are zero codes. The form is the same for every instruction set. */
#ifndef FP8_OP_PANEL_H
#define FP8_OP_PANEL_H

#include "base/context.h"
#include "base/size.h"

#include <stdbool.h>

enum {
    FP8_PANEL_ROWS = 16,  /* of W in a panel */
    FP8_PANEL_COLS = 4,   /* of W in a block */
    FP8_PANEL_BYTES = 64, /* of a block */
    FP8_PANEL_GROUP = 4,  /* panels that a kernel takes at once, at most */
    FP8_TILE_COLS = 64,   /* columns of the kernel's result: a group's rows of W */
    FP8_X_PAD = 32,       /* rows of prepared X are padded with zeros to a multiple of this */
    FP8_FOLD_MOST = 60,   /* of w_fold */
};

enum { FP8_ALIGN = 64 }; /* bytes, of what kernels are given */

static inline uint64_t fp8_align(uint64_t bytes)
{
    return (bytes + FP8_ALIGN - 1) / FP8_ALIGN * FP8_ALIGN;
}

/* Bytes of one panel of a weight with k columns. */
static inline int64_t fp8_panel_stride(int64_t k)
{
    return fp8_ceil_div(k, FP8_PANEL_COLS) * FP8_PANEL_BYTES;
}

/* Offset of the code of W[n,k'] in the packed weight with k columns. */
static inline int64_t fp8_panel_offset(int64_t n, int64_t col, int64_t k)
{
    const int64_t row = n % FP8_PANEL_ROWS, c = col % FP8_PANEL_COLS;
    return n / FP8_PANEL_ROWS * fp8_panel_stride(k) + col / FP8_PANEL_COLS * FP8_PANEL_BYTES +
           row / 4 * 16 + c / 2 * 8 + row % 4 * 2 + c % 2;
}

/* c[m, 64] = (or +=) x[m,k] w[16 * panels, k]^T for one group of panels and some columns of both.
 * Unless `cuts` is 0, columns [cut[s], cut[s+1]) form a segment, whose sum for (i,j) counts
 * x_scale[i,s] * w_scale[s,j] times. Sums are fp32, in an order that depends on the kernel, k and
 * the cuts alone: not on m, nor on the row's place. Kernels for x in F32 may multiply the weights
 * by w_scale before they multiply x. Only the columns of the panels given are written.
 *
 * With w_fold, for x in BF16, a weight of segment s counts 2^-w_fold[s,j] times, which is exact in
 * bf16; there are no other scales, and one sum goes through all segments. */
typedef struct fp8_panel_run {
    const void *x;    /* [m,k] BF16 or F32 as the kernel's row says; 64-byte aligned rows, zero from
                         the last column of X to the next multiple of FP8_X_PAD */
    int64_t x_stride; /* elements from row to row, a multiple of FP8_X_PAD */
    const uint8_t *w; /* the first block of the first panel; 64-byte aligned */
    int64_t w_stride; /* bytes from panel to panel */
    float *c;         /* 64-byte aligned */
    int64_t m, k;     /* k is a multiple of 4; the codes beyond the last column are zero */
    int64_t panels;   /* 1..FP8_PANEL_GROUP */
    bool accumulate;
    int64_t cuts;           /* segments */
    const int64_t *cut;     /* [cuts + 1]: 0 .. k */
    const float *x_scale;   /* [m, cuts]; NULL = ones, and always with x in F32 */
    int64_t x_scale_stride; /* elements from row to row */
    const float *w_scale;   /* [cuts, 64]; NULL = ones; 64-byte aligned */
    const uint8_t *w_fold; /* [cuts, 64] 0..FP8_FOLD_MOST, or NULL; 64-byte aligned; not for E5M2 */
    fp8_dtype code;        /* E4M3FN, E4M3FNUZ, E5M2 */
    fp8_dtype rounded;     /* with x in F32: BF16 or F16, to which weight times scale is rounded;
                              NONE = not */
    void *scratch;         /* of the kernel's scratch_bytes, 64-byte aligned */
} fp8_panel_run;
typedef void fp8_kernel_panel(const fp8_panel_run *run);

/* A row of the list of such kernels; the list is in order of preference within a level. NaN codes
 * of W count as any number: who prepares a weight marks their rows (linear.h). */
typedef struct fp8_panel_kernel {
    const char *name;
    fp8_isa isa;
    fp8_dtype x;          /* BF16 or F32 */
    int64_t min_m, max_m; /* rows of X that it is meant for; it works for any */
    int64_t cut_multiple; /* every cut but the last must be a multiple of this */
    int64_t rows;         /* of X in one call, at most, for the result to stay in the cache */
    int64_t cols;         /* of W in one call, at most, >= 256: its scratch holds so many decoded */
    int64_t scratch_bytes;
    fp8_kernel_panel *fn;
} fp8_panel_kernel;

/* Row i of the list, NULL past the last. Any thread. */
const fp8_panel_kernel *fp8_panel_kernel_at(size_t i);

/* y[j] = the epilogue of c[j] for 0 <= j < n of one row, docs/numerics.md:
 *   FUSED  round(fma(sx, sw[j] * c[j], bias[j]))  (without bias: round(sx * (sw[j] * c[j])))
 *   others ((c[j] * sx) * sw[j]), rounded before the bias too with BIAS_LAST. */
typedef struct fp8_finish_run {
    const float *c;
    float x_scale;
    const float *w_scale; /* [n], NULL = ones */
    const float *bias;    /* [n], NULL = none */
    void *y;              /* contiguous for all but the reference; no alignment */
    int64_t n, y_stride;
    fp8_dtype y_dtype;
    fp8_epilogue epilogue;
} fp8_finish_run;
typedef void fp8_kernel_finish(const fp8_finish_run *run);

#endif
