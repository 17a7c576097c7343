/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h - NVIDIA's driver, found at run time: dlopen("libcuda.so.1"), then cuGetProcAddress for
 * one list of functions. Nothing of CUDA is needed to build or to start; what the list declares is
 * the driver's ABI in our own words, and tests/cuda compares it with cuda.h where that is at hand.
 *
 * To use a function more: add its line. `since` is the CUDA version whose signature is meant, as
 * 1000 * major + 10 * minor; without a REQUIRED function there is no driver, an OPTIONAL one may be
 * NULL. */
#ifndef FP8_BACKEND_CUDA_DRIVER_H
#define FP8_BACKEND_CUDA_DRIVER_H

#include "base/status.h"

#include <stdbool.h>

typedef unsigned int fp8_cu_result; /* 0 = success */
typedef int fp8_cu_device;
typedef struct CUctx_st *fp8_cu_context;
typedef struct CUstream_st *fp8_cu_stream;
typedef struct CUlib_st *fp8_cu_library;   /* kernels of one fatbin, of no device in particular */
typedef struct CUkern_st *fp8_cu_kernel;   /* one of them; launched as if it were a function */
typedef struct CUfunc_st *fp8_cu_function; /* the same, loaded into a context */
typedef unsigned long long fp8_cu_pointer; /* memory of a device */

/* An attribute of a launch: CUlaunchAttribute. */
typedef struct fp8_cu_launch_attribute {
    uint32_t id; /* FP8_CU_LAUNCH_* */
    uint32_t unused;
    union {
        struct {
            uint32_t x, y, z;
        } cluster;         /* blocks that share what they have in shared memory */
        int32_t policy;    /* of placing the blocks of clusters: FP8_CU_POLICY_* */
        int32_t dependent; /* 1: may begin before the kernel before it has ended */
        void *all[8];
    } value;
} fp8_cu_launch_attribute;

/* How a kernel is launched: CUlaunchConfig. */
typedef struct fp8_cu_launch_config {
    uint32_t grid[3], block[3]; /* in blocks, in threads */
    uint32_t shared_bytes;      /* dynamic shared memory of a block */
    fp8_cu_stream stream;
    fp8_cu_launch_attribute *attributes;
    uint32_t attribute_count;
} fp8_cu_launch_config;

/* A copy of rows: CUDA_MEMCPY2D. */
typedef struct fp8_cu_copy_2d {
    size_t from_byte, from_row; /* where it begins */
    uint32_t from_type;         /* FP8_CU_MEMORY_* */
    const void *from_host;
    fp8_cu_pointer from_device;
    void *from_array;
    size_t from_pitch; /* bytes from row to row */
    size_t to_byte, to_row;
    uint32_t to_type;
    void *to_host;
    fp8_cu_pointer to_device;
    void *to_array;
    size_t to_pitch;
    size_t row_bytes, rows;
} fp8_cu_copy_2d;
enum { FP8_CU_MEMORY_HOST = 1, FP8_CU_MEMORY_DEVICE = 2 };

enum { FP8_CU_SUCCESS = 0, FP8_CU_ERROR_INVALID_VALUE = 1, FP8_CU_ERROR_NO_DEVICE = 100 };
/* For cuDeviceGetAttribute. */
enum {
    FP8_CU_MULTIPROCESSORS = 16,
    FP8_CU_MEMORY_KHZ = 36,
    FP8_CU_MEMORY_BUS_BITS = 37,
    FP8_CU_CAPABILITY_MAJOR = 75,
    FP8_CU_CAPABILITY_MINOR = 76,
};
/* For cuKernelSetAttribute, cuPointerGetAttribute and cuLaunchKernelEx. */
enum { FP8_CU_MAX_DYNAMIC_SHARED = 8 };
enum {
    FP8_CU_POINTER_MEMORY_TYPE = 2, /* FP8_CU_MEMORY_* */
    FP8_CU_POINTER_ON_DEVICE = 3,   /* the address that kernels of the current context use */
    FP8_CU_POINTER_IS_MANAGED = 8,
    FP8_CU_POINTER_ORDINAL = 9, /* the device's number */
};
enum { FP8_CU_LAUNCH_CLUSTER = 4, FP8_CU_LAUNCH_POLICY = 5, FP8_CU_LAUNCH_DEPENDENT = 6 };
enum { FP8_CU_POLICY_BALANCE = 2 };

