/* SPDX-License-Identifier: Apache-2.0
 *
 * cast_avx2.c - the kernels of cast_kernels.h at level AVX2. */
#include "number/vec_avx2.h"

#define LEVEL(name) name##_avx2
#include "backend/cpu/cast_kernels.h"
