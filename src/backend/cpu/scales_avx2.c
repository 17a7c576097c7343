/* SPDX-License-Identifier: Apache-2.0
 *
 * scales_avx2.c - the kernel of scales_kernels.h at level AVX2. */
#include "number/vec_avx2.h"

#define LEVEL(name) name##_avx2

#include "backend/cpu/scales_kernels.h"