/* For cuTensorMapEncodeTiled. */
enum {
    FP8_CU_MAP_U8 = 0,
    FP8_CU_MAP_F32 = 7,
    FP8_CU_MAP_BF16 = 9,
    FP8_CU_MAP_L2_NONE = 0,
    FP8_CU_MAP_L2_256B = 3
};
enum { FP8_CU_MAP_SWIZZLE_32 = 1, FP8_CU_MAP_SWIZZLE_64 = 2, FP8_CU_MAP_SWIZZLE_128 = 3 };
struct CUtensorMap_st; /* fp8_tensor_map, as NVIDIA calls it */

struct CUlaunchConfig_st; /* fp8_cu_launch_config, as NVIDIA calls it */
struct CUDA_MEMCPY2D_st;  /* fp8_cu_copy_2d */

#define FP8_DRIVER_NAME "libcuda.so.1"
/* cuGetProcAddress as it is called, libraries of kernels: CUDA 12.0 (driver 525). */
#define FP8_DRIVER_LEAST 12000

/* clang-format off */
#define FP8_DRIVER_FUNCTIONS(X)                                                                  \
    X(cuInit,                     2000, REQUIRED, (unsigned int flags))                          \
    X(cuGetErrorName,             6000, OPTIONAL, (fp8_cu_result, const char **name))            \
    X(cuGetErrorString,           6000, OPTIONAL, (fp8_cu_result, const char **text))            \
    X(cuDeviceGetCount,           2000, REQUIRED, (int *count))                                  \
    X(cuDeviceGet,                2000, REQUIRED, (fp8_cu_device *, int ordinal))                \
    X(cuDeviceGetName,            2000, REQUIRED, (char *name, int bytes, fp8_cu_device))        \
    X(cuDeviceGetAttribute,       2000, REQUIRED, (int *value, unsigned int which, fp8_cu_device)) \
    X(cuDeviceTotalMem,           3020, REQUIRED, (size_t *bytes, fp8_cu_device))                \
    X(cuDevicePrimaryCtxRetain,   7000, REQUIRED, (fp8_cu_context *, fp8_cu_device))             \
    X(cuDevicePrimaryCtxRelease, 11000, REQUIRED, (fp8_cu_device))                               \
    X(cuCtxPushCurrent,           4000, REQUIRED, (fp8_cu_context))                              \
    X(cuCtxPopCurrent,            4000, REQUIRED, (fp8_cu_context *))                            \
    X(cuCtxSynchronize,           2000, REQUIRED, (void))                                        \
    X(cuMemAlloc,                 3020, REQUIRED, (fp8_cu_pointer *, size_t bytes))              \
    X(cuMemFree,                  3020, REQUIRED, (fp8_cu_pointer))                              \
    X(cuMemHostAlloc,             2020, REQUIRED, (void **, size_t bytes, unsigned int flags))   \
    X(cuMemFreeHost,              2000, REQUIRED, (void *))                                      \
    X(cuMemcpy2DAsync,            3020, REQUIRED, (const struct CUDA_MEMCPY2D_st *, fp8_cu_stream)) \
    X(cuMemcpyAsync,              4000, REQUIRED, (fp8_cu_pointer to, fp8_cu_pointer from, size_t bytes, fp8_cu_stream)) \
    X(cuPointerGetAttribute,      4000, REQUIRED, (void *value, unsigned int which, fp8_cu_pointer)) \
    X(cuStreamCreate,             2000, REQUIRED, (fp8_cu_stream *, unsigned int flags))         \
    X(cuStreamDestroy,            4000, REQUIRED, (fp8_cu_stream))                               \
    X(cuStreamGetCtx,             9020, REQUIRED, (fp8_cu_stream, fp8_cu_context *))             \
    X(cuStreamIsCapturing,       10000, REQUIRED, (fp8_cu_stream, unsigned int *status))         \
    X(cuStreamSynchronize,        2000, REQUIRED, (fp8_cu_stream))                               \
    X(cuLibraryLoadData,         12000, REQUIRED, (fp8_cu_library *, const void *image, unsigned int *jit, void **jit_values, unsigned int jits, unsigned int *options, void **values, unsigned int count)) \
    X(cuLibraryUnload,           12000, REQUIRED, (fp8_cu_library))                              \
    X(cuLibraryGetKernel,        12000, REQUIRED, (fp8_cu_kernel *, fp8_cu_library, const char *name)) \
    X(cuKernelGetFunction,       12000, REQUIRED, (fp8_cu_function *, fp8_cu_kernel))            \
    X(cuKernelSetAttribute,      12000, REQUIRED, (unsigned int which, int value, fp8_cu_kernel, fp8_cu_device)) \
    X(cuTensorMapEncodeTiled,    12000, REQUIRED, (struct CUtensorMap_st *, unsigned int type, unsigned int rank, void *data, const uint64_t *extent, const uint64_t *stride, const unsigned int *box, const unsigned int *step, unsigned int interleave, unsigned int swizzle, unsigned int l2, unsigned int fill)) \
    X(cuLaunchKernelEx,          11060, REQUIRED, (const struct CUlaunchConfig_st *, fp8_cu_function, void **arguments, void **extra))
