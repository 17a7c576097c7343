/* SPDX-License-Identifier: Apache-2.0
 *
 * check_driver_abi.c - compiles only if driver.h, and the command line's gpu_driver.h and
 * cublaslt.h, declare each function as CUDA's headers do. */
#include "backend/cuda/driver.h"
#include "cli/cublaslt.h"
#include "cli/gpu_launch.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stddef.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

_Static_assert(sizeof(cli_lt_found) == sizeof(cublasLtMatmulHeuristicResult_t) &&
                   offsetof(cli_lt_found, status) ==
                       offsetof(cublasLtMatmulHeuristicResult_t, state) &&
                   sizeof(((cli_lt_found *)0)->algorithm) == sizeof(cublasLtMatmulAlgo_t),
               "cublaslt.h declares results otherwise");
_Static_assert(CLI_LT_TENSOR == (int)CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F &&
                   CLI_LT_VECTOR == (int)CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F &&
                   CLI_LT_BLOCK == (int)CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
               "values");
#endif

/* The toolkit names each signature with the version that it came with, so the version in our list
 * is compared as well. */
#define DECLARES(header, name, type, arguments)                                    \
    _Static_assert(__builtin_types_compatible_p(fp8_cu_result(*) arguments, type), \
                   header " declares " name " otherwise");
