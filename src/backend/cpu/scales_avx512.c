/* SPDX-License-Identifier: Apache-2.0
 *
 * scales_avx512.c - the kernel of scales_kernels.h at level AVX-512. */
#include "number/vec_avx512.h"

#define LEVEL(name) name##_avx512

#include "backend/cpu/scales_kernels.h"