/* clang-format on */

/* Arguments of the two that are found by their exported names, cuDriverGetVersion and
 * cuGetProcAddress_v2; *found says why a function is missing. */
#define FP8_DRIVER_GET_VERSION (int *version)
#define FP8_DRIVER_GET_PROC \
    (const char *name, void **out, int since, uint64_t flags, unsigned int *found)

/* Immutable once loaded: any thread. */
typedef struct fp8_driver {
#define FIELD(name, since, need, arguments) fp8_cu_result(*name) arguments; /* NOLINT */
    FP8_DRIVER_FUNCTIONS(FIELD)
#undef FIELD
    int32_t version; /* the CUDA version that the driver supports: 12040 for 12.4 */
} fp8_driver;

/* A line of the list. */
typedef struct fp8_driver_function {
    const char *name;
    int since;
    bool required;
    size_t offset; /* of its pointer in fp8_driver */
} fp8_driver_function;
/* Line i, NULL past the last. Any thread. */
const fp8_driver_function *fp8_driver_function_at(size_t i);

/* Loads and starts the driver of that file name (FP8_DRIVER_NAME but in tests); a fifth of a second
 * the first time in a process, microseconds after that. The file is never unloaded: others may hold
 * what is in it. Errors: NO_DEVICE (no such file, or not a driver), UNSUPPORTED (too old), those of
 * fp8_driver_fail. Any thread. */
fp8_status fp8_driver_load(const char *file, fp8_driver *out, fp8_error *err);

/* The status of a result that is no success; *err = the formatted text, the result's name, number
 * and the driver's words: "cuda:0: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory". */
fp8_status fp8_driver_error(const fp8_driver *driver, fp8_cu_result result, fp8_error *err,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
#define fp8_driver_fail(driver, result, err, ...) \
    fp8_never_ok(fp8_driver_error(driver, result, err, __VA_ARGS__))

/* Returns from the calling function unless driver->function(arguments) succeeds: the words begin
 * with the formatted text, "%s: " and the function's name. */
#define FP8_DRIVER_TRY(driver, err, where, function, ...)                                 \
    do {                                                                                  \
        fp8_cu_result fp8_result_ = (driver)->function(__VA_ARGS__);                      \
        if (fp8_result_ != FP8_CU_SUCCESS)                                                \
            return fp8_driver_fail(driver, fp8_result_, err, "%s: %s", where, #function); \
    } while (0)

#endif
