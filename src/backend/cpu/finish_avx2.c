/* SPDX-License-Identifier: Apache-2.0
 *
 * finish_avx2.c - the kernels of finish_kernels.h at level AVX2. */
#include "number/vec_avx2.h"

#define LEVEL(name) name##_avx2
#include "backend/cpu/finish_kernels.h"
