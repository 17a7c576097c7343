/* SPDX-License-Identifier: Apache-2.0
 *
 * peak_avx512_bf16.c - the most VDPBF16PS: 16 chains (up to two units, latency up to 6 cycles), two
 * products a lane. */
#include "op/backend.h"

#include <immintrin.h>

#define CHAINS(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
enum { CHAIN_COUNT = 16, PRODUCTS = 32 };

fp8_kernel_peak fp8_peak_avx512_bf16; /* kernels.inc */

void fp8_peak_avx512_bf16(fp8_peak_run *run)
{
    const __m512i half = _mm512_set1_epi16(0x3F00), tiny = _mm512_set1_epi16(0x3000);
    const __m512bh x = (__m512bh)half, y = (__m512bh)tiny;
#define START(i) __m512 s##i = _mm512_set1_ps(1.0f + 0.01f * (float)(i));
    CHAINS(START)
#define STEP(i) s##i = _mm512_dpbf16_ps(s##i, x, y);
    for (int64_t r = 0; r < run->rounds; r++) {
        CHAINS(STEP)
    }
#define ADD(i) all = _mm512_add_ps(all, s##i);
    __m512 all = _mm512_setzero_ps();
    CHAINS(ADD)
    run->sum = _mm512_cvtss_f32(all);
    run->operations = 2.0 * CHAIN_COUNT * PRODUCTS * (double)run->rounds;
}
