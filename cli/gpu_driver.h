/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_driver.h - what `fp8 bench` needs of NVIDIA's driver and the library does not: streams,
 * events and graphs, found at run time. tests/cuda compares the list with cuda.h where that is at
 * hand, and its fake driver answers it.
 *
 * To use a function more: add its line; the number is the CUDA version whose signature is meant.
 * Those of later versions than CLI_GPU_LEAST may be missing: NULL. */
#ifndef FP8_CLI_GPU_DRIVER_H
#define FP8_CLI_GPU_DRIVER_H

#include "fp8.h"

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;
struct CUgraphEdgeData_st;
struct CUfunc_st;
struct CUlaunchConfig_st;
struct CUDA_KERNEL_NODE_PARAMS_v2_st;
union CUlaunchAttributeValue_union;

/* clang-format off */
#define CLI_GPU_FUNCTIONS(X)                                                              \
    X(cuDeviceGet,                 2000, (int *device, int ordinal))                      \
    X(cuDeviceGetAttribute,        2000, (int *value, unsigned int which, int device))    \
    X(cuDeviceGetPCIBusId,         4010, (char *text, int bytes, int device))             \
    X(cuDevicePrimaryCtxRetain,    7000, (struct CUctx_st **, int device))                \
    X(cuDevicePrimaryCtxRelease,  11000, (int device))                                    \
    X(cuCtxPushCurrent,            4000, (struct CUctx_st *))                             \
    X(cuCtxPopCurrent,             4000, (struct CUctx_st **))                            \
    X(cuStreamCreate,              2000, (struct CUstream_st **, unsigned int flags))     \
    X(cuStreamDestroy,             4000, (struct CUstream_st *))                          \
    X(cuStreamSynchronize,         2000, (struct CUstream_st *))                          \
    X(cuStreamBeginCapture,       10010, (struct CUstream_st *, unsigned int mode))       \
    X(cuStreamEndCapture,         10000, (struct CUstream_st *, struct CUgraph_st **))    \
    X(cuGraphInstantiateWithFlags, 11040, (struct CUgraphExec_st **, struct CUgraph_st *, unsigned long long flags)) \
    X(cuGraphLaunch,              10000, (struct CUgraphExec_st *, struct CUstream_st *)) \
    X(cuGraphExecDestroy,         10000, (struct CUgraphExec_st *))                       \
    X(cuGraphDestroy,             10000, (struct CUgraph_st *))                           \
    X(cuEventCreate,               2000, (struct CUevent_st **, unsigned int flags))      \
    X(cuEventDestroy,              4000, (struct CUevent_st *))                           \
    X(cuEventRecord,               2000, (struct CUevent_st *, struct CUstream_st *))     \
    X(cuEventSynchronize,          2000, (struct CUevent_st *))                           \
    X(cuEventElapsedTime,          2000, (float *ms, struct CUevent_st *from, struct CUevent_st *to)) \
    X(cuStreamGetCaptureInfo,     11030, (struct CUstream_st *, unsigned int *status, uint64_t *id, struct CUgraph_st **, struct CUgraphNode_st *const **after, size_t *count)) \
    X(cuStreamUpdateCaptureDependencies, 11030, (struct CUstream_st *, struct CUgraphNode_st **after, size_t count, unsigned int flags)) \
    X(cuGraphAddEmptyNode,        10000, (struct CUgraphNode_st **, struct CUgraph_st *, struct CUgraphNode_st *const *after, size_t count)) \
    X(cuGraphNodeGetDependencies, 12030, (struct CUgraphNode_st *, struct CUgraphNode_st **before, struct CUgraphEdgeData_st *, size_t *count)) \
    X(cuGraphKernelNodeGetParams, 12000, (struct CUgraphNode_st *, struct CUDA_KERNEL_NODE_PARAMS_v2_st *)) \
    X(cuGraphKernelNodeGetAttribute, 11000, (struct CUgraphNode_st *, unsigned int which, union CUlaunchAttributeValue_union *)) \
    X(cuLaunchKernelEx,           11060, (const struct CUlaunchConfig_st *, struct CUfunc_st *, void **arguments, void **extra))
/* clang-format on */
enum { CLI_GPU_LEAST = 12000 }; /* CUDA 12.0: what the library needs */

/* For cuDeviceGetAttribute. */
enum { CLI_GPU_CLOCK_KHZ = 13, CLI_GPU_L2_BYTES = 38 };

/* A GPU whose primary context is current in this thread from open to close, and a stream there. */
typedef struct cli_gpu {
#define FIELD(name, since, arguments) unsigned int(*name) arguments; /* NOLINT */
    CLI_GPU_FUNCTIONS(FIELD)
#undef FIELD
    int device;
    struct CUctx_st *context;
    struct CUstream_st *stream;
    struct CUevent_st *from, *to;
    char pci[32]; /* where it is plugged in, as NVML calls it */
    int64_t l2_bytes;
    int32_t clock_mhz; /* the highest of its multiprocessors */
} cli_gpu;

/* Opens GPU `index`, whose driver a context of the library has already found good. Close with
 * cli_gpu_close in any case. Errors: NO_DEVICE, UNSUPPORTED (a function is missing), DEVICE. */
fp8_status cli_gpu_open(cli_gpu *gpu, int32_t index, fp8_error *err);
void cli_gpu_close(cli_gpu *gpu);

/* DEVICE with a sentence unless result is 0. */
fp8_status cli_gpu_check(unsigned int result, const char *function, fp8_error *err);
/* Sets *err; returns `status`. */
fp8_status cli_bench_fail(fp8_error *err, fp8_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the calling function unless gpu->function(arguments) succeeds. */
#define CLI_GPU_TRY(gpu, err, function, ...)                                                  \
    do {                                                                                      \
        fp8_status cli_status_ = cli_gpu_check((gpu)->function(__VA_ARGS__), #function, err); \
        if (cli_status_ != FP8_OK)                                                            \
            return cli_status_;                                                               \
    } while (0)
/* The same for what returns a status. */
#define CLI_TRY(call)                    \
    do {                                 \
        fp8_status cli_status_ = (call); \
        if (cli_status_ != FP8_OK)       \
            return cli_status_;          \
    } while (0)

#endif
