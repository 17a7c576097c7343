/* SPDX-License-Identifier: Apache-2.0
 *
 * check_driver_abi.c - compiles only if driver.h declares every function as cuda.h does. */
#include "backend/cuda/driver.h"

#include <cuda.h>

/* cuda.h renames some functions to the latest form (cuMemAlloc is cuMemAlloc_v2): the argument of a
 * macro that is neither # nor ## is renamed as well, so the same words meet the field's. */
#define CHECK(name, since, need, arguments)                                                 \
    _Static_assert(__builtin_types_compatible_p(__typeof__(*(fp8_cu_result(*) arguments)0), \
                                                __typeof__(name)),                          \
                   "driver.h declares " #name " otherwise");
FP8_DRIVER_FUNCTIONS(CHECK)
_Static_assert(FP8_CU_SUCCESS == (int)CUDA_SUCCESS, "result");
_Static_assert(FP8_CU_ERROR_NO_DEVICE == (int)CUDA_ERROR_NO_DEVICE, "result");
_Static_assert(FP8_CU_MULTIPROCESSORS == (int)CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "value");
_Static_assert(FP8_CU_CAPABILITY_MAJOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
               "value");
_Static_assert(FP8_CU_CAPABILITY_MINOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
               "value");
