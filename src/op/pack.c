/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.c - codes W[N,K] into panels and back; panel.h has the form. */
#include "op/pack.h"
#include "number/dtype.h"
#include "op/panel.h"

#include <string.h>

/* Two neighbouring codes of a row, which are neighbours in a block too. */
static void copy_row(uint8_t *panel, int64_t row, const uint8_t *codes, int64_t k)
{
    uint8_t *to = panel + row / 4 * 16 + row % 4 * 2;
    int64_t col = 0;
    for (; col + 4 <= k; col += 4, to += FP8_PANEL_BYTES) {
        memcpy(to, codes + col, 2);
        memcpy(to + 8, codes + col + 2, 2);
    }
    for (int64_t c = 0; c < k - col; c++)
        to[c / 2 * 8 + c % 2] = codes[col + c];
}

static void gather_row(uint8_t *panel, int64_t row, const uint8_t *codes, int64_t stride, int64_t k)
{
    for (int64_t col = 0; col < k; col++)
        panel[fp8_panel_offset(row, col, k)] = codes[col * stride];
}

uint32_t fp8_nan_rows(const fp8_tensor *w, int64_t first)
{
    const int64_t rows = fp8_min_i64(FP8_PANEL_ROWS, w->shape[0] - first);
    bool is_nan[256];
    uint32_t nan_rows = 0;
    for (uint32_t code = 0; code < 256; code++)
        is_nan[code] = fp8_dtype_is_nan(w->dtype, code);
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *codes = (const uint8_t *)w->data + (first + row) * w->stride[0];
        bool any = false;
        for (int64_t col = 0; col < w->shape[1]; col++)
            any |= is_nan[codes[col * w->stride[1]]];
        nan_rows |= (uint32_t)any << row;
    }
    return nan_rows;
}

void fp8_pack_panel(uint8_t *panel, const fp8_tensor *w, int64_t first)
{
    const int64_t k = w->shape[1];
    const int64_t rows = fp8_min_i64(FP8_PANEL_ROWS, w->shape[0] - first);
    if (rows < FP8_PANEL_ROWS || k % FP8_PANEL_COLS)
        memset(panel, 0, (size_t)fp8_panel_stride(k));
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *codes = (const uint8_t *)w->data + (first + row) * w->stride[0];
        if (w->stride[1] == 1)
            copy_row(panel, row, codes, k);
        else
            gather_row(panel, row, codes, w->stride[1], k);
    }
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
