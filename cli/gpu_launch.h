/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_launch.h - the launches of a call by themselves: what the driver takes for them, whoever
 * makes them. They are read from a captured call: kernels, arguments and all. */
#ifndef FP8_CLI_GPU_LAUNCH_H
#define FP8_CLI_GPU_LAUNCH_H

#include "cli/gpu_timing.h"

/* Seconds of the host for the launches of a call, repeated as the driver got them: as cli_gpu_host.
 * 0: not known, the driver is older than CUDA 12.3, or more than kernels was enqueued. Errors:
 * those of enqueue, DEVICE. */
fp8_status cli_gpu_bare(cli_gpu *gpu, cli_enqueue_fn *enqueue, void *arg, double *seconds,
                        fp8_error *err);

/* ---- the driver's structs ---- */

/* CUlaunchAttribute. */
typedef struct cli_cu_attribute {
    uint32_t id, unused; /* CLI_CU_LAUNCH_* */
    union {
        struct {
            uint32_t x, y, z;
        } cluster;
        int32_t policy; /* of placing the blocks of clusters; 0: the driver's own */
        int32_t dependent;
        void *all[8];
    } value;
} cli_cu_attribute;
enum { CLI_CU_LAUNCH_CLUSTER = 4, CLI_CU_LAUNCH_POLICY = 5, CLI_CU_LAUNCH_DEPENDENT = 6 };

/* CUlaunchConfig. */
typedef struct cli_cu_config {
    uint32_t grid[3], block[3], shared_bytes;
    struct CUstream_st *stream;
    cli_cu_attribute *attributes;
    uint32_t attribute_count;
} cli_cu_config;

/* CUDA_KERNEL_NODE_PARAMS. */
typedef struct cli_cu_kernel_node {
    struct CUfunc_st *function; /* NULL: `kernel` is what is launched, as if it were one */
    uint32_t grid[3], block[3], shared_bytes;
    void **arguments, **extra; /* the node's */
    void *kernel, *context;
} cli_cu_kernel_node;

/* CUgraphEdgeData. */
typedef struct cli_cu_edge {
    uint8_t from_port, to_port, type, reserved[5];
} cli_cu_edge;
enum { CLI_CU_EDGE_DEPENDENT = 1 }; /* the type of an edge to a kernel that waits by itself */

#endif