#define CHECK(name, since, need, arguments) \
    DECLARES("driver.h", #name, PFN_##name##_v##since, arguments)
#define CHECK_CLI(name, since, arguments) \
    DECLARES("gpu_driver.h", #name, PFN_##name##_v##since, arguments)
FP8_DRIVER_FUNCTIONS(CHECK)
CLI_GPU_FUNCTIONS(CHECK_CLI)
CHECK(cuDriverGetVersion, 2020, REQUIRED, FP8_DRIVER_GET_VERSION)
CHECK(cuGetProcAddress, 12000, REQUIRED, FP8_DRIVER_GET_PROC)
/* Structures of ours that lie in memory as CUDA's do. */
#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), "size of " #ours)
#define SAME(ours, field, theirs, its)                                                     \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, its), #ours "." #field " is " \
                                                                         "elsewhere")
/* A launch, as the library and as the command line say it. */
#define LAUNCH(config, attribute)                                                              \
    SIZE(config, CUlaunchConfig);                                                              \
    SIZE(attribute, CUlaunchAttribute);                                                        \
    SAME(config, grid, CUlaunchConfig, gridDimX);                                              \
    SAME(config, block, CUlaunchConfig, blockDimX);                                            \
    SAME(config, shared_bytes, CUlaunchConfig, sharedMemBytes);                                \
    SAME(config, stream, CUlaunchConfig, hStream);                                             \
    SAME(config, attributes, CUlaunchConfig, attrs);                                           \
    SAME(config, attribute_count, CUlaunchConfig, numAttrs);                                   \
    SAME(attribute, id, CUlaunchAttribute, id);                                                \
    SAME(attribute, value, CUlaunchAttribute, value);                                          \
    SAME(attribute, value.cluster.x, CUlaunchAttribute, value.clusterDim.x);                   \
    SAME(attribute, value.policy, CUlaunchAttribute, value.clusterSchedulingPolicyPreference); \
    SAME(attribute, value.dependent, CUlaunchAttribute,                                        \
         value.programmaticStreamSerializationAllowed)
LAUNCH(fp8_cu_launch_config, fp8_cu_launch_attribute);
LAUNCH(cli_cu_config, cli_cu_attribute);
SIZE(cli_cu_kernel_node, CUDA_KERNEL_NODE_PARAMS);
SIZE(cli_cu_edge, CUgraphEdgeData);
SAME(cli_cu_kernel_node, grid, CUDA_KERNEL_NODE_PARAMS, gridDimX);
SAME(cli_cu_kernel_node, block, CUDA_KERNEL_NODE_PARAMS, blockDimX);
SAME(cli_cu_kernel_node, shared_bytes, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SAME(cli_cu_kernel_node, arguments, CUDA_KERNEL_NODE_PARAMS, kernelParams);
SAME(cli_cu_kernel_node, kernel, CUDA_KERNEL_NODE_PARAMS, kern);
SAME(cli_cu_edge, type, CUgraphEdgeData, type);
_Static_assert(CLI_CU_LAUNCH_CLUSTER == (int)FP8_CU_LAUNCH_CLUSTER &&
                   CLI_CU_LAUNCH_POLICY == (int)FP8_CU_LAUNCH_POLICY &&
                   CLI_CU_LAUNCH_DEPENDENT == (int)FP8_CU_LAUNCH_DEPENDENT &&
                   CLI_CU_EDGE_DEPENDENT == (int)CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC,
               "values");
_Static_assert(FP8_CU_LAUNCH_CLUSTER == (int)CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, "value");
_Static_assert(FP8_CU_LAUNCH_POLICY ==
                       (int)CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE &&
                   FP8_CU_POLICY_BALANCE == (int)CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING,
               "value");
_Static_assert(FP8_CU_LAUNCH_DEPENDENT ==
                   (int)CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
               "value");
_Static_assert(FP8_CU_MAX_DYNAMIC_SHARED == (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
               "value");
_Static_assert(FP8_CU_POINTER_ON_DEVICE == (int)CU_POINTER_ATTRIBUTE_DEVICE_POINTER &&
                   FP8_CU_POINTER_ORDINAL == (int)CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL &&
                   FP8_CU_POINTER_MEMORY_TYPE == (int)CU_POINTER_ATTRIBUTE_MEMORY_TYPE &&
                   FP8_CU_POINTER_IS_MANAGED == (int)CU_POINTER_ATTRIBUTE_IS_MANAGED,
               "values");
_Static_assert(FP8_CU_MAP_U8 == (int)CU_TENSOR_MAP_DATA_TYPE_UINT8 &&
                   FP8_CU_MAP_F32 == (int)CU_TENSOR_MAP_DATA_TYPE_FLOAT32 &&
                   FP8_CU_MAP_BF16 == (int)CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 &&
                   FP8_CU_MAP_L2_NONE == (int)CU_TENSOR_MAP_L2_PROMOTION_NONE &&
                   FP8_CU_MAP_L2_256B == (int)CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
                   FP8_CU_MAP_SWIZZLE_32 == (int)CU_TENSOR_MAP_SWIZZLE_32B &&
                   FP8_CU_MAP_SWIZZLE_64 == (int)CU_TENSOR_MAP_SWIZZLE_64B &&
                   FP8_CU_MAP_SWIZZLE_128 == (int)CU_TENSOR_MAP_SWIZZLE_128B,
               "values");
SIZE(fp8_cu_copy_2d, CUDA_MEMCPY2D);
SAME(fp8_cu_copy_2d, from_byte, CUDA_MEMCPY2D, srcXInBytes);
SAME(fp8_cu_copy_2d, from_row, CUDA_MEMCPY2D, srcY);
SAME(fp8_cu_copy_2d, from_type, CUDA_MEMCPY2D, srcMemoryType);
SAME(fp8_cu_copy_2d, from_host, CUDA_MEMCPY2D, srcHost);
SAME(fp8_cu_copy_2d, from_device, CUDA_MEMCPY2D, srcDevice);
SAME(fp8_cu_copy_2d, from_array, CUDA_MEMCPY2D, srcArray);
SAME(fp8_cu_copy_2d, from_pitch, CUDA_MEMCPY2D, srcPitch);
SAME(fp8_cu_copy_2d, to_byte, CUDA_MEMCPY2D, dstXInBytes);
SAME(fp8_cu_copy_2d, to_row, CUDA_MEMCPY2D, dstY);
SAME(fp8_cu_copy_2d, to_type, CUDA_MEMCPY2D, dstMemoryType);
SAME(fp8_cu_copy_2d, to_host, CUDA_MEMCPY2D, dstHost);
SAME(fp8_cu_copy_2d, to_device, CUDA_MEMCPY2D, dstDevice);
SAME(fp8_cu_copy_2d, to_array, CUDA_MEMCPY2D, dstArray);
SAME(fp8_cu_copy_2d, to_pitch, CUDA_MEMCPY2D, dstPitch);
SAME(fp8_cu_copy_2d, row_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME(fp8_cu_copy_2d, rows, CUDA_MEMCPY2D, Height);
_Static_assert(FP8_CU_MEMORY_HOST == (int)CU_MEMORYTYPE_HOST &&
                   FP8_CU_MEMORY_DEVICE == (int)CU_MEMORYTYPE_DEVICE,
               "values");
_Static_assert(sizeof(CUtensorMap) == 128, "fp8_tensor_map");
_Static_assert(FP8_CU_SUCCESS == (int)CUDA_SUCCESS, "result");
_Static_assert(FP8_CU_ERROR_NO_DEVICE == (int)CUDA_ERROR_NO_DEVICE, "result");
_Static_assert(FP8_CU_MULTIPROCESSORS == (int)CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "value");
_Static_assert(FP8_CU_MEMORY_KHZ == (int)CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, "value");
_Static_assert(FP8_CU_MEMORY_BUS_BITS == (int)CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, "value");
_Static_assert(FP8_CU_CAPABILITY_MAJOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
               "value");
_Static_assert(FP8_CU_CAPABILITY_MINOR == (int)CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
               "value");
_Static_assert(CLI_GPU_CLOCK_KHZ == (int)CU_DEVICE_ATTRIBUTE_CLOCK_RATE &&
                   CLI_GPU_L2_BYTES == (int)CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
               "values");
