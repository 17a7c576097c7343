/* SPDX-License-Identifier: Apache-2.0
 *
 * check_driver_abi.c - compiles only if driver.h declares each function as CUDA's headers do. */
#include "backend/cuda/driver.h"

#include <cuda.h>
#include <cudaTypedefs.h>

/* The toolkit names each signature with the version that it came with, so the version in our list
 * is compared as well. */
#define CHECK(name, since, need, arguments)                                              \
    _Static_assert(                                                                      \
        __builtin_types_compatible_p(fp8_cu_result(*) arguments, PFN_##name##_v##since), \
        "driver.h declares " #name " otherwise");
FP8_DRIVER_FUNCTIONS(CHECK)
CHECK(cuDriverGetVersion, 2020, REQUIRED, FP8_DRIVER_GET_VERSION)
CHECK(cuGetProcAddress, 12000, REQUIRED, FP8_DRIVER_GET_PROC)
_Static_assert(FP8_CU_SUCCESS == (int)CUDA_SUCCESS, "result");
_Static_assert(FP8_CU_ERROR_NO_DEVICE == (int)CUDA_ERROR_NO_DEVICE, "result");
_Static_assert(FP8_CU_MULTIPROCESSORS == (int)CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "value");
_Static_assert(FP8_CU_CAPABILITY_MAJOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
               "value");
_Static_assert(FP8_CU_CAPABILITY_MINOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
               "value");
