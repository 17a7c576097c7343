/* SPDX-License-Identifier: Apache-2.0
 *
 * cast_avx512.c - the kernels of cast_kernels.h at level AVX512. */
#include "number/vec_avx512.h"

#define LEVEL(name) name##_avx512
#include "backend/cpu/cast_kernels.h"
