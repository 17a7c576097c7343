/* SPDX-License-Identifier: Apache-2.0
 *
 * finish_avx512.c - the kernels of finish_kernels.h at level AVX512. */
#include "number/vec_avx512.h"

#define LEVEL(name) name##_avx512
#include "backend/cpu/finish_kernels.h"
