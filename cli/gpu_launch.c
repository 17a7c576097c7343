/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_launch.c - reading launches from a captured call, and repeating them. */
#include "cli/gpu_launch.h"

enum { MOST_LAUNCHES = 8, THREAD_LOCAL = 1 };

typedef struct launch {
    cli_cu_config config;
    cli_cu_attribute attributes[3];
    struct CUfunc_st *function;
    void **arguments; /* the graph's */
} launch;

/* Of a call, the last one first. */
typedef struct launches {
    cli_gpu *gpu;
    struct CUgraph_st *graph;
    launch all[MOST_LAUNCHES];
    int count; /* 0: not known */
} launches;

/* What was captured last; NULL if that is not one node. */
static fp8_status find_last(cli_gpu *gpu, struct CUgraphNode_st **out, fp8_error *err)
{
    struct CUgraph_st *graph;
    struct CUgraphNode_st *const *after;
    unsigned int status;
    uint64_t id;
    size_t count;
    CLI_GPU_TRY(gpu, err, cuStreamGetCaptureInfo, gpu->stream, &status, &id, &graph, &after,
                &count);
    *out = count == 1 ? after[0] : NULL;
    return FP8_OK;
}

/* Two calls: an edge leads to each launch of the second. last[]: the last node of each. */
static fp8_status capture(launches *l, cli_enqueue_fn *enqueue, void *arg,
                          struct CUgraphNode_st *last[2], fp8_error *err)
{
    cli_gpu *gpu = l->gpu;
    fp8_status status = FP8_OK;
    CLI_GPU_TRY(gpu, err, cuStreamBeginCapture, gpu->stream, THREAD_LOCAL);
    for (int i = 0; i < 2 && status == FP8_OK; i++) {
        status = enqueue(arg, 0, gpu->stream, err);
        if (status == FP8_OK)
            status = find_last(gpu, &last[i], err);
    }
    const unsigned int ended = gpu->cuStreamEndCapture(gpu->stream, &l->graph);
    return status == FP8_OK ? cli_gpu_check(ended, "cuStreamEndCapture", err) : status;
}

/* out->value = an attribute of a kernel's node; false: it is none. */
static bool read_attribute(const cli_gpu *gpu, struct CUgraphNode_st *node, uint32_t id,
                           cli_cu_attribute *out)
{
    *out = (cli_cu_attribute){.id = id};
    return gpu->cuGraphKernelNodeGetAttribute(
               node, id, (union CUlaunchAttributeValue_union *)(void *)&out->value) == 0;
}

/* false: the node is no kernel. */
static bool read_launch(const cli_gpu *gpu, struct CUgraphNode_st *node, bool dependent,
                        launch *out)
{
    cli_cu_kernel_node k = {0};
    cli_cu_attribute cluster, policy;
    if (gpu->cuGraphKernelNodeGetParams(node, (struct CUDA_KERNEL_NODE_PARAMS_v2_st *)&k) ||
        !read_attribute(gpu, node, CLI_CU_LAUNCH_CLUSTER, &cluster) ||
        !read_attribute(gpu, node, CLI_CU_LAUNCH_POLICY, &policy))
        return false;
    *out = (launch){.config = {.grid = {k.grid[0], k.grid[1], k.grid[2]},
                               .block = {k.block[0], k.block[1], k.block[2]},
                               .shared_bytes = k.shared_bytes},
                    .function = k.function ? k.function : k.kernel,
                    .arguments = k.arguments};
    if (cluster.value.cluster.x)
        out->attributes[out->config.attribute_count++] = cluster;
    if (policy.value.policy)
        out->attributes[out->config.attribute_count++] = policy;
    if (dependent)
        out->attributes[out->config.attribute_count++] =
            (cli_cu_attribute){.id = CLI_CU_LAUNCH_DEPENDENT, .value.dependent = 1};
    return k.arguments != NULL;
}

/* From the last launch of a call back to the last of the call before. */
static void read_call(launches *l, struct CUgraphNode_st *const last[2])
{
    struct CUgraphNode_st *node = last[1];
    int count = 0;
    while (node != NULL && node != last[0] && count < MOST_LAUNCHES) {
        struct CUgraphNode_st *before;
        cli_cu_edge edge;
        size_t edges = 1;
        if (l->gpu->cuGraphNodeGetDependencies(node, &before, (struct CUgraphEdgeData_st *)&edge,
                                               &edges) ||
            edges != 1 ||
            !read_launch(l->gpu, node, edge.type == CLI_CU_EDGE_DEPENDENT, &l->all[count]))
            return;
        node = before;
        count++;
    }
    l->count = node != NULL && node == last[0] ? count : 0;
}

/* As cli_enqueue_fn. */
static fp8_status repeat(void *arg, int64_t i, void *stream, fp8_error *err)
{
    launches *l = arg;
    (void)i;
    for (int n = l->count - 1; n >= 0; n--) {
        launch *one = &l->all[n];
        one->config.stream = stream;
        one->config.attributes = one->attributes;
        CLI_GPU_TRY(l->gpu, err, cuLaunchKernelEx,
                    (const struct CUlaunchConfig_st *)(void *)&one->config, one->function,
                    one->arguments, NULL);
    }
    return FP8_OK;
}

fp8_status cli_gpu_bare(cli_gpu *gpu, cli_enqueue_fn *enqueue, void *arg, double *seconds,
                        fp8_error *err)
{
    launches l = {.gpu = gpu};
    struct CUgraphNode_st *last[2] = {NULL, NULL};
    *seconds = 0;
    if (gpu->cuGraphNodeGetDependencies == NULL)
        return FP8_OK;
    fp8_status status = capture(&l, enqueue, arg, last, err);
    if (status == FP8_OK)
        read_call(&l, last);
    if (status == FP8_OK && l.count > 0)
        status = cli_gpu_host(gpu, repeat, &l, seconds, err);
    if (l.graph != NULL)
        gpu->cuGraphDestroy(l.graph);
    return status;
}
