/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize_avx2.c - the kernels of dequantize_kernels.h at level AVX2. */
#include "number/vec_avx2.h"

#define LEVEL(name) name##_avx2
#include "backend/cpu/dequantize_kernels.h"
