/* SPDX-License-Identifier: Apache-2.0
 *
 * dequantize_avx512.c - the kernels of dequantize_kernels.h at level AVX512. */
#include "number/vec_avx512.h"

#define LEVEL(name) name##_avx512
#include "backend/cpu/dequantize_kernels.h"
