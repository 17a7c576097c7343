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
#define CHECK(name, since, need, arguments)                                              \
    _Static_assert(                                                                      \
        __builtin_types_compatible_p(fp8_cu_result(*) arguments, PFN_##name##_v##since), \
        "driver.h declares " #name " otherwise");
FP8_DRIVER_FUNCTIONS(CHECK)
#define CHECK_CLI(name, since, arguments)                                                \
    _Static_assert(                                                                      \
        __builtin_types_compatible_p(fp8_cu_result(*) arguments, PFN_##name##_v##since), \
        "gpu_driver.h declares " #name " otherwise");
CLI_GPU_FUNCTIONS(CHECK_CLI)
CHECK(cuDriverGetVersion, 2020, REQUIRED, FP8_DRIVER_GET_VERSION)
CHECK(cuGetProcAddress, 12000, REQUIRED, FP8_DRIVER_GET_PROC)
#define SAME(type, ours, theirs, field)                                             \
    _Static_assert(offsetof(fp8_cu_launch_##type, ours) == offsetof(theirs, field), \
                   #ours " is elsewhere")
_Static_assert(sizeof(fp8_cu_launch_config) == sizeof(CUlaunchConfig), "size");
_Static_assert(sizeof(fp8_cu_launch_attribute) == sizeof(CUlaunchAttribute), "size");
SAME(config, grid, CUlaunchConfig, gridDimX);
SAME(config, block, CUlaunchConfig, blockDimX);
SAME(config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME(config, stream, CUlaunchConfig, hStream);
SAME(config, attributes, CUlaunchConfig, attrs);
SAME(config, attribute_count, CUlaunchConfig, numAttrs);
SAME(attribute, id, CUlaunchAttribute, id);
SAME(attribute, value, CUlaunchAttribute, value);
SAME(attribute, value.cluster.x, CUlaunchAttribute, value.clusterDim.x);
SAME(attribute, value.dependent, CUlaunchAttribute, value.programmaticStreamSerializationAllowed);
#define SAME_CLI(type, ours, theirs, field)                                               \
    _Static_assert(offsetof(cli_cu_##type, ours) == offsetof(theirs, field), #ours " is " \
                                                                                   "elsewhere")
_Static_assert(sizeof(cli_cu_config) == sizeof(CUlaunchConfig), "size");
_Static_assert(sizeof(cli_cu_attribute) == sizeof(CUlaunchAttribute), "size");
_Static_assert(sizeof(cli_cu_kernel_node) == sizeof(CUDA_KERNEL_NODE_PARAMS), "size");
_Static_assert(sizeof(cli_cu_edge) == sizeof(CUgraphEdgeData), "size");
SAME_CLI(config, grid, CUlaunchConfig, gridDimX);
SAME_CLI(config, block, CUlaunchConfig, blockDimX);
SAME_CLI(config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_CLI(config, stream, CUlaunchConfig, hStream);
SAME_CLI(config, attributes, CUlaunchConfig, attrs);
SAME_CLI(config, attribute_count, CUlaunchConfig, numAttrs);
SAME_CLI(attribute, value.cluster.x, CUlaunchAttribute, value.clusterDim.x);
SAME_CLI(attribute, value.dependent, CUlaunchAttribute,
         value.programmaticStreamSerializationAllowed);
SAME_CLI(kernel_node, grid, CUDA_KERNEL_NODE_PARAMS, gridDimX);
SAME_CLI(kernel_node, block, CUDA_KERNEL_NODE_PARAMS, blockDimX);
SAME_CLI(kernel_node, shared_bytes, CUDA_KERNEL_NODE_PARAMS, sharedMemBytes);
SAME_CLI(kernel_node, arguments, CUDA_KERNEL_NODE_PARAMS, kernelParams);
SAME_CLI(kernel_node, kernel, CUDA_KERNEL_NODE_PARAMS, kern);
SAME_CLI(edge, type, CUgraphEdgeData, type);
_Static_assert(CLI_CU_LAUNCH_CLUSTER == (int)FP8_CU_LAUNCH_CLUSTER &&
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
#define SAME_COPY(ours, theirs)                                                       \
    _Static_assert(offsetof(fp8_cu_copy_2d, ours) == offsetof(CUDA_MEMCPY2D, theirs), \
                   #ours " is elsewhere");
_Static_assert(sizeof(fp8_cu_copy_2d) == sizeof(CUDA_MEMCPY2D), "size");
SAME_COPY(from_byte, srcXInBytes)
SAME_COPY(from_row, srcY)
SAME_COPY(from_type, srcMemoryType)
SAME_COPY(from_host, srcHost)
SAME_COPY(from_device, srcDevice)
SAME_COPY(from_array, srcArray)
SAME_COPY(from_pitch, srcPitch)
SAME_COPY(to_byte, dstXInBytes)
SAME_COPY(to_row, dstY)
SAME_COPY(to_type, dstMemoryType)
SAME_COPY(to_host, dstHost)
SAME_COPY(to_device, dstDevice)
SAME_COPY(to_array, dstArray)
SAME_COPY(to_pitch, dstPitch)
SAME_COPY(row_bytes, WidthInBytes)
SAME_COPY(rows, Height)
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
