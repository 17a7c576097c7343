/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.c - codes W[N,K] into panels and back; panel.h has the form. */
#include "op/pack.h"
#include "number/dtype.h"
#include "op/panel.h"

#include <string.h>

/* to = the bytes of a row from a column that is a multiple of 4 on. Two neighbouring codes of a row
 * are neighbours in a block too. */
static void copy_row(uint8_t *to, const uint8_t *codes, int64_t n)
{
    int64_t col = 0;
    for (; col + 4 <= n; col += 4, to += FP8_PANEL_BYTES) {
        memcpy(to, codes + col, 2);
        memcpy(to + 8, codes + col + 2, 2);
    }
    for (int64_t c = 0; c < n - col; c++)
        to[c / 2 * 8 + c % 2] = codes[col + c];
}

/* Two neighbouring codes of a row are a pair. */
typedef uint16_t pairs __attribute__((vector_size(16)));

enum { PAIR_COLS = 16 }; /* of four blocks in a row, eight pairs */

static pairs load_pairs(const uint8_t *codes)
{
    pairs made;
    memcpy(&made, codes, sizeof made);
    return made;
}

/* Four rows of four blocks: 16 bytes of each block, its first pairs of the rows and then its
 * second. */
static void copy_four_blocks(uint8_t *to, const uint8_t *codes, int64_t stride)
{
    const pairs a = load_pairs(codes), b = load_pairs(codes + stride);
    const pairs c = load_pairs(codes + 2 * stride), d = load_pairs(codes + 3 * stride);
    const pairs ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    const pairs cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 2, 10, 3, 11);
    const pairs ab2 = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    const pairs cd2 = __builtin_shufflevector(c, d, 4, 12, 5, 13, 6, 14, 7, 15);
    const pairs blocks[4] = {
        __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 2, 3, 10, 11),
        __builtin_shufflevector(ab, cd, 4, 5, 12, 13, 6, 7, 14, 15),
        __builtin_shufflevector(ab2, cd2, 0, 1, 8, 9, 2, 3, 10, 11),
        __builtin_shufflevector(ab2, cd2, 4, 5, 12, 13, 6, 7, 14, 15),
    };
    for (int64_t i = 0; i < 4; i++)
        memcpy(to + i * FP8_PANEL_BYTES, &blocks[i], sizeof blocks[i]);
}

/* Fours of rows of one panel, the first a multiple of 4: block after block, so that a block is
 * written once. */
static void copy_fours(uint8_t *to, const uint8_t *codes, int64_t stride, int64_t n, int64_t fours)
{
    const int64_t whole = n / PAIR_COLS * PAIR_COLS;
    for (int64_t col = 0; col < whole; col += PAIR_COLS)
        for (int64_t f = 0; f < fours; f++)
            copy_four_blocks(to + col / FP8_PANEL_COLS * FP8_PANEL_BYTES +
                                 f * (int64_t)sizeof(pairs),
                             codes + 4 * f * stride + col, stride);
    to += whole / FP8_PANEL_COLS * FP8_PANEL_BYTES;
    for (int64_t row = 0; row < 4 * fours; row++)
        copy_row(to + row / 4 * (int64_t)sizeof(pairs) + row % 4 * 2, codes + row * stride + whole,
                 n - whole);
}

/* Whether a code of a row is a NaN; without a branch, so that compilers make vectors of it. */
static bool any_nan(fp8_dtype dtype, const uint8_t *codes, int64_t stride, int64_t n)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    const uint8_t mask = (uint8_t)facts->nan_mask, first = (uint8_t)facts->nan_first;
    const uint8_t span = (uint8_t)(facts->nan_last - facts->nan_first);
    uint8_t any = 0;
    for (int64_t j = 0; j < n; j++)
        any |= (uint8_t)((uint8_t)((codes[j * stride] & mask) - first) <= span);
    return any;
}

/* All columns of row i, or of as many fours of rows from it on as can be copied together; their
 * number. */
static int64_t pack_rows(const fp8_packed *to, const fp8_tensor *codes, int64_t i, int64_t row,
                         int64_t col)
{
    const int64_t n = codes->shape[1], step = codes->stride[0], stride = codes->stride[1];
    const uint8_t *from = (const uint8_t *)codes->data + i * step;
    if (stride != 1 || col % FP8_PANEL_COLS != 0) {
        for (int64_t j = 0; j < n; j++)
            to->panels[fp8_panel_offset(row, col + j, to->k)] = from[j * stride];
        return 1;
    }
    uint8_t *place = to->panels + fp8_panel_offset(row, col, to->k);
    const int64_t rows = fp8_min_i64(codes->shape[0] - i, FP8_PANEL_ROWS - row % FP8_PANEL_ROWS);
    if (row % 4 == 0 && rows >= 4) {
        copy_fours(place, from, step, n, rows / 4);
        return rows / 4 * 4;
    }
    copy_row(place, from, n);
    return 1;
}

void fp8_pack_codes(const fp8_packed *to, const fp8_tensor *codes, int64_t row, int64_t col)
{
    for (int64_t i = 0; i < codes->shape[0]; i++)
        if (any_nan(codes->dtype, (const uint8_t *)codes->data + i * codes->stride[0],
                    codes->stride[1], codes->shape[1]))
            to->nan_rows[row + i] = 1;
    for (int64_t i = 0; i < codes->shape[0];)
        i += pack_rows(to, codes, i, row + i, col);
}

void fp8_unpack_panel(const uint8_t *panel, fp8_tensor *w, int64_t first)
{
    const int64_t k = w->shape[1];
    const int64_t rows = fp8_min_i64(FP8_PANEL_ROWS, w->shape[0] - first);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t col = 0; col < k; col++)
            ((uint8_t *)w->data)[(first + row) * w->stride[0] + col * w->stride[1]] =
                panel[fp8_panel_offset(row, col, k)];
}
