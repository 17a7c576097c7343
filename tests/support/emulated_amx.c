/* SPDX-License-Identifier: Apache-2.0
 *
 * emulated_amx.c - the AMX kernel with its tile instructions carried out in C, so that its use of
 * tiles can be tested on a processor without any. What would fault (a configuration that is not
 * legal, tiles that do not fit each other, tiles before they are configured) aborts. Rounding
 * differs from the processor's. Compiled with the flags of the kernel.
 *
 * Source: Intel SDM volume 2, LDTILECFG, TILELOADD, TILESTORED, TDPBF16PS. */
#include "support/emulated_amx.h"

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { EMULATED_TILES = 8, EMULATED_ROWS = 16, EMULATED_BYTES = 64 };

typedef struct emulated_tile {
    int rows, bytes; /* 0 = not configured */
    union {
        uint8_t byte[EMULATED_BYTES];
        uint16_t bf16[EMULATED_BYTES / 2];
        float f32[EMULATED_BYTES / 4];
    } row[EMULATED_ROWS];
} emulated_tile;

static emulated_tile emulated[EMULATED_TILES];

static void emulated_require(bool condition)
{
    if (!condition)
        abort();
}

bool emulated_idle(void)
{
    for (int t = 0; t < EMULATED_TILES; t++)
        if (emulated[t].rows)
            return false;
    return true;
}

static void emulated_release(void)
{
    memset(emulated, 0, sizeof emulated);
}

/* 64 bytes: palette, first row, 14 zeros, 16 x 16 bits of bytes in a row, 16 x rows. */
static void emulated_configure(const void *config)
{
    const uint8_t *c = config;
    emulated_release();
    emulated_require(c[0] == 1 && c[1] == 0);
    for (int i = 2; i < 16; i++)
        emulated_require(c[i] == 0);
    for (int t = 0; t < 16; t++) {
        const int bytes = c[16 + 2 * t] | c[17 + 2 * t] << 8, rows = c[48 + t];
        const int most = t < EMULATED_TILES;
        emulated_require(bytes <= most * EMULATED_BYTES && rows <= most * EMULATED_ROWS);
        emulated_require(!bytes == !rows);
        if (!most)
            continue;
        emulated[t].bytes = bytes;
        emulated[t].rows = rows;
    }
}

static void emulated_zero(int t)
{
    emulated_require(emulated[t].rows);
    memset(emulated[t].row, 0, sizeof emulated[t].row);
}

static void emulated_load(int t, const void *from, int64_t stride)
{
    emulated_zero(t);
    for (int i = 0; i < emulated[t].rows; i++)
        memcpy(emulated[t].row[i].byte, (const char *)from + i * stride, (size_t)emulated[t].bytes);
}

static void emulated_store(int t, void *to, int64_t stride)
{
    emulated_require(emulated[t].rows);
    for (int i = 0; i < emulated[t].rows; i++)
        memcpy((char *)to + i * stride, emulated[t].row[i].byte, (size_t)emulated[t].bytes);
}

static float emulated_f32(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* c[rows, columns] += a[rows, pairs] b[pairs, columns], pairs of bf16. */
static void emulated_multiply(int c, int a, int b)
{
    const int pairs = emulated[a].bytes / 4;
    emulated_require(emulated[c].rows && emulated[c].rows == emulated[a].rows);
    emulated_require(emulated[b].rows == pairs && emulated[b].bytes == emulated[c].bytes);
    for (int i = 0; i < emulated[c].rows; i++)
        for (int j = 0; j < emulated[c].bytes / 4; j++)
            for (int k = 0; k < 2 * pairs; k++)
                emulated[c].row[i].f32[j] +=
                    emulated_f32(emulated[a].row[i].bf16[k]) *
                    emulated_f32(emulated[b].row[k / 2].bf16[2 * j + k % 2]);
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig             emulated_configure
#define _tile_release                emulated_release
#define _tile_zero                   emulated_zero
#define _tile_loadd(t, from, stride) emulated_load(t, from, stride)
#define _tile_stored(t, to, stride)  emulated_store(t, to, stride)
#define _tile_dpbf16ps(c, a, b)      emulated_multiply(c, a, b)

#define fp8_panel_bf16_amx           emulated_panel_bf16_amx
#include "backend/cpu/panel_bf16_amx.c"
