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

/* The 256 flags of the codes that are NaN. */
static void find_nan_codes(fp8_dtype dtype, bool is_nan[256])
{
    for (uint32_t code = 0; code < 256; code++)
        is_nan[code] = fp8_dtype_is_nan(dtype, code);
}

void fp8_pack_codes(const fp8_packed *to, const fp8_tensor *codes, int64_t row, int64_t col)
{
    const int64_t n = codes->shape[1], stride = codes->stride[1];
    bool is_nan[256];
    find_nan_codes(codes->dtype, is_nan);
    for (int64_t i = 0; i < codes->shape[0]; i++) {
        const uint8_t *from = (const uint8_t *)codes->data + i * codes->stride[0];
        bool any = false;
        for (int64_t j = 0; j < n; j++)
            any |= is_nan[from[j * stride]];
        if (any)
            to->nan_rows[row + i] = 1;
        if (stride == 1 && col % FP8_PANEL_COLS == 0)
            copy_row(to->panels + fp8_panel_offset(row + i, col, to->k), from, n);
        else
            for (int64_t j = 0; j < n; j++)
                to->panels[fp8_panel_offset(row + i, col + j, to->k)] = from[j * stride];
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
