/* SPDX-License-Identifier: Apache-2.0
 *
 * peak_avx512.c - the most multiply-adds in fp32 that AVX-512 does; see peak_avx2.c. */
#include "op/backend.h"

#include <immintrin.h>

#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { CHAIN_COUNT = 12, LANES = 16 };

fp8_kernel_peak fp8_peak_avx512; /* kernels.inc */

void fp8_peak_avx512(fp8_peak_run *run)
{
    const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
#define START(i) __m512 s##i = _mm512_set1_ps(1.0f + 0.01f * (float)(i));
    CHAINS(START)
#define STEP(i) s##i = _mm512_fmadd_ps(s##i, x, y);
    for (int64_t r = 0; r < run->rounds; r++) {
        CHAINS(STEP)
    }
#define ADD(i) all = _mm512_add_ps(all, s##i);
    __m512 all = _mm512_setzero_ps();
    CHAINS(ADD)
    run->sum = _mm512_cvtss_f32(all);
    run->operations = 2.0 * CHAIN_COUNT * LANES * (double)run->rounds;
}
