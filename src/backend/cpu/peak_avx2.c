/* SPDX-License-Identifier: Apache-2.0
 *
 * peak_avx2.c - the most multiply-adds in fp32 that AVX2 does: 12 chains, since two units with a
 * latency of 4 or 5 cycles need 10. The sums have names: an array of them would be kept in memory.
 */
#include "op/backend.h"

#include <immintrin.h>

#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { CHAIN_COUNT = 12, LANES = 8 };

fp8_kernel_peak fp8_peak_avx2; /* kernels.inc */

void fp8_peak_avx2(fp8_peak_run *run)
{
    const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
#define START(i) __m256 s##i = _mm256_set1_ps(1.0f + 0.01f * (float)(i));
    CHAINS(START)
#define STEP(i) s##i = _mm256_fmadd_ps(s##i, x, y);
    for (int64_t r = 0; r < run->rounds; r++) {
        CHAINS(STEP)
    }
#define ADD(i) all = _mm256_add_ps(all, s##i);
    __m256 all = _mm256_setzero_ps();
    CHAINS(ADD)
    run->sum = _mm256_cvtss_f32(all);
    run->operations = 2.0 * CHAIN_COUNT * LANES * (double)run->rounds;
}
