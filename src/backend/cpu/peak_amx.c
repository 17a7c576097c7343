/* SPDX-License-Identifier: Apache-2.0
 *
 * peak_amx.c - the most TDPBF16PS: four tiles of 16 x 16 sums in turn, each += a tile of 16 x 32
 * times one of 32 x 16, all in registers. */
#include "op/backend.h"

#include <immintrin.h>

enum { TILE = 16, TILE_COLS = 32, SUM_TILES = 4, TILES = 8, PALETTE_1 = 1 };

typedef struct tile_shapes {
    _Alignas(64) uint8_t palette;
    uint8_t start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

fp8_kernel_peak fp8_peak_amx; /* kernels.inc */

void fp8_peak_amx(fp8_peak_run *run)
{
    tile_shapes shapes = {.palette = PALETTE_1};
    _Alignas(64) uint16_t ones[TILE * TILE_COLS];
    _Alignas(64) float sums[TILE * TILE];
    for (int i = 0; i < TILES; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = TILE;
    }
    for (int i = 0; i < TILE * TILE_COLS; i++)
        ones[i] = 0x3000; /* small: the sums stay finite */
    /* gcc 12's tile intrinsics do not say what memory they read. */
    __asm__ volatile("" ::"r"(&shapes), "r"(ones) : "memory");
    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
    for (int64_t r = 0; r < run->rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_release();
    run->sum = sums[0];
    run->operations = 2.0 * SUM_TILES * TILE * TILE * TILE_COLS * (double)run->rounds;
}
